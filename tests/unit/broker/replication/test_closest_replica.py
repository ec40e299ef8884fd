"""Consumers that read from a follower in their rack (KIP-392), one of them librdkafka's."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from broker.replication.reads import Reads
from broker.replication.reads._reads import ReplicaView, closest
from broker.types import CONSUMER, FetchParams, FetchResult
from raftctl.config.keys import RACK_AWARE_SELECTOR
from raftctl.errors import ConfigError, ErrorCode
from raftctl.metadata.records import PartitionChangeRecord
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import (
    TOPIC_ID,
    World,
    config,
    eventually,
    fetch_now,
    params,
    wanted,
)

pytestmark = pytest.mark.req("R7")
BATCH = make_batch([b"v"])


def racked(**keys: str) -> World:
    selector = RACK_AWARE_SELECTOR
    return World(
        3, listen=True, racks="abc", controller=None, replica_selector_class=selector, **keys
    )


def from_rack(rack: str, *, wait_ms: int = 0) -> FetchParams:
    return params(wait_ms=wait_ms)._replace(client_rack=rack, leader_only=False)


def test_the_leader_in_the_rack_then_who_has_most_then_who_was_caught_up_last() -> None:
    leader = ReplicaView(1, "a", 10, 0)
    two, three = ReplicaView(2, "b", 9, 5), ReplicaView(3, "b", 9, 5)
    assert closest("a", leader, [two, three]) == 1
    assert closest("", leader, [two, three]) == 1
    assert closest("c", leader, [two, three]) == 1
    assert closest("b", leader, [three, two]) == 2
    assert closest("b", leader, [two, three._replace(caught_up_ms=6)]) == 3
    assert closest("b", leader, [two._replace(log_end_offset=10), three]) == 2
    assert closest("b", leader._replace(rack="b"), [two]) == 1


def test_the_selector_is_one_of_two() -> None:
    with pytest.raises(ConfigError, match=r"replica.selector.class.*RackAwareReplicaSelector"):
        config(1, replica_selector_class="org.example.Mine")


async def test_a_leader_sends_a_consumer_to_its_rack_and_nobody_else() -> None:
    async with racked() as world:
        world.create_topic()
        leader = world.nodes[1]
        leader.append(BATCH)
        await eventually(lambda: leader.replica().state.high_watermark == 1)
        sent = fetch_now(leader, wanted(0), from_rack("b", wait_ms=60_000))
        assert sent == FetchResult(ErrorCode.NONE, 1, 1, 0, preferred_read_replica=2)
        for how in (from_rack("a"), from_rack("z"), from_rack(""), params()):
            assert fetch_now(leader, wanted(0), how).size == len(BATCH)
        assert fetch_now(leader, wanted(0, epoch=7), from_rack("b")).preferred_read_replica == -1


async def test_only_replicas_in_sync_that_have_the_offset_are_named() -> None:
    async with racked() as world:
        world.create_topic()
        leader = world.nodes[1]
        leader.append(BATCH)
        await eventually(lambda: leader.replica().state.high_watermark == 1)
        assert fetch_now(leader, wanted(1), from_rack("b")).preferred_read_replica == 2
        leader.replica().state.followers[2].log_start_offset = 1
        assert fetch_now(leader, wanted(0), from_rack("b")).preferred_read_replica == -1
        world.fence(3)
        assert fetch_now(leader, wanted(0), from_rack("c")).size == len(BATCH)
        await world.nodes[2].kill()
        leader.append(BATCH)
        assert fetch_now(leader, wanted(2), from_rack("b")).preferred_read_replica == -1
        world.set_isr(1)
        assert fetch_now(leader, wanted(1), from_rack("b")).preferred_read_replica == -1


async def test_a_follower_serves_to_its_high_watermark_and_tells_what_it_cannot_know() -> None:
    async with racked() as world:
        world.create_topic()
        leader, follower = world.nodes[1], world.nodes[2]
        for _ in range(3):
            leader.append(BATCH)
        await eventually(lambda: follower.replica().state.high_watermark == 3)
        assert fetch_now(follower, wanted(0, epoch=0), from_rack("b")).size == 3 * len(BATCH)
        assert not fetch_now(follower, wanted(3), from_rack("b")).records
        beyond = fetch_now(follower, wanted(4), from_rack("b"))
        assert beyond.error is ErrorCode.OFFSET_NOT_AVAILABLE
        for node in (leader, follower):
            node.replica().log.advance_log_start(1)
        below = fetch_now(follower, wanted(0), from_rack("b"))
        assert below.error is ErrorCode.OFFSET_OUT_OF_RANGE
        stale = fetch_now(follower, wanted(0, epoch=1), from_rack("b"))
        assert stale.error is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert fetch_now(follower, wanted(3)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.elect(3)
        fenced = fetch_now(follower, wanted(3, epoch=0), from_rack("b"))
        assert fenced.error is ErrorCode.FENCED_LEADER_EPOCH


async def test_records_that_are_not_committed_are_not_served_by_a_follower() -> None:
    async with racked(min_insync_replicas="2") as world:
        world.create_topic()
        leader, follower = world.nodes[1], world.nodes[2]
        world.set_isr(1)
        leader.append(BATCH)
        world.nodes[2].replicas.fetchers.follow(follower.replica(), 1)
        world.controller.refuse = [ErrorCode.REQUEST_TIMED_OUT] * 1_000
        await eventually(lambda: follower.replica().log.log_end_offset == 1)
        found = fetch_now(follower, wanted(0), from_rack("b"))
        assert (found.error, list(found.records), found.high_watermark) == (ErrorCode.NONE, [], 0)
        world.controller.refuse.clear()


async def test_a_consumer_that_waits_at_a_follower_hears_of_commits_at_once() -> None:
    async with racked(replica_fetch_wait_max_ms="20000") as world:
        world.create_topic()
        leader, follower = world.nodes[1], world.nodes[2]
        for offset in range(3):
            waits = follower.replicas.fetch(from_rack("b", wait_ms=60_000), [wanted(offset)])
            assert isinstance(waits, asyncio.Future)
            leader.append(BATCH)
            async with asyncio.timeout(10):
                assert (await waits)[0].size == len(BATCH)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Bytes read for consumers, by broker."""
    found: Counter[int] = Counter()
    read = Reads._read

    def spy(reads: Reads, how: FetchParams, what: Any) -> list[FetchResult]:
        results = read(reads, how, what)
        if how.replica_id == CONSUMER:
            found[reads._broker_id] += sum(result.size for result in results)
        return results

    monkeypatch.setattr(Reads, "_read", spy)
    return found


