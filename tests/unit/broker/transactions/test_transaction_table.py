"""Each request in each state of a transactional id, by each id and epoch: what is told.

The table is that of Apache Kafka 4.3's TransactionCoordinator (KIP-98, KIP-360, KIP-890), but for
two cells: see `test_a_producer_that_was_overtaken_ends_nothing`.
"""

from __future__ import annotations

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
from broker.transactions._state import EPOCH_MAX, record_of
from raftctl.errors import ErrorCode, KafkaError
from tests.unit.broker.transactions.transaction_harness import P0, Rig

if TYPE_CHECKING:
    from broker.transactions._core import Request

ID, EPOCH, OTHER_ID, FRESH_ID = 7, 5, 8, 9
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
STATE = ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
OK = ErrorCode.NONE
WHO = {
    "before": (ID, EPOCH - 1),
    "now": (ID, EPOCH),
    "ahead": (ID, EPOCH + 1),
    "other": (OTHER_ID, EPOCH),
    "nobody": (-1, -1),
}
EMPTY, ONGOING = "EMPTY", "ONGOING"
PREPARED = ("PREPARE_COMMIT", "PREPARE_ABORT")
COMPLETE = ("COMPLETE_COMMIT", "COMPLETE_ABORT")
OPEN = (EMPTY, ONGOING, *COMPLETE)

Cell = tuple[str, str, str]
"""(request, state, who)"""


def init_cells() -> dict[Cell, ErrorCode]:
    """An open transaction is aborted, and the client asks again meanwhile."""
    goes_on = {
        "before": FENCED,
        "now": OK,
        "ahead": FENCED,
        "other": FENCED,
        "nobody": OK,
    }
    cells = {("init", state, who): goes_on[who] for state in (EMPTY, *COMPLETE) for who in WHO}
    cells |= {("init", state, who): BUSY for state in PREPARED for who in WHO}
    cells |= {("init", ONGOING, who): BUSY for who in ("now", "nobody")}
    return cells | {("init", ONGOING, who): FENCED for who in ("before", "ahead", "other")}


def add_cells() -> dict[Cell, ErrorCode]:
    """Who only asks is told first whether it is the producer."""
    wrong = {"before": FENCED, "ahead": FENCED, "other": MAPPING, "nobody": MAPPING}
    cells = {("add", state, who): wrong.get(who, OK) for state in OPEN for who in WHO}
    cells |= {("add", state, who): BUSY for state in PREPARED for who in WHO}
    cells |= {
        ("verify", state, who): wrong.get(who, OK if state == ONGOING else ABORTABLE)
        for state in OPEN
        for who in WHO
    }
    cells |= {("verify", state, who): wrong.get(who, BUSY) for state in PREPARED for who in WHO}
    return cells


ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


def end_cells(request: str) -> dict[Cell, ErrorCode]:
    """Version 2 goes by epochs: that before is the same request again, that now the next one."""
    commit, is_v2 = request.startswith("commit"), request.endswith("2")
    wrong = {"before": FENCED, "ahead": FENCED, "other": MAPPING, "nobody": MAPPING}
    empty_abort = is_v2 and not commit
    now = {EMPTY: OK if empty_abort else STATE, ONGOING: OK}
    for state in COMPLETE:
        same = (state == "COMPLETE_COMMIT") == commit
        now[state] = (OK if empty_abort else STATE) if is_v2 else (OK if same else STATE)
    cells = {(request, state, who): wrong.get(who, now[state]) for state in OPEN for who in WHO}
    for state in PREPARED:
        for who in WHO:
            cells[request, state, who] = BUSY if is_v2 else wrong.get(who, BUSY)
    if is_v2:
        for state in COMPLETE:
            same = (state == "COMPLETE_COMMIT") == commit
            cells[request, state, "before"] = OK if same else STATE
    return cells


TABLE = init_cells() | add_cells()
for _name in ("commit1", "abort1", "commit2", "abort2"):
    TABLE |= end_cells(_name)


def in_state(state: str, version: int, epoch: int = EPOCH, previous_id: int = -1) -> Rig:
    """A coordinator that finds the id so in its log, its markers still missing if it is PREPARE."""
    rig = Rig()
    has_partitions = state in (ONGOING, *PREPARED)
    found = Transaction(
        ID,
        epoch,
        60_000,
        TransactionState[state],
        frozenset({P0}) if has_partitions else frozenset(),
        1_000,
        1_000,
        previous_producer_id=previous_id,
        client_version=version,
    )
    rig.append([record_of("x", found)])
    return rig


