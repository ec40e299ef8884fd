"""Leaders ask a transaction's coordinator, another broker, before records begin it (KIP-890)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.versions import ApiKey
from broker.replication.partition import Sender
from broker.replication.partition._transaction_guards import TransactionGuards
from broker.transactions import ProducerGoesOn, Transaction, TransactionState
from broker.types import EndMarker, TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.transaction_world import (
    OFFSETS,
    P1,
    STATES,
    records,
    transactions,
)
from tests.unit.broker.replication.world import P0, World, eventually
from tests.unit.broker.server.fakes import produce_message

pytestmark = pytest.mark.req("T3")


async def test_a_leader_adds_its_partition_for_producers_of_version_2() -> None:
    async with transactions(add_partitions_to_txn_retry_backoff_max_ms="60000") as found:
        producer = await found.begin()
        assert await found.produce(12, producer, 0, P0, P1) == [0, 0]
        assert found.transaction().state is TransactionState.ONGOING
        assert found.transaction().partitions == {P0, P1}
        assert await found.produce(12, producer, 1) == [0]
        answer = await found.end(5, producer, commit=True)
        assert answer["error_code"] == 0
        following = ProducerGoesOn(answer["producer_id"], answer["producer_epoch"])
        assert following == (producer.producer_id, producer.producer_epoch + 1)
        # The markers may still be on their way: the leader waits for them, not the client.
        assert await found.produce(12, following, 0) == [0]
        assert found.transaction().partitions == {P0}


async def test_what_is_late_cannot_touch_the_next_transaction_of_version_2() -> None:
    async with transactions() as found:
        first = await found.begin()
        await found.produce(12, first, 0)
        answer = await found.end(5, first, commit=True)
        await found.ended()
        assert await found.produce(12, first, 1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await found.produce(12, first, 0, P1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        await eventually(lambda: not found.is_open)
        second = ProducerGoesOn(answer["producer_id"], answer["producer_epoch"])
        assert await found.produce(12, second, 0) == [0]
        for commit in (True, False):
            answer = await found.end(5, first, commit=commit)
            assert answer["error_code"] == ErrorCode.PRODUCER_FENCED
        assert found.transaction().state is TransactionState.ONGOING
        assert found.is_open


async def test_nothing_but_the_epoch_protects_the_next_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decided = Transaction.decided

    def keeps_epoch(self: Transaction, **how: Any) -> Transaction:
        return decided(self, **{**how, "bump": False})

    monkeypatch.setattr(Transaction, "decided", keeps_epoch)
    async with transactions() as found:
        producer = await found.begin()
        await found.produce(12, producer, 0)
        await found.end(3, producer, commit=True)
        await found.ended()
        assert await found.produce(12, producer, 1) == [0]
        # Late, and of another transaction.
        assert (await found.end(5, producer, commit=True))["error_code"] == 0
        assert found.transaction().state.is_commit


@pytest.mark.parametrize(
    ("version", "error"),
    [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_records_of_older_clients_are_refused_outside_a_transaction(
    version: int, error: ErrorCode
) -> None:
    async with transactions() as found:
        producer = await found.begin()
        assert await found.produce(version, producer, 0) == [error]
        await found.add(producer, P0)
        assert await found.produce(version, producer, 0, P0, P1) == [0, error]
        assert found.node.replica().log.log_end_offset == 1
        assert found.node.replica(P1).log.log_end_offset == 0
        assert (await found.end(3, producer, commit=True))["error_code"] == 0
        await found.ended()
        # Delayed by a network: no transaction is open that it could belong to.
        assert await found.produce(version, producer, 1) == [error]
        await eventually(lambda: not found.is_open)


async def test_without_verification_a_late_batch_begins_a_transaction() -> None:
    async with transactions(transaction_partition_verification_enable="false") as found:
        producer = await found.begin()
        assert await found.produce(9, producer, 0) == [0]
        assert found.is_open


async def test_while_the_coordinator_is_away_records_are_to_be_sent_again() -> None:
    async with transactions() as found:
        producer = await found.begin()
        await found.world.nodes[2].stop()
        found.world.set_isr(1)
        assert await found.produce(12, producer, 0) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert not found.is_open


@pytest.mark.req("N3")
@pytest.mark.parametrize("last", [b"", b"?"])
async def test_a_transactions_records_need_its_id(last: bytes) -> None:
    """Whatever else is wrong with them: that is a question of authorization."""
    async with transactions() as found:
        batch = records(ProducerGoesOn(9, 0), 0)
        message = produce_message("t", batch[: len(batch) - len(last)] + last)
        answer = await found.leader.ask(0, 9, message)
        (partition,) = answer["responses"][0]["partition_responses"]
        assert partition["error_code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.req("N3")
@pytest.mark.parametrize("name", [STATES, OFFSETS])
async def test_clients_cannot_write_to_internal_topics(name: str) -> None:
    async with transactions() as found:
        partition = {"index": 0, "records": make_batch([b"v"])}
        topics = [
            {"name": name, "partition_data": [partition]},
            {"name": "t", "partition_data": [partition]},
        ]
        message = {"acks": -1, "timeout_ms": 5_000, "topic_data": topics}
        answer = await found.leader.ask(0, 9, message)
        errors = [one["partition_responses"][0]["error_code"] for one in answer["responses"]]
        assert errors == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0]


def commit_of(producer: ProducerGoesOn, **changes: Any) -> dict[str, Any]:
    """A TxnOffsetCommit of group `g`, for partition 0 of topic `t` unless it says otherwise."""
    partition = {
        "partition_index": 0,
        "committed_offset": 5,
        "committed_metadata": changes.pop("metadata", ""),
    }
    return {
        "transactional_id": "x",
        "group_id": "g",
        **producer._asdict(),
        "generation_id": -1,
        "member_id": "",
        "topics": [{"name": changes.pop("topic", "t"), "partitions": [partition]}],
        **changes,
    }


@pytest.mark.req("T4")
@pytest.mark.parametrize(
    ("version", "error"), [(3, ErrorCode.INVALID_TXN_STATE), (4, 120), (5, ErrorCode.NONE)]
)
async def test_offsets_belong_to_the_transaction_too(version: int, error: int) -> None:
    async with transactions() as found:
        await eventually(lambda: found.node.groups.shard_of("g").is_loaded)
        producer = await found.begin()
        message = commit_of(producer)
        answer = await found.leader.ask(ApiKey.TXN_OFFSET_COMMIT, version, message)
        assert answer["topics"][0]["partitions"][0]["error_code"] == error
        mine = TopicPartition(OFFSETS, 0)
        if error is not ErrorCode.NONE:
            await found.add(producer, mine)
            answer = await found.leader.ask(ApiKey.TXN_OFFSET_COMMIT, version, message)
            assert answer["topics"][0]["partitions"][0]["error_code"] == 0
        assert found.transaction().partitions == {mine}


@pytest.mark.req("T3", "T4", "G3")
async def test_offsets_that_may_not_be_committed_change_nothing() -> None:
    async with transactions() as found:
        await eventually(lambda: found.node.groups.shard_of("g").is_loaded)
        producer = await found.begin()
        mine, of_another_group = TopicPartition(OFFSETS, 0), TopicPartition(OFFSETS, 1)

        async def error(**changes: Any) -> int:
            message = commit_of(producer, **changes)
            answer = await found.leader.ask(ApiKey.TXN_OFFSET_COMMIT, 3, message)
            return int(answer["topics"][0]["partitions"][0]["error_code"])

        await found.add(producer, of_another_group)
        assert await error() == ErrorCode.INVALID_TXN_STATE
        await found.add(producer, mine)
        log = found.node.replica(mine).log
        end = log.log_end_offset
        assert await error(producer_epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await error(producer_id=77) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await error(transactional_id="y") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await error(group_id="") == ErrorCode.INVALID_GROUP_ID
        assert await error(topic="absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await error(metadata="m" * 4_097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await error(generation_id=3, member_id="m") == ErrorCode.ILLEGAL_GENERATION
        assert log.log_end_offset == end
        assert await error() == ErrorCode.NONE
        assert log.log_end_offset == end + 1


# --- what operators see ---------------------------------------------------------------------------


@pytest.mark.req("N1")
async def test_leaders_tell_who_writes_to_their_partitions() -> None:
    async with transactions() as found:
        producer = await found.begin()
        await found.produce(12, producer, 0)
        await found.produce(12, producer, 1)
        topics = [
            {"name": "t", "partition_indexes": [0, 1, 7]},
            {"name": "absent", "partition_indexes": [0]},
        ]
        answer = await found.leader.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics})
        told, absent = (one["partitions"] for one in answer["topics"])
        assert [one["error_code"] for one in (*told, *absent)] == [0, 0, 3, 3]
        (mine,) = told[0]["active_producers"]
        assert mine["last_timestamp"] > 0
        assert {key: mine[key] for key in mine if key != "last_timestamp"} == {
            **producer._asdict(),
            "last_sequence": 1,
            "coordinator_epoch": -1,
            "current_txn_start_offset": 0,
        }
        assert told[1]["active_producers"] == []
        asked = {"topics": [{"name": "t", "partition_indexes": [0]}]}
        answer = await found.coordinator.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked)
        (follower,) = answer["topics"][0]["partitions"]
        assert follower["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await found.end(5, producer, commit=False)
        await eventually(lambda: not found.is_open)
        answer = await found.leader.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked)
        (mine,) = answer["topics"][0]["partitions"][0]["active_producers"]
        assert mine["current_txn_start_offset"] == -1
        assert mine["producer_epoch"] == producer.producer_epoch + 1


# --- between the question and the append ----------------------------------------------------------


async def test_a_marker_in_between_takes_the_answer_back() -> None:
    async with World(1) as world:
        world.create_topic()
        replica, sender = world.nodes[1].replica(), Sender(9, 0, 0)
        guard = replica.begin_check(sender)
        assert guard is not None
        world.nodes[1].replicas.append(1, 1_000, [(P0, EndMarker(9, 0, True, 1))])
        with pytest.raises(KafkaError) as refused:
            replica.end_check(sender, guard)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        again = replica.begin_check(sender)
        assert again is not None
        replica.end_check(sender, again)


async def test_a_batch_does_not_overtake_one_that_waits() -> None:
    async with World(1) as world:
        world.create_topic()
        replica, first, second = world.nodes[1].replica(), Sender(9, 0, 0), Sender(9, 0, 5)
        guard = replica.begin_check(first)
        assert guard is not None
        assert replica.begin_check(second) is guard
        with pytest.raises(KafkaError) as refused:
            replica.end_check(second, guard)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        replica.end_check(first, guard)
        world.nodes[1].append(records(ProducerGoesOn(9, 0), 0, count=5))
        replica.end_check(second, guard)
        assert replica.begin_check(second) is None


async def test_a_transaction_with_its_own_epoch_begins_with_sequence_0() -> None:
    async with World(1) as world:
        world.create_topic()
        replica, later, first = world.nodes[1].replica(), Sender(9, 0, 5), Sender(9, 0, 0)
        guard = replica.begin_check(later)
        assert guard is not None
        with pytest.raises(KafkaError) as refused:
            replica.end_check(later, guard, own_epoch=True)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        # Before version 2 the records that came before may have been deleted.
        replica.end_check(later, guard)
        guard = replica.begin_check(first)
        assert guard is not None
        replica.end_check(first, guard, own_epoch=True)


def test_guards_are_of_one_leader_epoch_and_bounded() -> None:
    guards, sender = TransactionGuards(), Sender(9, 0, 0)
    guard = guards.begin(sender, 4)
    assert guards.holds(sender, guard, 4)
    assert not guards.holds(sender, guard, 5)
    assert guards.begin(sender, 5) is not guard
    for number in range(20_000):
        guards.begin(Sender(100 + number, 0, 0), 5)
    assert len(guards) == 10_000
    assert not guards.holds(sender, guard, 5)


async def test_pipelined_batches_begin_a_transaction_in_order() -> None:
    async with transactions() as found:
        producer = await found.begin()
        asked = [found.leader.send(0, 12, _message(producer, number)) for number in range(4)]
        answers = [await found.leader.receive(0, 12) for _ in asked]
        assert [number for number, _ in answers] == asked
        errors = [one["responses"][0]["partition_responses"][0]["error_code"] for _, one in answers]
        assert errors == [0] * 4


def _message(producer: ProducerGoesOn, sequence: int) -> dict[str, Any]:
    return {**produce_message("t", records(producer, sequence)), "transactional_id": "x"}
