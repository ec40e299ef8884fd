"""Replicas keep their invariants through every kind of event; nothing else is asserted here.

The fixture in `conftest.py` checks them after each event. `tests.mutants.invariant_edits` plants
bugs that only this finds at once: no answer to a client is wrong yet.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.metrics import TopicCounts
from broker.replication.partition._fetch_session_index import FetchSessionIndex
from broker.replication.partition._partition import Fetched, Partition
from broker.replication.partition._partition_state import PartitionState
from broker.replication.partition._throttle import SampledRate
from broker.replication.purgatory._purgatory import DelayedOperation, Purgatory, TimingWheel
from broker.turns import Turn
from broker.types import TopicPartition
from raftctl.errors import ErrorCode
from raftctl.metadata.image import PartitionImage
from raftctl.metadata.records import RemoveTopicRecord
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.fake_files import FakeFiles
from tests.unit.broker.log.logs import new_log
from tests.unit.broker.replication.world import P0, TOPIC_ID, World, eventually, params, wanted

if TYPE_CHECKING:
    import pytest

BATCH = make_batch([b"v"])
P1 = TopicPartition("t", 1)


def image(leader: int, epoch: int, version: int, *isr: int) -> PartitionImage:
    return PartitionImage((1, 2, 3), isr or (1, 2, 3), leader, epoch, version)


def replica(high_watermark: int = 0) -> PartitionState:
    """Broker 1's."""
    return PartitionState(
        1, high_watermark=high_watermark, lag_time_max_ms=10, may_join=lambda _id, _epoch: True
    )


def fetched(state: PartitionState, follower: int, offset: int, now_ms: int) -> None:
    state.follower_fetched(
        follower,
        fetch_offset=offset,
        log_start_offset=0,
        broker_epoch=1,
        log_end_offset=5,
        now_ms=now_ms,
    )


def test_a_replica_leads_proposes_follows_and_resigns() -> None:
    state = replica()
    state.become_leader(image(1, 0, 0), log_end_offset=5, now_ms=0)
    fetched(state, 2, 5, 50)
    state.propose_shrinking(5, 50)
    state.isr_committed(0, 1, (1, 2))
    fetched(state, 3, 5, 60)
    state.advance_high_watermark(5, 60)
    proposal = state.propose_expansion(3)
    assert proposal is not None
    state.proposal_refused(proposal, ErrorCode.INELIGIBLE_REPLICA)
    state.propose_expansion(3)
    state.become_leader(image(1, 0, 2, 1, 2, 3), log_end_offset=5, now_ms=70)
    state.propose_shrinking(9, 500)
    state.become_follower(image(2, 1, 3))
    state.become_follower(image(-1, 2, 4))
    state.become_leader(image(1, 3, 5, 1, 2), log_end_offset=5, now_ms=600)
    state.propose_expansion(3)
    state.resign()


def test_a_follower_that_is_cut_within_a_batch() -> None:
    log = new_log(FakeFiles())
    log.restart_at(12)
    partition = Partition(P0, TOPIC_ID, replica(12), log, TopicCounts())
    partition.state.become_follower(image(2, 1, 1))
    batch = make_batch([b"a", b"b", b"c", b"d"], base_offset=10)
    partition.append_fetched(Fetched(batch, 12, 10))
    partition.align_with(0, 13)


class Waiting(DelayedOperation[str]):
    """Complete after a change of partition 1."""

    def is_complete_after(self, partition: TopicPartition) -> bool:
        return partition == P1

    def answer(self) -> str:
        return ""


async def test_operations_wait_are_woken_and_time_out() -> None:
    loop = asyncio.get_running_loop()
    purgatory: Purgatory[str] = Purgatory(loop)
    operations = [Waiting(Turn()) for _ in range(4)]
    late = [
        purgatory.wait(one, [P0, P1][: 1 + number // 2], 5 + 100 * number)
        for number, one in enumerate(operations)
    ]
    purgatory.watch(operations[0], P1)
    await late[0]
    purgatory.wake(P0)
    purgatory.wake(P1)
    purgatory.close()


def test_timers_move_down_the_wheels() -> None:
    wheel: TimingWheel[int] = TimingWheel(0, wheel_size=3)
    timers = [wheel.add(number, number * 7) for number in range(8, 0, -1)]
    timers[2].cancel()
    for now_ms in range(0, 70, 4):
        wheel.advance(now_ms)


def test_a_rate_forgets_old_samples() -> None:
    rate = SampledRate(3, 10)
    for now_ms in range(0, 200, 7):
        rate.record(5, now_ms)
        rate.per_second(now_ms + 3)


async def test_a_session_is_idle_and_dirty_again() -> None:
    async with World(2) as world:
        world.create_topic()
        leader = world.nodes[1]
        index, one = FetchSessionIndex(), wanted(0, topic_id=TOPIC_ID)
        index.want(one.key)
        for offset in (0, 0, 1):
            leader.replicas.fetch(params(2), [wanted(offset, topic_id=TOPIC_ID)], index)
            leader.append(BATCH)
        index.had_records(one.key)
        index.forget(one.key)
        index.close()


async def test_brokers_take_over_and_hand_back() -> None:
    async with World(listen=True, num_replica_fetchers="2") as world:
        world.create_topic(partitions=2)
        for leader in (1, 2, 3, 1):
            world.elect(leader)
            node = world.nodes[leader]
            done = node.append(BATCH, acks=-1)
            assert isinstance(done, asyncio.Future)
            await done
        one = world.nodes[1]
        one.replicas.delete_records(0, [(P0, 2)])
        await eventually(lambda: world.nodes[3].replica().log.log_start_offset == 2)
        world.fence(3)
        world.set_isr(1, 2)


async def test_consumers_read_what_is_committed_within_their_limits() -> None:
    async with World(2) as world:
        world.create_topic(partitions=2)
        leader = world.nodes[1]
        for partition in (P0, P1):
            leader.replicas.append(1, 0, [(partition, BATCH)])
        leader.replicas.fetch(params(), [wanted(0)])
        what = [wanted(0, topic_id=TOPIC_ID), wanted(0, topic_id=TOPIC_ID, partition=P1)]
        leader.replicas.fetch(params(2, max_bytes=len(BATCH) + 5), what)


async def test_a_partition_is_deleted_before_its_change_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with World(2) as world:
        world.create_topic()
        changes = world.nodes[1].replicas._changed
        with monkeypatch.context() as waiting:
            waiting.setattr(changes, "take_some", changes._more.set)
            world.set_isr(1)
            world.set_isr(1, 2)
            assert len(changes) == 1
            world.controller.commit(RemoveTopicRecord(TOPIC_ID))
