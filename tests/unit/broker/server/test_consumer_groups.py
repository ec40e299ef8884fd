"""Unmodified clients in groups of the consumer protocol over loopback (row G4)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.unit.broker.server.fakes import FakeBroker, publish, running, topic_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

pytestmark = pytest.mark.req("G4", "N1")


def quick() -> AbstractAsyncContextManager[FakeBroker]:
    """A broker whose members report ten times a second; none are waited for that may come."""
    keys = {"group_consumer_min_heartbeat_interval_ms", "group_consumer_heartbeat_interval_ms"}
    sessions = {"group_consumer_min_session_timeout_ms", "group_consumer_session_timeout_ms"}
    return running(
        opened=True,
        group_initial_rebalance_delay_ms="0",
        **dict.fromkeys(sorted(keys), "100"),
        **dict.fromkeys(sorted(sessions), "2000"),
    )


def add_topic(broker: FakeBroker, name: str, partitions: int) -> None:
    publish(broker.metadata, topic_records(name, UUID(int=50 + sum(name.encode())), partitions))


def member(broker: FakeBroker, *topics: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    consumer.subscribe(list(topics))
    return consumer


def has(consumer: Consumer) -> set[tuple[str, int]]:
    return {(one.topic, one.partition) for one in consumer.assignment()}


async def until(condition: Callable[[], bool], members: Sequence[Consumer]) -> None:
    for _ in range(10_000):
        if condition():
            return
        for one in members:
            await asyncio.to_thread(one.poll, 0.01)
    raise AssertionError(f"it has not come to be: {[sorted(has(one)) for one in members]}")


async def close(*members: Consumer) -> None:
    for one in members:
        await asyncio.to_thread(one.close)


async def test_members_come_and_leave() -> None:
    async with quick() as broker:
        add_topic(broker, "ten", 10)
        members = [member(broker, "ten") for _ in range(3)]
        await until(lambda: sorted(len(has(one)) for one in members) == [3, 3, 4], members)
        assert len(set.union(*map(has, members))) == 10
        await close(members.pop())
        await until(lambda: sorted(len(has(one)) for one in members) == [5, 5], members)
        admin = AdminClient({"bootstrap.servers": broker.address})
        described = admin.describe_consumer_groups(["g"])["g"]
        group = await asyncio.to_thread(described.result, 10)
        assert (group.state.name, group.type.name) == ("STABLE", "CONSUMER")
        assert sorted(len(one.assignment.topic_partitions) for one in group.members) == [5, 5]
        listed = await asyncio.to_thread(admin.list_consumer_groups().result, 10)
        assert [(one.group_id, one.type.name) for one in listed.valid] == [("g", "CONSUMER")]
        await close(*members)


@contextlib.asynccontextmanager
async def process(broker: FakeBroker, topic: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A member in a process of its own that has committed offset 3 of what it got."""
    script = f"""
import confluent_kafka
settings = {{"group.id": "g", "group.protocol": "consumer"}}
consumer = confluent_kafka.Consumer({{"bootstrap.servers": "{broker.address}", **settings}})
consumer.subscribe(["{topic}"])
while not consumer.assignment():
    consumer.poll(0.01)
offsets = [confluent_kafka.TopicPartition(one.topic, one.partition, 3)
           for one in consumer.assignment()]
consumer.commit(offsets=offsets, asynchronous=False)
print("committed", flush=True)
while True:
    consumer.poll(0.1)
"""
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert made.stdout is not None
        assert await made.stdout.readline() == b"committed\n"
        yield made
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()


async def test_the_partitions_of_a_member_that_dies_go_to_others() -> None:
    async with quick() as broker:
        add_topic(broker, "two", 2)
        admin = AdminClient({"bootstrap.servers": broker.address})

        async def committed() -> dict[int, int]:
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"]
            found = await asyncio.to_thread(asked.result, 10)
            return {one.partition: one.offset for one in found.topic_partitions}

        async with process(broker, "two") as dying:
            consumer = member(broker, "two")
            await until(lambda: len(has(consumer)) == 1, [consumer])
            dying.kill()
            await until(lambda: len(has(consumer)) == 2, [consumer])
        assert await committed() == {0: 3, 1: 3}
        await close(consumer)


async def test_a_regular_expression_finds_topics() -> None:
    async with quick() as broker:
        add_topic(broker, "log-a", 1)
        add_topic(broker, "other", 1)
        consumer = member(broker, "^log-.*")
        await until(lambda: has(consumer) == {("log-a", 0)}, [consumer])
        await close(consumer)


async def test_members_may_ask_for_runs_of_partitions() -> None:
    async with quick() as broker:
        add_topic(broker, "four", 4)
        members = [member(broker, "four", group_remote_assignor="range") for _ in range(2)]
        runs = [{("four", 0), ("four", 1)}, {("four", 2), ("four", 3)}]
        await until(lambda: sorted(map(has, members), key=sorted) == runs, members)
        await close(*members)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_members_are_restarted_one_by_one_with_the_other_protocol(assignor: str) -> None:
    """And back: there is no moment in which a partition has two owners."""
    classic = {
        "group_protocol": "classic",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 100,
        "partition_assignment_strategy": assignor,
    }
    async with quick() as broker:
        add_topic(broker, "six", 6)

        async def shared(members: Sequence[Consumer]) -> None:
            sizes = [6 // len(members)] * len(members)
            await until(lambda: [len(has(one)) for one in members] == sizes, members)
            assert len(set.union(*map(has, members))) == 6

        members = [member(broker, "six", **classic) for _ in range(2)]
        await shared(members)
        for settings in ({}, classic, classic):
            members.append(member(broker, "six", **settings))
            await shared(members)
            await close(members.pop(0))
            await shared(members)
        await close(*members)
