"""How many connections there may be, and how fast they may be made (KIP-402, KIP-612)."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from broker.server import _connection_limits as limits_module
from tests.kit.certificates import Authority
from tests.unit.broker.server.fakes import connected, running, running_with

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.broker.server.fakes import Client, FakeBroker

pytestmark = pytest.mark.req("N2", "S5")
VERSIONS = 18
TWO: dict[str, Any] = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener_security_protocol_map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter_broker_listener_name": "BROKERS",
}


def now() -> float:
    return asyncio.get_running_loop().time()


async def answered(client: Client) -> float:
    """Ask, and return when the answer came."""
    await client.ask(VERSIONS, 0, {})
    return now()


def reasons(broker: FakeBroker) -> list[str]:
    return [event["reason"] for event in broker.events("connection_closed")]


async def test_connections_of_an_address_are_bounded() -> None:
    async with running(max_connections_per_ip="2") as broker:
        async with connected(broker) as one, connected(broker) as two:
            for client in (one, two):
                await answered(client)
            async with connected(broker) as refused:
                assert await refused.ended()
        assert reasons(broker) == ["max.connections.per.ip is reached"]
        await asyncio.sleep(0.05)
        async with connected(broker) as again:
            await answered(again)


async def test_an_address_may_have_a_bound_of_its_own() -> None:
    keys: dict[str, Any] = {
        "max_connections_per_ip": "0",
        "max_connections_per_ip_overrides": "127.0.0.1:1",
    }
    async with running(**keys) as broker, connected(broker) as client:
        await answered(client)
        async with connected(broker) as refused:
            assert await refused.ended()


async def test_a_listener_may_have_a_bound_of_its_own() -> None:
    """As with Apache Kafka, who comes when it is reached waits until another has gone."""
    keys: dict[str, Any] = {"listener.name.clients.max.connections": "1"}
    async with running(**TWO, **keys) as broker, AsyncExitStack() as stack:
        async with connected(broker) as client:
            await answered(client)
            next_one = await stack.enter_async_context(connected(broker))
            waiting = asyncio.ensure_future(answered(next_one))
            async with connected(broker, broker.other_ports[0]) as another_broker:
                await answered(another_broker)
            assert not waiting.done()
        await asyncio.wait_for(waiting, 5)
        assert reasons(broker) == []


async def test_who_waits_for_a_broker_that_is_full_comes_in_the_order_of_arrival() -> None:
    async with running(max_connections="1") as broker, AsyncExitStack() as stack:
        order: list[int] = []

        async def come_in(client: Client, number: int) -> None:
            await answered(client)
            order.append(number)

        clients = [await stack.enter_async_context(connected(broker)) for _ in range(3)]
        coming = [asyncio.ensure_future(come_in(one, n)) for n, one in enumerate(clients)]
        for count, client in enumerate(clients, start=1):
            await coming[count - 1]
            assert order == list(range(count))
            client.writer.close()


async def test_a_broker_comes_in_by_its_own_listener_where_all_is_full() -> None:
    async with running(**TWO, max_connections="1") as broker, connected(broker) as client:
        await answered(client)
        async with connected(broker, broker.other_ports[0]) as another_broker:
            await answered(another_broker)
            assert await client.ended()
        assert reasons(broker) == ["max.connections is reached, and another broker connects"]


async def test_listeners_of_clients_share_the_bound_of_the_broker() -> None:
    keys: dict[str, Any] = {
        "listeners": "ONE://127.0.0.1:0,OTHER://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener_security_protocol_map": "ONE:PLAINTEXT,OTHER:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter_broker_listener_name": "BROKERS",
        "max_connections": "1",
    }
    async with running(**keys) as broker, connected(broker) as client:
        await answered(client)
        async with connected(broker, broker.other_ports[0]) as next_one:
            waiting = asyncio.ensure_future(answered(next_one))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            client.writer.close()
            await asyncio.wait_for(waiting, 5)


async def test_connections_of_tls_are_counted_before_their_handshake(tmp_path: Path) -> None:
    """One that never shakes hands takes a slot, and one that waits for a slot no handshake."""
    keys = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": Authority().issue().store(tmp_path / "node.pem"),
        "max.connections": "1",
    }
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with running_with(keys) as broker:
        async with connected(broker):
            await asyncio.sleep(0.05)
            shaking = asyncio.ensure_future(
                asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
            )
            await asyncio.sleep(0.1)
            assert not shaking.done()
        _, writer = await asyncio.wait_for(shaking, 5)
        writer.close()
        assert broker.failures == []


async def test_connections_that_come_too_fast_wait_their_turn() -> None:
    async with running(max_connection_creation_rate="2") as broker, AsyncExitStack() as stack:
        began = now()
        clients = [await stack.enter_async_context(connected(broker)) for _ in range(23)]
        for client in clients:
            client.send(VERSIONS, 0, {})
        times = []
        for client in clients:
            await client.receive(VERSIONS, 0)
            times.append(now() - began)
        assert times[19] < 0.4
        assert 0.45 < times[20] < 0.9
        assert times[20] + 0.4 < times[21] < times[22]
        assert reasons(broker) == []


async def test_brokers_do_not_wait_behind_clients() -> None:
    keys = {**TWO, "max_connection_creation_rate": "1"}
    async with running(**keys) as broker, AsyncExitStack() as stack:
        for _ in range(15):
            await stack.enter_async_context(connected(broker))
        began = now()
        async with connected(broker, broker.other_ports[0]) as another_broker:
            assert await answered(another_broker) - began < 0.3


async def test_a_connection_that_goes_while_it_waits_is_forgotten() -> None:
    async with running(max_connection_creation_rate="1") as broker, AsyncExitStack() as stack:
        for _ in range(10):
            await answered(await stack.enter_async_context(connected(broker)))
        async with connected(broker):
            await asyncio.sleep(0.05)
        async with connected(broker) as next_one:
            await answered(next_one)
        assert broker.failures == []


async def test_those_that_wait_are_bounded_and_end_with_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits_module, "WAITING_MAX", 3)
    async with running(max_connection_creation_rate="1") as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(broker)) for _ in range(14)]
        assert await clients[13].ended()
        assert reasons(broker) == ["too many connections wait to be let in"]
        broker.limits.close_all()
        for client in clients[10:13]:
            assert await client.ended()
