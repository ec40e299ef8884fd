"""Metrics of replicas: each changes when its fact does, and series are bounded (rows N4, O1)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker.metrics import OTHERS
from broker.replication import ReplicaMetrics
from broker.replication import _replica_metrics as names
from broker.replication.partition import Condition
from broker.types import TopicPartition
from raftctl.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from raftctl.metrics import Metrics
from raftctl.runtime import Slices
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import (
    P0,
    TOPIC_ID,
    Node,
    World,
    eventually,
    params,
    wanted,
)

if TYPE_CHECKING:
    from raftctl.metrics import Metric

pytestmark = pytest.mark.req("O1")

BATCH = make_batch([b"v", b"w"])
Labels = tuple[str, ...]
REST = (OTHERS, OTHERS)


class Scraped:
    """The metrics of one broker."""

    def __init__(self, node: Node, setting: str = "problem", series_max: int = 1_500) -> None:
        self.metrics = Metrics(series_max)
        self._of = ReplicaMetrics(node.replicas, setting, self.metrics)

    async def scrape(self) -> dict[tuple[str, Labels], float]:
        """(Metric, labels) to value."""
        await self._of.prepare(Slices())
        await self._of._replicas.topics.prepare(Slices())
        return {
            (family.metric.name, sample.labels): float(str(sample.value))
            for family in self.metrics.families()
            for sample in family.samples
        }

    async def value(self, metric: Metric, *labels: str) -> float:
        """One series."""
        return (await self.scrape())[metric.name, labels]

    async def partitions(self, metric: Metric) -> dict[Labels, float]:
        """The series of a metric."""
        found = await self.scrape()
        return {labels: value for (name, labels), value in found.items() if name == metric.name}


@pytest.mark.req("N4")
async def test_a_leader_counts_what_its_isr_lacks() -> None:
    async with World(3, min_insync_replicas="2") as world:
        scraped = Scraped(world.nodes[1])
        assert await scraped.value(names.PARTITIONS) == 0
        world.create_topic(partitions=2)
        expected = {
            Condition.LEADS: 2,
            Condition.UNDER_REPLICATED: 0,
            Condition.AT_MIN_ISR: 0,
            Condition.UNDER_MIN_ISR: 0,
            Condition.REASSIGNING: 0,
        }

        async def check(**changed: int) -> None:
            expected.update({Condition[name]: value for name, value in changed.items()})
            for condition, value in expected.items():
                assert await scraped.value(names.CONDITIONS[condition]) == value, condition

        await check()
        world.set_isr(1, 2)
        await check(UNDER_REPLICATED=1, AT_MIN_ISR=1)
        assert await scraped.partitions(names.IN_SYNC) == {("t", "0"): 2, ("t", "1"): 3}
        assert await scraped.partitions(names.UNDER_REPLICATED) == {("t", "0"): 1, ("t", "1"): 0}
        world.set_isr(1)
        await check(UNDER_MIN_ISR=1, AT_MIN_ISR=0)
        assert await scraped.partitions(names.UNDER_MIN_ISR) == {("t", "0"): 1, ("t", "1"): 0}
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "min.insync.replicas", "1"))
        await check(UNDER_MIN_ISR=0, AT_MIN_ISR=1)
        world.set_isr(1, 2, 3)
        await check(UNDER_REPLICATED=0, AT_MIN_ISR=0)
        world.elect(2)
        await check(LEADS=1)
        assert await scraped.value(names.PARTITIONS) == 2
        assert await scraped.partitions(names.REPLICAS) == {("t", "1"): 3}
        world.controller.commit(RemoveTopicRecord(TOPIC_ID))
        await check(LEADS=0)
        assert await scraped.value(names.PARTITIONS) == 0


async def test_a_reassignment_is_counted_until_it_ends_and_lacks_nobody() -> None:
    async with World(3) as world:
        scraped = Scraped(world.nodes[1])
        world.create_topic()
        change = PartitionChangeRecord(
            TOPIC_ID, 0, replicas=(1, 2, 3), isr=(1, 2), adding_replicas=(3,)
        )
        world.controller.commit(change)
        assert await scraped.value(names.CONDITIONS[Condition.REASSIGNING]) == 1
        assert await scraped.value(names.CONDITIONS[Condition.UNDER_REPLICATED]) == 0
        world.controller.commit(
            PartitionChangeRecord(TOPIC_ID, 0, isr=(1, 2, 3), adding_replicas=())
        )
        assert await scraped.value(names.CONDITIONS[Condition.REASSIGNING]) == 0


@pytest.mark.req("N4")
async def test_isr_changes_are_counted_by_their_direction() -> None:
    async with World(replica_lag_time_max_ms="100") as world:
        scraped = Scraped(world.nodes[1])
        world.create_topic()
        world.nodes[1].append(BATCH, acks=-1)
        await eventually(lambda: world.isr() == (1,))
        assert await scraped.value(names.SHRINKS) == 1
        assert await scraped.value(names.EXPANDS) == 0
        world.nodes[1].replicas.fetch(params(2), [wanted(2)])
        await eventually(lambda: world.isr() == (1, 2))
        await eventually(lambda: world.nodes[1].replica().state.isr == (1, 2))
        assert await scraped.value(names.EXPANDS) == 1
        assert await scraped.value(names.FAILED_UPDATES) == 0


async def test_an_isr_that_the_controller_refuses_is_counted() -> None:
    async with World() as world:
        scraped = Scraped(world.nodes[1])
        world.create_topic()
        world.set_isr(1, 2)
        world.nodes[1].deaf = True
        world.fence(3)
        world.nodes[1].replicas.fetch(params(3), [wanted(0)])
        await asyncio.sleep(0.01)
        assert await scraped.value(names.FAILED_UPDATES) == 1
        assert await scraped.value(names.EXPANDS) == 0


async def test_sizes_and_bounds_of_logs_are_as_they_are_now() -> None:
    async with World() as world:
        scraped = Scraped(world.nodes[1])
        world.create_topic()
        at = ("t", "0")
        world.nodes[1].append(BATCH)
        found = await scraped.scrape()
        assert found[names.SIZE.name, at] == len(BATCH)
        assert found[names.START.name, at] == 0
        assert found[names.END.name, at] == 2
        assert found[names.SEGMENTS.name, at] == 1
        log = world.nodes[1].replica().log
        log.roll(2)
        log.high_watermark = world.nodes[1].replica().state.high_watermark = 2
        log.delete_records(1)
        found = await scraped.scrape()
        assert found[names.START.name, at] == 1
        assert found[names.SEGMENTS.name, at] == 2


async def test_what_is_produced_and_copied_is_counted_and_survives_a_change_of_leaders() -> None:
    async with World(2, listen=True) as world:
        leader, follower = world.nodes[1], world.nodes[2]
        world.create_topic()
        leader.append(BATCH)
        await eventually(lambda: follower.replica().log.log_end_offset == 2)
        topics = leader.replicas.topics.broker
        assert topics.messages_in == 2
        assert topics.bytes_in == topics.replication_bytes_out == len(BATCH)
        assert follower.replicas.topics.broker.replication_bytes_in == len(BATCH)
        assert follower.replicas.topics.broker.messages_in == 0
        world.elect(2)
        leader.append(BATCH)
        assert topics.produce_requests == 2
        assert topics.failed_produce_requests == 0
        world.elect(1)
        leader.append(make_batch([b"x"]))
        assert leader.replica().counts.messages_in == topics.messages_in == 3


async def test_a_repeated_batch_is_a_request_without_messages() -> None:
    async with World(1) as world:
        world.create_topic()
        batch = make_batch([b"v"], producer_id=1, producer_epoch=0, sequence=0)
        for _ in range(2):
            world.nodes[1].append(batch)
        counts = world.nodes[1].replica().counts
        assert (counts.produce_requests, counts.messages_in, counts.bytes_in) == (2, 1, len(batch))
        assert await Scraped(world.nodes[1]).value(names.PRODUCERS) == 1


async def test_a_batch_for_a_partition_that_is_not_here_counts_for_the_broker_alone() -> None:
    async with World(1) as world:
        world.create_topic()
        node = world.nodes[1]
        node.replicas.append(1, 1_000, [(TopicPartition("u", 0), BATCH)])
        node.replicas.note_answered(
            -1,
            [wanted(0, partition=TopicPartition("u", 0))],
            [node.replica().fetch(wanted(0), params(), max_bytes=10, min_one=True)],
        )
        assert node.replicas.topics.broker.produce_requests == 1
        assert node.replicas.topics.broker.fetch_requests == 1
        assert node.replica().counts.produce_requests == 0
        assert len(node.replicas.topics) == 1


@pytest.mark.req("N4")
async def test_a_replica_that_lags_says_by_how_much() -> None:
    async with World(2, listen=True) as world:
        leader, follower = world.nodes[1], world.nodes[2]
        scraped = Scraped(follower)
        world.create_topic()
        leader.append(BATCH)
        await eventually(lambda: follower.replica().log.log_end_offset == 2)
        assert await scraped.value(names.MAX_LAG, "Replica") == 0
        (fetcher,) = follower.replicas.fetchers._fetchers.values()
        (following,) = fetcher._followings
        answer: Any = {
            "partition_index": 0,
            "error_code": 0,
            "high_watermark": 9,
            "log_start_offset": 0,
            "diverging_epoch": None,
        }
        following.fetch_offset = 2
        fetcher._apply_one(following, answer, b"")
        assert await scraped.value(names.MAX_LAG, "Replica") == 7
        at = ("ReplicaFetcherThread-0-1", "t", "0")
        assert await scraped.partitions(names.LAG) == {at: 7}
        assert await Scraped(leader).partitions(names.LAG) == {}


async def test_requests_that_wait_are_counted() -> None:
    async with World() as world:
        scraped = Scraped(world.nodes[1])
        world.create_topic(partitions=2)
        node = world.nodes[1]
        done = node.append(BATCH, acks=-1)
        both = [wanted(0), wanted(0, partition=TopicPartition("t", 1))]
        node.replicas.fetch(params(wait_ms=5_000), both)
        found = await scraped.scrape()
        assert found[names.DELAYED.name, ("Produce",)] == 1
        assert found[names.DELAYED.name, ("Fetch",)] == 1
        assert found[names.WATCHED.name, ("Fetch",)] == 2
        assert found[names.DELAYED.name, ("DeleteRecords",)] == 0
        node.replicas.fetch(params(2), [wanted(2)])
        node.replicas.fetch(params(3), [wanted(2)])
        assert isinstance(done, asyncio.Future)
        await done
        found = await scraped.scrape()
        assert found[names.DELAYED.name, ("Produce",)] == 0


async def test_a_replica_whose_directory_failed_is_offline() -> None:
    async with World(2, log_dirs="/d1,/d2") as world:
        node = world.nodes[1]
        scraped = Scraped(node)
        world.create_topic(partitions=2)
        assert await scraped.value(names.OFFLINE) == 0
        node.files.broken_under = "/d1"
        node.append(BATCH)
        await asyncio.sleep(0)
        assert await scraped.value(names.OFFLINE) == 1
        assert await scraped.value(names.CONDITIONS[Condition.LEADS]) == 1
        assert node.replicas.conditions.problems(10) == [P0]
        world.elect(2)
        assert await scraped.value(names.OFFLINE) == 1


# --- which partitions have series -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "fit", "shown"),
    [
        ("problem", 10, set(range(10))),
        ("problem", 9, {7, 8}),
        ("all", 5, {0, 1, 2, 7, 8}),
        ("problem", 1, {8}),
        ("all", 1, {8}),
        ("none", 10, set()),
        ("all", 0, set()),
    ],
)
async def test_partitions_have_series_while_they_fit_and_sums_are_right(
    setting: str, fit: int, shown: set[int]
) -> None:
    async with World(3, min_insync_replicas="2") as world:
        world.create_topic(partitions=10)
        for number, isr in ((7, (1, 2)), (8, (1,))):
            world.controller.commit(PartitionChangeRecord(TOPIC_ID, number, isr=isr))
        node = world.nodes[1]
        for number in range(10):
            node.replicas.append(1, 1_000, [(TopicPartition("t", number), BATCH)])
        collector = ReplicaMetrics(node.replicas, setting, Metrics())
        await collector.prepare(Slices())
        room = fit * names.SERIES + names.SERIES
        families = list(collector.collect(room))
        assert sum(len(family.samples) for family in families) <= room
        found = {
            family.metric: {sample.labels: float(str(sample.value)) for sample in family.samples}
            for family in families
        }
        for metric, total in (
            (names.SIZE, 10 * len(BATCH)),
            (names.SEGMENTS, 10),
            (names.REPLICAS, 30),
            (names.IN_SYNC, 27),
            (names.UNDER_REPLICATED, 2),
            (names.UNDER_MIN_ISR, 1),
            (names.AT_MIN_ISR, 1),
        ):
            assert sum(found[metric].values()) == total, metric.name
            assert {int(number) for topic, number in found[metric] if topic != OTHERS} == shown
            assert (REST in found[metric]) == (len(shown) < 10)
        assert found[names.WITHOUT_SERIES] == {(): 10 - len(shown)}
        assert REST not in found[names.END]


async def test_a_replica_out_of_sync_is_a_problem_of_its_own_broker_too() -> None:
    async with World(3) as world:
        world.create_topic()
        assert world.nodes[3].replicas.conditions.problems(9) == []
        world.set_isr(1, 2)
        assert world.nodes[3].replicas.conditions.problems(9) == [P0]
        assert world.nodes[2].replicas.conditions.problems(9) == []
        world.set_isr(1, 2, 3)
        assert world.nodes[3].replicas.conditions.problems(9) == []
