"""Requests to a broker's replicas: appends, reads, waiting, errors."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from broker.log.batches.record_batch import parse_header
from broker.types import (
    ANY_REPLICA,
    AppendResult,
    EpochEndOffset,
    FetchResult,
    LeaderHint,
    OffsetLookup,
    TopicPartition,
)
from raftctl.errors import ErrorCode
from raftctl.metadata.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raftctl.metadata.requests.cluster import AlterPartitionItem, AlterPartitionRequest
from tests.kit.pieces import as_bytes
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import (
    P0,
    TOPIC_ID,
    Node,
    World,
    eventually,
    fetch_now,
    offsets_now,
    params,
    wanted,
)

BATCH = make_batch([b"v"])


def appended(node: Node, batch: bytes = BATCH, *, acks: int = 1) -> AppendResult:
    done = node.append(batch, acks=acks)
    assert isinstance(done, AppendResult)
    return done


def waiting(
    node: Node, batch: bytes = BATCH, *, timeout_ms: int = 5_000
) -> asyncio.Future[list[AppendResult]]:
    done = node.append(batch, acks=-1, timeout_ms=timeout_ms)
    assert isinstance(done, asyncio.Future)
    return done


def replicate(node: Node, offset: int, *replicas: int) -> None:
    """These followers say that they have all below `offset`."""
    for replica in replicas:
        node.replicas.fetch(params(replica), [wanted(offset)])


# --- produce --------------------------------------------------------------------------------------


@pytest.mark.req("R5")
async def test_acks_0_and_1_are_answered_at_once_acks_all_by_the_replicas() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        assert appended(leader, acks=1) == AppendResult(ErrorCode.NONE, 0, -1, 0)
        assert appended(leader, acks=0).base_offset == 1
        done = waiting(leader)
        replicate(leader, 3, 2)
        await asyncio.sleep(0)
        assert not done.done()
        replicate(leader, 3, 3)
        assert (await done) == [AppendResult(ErrorCode.NONE, 2, -1, 0)]


@pytest.mark.req("R5")
async def test_with_one_replica_acks_all_is_answered_at_once() -> None:
    async with World(brokers=1) as world:
        world.create_topic()
        assert appended(world.nodes[1], acks=-1).error is ErrorCode.NONE
        assert world.nodes[1].replica().state.high_watermark == 1


@pytest.mark.req("R5")
async def test_too_few_replicas_in_sync() -> None:
    async with World(min_insync_replicas="2") as world:
        world.create_topic()
        leader = world.nodes[1]
        done = waiting(leader)
        world.set_isr(1)
        assert (await done)[0].error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        refused = appended(leader, acks=-1)
        assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
        assert leader.replica().log.log_end_offset == 1
        assert appended(leader, acks=1).error is ErrorCode.NONE


@pytest.mark.req("R5")
async def test_a_produce_that_is_not_replicated_in_time_times_out() -> None:
    async with World() as world:
        world.create_topic()
        done = waiting(world.nodes[1], timeout_ms=10)
        assert (await done)[0] == AppendResult(ErrorCode.REQUEST_TIMED_OUT, 0, -1, 0)
        assert len(world.nodes[1].replicas._produces) == 0


@pytest.mark.req("R6")
async def test_a_deposed_leader_says_so_to_those_who_wait_and_to_new_ones() -> None:
    async with World() as world:
        world.create_topic()
        old = world.nodes[1]
        done = waiting(old)
        parked = old.replicas.fetch(params(wait_ms=5_000), [wanted(0)])
        assert isinstance(parked, asyncio.Future)
        world.elect(2)
        hint = LeaderHint(2, 1)
        assert (await done)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await done)[0].current_leader == hint
        assert (await parked)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert appended(old).current_leader == hint
        found = fetch_now(old, wanted(0, epoch=0))
        assert (found.error, found.current_leader) == (ErrorCode.FENCED_LEADER_EPOCH, hint)
        assert fetch_now(old, wanted(0, epoch=9)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
        lookup = OffsetLookup(P0, 0, -1)
        assert offsets_now(old, lookup)[0].error is ErrorCode.FENCED_LEADER_EPOCH
        ends = old.replicas.offsets_for_leader_epoch([(P0, 0, 0)])
        assert ends[0][0] is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.req("R6")
async def test_a_leader_that_does_not_know_it_is_deposed_cannot_acknowledge() -> None:
    async with World(listen=True) as world:
        world.create_topic()
        old, new = world.nodes[1], world.nodes[2]
        old.deaf = True
        world.elect(2)
        done = waiting(old, timeout_ms=300)
        assert (await done)[0].error is ErrorCode.REQUEST_TIMED_OUT
        old.deaf = False
        world.elect(2)
        await eventually(lambda: old.replica().log.log_end_offset == 0)
        assert new.replica().log.log_end_offset == 0


async def test_partitions_that_are_not_here() -> None:
    async with World() as world:
        world.create_topic()
        change = PartitionChangeRecord(TOPIC_ID, 0, replicas=(1, 2), isr=(1, 2))
        world.controller.commit(change)
        other = world.nodes[3]
        assert appended(other).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        unknown = TopicPartition("t", 7)
        found = fetch_now(other, wanted(0, partition=unknown))
        assert found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        nobody = world.nodes[1].replicas.append(1, 0, [(TopicPartition("no", 0), BATCH)])
        assert isinstance(nobody, list)
        assert nobody[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.req("L2")
async def test_bad_batches_are_refused_and_good_ones_of_the_request_kept() -> None:
    async with World() as world:
        world.create_topic(partitions=2)
        entries = [(P0, BATCH[:-1]), (TopicPartition("t", 1), BATCH)]
        done = world.nodes[1].replicas.append(1, 0, entries)
        assert isinstance(done, list)
        assert [r.error for r in done] == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]


@pytest.mark.req("T1")
async def test_a_repetition_is_acknowledged_with_its_first_offset_once_it_is_committed() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        batch = make_batch([b"a", b"b"], producer_id=5, producer_epoch=0, sequence=0)
        appended(leader)
        first = waiting(leader, batch)
        again = waiting(leader, batch)
        assert leader.replica().log.log_end_offset == 3
        replicate(leader, 3, 2, 3)
        assert (await first)[0].base_offset == (await again)[0].base_offset == 1
        gap = make_batch([b"c"], producer_id=5, producer_epoch=0, sequence=9)
        assert appended(leader, gap).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# --- fetch ----------------------------------------------------------------------------------------


@pytest.mark.req("R2")
async def test_consumers_see_below_the_high_watermark_followers_to_the_end() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        for _ in range(3):
            appended(leader)
        assert not fetch_now(leader, wanted(0)).records
        assert fetch_now(leader, wanted(0), params(2)).size == 3 * len(BATCH)
        replicate(leader, 2, 2, 3)
        found = fetch_now(leader, wanted(0))
        assert (found.size, found.high_watermark) == (2 * len(BATCH), 2)
        assert found.last_stable_offset == 2


@pytest.mark.req("R10")
async def test_a_fetch_waits_for_min_bytes_or_its_time() -> None:
    async with World(brokers=1) as world:
        world.create_topic()
        leader = world.nodes[1]
        how = params(wait_ms=5_000, min_bytes=2 * len(BATCH))
        parked = leader.replicas.fetch(how, [wanted(0)])
        assert isinstance(parked, asyncio.Future)
        appended(leader)
        await asyncio.sleep(0)
        assert not parked.done()
        appended(leader)
        assert (await parked)[0].size == 2 * len(BATCH)
        late = leader.replicas.fetch(params(wait_ms=10), [wanted(2)])
        assert isinstance(late, asyncio.Future)
        assert (await late)[0] == FetchResult(ErrorCode.NONE, 2, 2, 0, [])
        assert len(leader.replicas._fetches) == 0


@pytest.mark.req("R10")
async def test_a_parked_consumer_is_answered_when_records_are_committed() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        parked = leader.replicas.fetch(params(wait_ms=5_000), [wanted(0)])
        assert isinstance(parked, asyncio.Future)
        appended(leader)
        replicate(leader, 1, 2)
        await asyncio.sleep(0)
        assert not parked.done()
        replicate(leader, 1, 3)
        assert (await parked)[0].size == len(BATCH)


@pytest.mark.req("R10")
async def test_limits_hold_but_the_first_batch_always_comes_and_partitions_take_turns() -> None:
    async with World(brokers=1) as world:
        world.create_topic(partitions=3)
        leader = world.nodes[1]
        partitions = [TopicPartition("t", p) for p in range(3)]
        for partition in partitions:
            leader.replicas.append(1, 0, [(partition, BATCH)])
        served = []
        for first in range(3):
            how = params(max_bytes=10)._replace(first=first)
            found = leader.replicas.fetch(how, [wanted(0, partition=p) for p in partitions])
            assert isinstance(found, list)
            assert sum(r.size for r in found) == len(BATCH)
            served += [index for index, result in enumerate(found) if result.records]
        assert served == [0, 1, 2]
        appended(leader)
        limited = fetch_now(leader, wanted(0, max_bytes=len(BATCH) + 5))
        assert limited.size == len(BATCH) + 5


async def test_offsets_out_of_range_and_other_topic_ids() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        assert fetch_now(leader, wanted(1)).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetch_now(leader, wanted(0, topic_id=TOPIC_ID)).error is ErrorCode.NONE
        other = wanted(0, topic_id=UUID(int=99))
        assert fetch_now(leader, other).error is ErrorCode.INCONSISTENT_TOPIC_ID
        stranger = fetch_now(leader, wanted(0), params(9))
        assert stranger.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.req("R6")
async def test_who_may_be_deposed_tells_no_consumer_that_its_offset_is_out_of_range() -> None:
    """The newer leader may have it; found by seed 702 of the chaos."""
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        leader.append(BATCH)
        unsure = params()._replace(may_be_deposed=True)
        end = leader.replica().log.log_end_offset
        assert fetch_now(leader, wanted(end + 1), unsure).error is (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        assert fetch_now(leader, wanted(end), unsure).error is ErrorCode.NONE
        for follower in (2, 3):
            fetch_now(leader, wanted(end), params(follower))
        leader.replica().delete_records(1)
        assert fetch_now(leader, wanted(0), unsure).error is ErrorCode.OFFSET_OUT_OF_RANGE
        of_follower = params(2)._replace(may_be_deposed=True)
        beyond = fetch_now(leader, wanted(end + 1), of_follower)
        assert beyond.error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.req("R4")
async def test_a_diverging_follower_is_told_where_and_does_not_count() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        appended(leader)
        world.elect(1)
        appended(leader)
        found = fetch_now(leader, wanted(2, last_epoch=0), params(2, wait_ms=1_000))
        assert found.diverging == EpochEndOffset(0, 1)
        assert not found.records
        assert leader.replica().state.followers[2].log_end_offset == -1
        assert fetch_now(leader, wanted(1, last_epoch=0), params(2)).size == len(BATCH)


# --- offsets --------------------------------------------------------------------------------------


@pytest.mark.req("L7")
async def test_list_offsets() -> None:
    async with World(brokers=1) as world:
        world.create_topic()
        leader = world.nodes[1]
        for timestamp in (10, 30, 20):
            appended(leader, make_batch([b"v"], timestamps=[timestamp]))

        def found(timestamp: int) -> tuple[int, int, int]:
            (result,) = offsets_now(leader, OffsetLookup(P0, -1, timestamp))
            assert result.error is ErrorCode.NONE
            return result.offset, result.timestamp, result.leader_epoch

        assert found(-2) == (0, -1, 0)
        assert found(-1) == (3, -1, 0)
        assert found(-3) == (1, 30, 0)
        assert found(11) == (1, 30, 0)
        assert found(31) == (-1, -1, -1)


@pytest.mark.req("R2")
async def test_a_new_leader_answers_latest_once_it_knows_what_is_committed() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        appended(leader)
        world.elect(1)
        latest, earliest = OffsetLookup(P0, -1, -1), OffsetLookup(P0, -1, -2)
        first = offsets_now(leader, latest, earliest)
        assert [r.error for r in first] == [ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NONE]
        assert offsets_now(leader, latest, replica=2)[0].offset == 1
        replicate(leader, 1, 2, 3)
        assert offsets_now(leader, latest)[0].offset == 1


@pytest.mark.req("W1")
async def test_each_replica_gives_the_ends_of_its_own_log_to_who_asks_for_any() -> None:
    async with World(brokers=2) as world:
        world.create_topic()
        leader, follower = world.nodes[1], world.nodes[2]
        appended(leader)
        latest, earliest = OffsetLookup(P0, -1, -1), OffsetLookup(P0, -1, -2)
        ends = [
            [one.offset for one in offsets_now(node, latest, earliest, replica=ANY_REPLICA)]
            for node in (leader, follower)
        ]
        assert ends == [[1, 0], [0, 0]]
        by_time = OffsetLookup(P0, -1, 1_000)
        for lookup, replica in ((latest, -1), (by_time, ANY_REPLICA)):
            [refused] = offsets_now(follower, lookup, replica=replica)
            assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- in-sync replicas -----------------------------------------------------------------------------


@pytest.mark.req("R3")
async def test_a_follower_that_has_caught_up_joins_through_the_controller() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        appended(leader)
        replicate(leader, 1, 2, 3)
        world.set_isr(1, 2)
        replicate(leader, 0, 3)
        await asyncio.sleep(0.01)
        assert world.isr() == (1, 2)
        world.controller.refuse = [ErrorCode.REQUEST_TIMED_OUT]
        replicate(leader, 1, 3)
        await eventually(lambda: world.isr() == (1, 2, 3))
        assert len(world.controller.requests) == 2
        await eventually(lambda: leader.replica().state.isr == (1, 2, 3))


@pytest.mark.req("R3")
async def test_a_fenced_follower_does_not_join() -> None:
    async with World() as world:
        world.create_topic()
        world.set_isr(1, 2)
        world.fence(3)
        replicate(world.nodes[1], 0, 3)
        await asyncio.sleep(0.01)
        assert world.controller.requests == []


@pytest.mark.req("R3")
async def test_followers_that_lag_leave_and_what_they_held_up_is_committed() -> None:
    async with World(replica_lag_time_max_ms="100") as world:
        world.create_topic(partitions=3)
        done = waiting(world.nodes[1])
        assert (await done)[0].error is ErrorCode.NONE
        assert world.isr() == (1,)
        await eventually(lambda: len(proposed(world)) == 3)
        # Each once, in as many requests as there were moments at which they were due.
        assert sorted(item.partition_id for item in proposed(world)) == [0, 1, 2]
        assert {item.new_isr for item in proposed(world)} == {((1, 0),)}


def proposed(world: World) -> list[AlterPartitionItem]:
    """What the controller was asked to alter."""
    requests = world.controller.requests
    asked = [one for one in requests if isinstance(one, AlterPartitionRequest)]
    return [item for request in asked for item in request.partitions]


# --- images ---------------------------------------------------------------------------------------


async def test_a_deleted_topics_logs_are_removed_and_the_name_is_free() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        done = waiting(leader)
        world.controller.commit(RemoveTopicRecord(TOPIC_ID))
        assert (await done)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert appended(leader).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        other = UUID(int=12)
        world.controller.commit(
            TopicRecord("t", other), PartitionRecord(other, 0, (1, 2, 3), (1, 2, 3), 1, 0, 0)
        )
        assert appended(leader).base_offset == 0


async def test_a_topic_recreated_while_this_broker_was_away_starts_empty() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        appended(leader)
        await leader.stop()
        other = UUID(int=12)
        world.controller.commit(RemoveTopicRecord(TOPIC_ID))
        world.controller.commit(
            TopicRecord("t", other), PartitionRecord(other, 0, (1, 2, 3), (1, 2, 3), 1, 0, 0)
        )
        await leader.start()
        assert leader.replica().log.log_end_offset == 0
        assert leader.replica().topic_id == other


async def test_a_topics_configs_take_effect() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        set_isr = ConfigRecord(TOPIC_RESOURCE, "t", "min.insync.replicas", "3")
        world.controller.commit(set_isr)
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "max.message.bytes", "10"))
        assert appended(leader).error is ErrorCode.MESSAGE_TOO_LARGE
        world.set_isr(1, 2)
        assert appended(leader, acks=-1).error is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.req("C9")
async def test_what_is_set_for_brokers_takes_effect_at_once() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        assert appended(leader).error is ErrorCode.NONE
        world.controller.commit(ConfigRecord(BROKER_RESOURCE, "1", "message.max.bytes", "10"))
        assert appended(leader).error is ErrorCode.MESSAGE_TOO_LARGE
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "max.message.bytes", "10000"))
        assert appended(leader).error is ErrorCode.NONE
        world.controller.commit(ConfigRecord(BROKER_RESOURCE, "", "min.insync.replicas", "4"))
        world.set_isr(1, 2)
        assert appended(leader, acks=-1).error is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.req("L1", "R2")
async def test_a_restart_forgets_neither_records_nor_the_high_watermark() -> None:
    async with World() as world:
        world.create_topic()
        leader = world.nodes[1]
        for _ in range(3):
            appended(leader)
        replicate(leader, 2, 2, 3)
        await leader.stop()
        await leader.start()
        assert leader.replica().state.high_watermark == 2
        assert leader.replica().log.log_end_offset == 3
        data = as_bytes(fetch_now(leader, wanted(1)).records)
        assert parse_header(data).base_offset == 1
