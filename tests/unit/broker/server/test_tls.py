"""Unmodified clients over TLS, with and without certificates of their own."""

from __future__ import annotations

import asyncio
import gc
import importlib
import ssl
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from broker.replication.fetcher import Connector
from broker.server._connection import Connection, Outbox
from raftctl.config.security import StoreSettings, TlsSettings
from raftctl.errors import ConfigError, KafkaError
from raftctl.metadata.records import Endpoint
from raftctl.runtime.real import RealFileSystem, RealRuntime, make_sender
from raftctl.security.tls import NodeTls, TlsConnection
from tests.kit.certificates import Authority
from tests.unit.broker.server.fakes import FakeBroker, running, running_with
from tests.unit.broker.server.sasl import KEYS as SASL_KEYS

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

pytestmark = pytest.mark.req("S2")
VALUES = [f"value {number}".encode() for number in range(20)]
LARGE = 400_000


class Stores:
    """The files of an authority, a broker, and a client with a certificate."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.trusted = self.authority.store(folder / "trusted.pem")
        self.broker = self.authority.issue("broker").store(folder / "broker.pem")
        client = self.authority.issue("alice")
        self.client = client.store(folder / "client.pem")
        self.key = folder / "client.key"
        self.key.write_text(client.key_pem())
        self.certificate = folder / "client.crt"
        self.certificate.write_text(client.pem)
        for path in folder.iterdir():
            path.chmod(0o600)

    def keys(self) -> dict[str, str]:
        """Those of a broker whose only listener speaks TLS."""
        return {
            "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
        }

    def context(self, *, identified: bool = True) -> ssl.SSLContext:
        """For clients that take one."""
        context = ssl.create_default_context(cafile=self.trusted)
        if identified:
            context.load_cert_chain(self.client)
        return context


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def serving(stores: Stores, keys: dict[str, str]) -> AbstractAsyncContextManager[FakeBroker]:
    """A broker with those stores and more keys, which leads topic t."""
    return running_with({**stores.keys(), **keys}, "t")


def principals(broker: FakeBroker) -> set[str]:
    return {str(context.connection.principal) for context in broker.contexts}


def reasons(broker: FakeBroker) -> list[str]:
    return [one["reason"] for one in broker.logged.entries if one["event"] == "connection_closed"]


@pytest.mark.parametrize("auth", ["none", "required"])
async def test_aiokafka(stores: Stores, auth: str) -> None:
    async with serving(stores, {"ssl.client.auth": auth}) as broker:
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.address,
            "security_protocol": "SSL",
            "ssl_context": stores.context(identified=auth == "required"),
        }
        producer = AIOKafkaProducer(acks="all", max_request_size=1_000_000, **settings)
        await producer.start()
        try:
            for value in [*VALUES, bytes(LARGE)]:
                await producer.send_and_wait("t", value, partition=0)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(**settings)
        await consumer.start()
        try:
            consumer.assign([TopicPartition("t", 0)])
            await consumer.seek_to_beginning(TopicPartition("t", 0))
            found = [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in VALUES]
            assert found == VALUES
            assert len((await asyncio.wait_for(consumer.getone(), 10)).value) == LARGE
        finally:
            await consumer.stop()
        named = "User:CN=alice,O=Test" if auth == "required" else "User:ANONYMOUS"
        assert principals(broker) == {named}
        assert {context.connection.security_protocol for context in broker.contexts} == {"SSL"}


async def test_confluent_kafka(stores: Stores) -> None:
    rules = "RULE:CN=(.*),O=Test/$1/"
    keys = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": rules}

    def round_trip(address: str) -> list[bytes]:
        settings = {
            "bootstrap.servers": address,
            "security.protocol": "ssl",
            "ssl.ca.location": stores.trusted,
            "ssl.certificate.location": str(stores.certificate),
            "ssl.key.location": str(stores.key),
        }
        producer = Producer({**settings, "enable.idempotence": True})
        for value in VALUES:
            producer.produce("t", value, partition=0)
        assert producer.flush(20) == 0
        consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False})
        try:
            consumer.assign([ConfluentPartition("t", 0, OFFSET_BEGINNING)])
            messages = [consumer.poll(20) for _ in VALUES]
            return [message.value() or b"" for message in messages if message is not None]
        finally:
            consumer.close()

    async with serving(stores, keys) as broker:
        assert await asyncio.to_thread(round_trip, broker.address) == VALUES
        assert principals(broker) == {"User:alice"}


@pytest.mark.req("S3")
async def test_a_login_decides_who_a_client_of_sasl_ssl_is(stores: Stores) -> None:
    keys = {
        **SASL_KEYS,
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
    }
    keys |= {"listener.name.plaintext.ssl.client.auth": "required"}
    async with serving(stores, {**keys, **own(stores.keys())}) as broker:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.address,
            security_protocol="SASL_SSL",
            ssl_context=stores.context(),
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password="alice-secret",
        )
        await producer.start()
        try:
            await producer.send_and_wait("t", b"value", partition=0)
        finally:
            await producer.stop()
        assert "User:alice" in principals(broker)
        assert "User:CN=alice,O=Test" not in principals(broker)


def own(keys: dict[str, str]) -> dict[str, str]:
    """The same keys for the listener alone: those of the node do not count beside its own."""
    return {
        f"listener.name.plaintext.{key}": value
        for key, value in keys.items()
        if key.startswith("ssl.")
    }


async def test_kafka_python(stores: Stores) -> None:
    def round_trip(address: str) -> list[bytes]:
        with warnings.catch_warnings():
            # It reads its schemas in a way that Python 3.11 deprecates.
            warnings.simplefilter("ignore")
            kafka = importlib.import_module("kafka")
            settings: dict[str, Any] = {
                "bootstrap_servers": address,
                "security_protocol": "SSL",
                "ssl_cafile": stores.trusted,
                "ssl_certfile": str(stores.certificate),
                "ssl_keyfile": str(stores.key),
            }
            producer = kafka.KafkaProducer(acks="all", **settings)
            for value in VALUES:
                producer.send("t", value, partition=0).get(timeout=20)
            producer.close()
            consumer = kafka.KafkaConsumer(consumer_timeout_ms=20_000, **settings)
            partition = kafka.TopicPartition("t", 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            found = [next(consumer).value for _ in VALUES]
            consumer.close()
            return found

    async with serving(stores, {"ssl.client.auth": "requested"}) as broker:
        assert await asyncio.to_thread(round_trip, broker.address) == VALUES
        assert principals(broker) == {"User:CN=alice,O=Test"}


async def test_a_client_without_a_certificate_starts_no_request(stores: Stores) -> None:
    async with serving(stores, {"ssl.client.auth": "required"}) as broker:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await _ask(broker.port, stores.context(identified=False))
        assert broker.contexts == []
        (reason,) = reasons(broker)
        assert "it showed no certificate" in reason


async def _ask(port: int, context: ssl.SSLContext) -> bytes:
    """The answer to ApiVersions."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"\0\0\0\x0b\0\x12\0\0\0\0\0\7\0\1x")
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)
    finally:
        writer.transport.abort()


