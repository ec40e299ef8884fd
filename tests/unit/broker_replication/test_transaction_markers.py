"""Markers reach every leader, although another is silent and the coordinator dies (row T2)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.coordinator.broker_queues import WAITING_MAX, BrokerQueues, Form
from broker.coordinator.transaction_state import TransactionState
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.metadata.records import Endpoint, PartitionChangeRecord, RegisterBrokerRecord
from tests.unit.broker_replication.transaction_world import (
    P1,
    STATES_ID,
    TransactionWorld,
    transactions,
)
from tests.unit.broker_replication.world import CLOSING_TURNS, TOPIC_ID, config, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from broker.coordinator.transactions import ProducerGoesOn

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
    await found.produce(12, producer, 0, *(found.node.hosted().partition, P1))
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
        assert found.node.hosted(P1).log.producers.first_unstable_offset is None


async def test_what_waits_for_a_broker_is_bounded() -> None:
    failures: list[BaseException] = []
    form = Form(0, 9, "test", lambda _asked: {}, lambda _answer: ())
    queues = BrokerQueues(form, config(1), lambda: EMPTY_IMAGE, failures.append)
    waiting = [queues.ask(7, number) for number in range(WAITING_MAX)]
    with pytest.raises(KafkaError) as refused:
        await queues.ask(7, "one more")
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError) as unanswered:
        await waiting[0]
    assert unanswered.value.code is ErrorCode.NETWORK_EXCEPTION, "nobody knows broker 7"
    await queues.stop()
    assert failures == []
