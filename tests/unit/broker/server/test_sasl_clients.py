"""Unmodified clients log in by every mechanism that they have, and learn when they may not."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from joserfc import jwk, jws

from raftctl.security import Principal
from tests.unit.broker.server.fakes import FakeBroker, running_with
from tests.unit.broker.server.sasl import KEYS, OAUTH_KEYS, add_user

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("S3")

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
VALUES = [f"value {number}".encode() for number in range(5)]
PASSWORD = "alice-secret"  # of PLAIN in KEYS as well


def add_alice(broker: FakeBroker) -> None:
    """Give alice the same password for every mechanism."""
    for mechanism in MECHANISMS[1:]:
        add_user(broker, mechanism, "alice", PASSWORD)


def users(broker: FakeBroker) -> set[Principal]:
    """Those whose requests were served after authentication."""
    return {one.connection.principal for one in broker.contexts}


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(mechanism: str) -> None:
    async with running_with(KEYS, "t") as broker:
        add_alice(broker)
        await _aiokafka_sends(broker, mechanism, PASSWORD)
        assert Principal("User", "alice") in users(broker)
        with pytest.raises(KafkaError):
            await _aiokafka_sends(broker, mechanism, "wrong")
        assert broker.replicas.appended, "of the first"


async def _aiokafka_sends(broker: FakeBroker, mechanism: str, password: str, **more: Any) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=password,
        **more,
    )
    try:
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait("t", value, partition=0)
    finally:
        await producer.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_confluent_kafka(mechanism: str) -> None:
    async with running_with(KEYS, "t") as broker:
        add_alice(broker)
        login = _librdkafka(broker, mechanism, PASSWORD)
        assert await asyncio.to_thread(_confluent_round_trip, login) == VALUES
        refused = await asyncio.to_thread(_confluent_error, _librdkafka(broker, mechanism, "wrong"))
        assert "uthentication" in refused
        assert users(broker) == {Principal("User", "alice"), Principal("User", "ANONYMOUS")}


def _librdkafka(broker: FakeBroker, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def _confluent_round_trip(login: dict[str, Any]) -> list[bytes]:
    producer = Producer(login)
    for value in VALUES:
        producer.produce("t", value, partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer({**login, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        found = []
        for _ in VALUES:
            message = consumer.poll(20)
            assert message is not None
            assert message.error() is None
            found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


def _confluent_error(login: dict[str, Any]) -> str:
    errors: list[str] = []
    producer = Producer({**login, "error_cb": lambda error: errors.append(error.str())})
    deadline = time.monotonic() + 20
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    return errors[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_kafka_python(mechanism: str) -> None:
    async with running_with(KEYS, "t") as broker:
        add_alice(broker)
        await asyncio.to_thread(_kafka_python_sends, broker.address, mechanism, PASSWORD)
        assert Principal("User", "alice") in users(broker)
        assert re.search("(?i)auth|bootstrap", await _kafka_python_error(broker, mechanism))
        reasons = {str(line["reason"]) for line in broker.events("connection_closed")}
        assert reasons == {f"{mechanism} failed: wrong password, or no such user"}


async def _kafka_python_error(broker: FakeBroker, mechanism: str) -> str:
    """Its last words about a wrong password.

    One that cannot log in leaves sockets of its own open, so it has a process of its own.
    """
    call = f"_kafka_python_sends({broker.address!r}, {mechanism!r}, 'wrong')"
    code = f"from {__name__} import _kafka_python_sends; {call}"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=pipe)
    _, said = await asyncio.wait_for(child.communicate(), timeout=60)
    assert child.returncode
    return said.decode().strip().splitlines()[-1]


def _kafka_python_sends(address: str, mechanism: str, password: str) -> None:
    with warnings.catch_warnings():
        # It reads its schemas in a way that Python 3.11 deprecates.
        warnings.simplefilter("ignore")
        kafka = importlib.import_module("kafka")
        producer = kafka.KafkaProducer(
            bootstrap_servers=address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
            bootstrap_timeout_ms=3000,
        )
        try:
            sent = [producer.send("t", value, partition=0) for value in VALUES]
            assert [one.get(timeout=10).offset for one in sent] == list(range(len(VALUES)))
        finally:
            producer.close(timeout=1)


async def test_confluent_kafka_renews_its_session() -> None:
    """librdkafka logs in again before the session expires (KIP-368)."""
    lasting = {**KEYS, "listener.name.plaintext.plain.connections.max.reauth.ms": "2500"}
    async with running_with(lasting, "t") as broker:
        sent = await asyncio.to_thread(_confluent_sends_for, _librdkafka(broker, "PLAIN", PASSWORD))
        assert sent >= 20
        closed = [str(line["reason"]) for line in broker.events("connection_closed")]
        assert not [one for one in closed if "expired" in one]


def _confluent_sends_for(login: dict[str, Any], seconds: float = 4) -> int:
    errors: list[Any] = []
    producer = Producer(login)
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        producer.produce("t", b"x", partition=0, callback=lambda error, _: errors.append(error))
        assert producer.flush(10) == 0
        count += 1
        time.sleep(0.1)
    assert errors == [None] * count
    return count


def provider(token: str) -> dict[str, Any]:
    """The argument by which aiokafka sends a token."""

    async def hand_out(_self: Any) -> str:
        return token

    made = type("Token", (AbstractTokenProvider,), {"token": hand_out})
    return {"sasl_oauth_token_provider": made()}


async def test_a_token_of_an_issuer(tmp_path: Path) -> None:
    key = jwk.ECKey.generate_key("P-256", {"kid": "one"})
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    issued = {
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
    }
    async with running_with({**OAUTH_KEYS, **issued}, "t") as broker:
        now = broker.wall_ms // 1000
        claims = {"sub": "alice", "aud": "kafka", "iss": "https://issuer", "iat": now}

        def signed(**more: Any) -> str:
            header = {"alg": "ES256", "kid": "one"}
            return jws.serialize_compact(header, json.dumps({**claims, **more}), key)

        await _aiokafka_sends(broker, "OAUTHBEARER", "", **provider(signed(exp=now + 60)))
        assert Principal("User", "alice") in users(broker)
        lasting = broker.contexts[-1].connection.session_expires_at
        assert lasting is not None
        assert lasting - asyncio.get_running_loop().time() == pytest.approx(60, abs=5)
        login = {"bootstrap.servers": broker.address, "security.protocol": "SASL_PLAINTEXT"}
        login |= {"sasl.mechanisms": "OAUTHBEARER"}
        token, until = signed(exp=now + 60), time.time() + 60
        by_callback = {**login, "oauth_cb": lambda _config: (token, until)}
        assert len(await asyncio.to_thread(_confluent_round_trip, by_callback)) == len(VALUES)
        for bad in (signed(exp=now - 60), signed(exp=now + 60, aud="other")):
            with pytest.raises(KafkaError):
                await _aiokafka_sends(broker, "OAUTHBEARER", "", **provider(bad))
        shown = json.dumps(broker.logged.entries, default=str)
        assert "expired" in shown
        assert bad not in shown