async def test_a_client_of_tls_at_a_plain_listener_is_named_so() -> None:
    async with running("t") as broker:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _ask(broker.port, ssl.create_default_context())
        assert reasons(broker) == ["it speaks TLS, and the listener does not"]


async def test_a_lost_connection_of_tls_is_freed_without_a_collection(stores: Stores) -> None:
    """Nor do its buffers and OpenSSL's state wait for one."""
    async with serving(stores, {}) as broker:
        gc.collect()
        gc.disable()
        try:
            await _ask(broker.port, stores.context())
            await asyncio.sleep(0.05)
            kept = [one for one in gc.get_objects() if type(one) in (Connection, TlsConnection)]
        finally:
            gc.enable()
        assert kept == []


async def test_stores_that_cannot_be_used_are_an_error_at_start(stores: Stores) -> None:
    keys = {"ssl.keystore.location": "/nowhere.pem"}
    with pytest.raises(ConfigError, match=r"/nowhere.pem cannot be read .* name a readable file"):
        async with serving(stores, keys):
            pytest.fail("it started")


async def test_brokers_reach_each_other_with_their_certificates(
    stores: Stores, tmp_path: Path
) -> None:
    async with serving(stores, {"ssl.client.auth": "required"}) as broker:
        runtime = RealRuntime()
        connector = Connector(broker.config, runtime)
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", broker.port)
        connection = await connector.connect(endpoint, "test", 20_000)
        answer = await connection.call(18, 0, {}, 20_000)
        assert answer["error_code"] == 0
        assert principals(broker) == {"User:CN=broker,O=Test"}
        connection.close()
        connector.close()
        stranger = Stores(tmp_path)
        stranger.broker = stores.broker
        async with serving(stranger, {}) as other:
            connector = Connector(other.config, runtime)
            with pytest.raises(KafkaError, match="its certificate is not accepted"):
                await connector.connect(endpoint, "test", 20_000)
            connector.close()
        runtime.close()


async def test_a_part_of_a_file_is_sent_over_tls(stores: Stores, tmp_path: Path) -> None:
    """Its bytes are read and encrypted piece by piece, as the peer takes them."""
    data = bytes(range(256)) * 40_000
    path = tmp_path / "segment"
    path.write_bytes(data)
    file = RealFileSystem().open(str(path))

    class Sending(asyncio.Protocol):
        outbox: Outbox

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.outbox = Outbox(transport, make_sender)
            self.transport = transport
            self.outbox.put([b"head", file.region(0, len(data)), b"tail"])
            self.go_on()

        def go_on(self) -> None:
            self.outbox.send()
            if not self.outbox.size:
                self.transport.close()

        def pause_writing(self) -> None:
            self.outbox.is_writable = False

        def resume_writing(self) -> None:
            self.outbox.is_writable = True
            self.go_on()

        def connection_lost(self, exc: Exception | None) -> None:
            gone.set()

    gone = asyncio.Event()
    runtime = RealRuntime()
    tls = NodeTls(runtime, runtime.log)
    store = StoreSettings("PEM", location=stores.broker)
    listener = tls.listener(TlsSettings(keystore=store), "OUTSIDE")
    server = await asyncio.get_running_loop().create_server(
        lambda: listener.wrap(Sending(), lambda _: None), "127.0.0.1", 0
    )
    try:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=stores.context())
        assert await reader.read(-1) == b"head" + data + b"tail"
        writer.transport.abort()
        await asyncio.wait_for(gone.wait(), timeout=5)
        await asyncio.sleep(0)
    finally:
        server.close()
        tls.close()
        runtime.close()