async def test_librdkafka_reads_from_the_follower_in_its_rack_and_survives_its_loss(
    served: Counter[int],
) -> None:
    async with racked(replica_lag_time_max_ms="500") as world:
        world.create_topic()
        leader = world.nodes[1]
        for number in range(10):
            leader.append(make_batch([b"%d" % number]))
        await eventually(lambda: leader.replica().state.high_watermark == 10)
        settings: dict[str, Any] = {
            "bootstrap.servers": f"127.0.0.1:{leader.port}",
            "client.rack": "b",
            "group.id": "unused",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        }
        consumer = Consumer(settings)
        try:
            consumer.assign([ConfluentPartition("t", 0, OFFSET_BEGINNING)])
            assert await polled(consumer, 10) == [b"%d" % number for number in range(10)]
            assert list(+served) == [2]
            await world.nodes[2].kill()
            world.controller.commit(PartitionChangeRecord(TOPIC_ID, 0, leader=1, isr=(1, 3)))
            world.fence(2)
            for number in range(10, 20):
                leader.append(make_batch([b"%d" % number]))
            assert await polled(consumer, 10) == [b"%d" % number for number in range(10, 20)]
            assert served[1] > 0
        finally:
            await asyncio.to_thread(consumer.close)


async def polled(consumer: Consumer, count: int) -> list[bytes | None]:
    """The next records' values."""
    values: list[bytes | None] = []
    async with asyncio.timeout(60):
        while len(values) < count:
            message = await asyncio.to_thread(consumer.poll, 0.2)
            if message is not None and message.error() is None:
                values.append(message.value())
    return values
