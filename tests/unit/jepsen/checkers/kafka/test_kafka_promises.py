"""What Kafka promises to members of groups and to transactions, and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers import check_bank, check_group
from jepsen.checkers.kafka import check_kafka
from jepsen.checkers.transactions.list_append import check_list_append
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from jepsen.history import Op

pytestmark = pytest.mark.req("J4")


def polled(process: int, *member: Any) -> list[tuple[Any, ...]]:
    return [
        (process, "invoke", "poll", [["poll"]]),
        (process, "ok", "poll", [["poll", {}], ["member", *member]]),
    ]


def test_a_partition_has_one_owner_in_a_generation() -> None:
    first, second = polled(0, "a", 1, ["0", "1"]), polled(1, "b", 2, ["1"])
    verdict = check_group(history(*first, *second, *first, *polled(2)))
    assert verdict.valid is True
    assert verdict.statistics == {"generations": 2, "members": 2}
    wrong = check_group(history(*first, *polled(1, "b", 1, ["1"])))
    assert [(one.name, one.detail["key"], one.ops) for one in wrong.anomalies] == [
        ("owned-twice", "1", (1, 3))
    ]


def test_a_group_in_which_nobody_had_anything_is_unknown() -> None:
    assert check_group(history(*polled(0))).valid == "unknown"


def test_what_a_drain_reads_was_handed_to_somebody() -> None:
    sent = [["send", "x", [0, 1]]]
    lines: list[tuple[Any, ...]] = [
        (0, "invoke", "send", [["send", "x", 1]]),
        (0, "ok", "send", sent),
        (1, "invoke", "drain", None),
        (1, "ok", "drain", [["poll", {"x": [[0, 1]]}]]),
    ]
    assert check_kafka(history(*lines)).valid is True
    lines[-1] = (1, "ok", "drain", [["poll", {}]])
    assert [one.name for one in check_kafka(history(*lines)).anomalies] == ["unseen"]


def test_a_commit_of_which_nobody_knows_may_be_what_is_found() -> None:
    lines: list[tuple[Any, ...]] = [
        (0, "invoke", "commit", None),
        (0, "ok", "commit", {"x": 9}),
        (1, "invoke", "commit", None),
        (1, "info", "commit", {"x": 5}),
        (2, "invoke", "committed", None),
        (2, "ok", "committed", {"x": 5}),
    ]
    found = [one.name for one in check_kafka(history(*lines)).anomalies]
    assert found == []
    del lines[2:4]
    found = [one.name for one in check_kafka(history(*lines)).anomalies]
    assert found == ["committed-offset-regression"]


def test_the_sum_of_a_bank_may_be_known() -> None:
    read = history((0, "invoke", "read", None), (0, "ok", "read", {"0": -5, "1": 4}))
    assert check_bank(read, negative=True).valid is True
    found = check_bank(read, negative=True, expected=0).anomalies
    assert [one.name for one in found] == ["wrong-total"]


def at_once(*txns: list[Any]) -> list[Op]:
    asked = [(process, "invoke", "txn", micro) for process, micro in enumerate(txns)]
    ended = [(process, "ok", "txn", micro) for process, micro in enumerate(txns)]
    return history(*asked, *ended)


def test_writes_of_transactions_may_interleave() -> None:
    lines = at_once(
        [["append", "x", 1], ["append", "y", 2]],
        [["append", "x", 2], ["append", "y", 1]],
        [["r", "x", [1, 2]], ["r", "y", [1, 2]]],
    )
    assert check_list_append(lines, "read-committed").valid is False
    verdict = check_list_append(lines, "kafka")
    assert verdict.valid is True
    assert "G0" in {note.name for note in verdict.notes}


def test_two_transactions_do_not_both_read_the_other() -> None:
    lines = at_once(
        [["append", "x", 1], ["r", "y", [1]]],
        [["append", "y", 1], ["r", "x", [1]]],
    )
    found = {one.name for one in check_list_append(lines, "kafka").anomalies}
    assert found == {"G1c"}


def test_what_was_aborted_or_is_not_whole_is_not_read() -> None:
    for kind, expected in (("fail", {"G1a", "G1b"}), ("ok", {"G1b"})):
        micro = [["append", "x", 1], ["append", "x", 2], ["abort"]]
        lines = history(
            (0, "invoke", "txn", micro),
            (0, kind, "txn", micro),
            (1, "invoke", "txn", [["r", "x", None]]),
            (1, "ok", "txn", [["r", "x", [1]]]),
        )
        assert {one.name for one in check_list_append(lines, "kafka").anomalies} == expected


_Line = tuple[int | str, str, str, Any]


def half_read(before: list[_Line], beside: list[_Line], seen: list[int]) -> list[Op]:
    """A transaction of two appends of which a reader sees the first; others around it."""
    micro = [["append", "x", 1], ["append", "x", 2]]
    return history(
        *before,
        (0, "invoke", "txn", micro),
        (0, "ok", "txn", micro),
        *beside,
        (1, "invoke", "txn", [["r", "x", None]]),
        (1, "ok", "txn", [["r", "x", seen]]),
    )


@pytest.mark.parametrize(
    ("other", "promised"),
    [
        ([["append", "x", 3]], False),
        ([["append", "y", 3]], True),
        ([["r", "x", []]], True),
    ],
)
def test_half_a_transaction_is_read_where_another_may_lie_within_it(
    other: list[Any], promised: bool
) -> None:
    """The last stable offset is that other one's first record until it has ended."""
    lines = half_read([(2, "invoke", "txn", other)], [(2, "ok", "txn", other)], [1])
    verdict = check_list_append(lines, "kafka")
    assert verdict.valid is not promised
    assert "G1b" in {one.name for one in (*verdict.anomalies, *verdict.notes)}
    assert check_list_append(lines, "read-committed").valid is False


def test_what_had_ended_before_does_not_lie_within_a_transaction() -> None:
    before = [["append", "x", 0]]
    lines = half_read([(2, "invoke", "txn", before), (2, "ok", "txn", before)], [], [0, 1])
    assert [one.name for one in check_list_append(lines, "kafka").anomalies] == ["G1b"]
