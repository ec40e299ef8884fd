"""Markers reach every leader, although another is silent and the coordinator dies (row T2)."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.apis.handler import MetadataCache
from broker.coordinator._broker_queues import WAITING_MAX, BrokerQueues, Form
from broker.protocol import codec
from broker.replication.fetcher import Connector
from broker.transactions import TransactionState
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.metadata.records import Endpoint, PartitionChangeRecord, RegisterBrokerRecord
from tests.kit.pieces import as_bytes
from tests.unit.broker.replication.transaction_world import (
    P1,
    STATES_ID,
    TransactionWorld,
    transactions,
)
from tests.unit.broker.replication.world import CLOSING_TURNS, TOPIC_ID, config, eventually
from tests.unit.broker.server.fakes import publish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from broker.transactions import ProducerGoesOn

pytestmark = pytest.mark.req("T2")
SILENT, NOBODY = 3, -1


@asynccontextmanager
async def silent_broker(found: TransactionWorld) -> AsyncIterator[Callable[[], int]]:
    """Broker 3 accepts connections and answers nothing; yields how many bytes it was sent."""
    heard = 0
    accepted: list[asyncio.StreamWriter] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        accepted.append(writer)
        while data := await reader.read(1 << 16):
            heard += len(data)

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port)
    broker = RegisterBrokerRecord(SILENT, UUID(int=SILENT), (endpoint,), "", fenced=False)
    found.world.controller.commit(broker)
    try:
        yield lambda: heard
    finally:
        server.close()
        for writer in accepted:
            writer.transport.abort()
        for _turn in range(CLOSING_TURNS):
            await asyncio.sleep(0)


def lead(found: TransactionWorld, partition: int, leader: int) -> None:
    change = PartitionChangeRecord(TOPIC_ID, partition, leader=leader)
    found.world.controller.commit(change)


async def begin(found: TransactionWorld) -> ProducerGoesOn:
    """A transaction with records in both partitions."""
    producer = await found.begin()
    await found.produce(12, producer, 0, *(found.node.replica().partition, P1))
    return producer


async def test_a_silent_leader_does_not_hold_up_the_others() -> None:
    async with transactions() as found, silent_broker(found) as heard:
        producer = await begin(found)
        lead(found, 0, NOBODY)
        lead(found, 1, SILENT)
        await found.end(5, producer, commit=True)
        await eventually(lambda: heard() > 0)
        lead(found, 0, 1)
        await eventually(lambda: not found.is_open)
        assert found.transaction().state is TransactionState.PREPARE_COMMIT
        lead(found, 1, 1)


async def test_who_follows_a_coordinator_that_died_after_prepare_completes_it() -> None:
    async with transactions() as found, silent_broker(found) as heard:
        producer = await begin(found)
        lead(found, 1, SILENT)
        await found.end(5, producer, commit=True)
        await eventually(lambda: heard() > 0 and not found.is_open)
        await found.world.nodes[2].kill()
        found.world.controller.commit(
            PartitionChangeRecord(STATES_ID, 0, leader=1, isr=(1,)),
            PartitionChangeRecord(TOPIC_ID, 0, leader=1, isr=(1,)),
            PartitionChangeRecord(TOPIC_ID, 1, leader=1, isr=(1,)),
        )

        def state() -> TransactionState | None:
            shard = found.node.transactions.shards.shard_of("x")
            return (
                found.node.transactions.core_of("x").known["x"].state if shard.is_loaded else None
            )

        await eventually(lambda: state() is TransactionState.COMPLETE_COMMIT)
        assert found.node.replica(P1).log.producers.first_unstable_offset is None


class Closing:
    """A broker that answers Heartbeats and closes connections, as one does that were idle."""

    def __init__(self, answers: int, *, reads_on: bool) -> None:
        """So many of each connection; `reads_on`: it takes the next request before it closes."""
        self.connections = 0
        self._answers = answers
        self._reads_on = reads_on

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            await self._answer(reader, writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for left in range(self._answers, -1, -1):
            if left or self._reads_on:
                size = int.from_bytes(await reader.readexactly(4), "big")
                header, _ = codec.decode_header(await reader.readexactly(size))
            if left:
                answer = {"error_code": 0}
                pieces = codec.encode_response(12, 1, header.correlation_id, answer)
                writer.write(as_bytes(pieces))


@asynccontextmanager
async def asking(broker: Closing) -> AsyncIterator[BrokerQueues]:
    """Queues to it."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", server.sockets[0].getsockname()[1])
    record = RegisterBrokerRecord(7, UUID(int=7), (endpoint,), "", fenced=False)
    image = publish(MetadataCache(), [record])
    asked = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    form = Form(12, 1, "test", lambda _: asked, lambda answer: [answer["error_code"]])
    failures: list[BaseException] = []
    queues = BrokerQueues(form, config(1), lambda: image, failures.append, Connector(config(1)))
    try:
        yield queues
    finally:
        await queues.stop()
        server.close()
        for _turn in range(CLOSING_TURNS):
            await asyncio.sleep(0)
        assert failures == []


@pytest.mark.req("T3")
@pytest.mark.parametrize("reads_on", [False, True], ids=["known", "on its way"])
async def test_an_idle_connection_that_was_closed_is_opened_anew(reads_on: bool) -> None:
    broker = Closing(1, reads_on=reads_on)
    async with asking(broker) as queues:
        for number in range(1, 6):
            assert await queues.ask(7, number) == 0
            assert broker.connections == number
            # Until the end of the stream has come.
            await asyncio.sleep(0.01)


async def test_a_broker_that_closes_what_is_new_is_asked_once() -> None:
    broker = Closing(0, reads_on=True)
    async with asking(broker) as queues:
        for number in (1, 2):
            with pytest.raises(KafkaError) as refused:
                await queues.ask(7, number)
            assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
            assert broker.connections == number


async def test_what_waits_for_a_broker_is_bounded() -> None:
    failures: list[BaseException] = []
    form = Form(0, 9, "test", lambda _asked: {}, lambda _answer: ())
    queues = BrokerQueues(
        form, config(1), lambda: EMPTY_IMAGE, failures.append, Connector(config(1))
    )
    waiting = [queues.ask(7, number) for number in range(WAITING_MAX)]
    with pytest.raises(KafkaError) as refused:
        await queues.ask(7, "one more")
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError) as unanswered:
        await waiting[0]
    assert unanswered.value.code is ErrorCode.NETWORK_EXCEPTION, "nobody knows broker 7"
    await queues.stop()
    assert failures == []
