"""Configs of listeners that change while the broker runs: stores and limits (KIP-226)."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import BROKER_RESOURCE, ConfigRecord
from tests.kit.certificates import Authority
from tests.unit.broker.server.fakes import FakeBroker, connected, publish, running_with

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = 18
LOCATION = "listener.name.plaintext.ssl.keystore.location"
MAX = "listener.name.plaintext.max.connections"
TLS = {
    "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
    "listener.name.plaintext.ssl.keystore.type": "PEM",
}

pytestmark = pytest.mark.req("S2", "C9")


def keys(tmp_path: Path) -> dict[str, str]:
    """Of a broker with a certificate of its own."""
    return {**TLS, LOCATION: Authority().issue("old").store(tmp_path / "old.pem")}


def change(broker: FakeBroker, key: str, value: str | None, name: str = "1") -> None:
    """Set a config of the broker, or of all."""
    publish(broker.metadata, [ConfigRecord(BROKER_RESOURCE, name, key, value)])


async def served(broker: FakeBroker) -> str:
    """The name in the certificate that the broker shows."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    subject = x509.load_der_x509_certificate(found).subject
    return str(subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


async def reaches(broker: FakeBroker, name: str) -> None:
    """Wait until the broker shows a certificate of this name."""
    for _ in range(1_000):
        if await served(broker) == name:
            return
    raise AssertionError(f"it does not show {name}")


async def refusal(broker: FakeBroker, proposed: dict[str, str]) -> ErrorCode:
    """Why the broker may not have these configs."""
    configs = broker.context.listener_configs
    assert configs is not None
    try:
        await configs.check(proposed, one_broker=True)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def test_another_store_is_in_force_for_new_connections(tmp_path: Path) -> None:
    newer = Authority().issue("newer").store(tmp_path / "newer.pem")
    async with running_with(keys(tmp_path)) as broker:
        assert await served(broker) == "old"
        change(broker, LOCATION, newer)
        await reaches(broker, "newer")
        change(broker, LOCATION, None)
        await reaches(broker, "old")
        applied = broker.events("listener_configs_applied")
        assert [event["keys"] for event in applied] == [[LOCATION], []]
        assert str(newer) not in str(broker.logged.entries)


async def test_a_store_that_cannot_be_used_is_refused_and_never_in_force(tmp_path: Path) -> None:
    async with running_with(keys(tmp_path)) as broker:
        for wrong in (
            {LOCATION: str(tmp_path / "nothing.pem")},
            {"listener.name.plaintext.ssl.keystore.type": "JKS"},
            {"listener.name.other.ssl.keystore.location": "/x"},
            {MAX: "-1"},
        ):
            assert await refusal(broker, wrong) == ErrorCode.INVALID_REQUEST, wrong
        change(broker, "listener.name.plaintext.ssl.keystore.type", "AES")
        (event,) = broker.events("listener_configs_not_applied")
        assert "ssl.keystore.type" in event["reason"]
        assert await served(broker) == "old"


async def test_what_all_brokers_have_may_be_of_listeners_that_this_one_lacks(
    tmp_path: Path,
) -> None:
    async with running_with(keys(tmp_path)) as broker:
        configs = broker.context.listener_configs
        assert configs is not None
        key = "listener.name.other.max.connections"
        await configs.check({key: "5"}, one_broker=False)
        change(broker, key, "5", name="")
        assert broker.events("listener_configs_not_applied") == []
        # It is not in the way of what this broker is given alone.
        assert await refusal(broker, {MAX: "5"}) == ErrorCode.NONE


@pytest.mark.parametrize("listener", ["http", "controller"])
async def test_only_listeners_of_the_broker_itself_take_up_configs(
    tmp_path: Path, listener: str
) -> None:
    protocols = {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL,HTTP:SSL"}
    location = "listener.name.http.ssl.keystore.location"
    http = {"http.listener": "HTTP://:0", location: keys(tmp_path)[LOCATION]}
    async with running_with({**keys(tmp_path), **http, **protocols}) as broker:
        key = f"listener.name.{listener}.ssl.keystore.location"
        configs = broker.context.listener_configs
        assert configs is not None
        with pytest.raises(KafkaError, match="only listeners of the broker itself"):
            await configs.check({key: broker.config.written[LOCATION]}, one_broker=True)
        change(broker, key, "/x")
        assert not broker.events("listener_configs_applied")
        assert not broker.events("listener_configs_not_applied")


@pytest.mark.parametrize(
    ("name", "hosts", "is_refused"),
    [
        ("old", ("localhost", "127.0.0.1", "more"), False),
        ("other", ("localhost", "127.0.0.1"), True),
        ("old", ("localhost",), True),
    ],
)
async def test_another_certificate_has_the_names_of_the_one_before_it(
    tmp_path: Path, name: str, hosts: tuple[str, ...], *, is_refused: bool
) -> None:
    newer = Authority().issue(name, hosts=hosts).store(tmp_path / "newer.pem")
    async with running_with(keys(tmp_path)) as broker:
        expected = ErrorCode.INVALID_REQUEST if is_refused else ErrorCode.NONE
        assert await refusal(broker, {LOCATION: newer}) == expected


@pytest.mark.req("S5")
@pytest.mark.parametrize("key", ["max.connections", MAX])
async def test_limits_change_while_connections_wait(key: str) -> None:
    async with running_with({key: "1"}) as broker, connected(broker) as client:
        await client.ask(VERSIONS, 0, {})
        async with connected(broker) as next_one:
            waiting = asyncio.ensure_future(next_one.ask(VERSIONS, 0, {}))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            change(broker, key, "2")
            await asyncio.wait_for(waiting, 5)
        # What is set for one broker wins over what is set for all.
        change(broker, key, "1", name="")
        async with connected(broker) as another:
            await another.ask(VERSIONS, 0, {})


@pytest.mark.req("S5")
async def test_a_rate_changes_for_the_connections_that_follow() -> None:
    key = "max.connection.creation.rate"
    async with running_with({key: "1"}) as broker:
        change(broker, key, "1000")
        began = asyncio.get_running_loop().time()
        for _ in range(30):
            async with connected(broker) as client:
                await client.ask(VERSIONS, 0, {})
        assert asyncio.get_running_loop().time() - began < 5
