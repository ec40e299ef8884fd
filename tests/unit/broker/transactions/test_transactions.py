"""The transaction coordinator's rules: epochs, outcomes, time, and who takes over."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker.transactions import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    ProducerGoesOn,
    Transaction,
    TransactionState,
)
from broker.transactions import _core as transaction_core
from broker.transactions._core import ForceAbort, MarkersWritten, Settings
from broker.transactions._state import EPOCH_MAX, read_record, record_of
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from tests.unit.broker.transactions.transaction_harness import COORDINATOR_EPOCH, P0, P1, Rig

if TYPE_CHECKING:
    from collections.abc import Callable


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call()
    return raised.value.code


def state(rig: Rig) -> TransactionState:
    return rig.core.known["x"].state


@pytest.mark.req("T2")
@pytest.mark.parametrize("commit", [True, False])
def test_an_outcome_is_told_to_every_partition_and_then_complete(commit: bool) -> None:
    rig = Rig()
    producer = rig.init()
    rig.add(producer, P0)
    rig.add(producer, P1)
    rig.add(producer, P1)
    assert rig.end(producer, commit=commit) == producer
    assert state(rig) is (
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    )
    (asked,) = rig.write_markers()
    assert asked.partitions == {P0, P1}
    assert asked.commit is commit
    assert (asked.producer_id, asked.producer_epoch) == producer
    assert asked.coordinator_epoch == COORDINATOR_EPOCH
    assert state(rig).text == ("CompleteCommit" if commit else "CompleteAbort")
    assert rig.core.known["x"].partitions == frozenset()


@pytest.mark.req("T2")
@pytest.mark.parametrize("version", [0, 2])
def test_a_patient_producer_goes_on_with_the_last_marker(version: int) -> None:
    rig = Rig()
    producer = rig.init()
    rig.add(producer, P0)
    following = rig.end(producer, commit=True, version=version)
    request_id = rig.add_patiently(following, P1)
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    # One request waits; a checker, another one or whoever has no patience is told at once.
    asked = AddPartitions("x", *following, frozenset({P1}), verify_only=True)
    for others in (lambda: rig.add_patiently(following), lambda: rig.ask(asked)):
        assert refused(others) is busy
    assert refused(lambda: rig.add(following)) is busy
    assert rig.later == {}
    rig.write_markers()
    assert rig.later == {request_id: {P1: ErrorCode.NONE}}
    assert state(rig) is TransactionState.ONGOING
    assert rig.core.known["x"].partitions == {P1}


@pytest.mark.req("T2")
def test_patience_ends() -> None:
    rig = Rig(Settings(patience_ms=100))
    producers = {name: rig.init(name) for name in ("x", "y")}
    for name, producer in producers.items():
        rig.add(producer, name=name)
        rig.end(producer, commit=True, name=name)
    request_id = rig.add_patiently(producers["x"], P1)
    rig.pass_time(99)
    assert rig.later == {}
    assert rig.core.deadline_ms() == rig.now.ms + 1
    rig.pass_time(1)
    assert rig.later[request_id].code is ErrorCode.CONCURRENT_TRANSACTIONS
    rig.write_markers()
    assert len(rig.later) == 1
    assert state(rig) is TransactionState.COMPLETE_COMMIT


@pytest.mark.req("T2")
def test_a_request_that_is_sent_again_changes_nothing() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add(producer)
    written = len(rig.log)
    rig.add(producer)
    assert len(rig.log) == written
    rig.end(producer, commit=True)
    assert refused(lambda: rig.end(producer, commit=True)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(lambda: rig.end(producer, commit=False)) is ErrorCode.CONCURRENT_TRANSACTIONS
    rig.write_markers()
    assert rig.end(producer, commit=True) == producer
    assert refused(lambda: rig.end(producer, commit=False)) is ErrorCode.INVALID_TXN_STATE
    assert rig.commands == []


@pytest.mark.req("T2")
@pytest.mark.parametrize("version", [0, 2])
def test_whatever_was_written_before_a_crash_ends(version: int) -> None:
    whole = Rig()
    producer = whole.init()
    whole.add(producer, P0, P1)
    whole.end(producer, commit=True, version=version)
    whole.write_markers()
    assert len(whole.log) == 4
    for keep in range(1, 5):
        rig = Rig(Settings(abort_interval_ms=10))
        rig.log = list(whole.log)
        rig.fail_over(keep)
        asked = rig.write_markers()
        assert [one.commit for one in asked] == ([True] if keep == 3 else [])
        rig.pass_time(70_000)
        asked += rig.write_markers()
        assert [one.partitions for one in asked] == ([{P0, P1}] if keep in (2, 3) else [])
        assert state(rig) in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )


@pytest.mark.req("T3")
def test_a_new_producer_fences_the_one_before() -> None:
    rig = Rig()
    first = rig.init()
    rig.add(first)
    # The transaction that is open is aborted first; the client asks again meanwhile.
    assert refused(rig.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(rig.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    (asked,) = rig.write_markers()
    assert not asked.commit
    assert asked.producer_epoch == first.producer_epoch + 1
    second = rig.init()
    assert second.producer_id == first.producer_id
    assert second.producer_epoch > asked.producer_epoch
    for call in (
        lambda: rig.add(first),
        lambda: rig.end(first, commit=True),
        lambda: rig.init(before=first),
    ):
        assert refused(call) is ErrorCode.PRODUCER_FENCED
    rig.add(second)


@pytest.mark.req("T3")
def test_a_producer_goes_on_after_an_error_with_the_next_epoch() -> None:
    rig = Rig()
    first = rig.init()
    second = rig.init(before=first)
    assert second == (first.producer_id, first.producer_epoch + 1)
    # Its answer was lost.
    assert rig.init(before=first) == second
    third = rig.init()
    assert refused(lambda: rig.init(before=second)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: rig.init(before=(999, 0))) is ErrorCode.PRODUCER_FENCED
    assert third.producer_epoch == 2


@pytest.mark.req("T3")
def test_used_up_epochs_bring_another_id() -> None:
    rig = Rig()
    producer = rig.init()
    exhausted = Transaction(
        producer.producer_id, EPOCH_MAX - 1, 60_000, TransactionState.EMPTY, frozenset(), 0
    )
    rig.append([record_of("x", exhausted)])
    other = rig.init(before=(producer.producer_id, EPOCH_MAX - 1))
    assert other.producer_id != producer.producer_id
    assert other.producer_epoch == 0
    assert rig.init(before=(producer.producer_id, EPOCH_MAX - 1)) == other
    rig.append([record_of("x", exhausted)])
    last = ProducerGoesOn(producer.producer_id, EPOCH_MAX - 1)
    rig.add(last)
    following = rig.end(last, commit=True, version=2)
    assert following.producer_id != last.producer_id
    for early in (following, ProducerGoesOn(last.producer_id, EPOCH_MAX)):
        assert refused(partial(rig.add, early)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert state(rig) is TransactionState.PREPARE_COMMIT
    (asked,) = rig.write_markers()
    assert (asked.producer_id, asked.producer_epoch) == (last.producer_id, EPOCH_MAX)
    assert rig.end(last, commit=True, version=2) == following
    rig.add(following)


@pytest.mark.req("T3")
def test_an_id_is_taken_only_where_one_is_needed() -> None:
    rig = Rig()
    assert rig.core.needs_id(InitProducer("x", 60_000))
    producer = rig.init()
    assert rig.next_id == producer.producer_id
    rig.init()
    rig.end(rig.init("y"), commit=False, name="y", version=2)
    assert rig.next_id == producer.producer_id + 1
    exhausted = Transaction(5, EPOCH_MAX - 1, 60_000, TransactionState.ONGOING, frozenset({P0}), 0)
    rig.append([record_of("x", exhausted)])
    wanted = [
        rig.core.needs_id(EndTransaction("x", 5, EPOCH_MAX - 1, True, version))
        for version in range(3)
    ]
    assert wanted == [False, False, True]
    assert not rig.core.needs_id(EndTransaction("unknown", 5, 0, True, 2))
    assert not rig.core.needs_id(AddPartitions("x", 5, EPOCH_MAX - 1, frozenset({P0})))


@pytest.mark.req("T3")
@pytest.mark.parametrize("now_epoch", [0, 1])
@pytest.mark.parametrize("previous", [5, 6])
@pytest.mark.parametrize("epoch", [0, EPOCH_MAX - 2, EPOCH_MAX - 1])
def test_only_who_used_up_its_epochs_is_told_of_the_id_that_follows(
    now_epoch: int, previous: int, epoch: int
) -> None:
    rig = Rig()
    empty = TransactionState.EMPTY
    known = Transaction(9, now_epoch, 60_000, empty, frozenset(), 0, previous_producer_id=previous)
    rig.append([record_of("x", known)])
    theirs = now_epoch == 0 and previous == 5 and epoch == EPOCH_MAX - 1
    assert known.follows(5, epoch) is theirs
    if theirs:
        assert rig.init(before=(5, epoch)) == (9, 0)
    else:
        assert refused(lambda: rig.init(before=(5, epoch))) is ErrorCode.PRODUCER_FENCED


@pytest.mark.req("T3")
def test_in_version_2_each_transaction_ends_with_the_next_epoch() -> None:
    rig = Rig()
    first = rig.init()
    rig.add(first)
    second = rig.end(first, commit=True, version=2)
    assert second == (first.producer_id, first.producer_epoch + 1)
    (asked,) = rig.write_markers()
    assert asked.producer_epoch == second.producer_epoch
    # Sent again, also after a failover, it is answered the same.
    assert rig.end(first, commit=True, version=2) == second
    rig.fail_over()
    assert rig.end(first, commit=True, version=2) == second
    assert refused(lambda: rig.end(first, commit=False, version=2)) is ErrorCode.INVALID_TXN_STATE
    rig.add(second)
    # What comes late cannot end the next transaction.
    assert refused(lambda: rig.end(first, commit=True, version=2)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: rig.add(first)) is ErrorCode.PRODUCER_FENCED
    third = rig.end(second, commit=False, version=2)
    rig.write_markers()
    # Without a partition there is nothing to commit, but an abort brings the next epoch.
    assert refused(lambda: rig.end(third, commit=True, version=2)) is ErrorCode.INVALID_TXN_STATE
    assert rig.end(third, commit=False, version=2).producer_epoch == third.producer_epoch + 1


@pytest.mark.req("T3")
def test_what_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    rig = Rig()
    producer = rig.init(timeout_ms=15_000)
    rig.add(producer)
    rig.pass_time(10_000)
    rig.pass_time(4_999)
    assert rig.commands == []
    rig.pass_time(5_001)
    (asked,) = rig.write_markers()
    assert not asked.commit
    assert refused(lambda: rig.end(producer, commit=True)) is ErrorCode.PRODUCER_FENCED
    assert state(rig) is TransactionState.COMPLETE_ABORT


@pytest.mark.req("T3")
@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_that_goes_on_adding_partitions_has_no_more_time(version: int) -> None:
    rig = Rig()
    producer = rig.init(timeout_ms=25_000)
    if version:
        producer = rig.end(producer, commit=False, version=version)
        rig.write_markers()
    for number in range(3):
        rig.add(producer, TopicPartition("t", number))
        rig.pass_time(10_000)
    assert state(rig) is TransactionState.PREPARE_ABORT
    (asked,) = rig.write_markers()
    assert not asked.commit


@pytest.mark.req("T3")
def test_each_transaction_has_the_whole_time_from_its_first_partition_on() -> None:
    rig = Rig()
    producer = rig.init(timeout_ms=25_000)
    for _ in range(3):
        rig.pass_time(40_000)
        rig.add(producer, P0)
        rig.pass_time(20_000)
        assert state(rig) is TransactionState.ONGOING
        rig.end(producer, commit=True)
        rig.write_markers()
    assert rig.commands == []


@pytest.mark.req("T3")
def test_the_epoch_that_is_kept_for_fencing_is_told_to_nobody() -> None:
    rig = Rig()
    last = ProducerGoesOn(rig.init().producer_id, EPOCH_MAX - 1)
    exhausted = Transaction(*last, 5_000, TransactionState.EMPTY, frozenset(), 0)
    rig.append([record_of("x", exhausted)])
    rig.add(last)
    rig.pass_time(10_000)
    rig.write_markers()
    assert rig.core.known["x"].producer_epoch == EPOCH_MAX
    for commit in (False, True):
        ask = partial(rig.end, last, commit=commit, version=2)
        assert refused(ask) is ErrorCode.PRODUCER_FENCED


@pytest.mark.req("T3")
def test_an_operator_aborts_a_transaction_that_hangs() -> None:
    rig = Rig()
    producer = rig.init()
    assert refused(lambda: rig.ask(ForceAbort("x"))) is ErrorCode.INVALID_TXN_STATE
    assert refused(lambda: rig.ask(ForceAbort("y"))) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    rig.add(producer)
    rig.ask(ForceAbort("x"))
    rig.write_markers()
    assert state(rig) is TransactionState.COMPLETE_ABORT


@pytest.mark.req("T3")
def test_a_partition_asks_whether_it_belongs_to_the_transaction() -> None:
    rig = Rig()
    producer = rig.init()
    rig.add(producer, P0)
    written = len(rig.log)
    asked = AddPartitions("x", *producer, frozenset({P0, P1}), verify_only=True)
    assert rig.ask(asked) == {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
    rig.end(producer, commit=True)
    assert refused(lambda: rig.ask(asked)) is ErrorCode.CONCURRENT_TRANSACTIONS
    rig.write_markers()
    assert set(rig.ask(asked).values()) == {ErrorCode.TRANSACTION_ABORTABLE}
    assert len(rig.log) == written + 2


@pytest.mark.req("T2")
def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    rig = Rig()
    producer = rig.init()
    written = list(rig.log)
    stranger, ahead = ProducerGoesOn(7, 0), ProducerGoesOn(producer.producer_id, 9)
    expected = {
        ErrorCode.INVALID_TXN_STATE: lambda: rig.end(producer, commit=True),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: lambda: rig.add(stranger),
        ErrorCode.PRODUCER_FENCED: lambda: rig.add(ahead),
        ErrorCode.INVALID_REQUEST: lambda: rig.init(""),
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: lambda: rig.init(timeout_ms=900_001),
        ErrorCode.CONCURRENT_TRANSACTIONS: lambda: rig.ask(InitProducer("new", 1_000)),
    }
    for code, call in expected.items():
        assert refused(call) is code
    assert refused(lambda: rig.init(timeout_ms=0)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    rig.ask(MarkersWritten("x", *producer))
    assert rig.log == written


@pytest.mark.req("T2")
def test_a_report_of_markers_that_were_overtaken_counts_for_nothing() -> None:
    rig = Rig()
    first = rig.init()
    rig.add(first)
    second = rig.end(first, commit=True, version=2)
    (late,) = rig.commands
    rig.write_markers()
    rig.add(second)
    rig.end(second, commit=False, version=2)
    rig.ask(MarkersWritten("x", late.producer_id, late.producer_epoch))
    assert state(rig) is TransactionState.PREPARE_ABORT


@pytest.mark.req("T2")
def test_ids_that_nobody_uses_are_forgotten_but_not_those_in_a_transaction() -> None:
    rig = Rig(Settings(expiration_ms=50_000, expiration_interval_ms=100))
    rig.init("idle")
    rig.add(rig.init("busy", timeout_ms=900_000), name="busy")
    rig.pass_time(60_000)
    assert set(rig.core.known) == {"busy"}
    assert rig.log[-1].value is None
    rig.init("idle later")
    rig.pass_time(60_000)
    turns(rig)
    assert set(rig.core.known) == {"busy"}
    rig.fail_over()
    assert set(rig.core.known) == {"busy"}


# --- many ids ---------------------------------------------------------------------------------

STEP_ITEMS = 100
COUNT = STEP_ITEMS + 10


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_core, "STEP_ITEMS", STEP_ITEMS)


def turns(rig: Rig) -> list[tuple[int, int]]:
    """Does what is due now, turn by turn; what each wrote, and how many markers it asked for."""
    found = []
    until = rig.now.ms + 1_000
    while (due := rig.core.deadline_ms()) is not None and due <= until:
        before = len(rig.log), len(rig.commands)
        rig.pass_time(max(due - rig.now.ms, 0))
        found.append((len(rig.log) - before[0], len(rig.commands) - before[1]))
    return found


@pytest.mark.req("T2")
@pytest.mark.usefixtures("short_turns")
def test_who_takes_over_asks_for_some_markers_in_each_turn() -> None:
    """Nobody who waits for these markers goes on before they are written."""
    rig = Rig()
    for number in range(COUNT):
        producer = rig.init(str(number))
        rig.add(producer, name=str(number))
        rig.end(producer, commit=True, name=str(number))
    rig.fail_over()
    first = len(rig.commands)
    assert 0 < first < COUNT / 4
    with pytest.raises(KafkaError) as refused:
        rig.init(str(COUNT - 1))
    assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    each = [markers for _, markers in turns(rig)]
    assert max(each) <= first
    assert {one.transactional_id for one in rig.commands} == set(rig.core.known)
    assert len(rig.write_markers()) == COUNT
    rig.fail_over()
    assert rig.commands == []


@pytest.mark.req("T3")
@pytest.mark.usefixtures("short_turns")
def test_late_transactions_are_aborted_some_in_each_turn() -> None:
    rig = Rig(Settings(abort_interval_ms=10_000))
    for number in range(COUNT):
        rig.add(rig.init(str(number), timeout_ms=5_000), name=str(number))
    rig.pass_time(9_900)
    each = turns(rig)
    assert sum(written for written, _ in each) == COUNT == len(rig.commands)
    assert max(written for written, _ in each) <= STEP_ITEMS / 10


@pytest.mark.req("T3")
@pytest.mark.usefixtures("short_turns")
def test_what_ends_before_its_turn_is_not_aborted() -> None:
    rig = Rig(Settings(abort_interval_ms=10_000))
    producers = {str(number): rig.init(str(number), timeout_ms=5_000) for number in range(COUNT)}
    for name, producer in producers.items():
        rig.add(producer, name=name)
    rig.pass_time(10_000)
    last = str(COUNT - 1)
    rig.end(producers[last], commit=True, name=last)
    turns(rig)
    assert [one.transactional_id for one in rig.commands if one.commit] == [last]
    assert len(rig.commands) == COUNT


@pytest.mark.req("T2")
@pytest.mark.usefixtures("short_turns")
def test_ids_are_forgotten_some_in_each_turn() -> None:
    rig = Rig(Settings(expiration_ms=50_000, expiration_interval_ms=60_000))
    for number in range(COUNT):
        rig.init(str(number))
    rig.pass_time(59_500)
    each = [written for written, _ in turns(rig) if written]
    assert each == [STEP_ITEMS, COUNT - STEP_ITEMS]
    assert not rig.core.known


@pytest.mark.req("T2")
def test_the_records_are_apache_kafkas() -> None:
    found = Transaction(
        5, 2, 60_000, TransactionState.ONGOING, frozenset({P0, P1}), 1_700, 1_600, client_version=0
    )
    key, value = record_of("x", found)
    assert key == bytes.fromhex("0000 0001 78")
    assert value is not None
    assert value.hex(" ") == (
        "00 01 00 00 00 00 00 00 00 05 00 02 00 00 ea 60 01 02 02 74 03 00 00 00 00 00 00 00 01 00 "
        "00 00 00 00 00 00 06 a4 00 00 00 00 00 00 06 40 00"
    )
    assert read_record(key, value) == ("x", found)
    older = bytes.fromhex(
        "0000 0000000000000005 0002 0000ea60 01 00000001 0001 74 00000002 00000000 00000001"
        "00000000000006a4 0000000000000640"
    )
    assert read_record(key, older) == ("x", found)
    assert read_record(*record_of("x", None)) == ("x", None)
    with pytest.raises(ValueError, match="version 9"):
        read_record(key, b"\0\x09")
