"""Replicas that are copied at a bounded rate (KIP-73)."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.partition import Throttle
from broker.replication.partition._throttle import (
    FOLLOWER_RATE,
    LEADER_RATE,
    WINDOW_MS,
    WINDOWS,
    SampledRate,
    names,
)
from broker.types import TopicPartition
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import P0, World, eventually, fetch_now, params, wanted

pytestmark = pytest.mark.req("C7")
BATCH = make_batch([b"v" * 100])
P1 = TopicPartition("t", 1)
WHOLE_MS = (WINDOWS - 1) * WINDOW_MS


def test_a_burst_is_spread_over_all_windows() -> None:
    rate = SampledRate()
    assert rate.per_second(5) == 0
    rate.record(10_000, 100_000)
    assert rate.per_second(100_000) == 1_000
    assert rate.per_second(100_000 + WHOLE_MS) == 1_000
    assert rate.per_second(100_000 + WINDOWS * WINDOW_MS) == 0, "the window is over"


def test_a_steady_rate_is_told_as_it_is() -> None:
    rate = SampledRate()
    for now_ms in range(0, 60_000, 100):
        rate.record(50, now_ms)
    assert rate.per_second(60_000) == pytest.approx(500, rel=0.1)
    assert rate.per_second(80_000) == 0


def image(*configs: tuple[str, str, str]) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for name, key, value in configs:
        delta.replay(ConfigRecord(BROKER_RESOURCE, name, key, value), 1)
    return delta.apply(1, 1, 0)


def test_a_bound_holds_for_a_broker_or_for_all() -> None:
    throttle = Throttle(LEADER_RATE)
    throttle.record(1 << 40, 0)
    assert not throttle.is_exceeded(0), "nothing is bounded by itself"
    throttle.configure(image(("", LEADER_RATE, "7"), ("2", FOLLOWER_RATE, "8")), 1)
    assert throttle.bytes_per_second == 7
    assert throttle.is_exceeded(0)
    throttle.configure(image(("", LEADER_RATE, "7"), ("1", LEADER_RATE, "9")), 1)
    assert throttle.bytes_per_second == 9
    throttle.configure(EMPTY_IMAGE, 1)
    assert not throttle.is_exceeded(0)


def test_it_goes_on_when_the_rate_has_come_down() -> None:
    throttle = Throttle(LEADER_RATE)
    throttle.configure(image(("", LEADER_RATE, "1000")), 1)
    throttle.record(10_000, 50)
    assert not throttle.is_exceeded(50), "that much may come at once"
    throttle.record(1, 60)
    assert throttle.is_exceeded(60)
    assert not throttle.is_exceeded(50 + WHOLE_MS + 20)


def test_replicas_are_named_one_by_one_or_all() -> None:
    assert names(("0:1", "3:2"), 3, 2)
    assert not names(("0:1", "3:2"), 3, 1)
    assert names(("*",), 3, 1)
    assert not names((), 3, 1)


def throttle_all(world: World, key: str, rate: int) -> None:
    """Everything of topic t, at so many bytes a second."""
    replicas = key.replace(".rate", ".replicas")
    world.controller.commit(
        ConfigRecord(TOPIC_RESOURCE, "t", replicas, "*"),
        ConfigRecord(BROKER_RESOURCE, "", key, str(rate)),
    )


@pytest.mark.req("R10")
async def test_a_leader_leaves_out_throttled_replicas_that_are_not_in_sync() -> None:
    async with World(3) as world:
        world.create_topic(partitions=2)
        world.fence(2)
        world.set_isr(1, 3)
        leader = world.nodes[1]
        replicas = "leader.replication.throttled.replicas"
        world.controller.commit(
            ConfigRecord(TOPIC_RESOURCE, "t", replicas, "0:1"),
            ConfigRecord(BROKER_RESOURCE, "1", LEADER_RATE, "1"),
        )
        for partition in (P0, P1):
            leader.replicas.append(1, 0, [(partition, BATCH)])
        both = [wanted(0), wanted(0, partition=P1)]
        first = leader.replicas.fetch(params(2), both)
        assert isinstance(first, list)
        assert [one.size for one in first] == [len(BATCH)] * 2, "the rate was not exceeded yet"
        leader.append(BATCH)
        second = leader.replicas.fetch(params(2, max_bytes=1), both)
        assert isinstance(second, list)
        assert [one.size for one in second] == [0, len(BATCH)], "the others do not starve for it"
        assert second[0].log_start_offset == 0
        assert fetch_now(leader, wanted(1), params(3)).size > 0, "it is in sync"
        assert fetch_now(leader, wanted(0), params(-1)).error == 0
        waits = leader.replicas.fetch(params(2, wait_ms=20), [wanted(1)])
        assert isinstance(waits, asyncio.Future)
        leader.append(BATCH)
        await asyncio.sleep(0)
        assert not waits.done(), "a fetch that gets nothing is not answered over and over"
        assert (await waits)[0].size == 0
        world.controller.commit(ConfigRecord(BROKER_RESOURCE, "1", LEADER_RATE, None))
        assert fetch_now(leader, wanted(1), params(2)).size > 0


async def test_a_follower_stops_fetching_until_the_rate_has_come_down() -> None:
    async with World(2, listen=True) as world:
        world.create_topic(partitions=2)
        leader, follower = world.nodes[1], world.nodes[2]
        await eventually(lambda: follower.replica().state.leader_id == 1)
        world.set_isr(1)
        throttle_all(world, FOLLOWER_RATE, 1)
        follower.replicas._throttles.fetching.record(1 << 20, int(loop_ms()))
        # A new leader epoch, in which the follower does not know yet whether it is behind.
        world.elect(1, (1,))
        leader.append(BATCH)
        (fetcher,) = follower.replicas.fetchers._fetchers.values()
        await eventually(lambda: not fetcher._is_ready())
        assert follower.replica().log.log_end_offset == 0
        world.controller.commit(ConfigRecord(BROKER_RESOURCE, "", FOLLOWER_RATE, None))
        await eventually(lambda: follower.replica().log.log_end_offset == 1)


def loop_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