def request_of(name: str, producer: tuple[int, int]) -> Request:
    match name:
        case "init":
            return InitProducer("x", 60_000, *producer, fresh_id=FRESH_ID)
        case "add" | "verify":
            return AddPartitions("x", *producer, frozenset({P0}), verify_only=name == "verify")
        case _:
            version = 2 if name.endswith("2") else 0
            return EndTransaction("x", *producer, name.startswith("commit"), version, FRESH_ID)


def told(rig: Rig, request: Request) -> ErrorCode:
    try:
        answer = rig.ask(request)
    except KafkaError as error:
        return error.code
    return answer[P0] if isinstance(request, AddPartitions) else ErrorCode.NONE


@pytest.mark.req("T2", "T3")
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("cell", TABLE, ids="-".join)
def test_a_producer_is_told(cell: Cell, version: int) -> None:
    """Whatever the version of the client that ended the transaction before."""
    name, state, who = cell
    rig = in_state(state, version)
    before = rig.core.known["x"]
    code = told(rig, request_of(name, WHO[who]))
    assert code is TABLE[cell]
    is_abort = (name, state, code) == ("init", ONGOING, BUSY)
    if code is not ErrorCode.NONE and not is_abort:
        assert rig.core.known["x"] == before


def test_the_table_has_every_cell() -> None:
    names = ("init", "add", "verify", "commit1", "abort1", "commit2", "abort2")
    states = [state.name for state in TransactionState]
    assert set(TABLE) == {(name, state, who) for name in names for state in states for who in WHO}


@pytest.mark.req("T3")
@pytest.mark.parametrize("who", ["before", "ahead"])
def test_a_producer_that_was_overtaken_ends_nothing(who: str) -> None:
    """Apache Kafka looks at its epoch only when the open transaction, which is another producer's,
    has been aborted for it.
    """
    rig = in_state(ONGOING, 2)
    assert told(rig, request_of("init", WHO[who])) is FENCED
    assert rig.core.known["x"].state is TransactionState.ONGOING
    assert rig.commands == []


@pytest.mark.req("T2")
@pytest.mark.parametrize("commit", [True, False])
def test_the_next_transaction_may_end_before_the_last_has_its_markers(commit: bool) -> None:
    rig = Rig()
    first = rig.init()
    rig.add(first)
    second = rig.end(first, commit=True, version=2)
    # Nothing of it was written yet: the client has not added a partition.
    ends = EndTransaction("x", *second, commit, 2, FRESH_ID)
    assert told(rig, ends) is BUSY
    rig.write_markers()
    # Now it is told what is: there is nothing to commit, and an abort brings the next epoch.
    assert told(rig, ends) is (STATE if commit else OK)


@pytest.mark.req("T3")
def test_a_transaction_that_took_too_long_may_be_aborted_by_its_producer() -> None:
    rig = Rig()
    producer = rig.init(timeout_ms=15_000)
    rig.add(producer)
    rig.pass_time(20_000)
    rig.write_markers()
    assert told(rig, EndTransaction("x", *producer, True, 2, FRESH_ID)) is STATE
    following = rig.end(producer, commit=False, version=2)
    assert following == (producer.producer_id, producer.producer_epoch + 1)
    rig.add(following)


@pytest.mark.req("T3")
def test_an_epoch_that_is_kept_for_fencing_is_given_to_nobody() -> None:
    rig = in_state(ONGOING, 2, EPOCH_MAX - 1)
    last = ProducerGoesOn(ID, EPOCH_MAX - 1)
    # Another producer begins, and the open transaction is aborted with the last epoch.
    assert told(rig, InitProducer("x", 60_000, fresh_id=FRESH_ID)) is BUSY
    rig.write_markers()
    assert rig.core.known["x"].producer_epoch == EPOCH_MAX
    assert told(rig, EndTransaction("x", *last, False, 2, FRESH_ID)) is FENCED
    assert rig.init().producer_epoch == 0


@pytest.mark.req("T3")
@pytest.mark.parametrize(
    ("state", "epoch", "code"),
    [
        ("COMPLETE_COMMIT", EPOCH_MAX - 1, OK),
        ("COMPLETE_COMMIT", EPOCH_MAX - 2, MAPPING),
        (EMPTY, EPOCH_MAX - 1, FENCED),
        (ONGOING, EPOCH_MAX - 1, FENCED),
        (ONGOING, EPOCH_MAX - 2, MAPPING),
        ("PREPARE_COMMIT", EPOCH_MAX - 1, BUSY),
    ],
)
def test_a_request_of_used_up_epochs_is_told_its_answer_again(
    state: str, epoch: int, code: ErrorCode
) -> None:
    rig = in_state(state, 2, epoch=0, previous_id=OTHER_ID)
    assert told(rig, EndTransaction("x", OTHER_ID, epoch, True, 2, FRESH_ID)) is code
