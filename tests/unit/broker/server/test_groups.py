"""Unmodified clients in consumer groups over loopback; the logs are in memory (rows G2, G3, G5)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from tests.unit.broker.server.fakes import FakeBroker, publish, running, topic_records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager


def quick(*topics: str) -> AbstractAsyncContextManager[FakeBroker]:
    """A broker whose groups do not wait for members that may come."""
    keys = {"group_initial_rebalance_delay_ms": "0", "group_min_session_timeout_ms": "100"}
    return running(*topics, opened=True, **keys)


def add_topic(broker: FakeBroker, name: str, partitions: int) -> None:
    publish(broker.metadata, topic_records(name, UUID(int=50 + len(name)), partitions))


async def until(
    condition: Callable[[], bool], meanwhile: Callable[[], Awaitable[None]] | None = None
) -> None:
    for _ in range(4_000):
        if condition():
            return
        await (asyncio.sleep(0.01) if meanwhile is None else meanwhile())
    raise AssertionError("it has not come to be")


async def fill(broker: FakeBroker, topic: str, count: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.address)
    await producer.start()
    for number in range(count):
        await producer.send_and_wait(topic, b"%d" % number, partition=0)
    await producer.stop()


# --- aiokafka -------------------------------------------------------------------------------------


def aio_member(broker: FakeBroker, *topics: str, **settings: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=broker.address,
        group_id="g",
        heartbeat_interval_ms=100,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )


@pytest.mark.req("G2", "G5")
async def test_three_members_share_ten_partitions() -> None:
    async with quick() as broker:
        add_topic(broker, "ten", 10)
        strategy = {"partition_assignment_strategy": (RangePartitionAssignor,)}
        members = [aio_member(broker, "ten", **strategy) for _ in range(3)]
        for one in members:
            await one.start()
        await until(lambda: sorted(len(m.assignment()) for m in members) == [3, 3, 4])
        await members.pop().stop()
        await until(lambda: sorted(len(m.assignment()) for m in members) == [5, 5])
        for one in members:
            await one.stop()


@pytest.mark.req("G3")
async def test_the_next_member_goes_on_where_the_last_one_committed() -> None:
    async with quick("t") as broker:
        await fill(broker, "t", 10)
        first = aio_member(broker, "t")
        await first.start()
        for _ in range(4):
            await asyncio.wait_for(first.getone(), 10)
        await first.commit()
        await first.stop()
        second = aio_member(broker, "t")
        await second.start()
        assert await second.committed(AioPartition("t", 0)) == 4
        assert (await asyncio.wait_for(second.getone(), 10)).value == b"4"
        await second.stop()


# --- confluent-kafka ------------------------------------------------------------------------------


def confluent_member(broker: FakeBroker, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 100,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def polling(members: Sequence[Consumer]) -> Callable[[], Awaitable[None]]:
    async def poll() -> None:
        for one in members:
            await asyncio.to_thread(one.poll, 0.02)

    return poll


def assigned(member: Consumer) -> set[tuple[str, int]]:
    return {(one.topic, one.partition) for one in member.assignment()}


@pytest.mark.req("G5")
async def test_round_robin_over_what_each_member_reads() -> None:
    async with quick() as broker:
        for number in range(3):
            add_topic(broker, "t" + str(number) * (number + 1), number + 1)
        names = ["t0", "t11", "t222"]
        # The assignor goes by the order of the member ids, which begin with the client's.
        strategy = {"partition_assignment_strategy": "roundrobin"}
        members = [confluent_member(broker, client_id=f"c{n}", **strategy) for n in range(3)]
        for number, one in enumerate(members):
            one.subscribe(names[: number + 1])
        expected = [
            {("t0", 0)},
            {("t11", 0)},
            {("t11", 1), ("t222", 0), ("t222", 1), ("t222", 2)},
        ]
        await until(lambda: [assigned(one) for one in members] == expected, polling(members))
        for one in members:
            await asyncio.to_thread(one.close)


@pytest.mark.req("G2", "G5")
async def test_a_cooperative_member_keeps_what_it_need_not_give_away() -> None:
    async with quick() as broker:
        add_topic(broker, "six", 6)
        lost: list[int] = []
        strategy = {"partition_assignment_strategy": "cooperative-sticky"}
        members = [confluent_member(broker, **strategy)]
        members[0].subscribe(
            ["six"], on_revoke=lambda _, gone: lost.extend(one.partition for one in gone)
        )
        await until(lambda: len(assigned(members[0])) == 6, polling(members))
        members.append(confluent_member(broker, **strategy))
        members[1].subscribe(["six"])
        await until(lambda: [len(assigned(one)) for one in members] == [3, 3], polling(members))
        assert sorted(lost) == sorted(partition for _, partition in assigned(members[1]))
        for one in members:
            await asyncio.to_thread(one.close)


@pytest.mark.req("G2")
async def test_a_static_member_comes_back_to_what_it_had() -> None:
    async with quick() as broker:
        add_topic(broker, "six", 6)
        members = [confluent_member(broker, group_instance_id=f"i{n}") for n in range(2)]
        for one in members:
            one.subscribe(["six"])
        await until(lambda: all(len(assigned(one)) == 3 for one in members), polling(members))
        had = assigned(members[1])
        generation = await _generation(broker)
        # A static member does not leave when it closes.
        await asyncio.to_thread(members[1].close)
        members[1] = confluent_member(broker, group_instance_id="i1")
        members[1].subscribe(["six"])
        await until(lambda: assigned(members[1]) == had, polling(members))
        assert await _generation(broker) == generation
        for one in members:
            await asyncio.to_thread(one.close)


async def _generation(broker: FakeBroker) -> int:
    core: Any = broker.groups.shard_of("g").look()
    generation: int = core._groups["g"].generation
    return generation


@pytest.mark.req("G3")
async def test_groups_are_administered() -> None:
    async with quick("t") as broker:
        await fill(broker, "t", 3)
        one = confluent_member(broker)
        one.subscribe(["t"])
        await until(lambda: len(assigned(one)) == 1, polling([one]))
        await asyncio.to_thread(one.commit, offsets=[ConfluentPartition("t", 0, 2, "x", 0)])
        admin = AdminClient({"bootstrap.servers": broker.address})

        def administer() -> None:
            listed = admin.list_consumer_groups().result()
            assert [group.group_id for group in listed.valid] == ["g"]
            described = admin.describe_consumer_groups(["g"])["g"].result()
            assert described.state.name == "STABLE"
            assert [len(m.assignment.topic_partitions) for m in described.members] == [1]
            with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
                admin.delete_consumer_groups(["g"])["g"].result()
            one.close()
            asked = ConsumerGroupTopicPartitions("g", [ConfluentPartition("t", 0)])
            found = admin.list_consumer_group_offsets([asked])["g"].result()
            assert [p.offset for p in found.topic_partitions] == [2]
            moved = ConsumerGroupTopicPartitions("g", [ConfluentPartition("t", 0, 1)])
            admin.alter_consumer_group_offsets([moved])["g"].result()
            found = admin.list_consumer_group_offsets([asked])["g"].result()
            assert [p.offset for p in found.topic_partitions] == [1]
            admin.delete_consumer_groups(["g"])["g"].result()
            assert admin.list_consumer_groups().result().valid == []

        await asyncio.to_thread(administer)


# --- kafka-python ---------------------------------------------------------------------------------


@pytest.mark.req("G2", "G3")
async def test_kafka_python_reads_in_a_group() -> None:
    async with quick("t") as broker:
        await fill(broker, "t", 5)

        def read(count: int) -> list[bytes]:
            consumer = KafkaConsumer(
                "t",
                bootstrap_servers=broker.address,
                group_id="kp",
                auto_offset_reset="earliest",
                consumer_timeout_ms=20_000,
                max_poll_records=count,
                enable_auto_commit=False,
            )
            try:
                values = [next(consumer).value for _ in range(count)]
                consumer.commit()
            finally:
                consumer.close()
            return values

        assert await asyncio.to_thread(read, 2) == [b"0", b"1"]
        assert await asyncio.to_thread(read, 3) == [b"2", b"3", b"4"]
