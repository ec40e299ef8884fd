"""Connections and logins are counted by listener, as dashboards of Apache Kafka ask for them."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from raftctl.metrics import Metrics
from tests.kit.certificates import Authority
from tests.unit.broker.server.fakes import connected, running, running_with
from tests.unit.broker.server.sasl import KEYS, authenticate, handshake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.req("O1", "N4")
VERSIONS = 18
PREFIX = "kafka_server_socket_server_metrics"
WAIT_S = 5


def scraped(metrics: Metrics, name: str) -> dict[str, object]:
    """The values of a metric by listener."""
    return {
        sample.labels[0]: sample.value
        for family in metrics.families()
        if family.metric.name == f"{PREFIX}_{name}"
        for sample in family.samples
    }


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        for _ in iter(is_so, True):
            await asyncio.sleep(0.01)


async def test_connections_are_counted_as_they_come_and_go() -> None:
    metrics = Metrics()
    async with running() as broker:
        (listener,) = broker.limits.counts
        broker.limits.counts.serve(metrics)
        assert scraped(metrics, "connection_count") == {listener: 0}
        async with connected(broker) as one, connected(broker) as two:
            for client in (one, two):
                await client.ask(VERSIONS, 0, {})
            assert scraped(metrics, "connection_count") == {listener: 2}
            metrics.tick()
            assert scraped(metrics, "connection_creation_rate") == {listener: 2 / 5}
        await until(lambda: broker.limits.counts[listener].open == 0)
        assert scraped(metrics, "connection_creation_total") == {listener: 2}
        assert scraped(metrics, "connection_close_total") == {listener: 2}
        assert scraped(metrics, "successful_authentication_total") == {listener: 0}


async def test_logins_are_counted_by_how_they_end() -> None:
    metrics = Metrics()
    async with running_with(KEYS) as broker:
        (listener,) = broker.limits.counts
        broker.limits.counts.serve(metrics)
        for secret in ("alice-secret", "wrong", "wrong"):
            async with connected(broker) as client:
                await handshake(client, "PLAIN")
                await authenticate(client, f"\0alice\0{secret}".encode())
        assert scraped(metrics, "successful_authentication_total") == {listener: 1}
        assert scraped(metrics, "failed_authentication_total") == {listener: 2}


async def test_a_handshake_of_tls_is_a_login(tmp_path: Path) -> None:
    authority = Authority()
    keys = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("node").store(tmp_path / "node.pem"),
    }
    (tmp_path / "node.pem").chmod(0o600)
    trusting = ssl.create_default_context(cadata=authority.pem)
    trusting.check_hostname = False
    async with running_with(keys) as broker:
        (counts,) = broker.limits.counts.values()
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=trusting)
        await until(lambda: counts.authenticated.count == 1)
        assert counts.refused.count == 0
        writer.transport.abort()
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection(
                "127.0.0.1", broker.port, ssl=ssl.create_default_context()
            )
        await until(lambda: counts.open == 0)
        assert (counts.authenticated.count, counts.refused.count) == (1, 1)
