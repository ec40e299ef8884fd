"""Two brokers, one of which leads partitions, and the other coordinates transactions there."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.protocol.versions import ApiKey
from broker.transactions import AddPartitions, InitProducer, ProducerGoesOn, TransactionState
from broker.types import TopicPartition
from raftctl.metadata.records import PartitionRecord, TopicRecord
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import P0, Node, World, eventually
from tests.unit.broker.server.fakes import Client, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.transactions import Transaction

TRANSACTIONAL = 0x10
P1 = TopicPartition("t", 1)
STATES, OFFSETS = "__transaction_state", "__consumer_offsets"
STATES_ID, OFFSETS_ID = UUID(int=50), UUID(int=51)


def records(producer: ProducerGoesOn, sequence: int, count: int = 1) -> bytes:
    """A batch of a transaction."""
    return make_batch(
        [b"v"] * count,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        sequence=sequence,
        attributes=TRANSACTIONAL,
    )


class TransactionWorld:
    """Broker 1 leads the topic and the groups' offsets, broker 2 is every coordinator of ids."""

    def __init__(self, world: World, leader: Client, coordinator: Client) -> None:
        self.world = world
        self.leader = leader
        self.coordinator = coordinator

    @property
    def node(self) -> Node:
        """The leader."""
        return self.world.nodes[1]

    def transaction(self) -> Transaction:
        """What the id has come to."""
        return self.world.nodes[2].transactions.core_of("x").known["x"]

    async def begin(self) -> ProducerGoesOn:
        """A producer's id and epoch."""
        request = InitProducer("x", 60_000, fresh_id=9)
        found: ProducerGoesOn = await self.world.nodes[2].transactions.ask(request)
        return found

    async def add(self, producer: ProducerGoesOn, *partitions: TopicPartition) -> None:
        """As clients before version 2 do."""
        request = AddPartitions("x", *producer, frozenset(partitions))
        await self.world.nodes[2].transactions.ask(request)

    async def produce(
        self, version: int, producer: ProducerGoesOn, sequence: int, *partitions: TopicPartition
    ) -> list[int]:
        """The error of each partition."""
        batch = records(producer, sequence)
        data = [{"index": one.partition, "records": batch} for one in partitions or (P0,)]
        message = {
            "transactional_id": "x",
            "acks": -1,
            "timeout_ms": 5_000,
            "topic_data": [{"name": "t", "partition_data": data}],
        }
        answer = await self.leader.ask(ApiKey.PRODUCE, version, message)
        (topic,) = answer["responses"]
        return [one["error_code"] for one in topic["partition_responses"]]

    async def end(self, version: int, producer: ProducerGoesOn, *, commit: bool) -> dict[str, Any]:
        """The answer of EndTxn."""
        message = {"transactional_id": "x", "committed": commit, **producer._asdict()}
        return await self.coordinator.ask(ApiKey.END_TXN, version, message)

    async def ended(self) -> None:
        """Until every partition has its marker."""
        await eventually(
            lambda: (
                self.transaction().state
                in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
            )
        )

    @property
    def is_open(self) -> bool:
        """Whether readers of committed records wait for a transaction in partition 0."""
        return self.node.replica().log.producers.first_unstable_offset is not None


@asynccontextmanager
async def transactions(**keys: str) -> AsyncIterator[TransactionWorld]:
    """Starts and stops it; keys with underscores for dots."""
    async with World(2, listen=True, controller=None, **keys) as world:
        world.create_topic(partitions=2)
        for name, topic_id, leader in ((STATES, STATES_ID, 2), (OFFSETS, OFFSETS_ID, 1)):
            record = PartitionRecord(topic_id, 0, (1, 2), (1, 2), leader, 0, 0)
            world.controller.commit(TopicRecord(name, topic_id), record)
        shard = world.nodes[2].transactions.shards.shard_of("x")
        await eventually(lambda: shard.is_loaded)
        async with connected(world.nodes[1]) as one, connected(world.nodes[2]) as two:
            yield TransactionWorld(world, one, two)
