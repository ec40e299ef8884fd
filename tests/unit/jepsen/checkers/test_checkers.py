"""Sets, counters, queues, locks, banks, transactions, availability: what each checker finds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers import check_availability, check_bank, check_lock, check_set_full
from jepsen.checkers._simple import check_counter, check_queue
from jepsen.checkers.kafka import check_kafka
from jepsen.checkers.transactions.list_append import check_list_append
from jepsen.history import Op, OpType
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from jepsen.checkers.verdict import Verdict

pytestmark = pytest.mark.req("J4")


def names(verdict: Verdict) -> list[str]:
    return sorted({one.name for one in verdict.anomalies})


def one_after_the_other(*calls: tuple[Any, ...]) -> list[Op]:
    """(f, value invoked, value at the end[, type[, process]]) a call."""
    lines = []
    for f, asked, ended, *rest in calls:
        kind, process = (rest + ["ok", 0][len(rest) :])[:2]
        lines += [(process, "invoke", f, asked), (process, kind, f, ended)]
    return history(*lines)


# --- set ------------------------------------------------------------------------------------------


def test_a_set_that_keeps_everything_is_valid() -> None:
    lines = one_after_the_other(("add", 1, 1), ("add", 2, 2), ("read", None, [1, 2]))
    assert check_set_full(lines).valid is True


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ([[1, 1, 2]], ["duplicate"]),
        ([[2]], ["lost"]),
        ([[1, 2], [2]], ["lost"]),
        ([[2], [1, 2]], ["stale"]),
        ([[1, 2, 3]], ["unexpected"]),
        ([[1, 2, 4]], ["unexpected"]),
    ],
)
def test_what_a_set_loses_or_invents_is_told(reads: list[list[int]], expected: list[str]) -> None:
    adds = [("add", 1, 1), ("add", 2, 2), ("add", 4, 4, "fail")]
    lines = one_after_the_other(*adds, *(("read", None, read) for read in reads))
    assert names(check_set_full(lines)) == expected


def test_what_nobody_knows_to_be_added_may_come_or_not() -> None:
    lines = one_after_the_other(("add", 1, 1, "info"), ("add", 2, 2, "info", 1))
    lines += one_after_the_other(("read", None, [2], "ok", 2))
    lines = [Op(at, at, op.process, op.type, op.f, op.value) for at, op in enumerate(lines)]
    assert check_set_full(lines).valid is True


@pytest.mark.parametrize("again", ["fail", "info", "ok"])
def test_an_element_that_is_added_again_is_still_missed(again: str) -> None:
    """Fails where the last add of an element stands for all of them."""
    first = [("add", 1, 1), ("add", 2, 2), ("read", None, [1, 2])]
    lines = one_after_the_other(*first, ("add", 1, 1, again), ("read", None, [2]))
    assert names(check_set_full(lines)) == ["lost"]


@pytest.mark.parametrize("other", ["fail", "info"])
def test_an_element_may_be_there_if_any_add_of_it_may_have_done_it(other: str) -> None:
    adds = [("add", 1, 1, other), ("read", None, [1]), ("add", 1, 1), ("read", None, [1])]
    expected = ["unexpected"] if other == "fail" else []
    assert names(check_set_full(one_after_the_other(*adds))) == expected
    failed = [("add", 1, 1, "fail"), ("add", 1, 1, "fail"), ("read", None, [1])]
    assert names(check_set_full(one_after_the_other(*failed))) == ["unexpected"]


def test_a_set_that_was_never_read_is_unknown() -> None:
    assert check_set_full(one_after_the_other(("add", 1, 1))).valid == "unknown"
    empty: tuple[str, None, list[int]] = ("read", None, [])
    assert check_set_full(one_after_the_other(empty)).valid == "unknown"
    assert check_set_full(one_after_the_other(("add", 1, 1, "info"), empty)).valid == "unknown"


def test_stale_reads_of_a_set_may_be_allowed() -> None:
    lines = one_after_the_other(("add", 1, 1), ("read", None, []), ("read", None, [1]))
    verdict = check_set_full(lines, linearizable=False)
    assert verdict.valid is True
    assert [note.name for note in verdict.notes] == ["stale"]


# --- counter, queue, lock, bank -------------------------------------------------------------------


def test_a_counter_stays_within_its_bounds() -> None:
    lines = history(
        (0, "invoke", "add", 5),
        (0, "ok", "add", 5),
        (1, "invoke", "add", -2),
        (2, "invoke", "read", None),
        (2, "ok", "read", 3),
        (2, "invoke", "read", None),
        (2, "ok", "read", 5),
    )
    assert check_counter(lines).valid is True
    wrong = one_after_the_other(("add", 5, 5), ("read", None, 4))
    assert names(check_counter(wrong)) == ["out-of-bounds"]


PUT, TAKE = ("enqueue", 1, 1), ("dequeue", None, 1)
EMPTY: tuple[str, None, list[int]] = ("drain", None, [])


@pytest.mark.req("J3", "J4")
@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([PUT, ("enqueue", 2, 2), TAKE, ("drain", None, [2])], []),
        ([PUT, ("enqueue", 2, 2), ("drain", None, [1])], ["lost"]),
        ([PUT, ("drain", None, [1]), TAKE], ["duplicate"]),
        # A value may be there several times, and is then to be taken as often.
        ([PUT, PUT, TAKE, ("drain", None, [1])], []),
        ([PUT, PUT, TAKE, EMPTY], ["lost"]),
        ([PUT, PUT, ("drain", None, [1, 1, 1])], ["duplicate"]),
        # Nobody knows of one whether it was put in: it may be taken, and need not.
        ([PUT, ("enqueue", 1, 1, "info"), TAKE, EMPTY], []),
        ([PUT, ("enqueue", 1, 1, "info"), TAKE, TAKE, EMPTY], []),
        ([PUT, ("enqueue", 1, 1, "info"), TAKE, TAKE, TAKE, EMPTY], ["duplicate"]),
        ([("enqueue", 1, 1, "fail"), TAKE, EMPTY], ["unexpected"]),
        ([TAKE, EMPTY], ["unexpected"]),
        ([TAKE, PUT, EMPTY], ["lost", "unexpected"]),
        ([PUT, TAKE, TAKE, PUT, EMPTY], ["lost", "unexpected"]),
        ([PUT, ("dequeue", None, None), ("drain", None, [1])], []),
    ],
)
def test_a_queue_loses_nothing_and_delivers_as_often_as_was_put_in(
    operations: list[Any], expected: list[str]
) -> None:
    verdict = check_queue(one_after_the_other(*operations))
    assert names(verdict) == expected
    assert verdict.valid is (not expected)


def test_what_is_lost_of_a_queue_only_a_drain_shows() -> None:
    assert check_queue(one_after_the_other(PUT)).valid == "unknown"
    failed = ("drain", None, [1], "fail")
    drained, late = ("drain", None, [1]), ("enqueue", 2, 2)
    # What came after the last drain may still be inside.
    assert check_queue(one_after_the_other(PUT, drained, late)).valid == "unknown"
    assert check_queue(one_after_the_other(PUT, drained, late, ("dequeue", None, 2))).valid is True
    assert check_queue(one_after_the_other(PUT, drained, (*late, "info"))).valid is True
    assert check_queue(one_after_the_other(PUT, failed)).valid == "unknown"


def test_tokens_of_a_lock_only_rise() -> None:
    good = [("acquire", None, 3), ("write", 3, 3), ("release", 3, 3), ("acquire", None, 7)]
    assert check_lock(one_after_the_other(*good)).valid is True
    again = one_after_the_other(*good, ("acquire", None, 5))
    assert names(check_lock(again)) == ["token-went-back"]
    twice = one_after_the_other(*good, ("acquire", None, 7))
    assert names(check_lock(twice)) == ["token-granted-twice"]
    stale = one_after_the_other(*good, ("write", 7, 7), ("write", 3, 3))
    assert names(check_lock(stale)) == ["stale-token-accepted"]


def test_who_guards_a_lock_refuses_its_last_holder() -> None:
    late = [("acquire", None, 3), ("acquire", None, 7, "ok", 1), ("write", None, 3)]
    assert check_lock(one_after_the_other(*late)).valid is True
    assert names(check_lock(one_after_the_other(*late), guarded=True)) == [
        "written-after-next-grant"
    ]
    refused = [*late[:2], ("write", None, 3, "fail")]
    assert check_lock(one_after_the_other(*refused), guarded=True).valid is True


def test_two_holders_of_a_lock_are_noted() -> None:
    lines = one_after_the_other(("acquire", None, 3), ("acquire", None, 4, "ok", 1))
    verdict = check_lock(lines)
    assert verdict.valid is True
    assert [note.name for note in verdict.notes] == ["held-by-two"]


@pytest.mark.req("J3", "J4")
@pytest.mark.parametrize(
    ("balances", "expected"),
    [
        ({"a": 4, "b": 6}, []),
        ({"a": 4, "b": 5}, ["wrong-total"]),
        ({"a": 11, "b": -1}, ["negative-balance"]),
        ({"a": 12, "b": -1}, ["negative-balance", "wrong-total"]),
        ({"a": 10}, ["wrong-accounts"]),
        ({"a": 10, "b": 0, "c": 0}, ["wrong-accounts"]),
        ({"a": 10, "b": None}, ["nil-balance"]),
        ({}, ["wrong-accounts"]),
        (None, ["wrong-accounts"]),
    ],
)
def test_money_is_neither_made_nor_lost(balances: Any, expected: list[str]) -> None:
    good = ("read", None, {"a": 10, "b": 0})
    verdict = check_bank(one_after_the_other(good, ("read", None, balances)))
    assert names(verdict) == expected
    early = check_bank(one_after_the_other(("read", None, balances), good))
    assert early.valid is (not expected)


def test_a_bank_of_which_nothing_was_read_is_unknown() -> None:
    transfer = ("transfer", {"from": "a", "to": "b", "amount": 1}, None)
    assert check_bank(one_after_the_other(transfer)).valid == "unknown"
    assert check_bank(one_after_the_other(transfer, ("read", None, {}))).valid == "unknown"


def test_no_half_of_a_transfer_that_failed_is_read() -> None:
    lines = one_after_the_other(
        ("transfer", {"number": 4}, {"number": 4}, "fail"),
        ("transfer", {"number": 5}, {"number": 5}, "info"),
        ("read", None, {"a": 1, "b": 0}),
        ("read", None, {"halves": [5]}, "fail"),
    )
    assert check_bank(lines).valid is True
    seen = one_after_the_other(
        ("transfer", {"number": 4}, {"number": 4}, "fail"),
        ("read", None, {"a": 1, "b": 0}),
        ("read", None, {"halves": [4]}, "fail"),
    )
    assert names(check_bank(seen)) == ["aborted-transfer-read"]


def test_an_outage_is_measured_from_success_to_success() -> None:
    times = [0, 1, 2, 9, 10, 11]
    kinds = ["invoke", "ok", "invoke", "info", "invoke", "ok"]
    lines = [
        Op(at, time * 10**9, at // 2, OpType(kind), "read")
        for at, (time, kind) in enumerate(zip(times, kinds, strict=True))
    ]
    verdict = check_availability(lines)
    assert verdict.valid is True
    assert verdict.statistics["longest_outage_s"] == {"read": 10.0}
    assert names(check_availability(lines, outage_s_max=5)) == ["outage"]
    assert check_availability(lines[:1]).valid == "unknown"


def test_what_was_not_tried_before_the_end_was_not_missing() -> None:
    seconds = [(0, "send"), (1, "send"), (60, "final-poll"), (63, "final-poll"), (70, "late")]
    lines: list[Op] = []
    for at, f in seconds:
        for kind, moment in ((OpType.INVOKE, at), (OpType.OK, at + 0.5)):
            lines.append(Op(len(lines), int(moment * 10**9), 0, kind, f))
    outages = check_availability(lines).statistics["longest_outage_s"]
    assert outages == {"send": 1.0, "late": 0.5}


# --- transactions of lists ------------------------------------------------------------------------


def txns(*calls: tuple[Any, ...]) -> list[Op]:
    """(micro-operations at the end[, type]) of processes of their own, one after the other."""
    lines = []
    for process, (micro, *rest) in enumerate(calls):
        asked = [[f, key, value if f == "append" else None] for f, key, value in micro]
        lines += [(process, "invoke", "txn", asked)]
        lines += [(process, rest[0] if rest else "ok", "txn", micro)]
    return history(*lines)


def at_once(lines: list[Op]) -> list[Op]:
    """All invocations first, so that real time orders nothing."""
    parted = [op for op in lines if op.type is OpType.INVOKE]
    parted += [op for op in lines if op.type is not OpType.INVOKE]
    return [Op(at, at, op.process, op.type, op.f, op.value) for at, op in enumerate(parted)]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([([["append", "x", 1]], "fail"), ([["r", "x", [1]]],)], ["G1a"]),
        (
            [([["append", "x", 1], ["append", "x", 2]],), ([["r", "x", [1]]],)],
            ["G-single-item", "G1b"],
        ),
        (
            [
                ([["append", "x", 1], ["r", "y", [1]]],),
                ([["append", "y", 1], ["r", "x", [1]]],),
            ],
            ["G1c"],
        ),
        (
            [
                ([["append", "x", 1], ["append", "y", 2]],),
                ([["append", "x", 2], ["append", "y", 1]],),
                ([["r", "x", [1, 2]]],),
                ([["r", "y", [1, 2]]],),
            ],
            ["G0"],
        ),
        (
            [
                ([["r", "x", []], ["append", "y", 1]],),
                ([["r", "y", []], ["append", "x", 1]],),
                ([["r", "x", [1]], ["r", "y", [1]]],),
            ],
            ["G2-item"],
        ),
        (
            [
                ([["append", "x", 1], ["append", "y", 1]],),
                ([["r", "x", [1]], ["r", "y", []]],),
                ([["r", "y", [1]]],),
            ],
            ["G-single-item"],
        ),
        ([([["append", "x", 1]],), ([["r", "x", [1, 1]]],)], ["duplicate-elements"]),
        ([([["append", "x", 1], ["r", "x", []]],), ([["r", "x", [1]]],)], ["internal"]),
        (
            [
                ([["append", "x", 1]],),
                ([["append", "x", 2]],),
                ([["r", "x", [1, 2]]],),
                ([["r", "x", [2]]],),
            ],
            ["incompatible-order"],
        ),
    ],
)
def test_an_isolation_anomaly_has_its_name(calls: list[Any], expected: list[str]) -> None:
    assert names(check_list_append(at_once(txns(*calls)))) == expected


def test_what_a_system_does_not_promise_is_noted() -> None:
    lines = txns(([["append", "x", 1]],), ([["r", "x", []]],), ([["r", "x", [1]]],))
    assert names(check_list_append(lines)) == ["G-single-item-realtime"]
    verdict = check_list_append(lines, "serializable")
    assert verdict.valid is True
    assert [note.name for note in verdict.notes] == ["G-single-item-realtime"]


@pytest.mark.parametrize("seed", range(10))
def test_transactions_one_at_a_time_are_strictly_serializable(seed: int) -> None:
    rng = random.Random(seed)
    lists: dict[str, list[int]] = {"x": [], "y": [], "z": []}
    calls = []
    for number in range(60):
        micro: list[list[Any]] = []
        for part in range(rng.randint(1, 4)):
            key = rng.choice(sorted(lists))
            if rng.random() < 0.5:
                lists[key].append(number * 10 + part)
                micro.append(["append", key, number * 10 + part])
            else:
                micro.append(["r", key, list(lists[key])])
        calls.append((micro, "info") if rng.random() < 0.1 else (micro,))
    assert check_list_append(txns(*calls)).anomalies == ()


# --- logs -----------------------------------------------------------------------------------------


def log_history(seed: int) -> list[Op]:
    """Producers and consumers of logs that keep everything, some of whom fail or are lost."""
    rng = random.Random(seed)
    logs: dict[str, list[int]] = {"x": [], "y": []}
    places: dict[int, dict[str, int]] = {}
    lines: list[tuple[Any, ...]] = []
    process, value = 0, 0
    for _ in range(80):
        key = rng.choice(sorted(logs))
        if rng.random() < 0.5:
            value += 1
            lines.append((process, "invoke", "send", [["send", key, value]]))
            kind = rng.choice(["ok", "ok", "ok", "info", "fail"])
            if kind == "ok" or (kind == "info" and rng.random() < 0.5):
                logs[key].append(value)
            told = [len(logs[key]) - 1, value] if kind == "ok" else value
            lines.append((process, kind, "send", [["send", key, told]]))
            process += kind == "info"
            continue
        at = places.setdefault(process, dict.fromkeys(logs, 0))
        end = rng.randint(at[key], len(logs[key]))
        found = {key: [[offset, logs[key][offset]] for offset in range(at[key], end)]}
        at[key] = end
        lines += [
            (process, "invoke", "poll", [["poll"]]),
            (process, "ok", "poll", [["poll", found]]),
        ]
    everything = {key: [[at, one] for at, one in enumerate(log)] for key, log in logs.items()}
    lines += [(1000, "invoke", "poll", [["poll"]]), (1000, "ok", "poll", [["poll", everything]])]
    return history(*lines)


@pytest.mark.parametrize("seed", range(20))
def test_logs_that_keep_everything_have_no_anomaly(seed: int) -> None:
    verdict = check_kafka(log_history(seed), ww_deps=True)
    assert verdict.anomalies == ()
    assert verdict.valid is True


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (
            [
                ("send", [["send", "x", 1]], [["send", "x", [0, 1]]]),
                ("poll", [["poll"]], [["poll", {"x": [[3, 1]]}]]),
            ],
            ["duplicate", "spurious-zero-offset"],
        ),
        (
            [
                ("send", [["send", "x", 1]], [["send", "x", [0, 1]]]),
                ("poll", [["poll"]], [["poll", {"x": [[0, 1], [1, 9]]}]]),
            ],
            ["unexpected"],
        ),
        (
            [
                (
                    "txn",
                    [["send", "x", 1], ["poll"]],
                    [["send", "x", [0, 1]], ["poll", {"x": [[0, 1]]}]],
                ),
            ],
            ["precommitted-read"],
        ),
        (
            [
                ("txn", [["send", "x", 1], ["send", "y", 2]], None, "info"),
                ("poll", [["poll"]], [["poll", {"x": [[0, 1]]}]], "ok", 1),
                ("send", [["send", "y", 3]], [["send", "y", [0, 3]]], "ok", 1),
                ("poll", [["poll"]], [["poll", {"y": [[0, 3]]}]], "ok", 1),
            ],
            ["torn-transaction"],
        ),
        (
            [
                ("send", [["send", "x", 1]], [["send", "x", [0, 1]]]),
                ("poll", [["poll"]], [["poll", {"x": [[0, 1]]}]]),
                ("commit", {"x": 5}, {"x": 5}),
                ("commit", {"x": 9}, {"x": 9}),
                ("committed", None, {"x": 5}),
            ],
            ["committed-offset-regression"],
        ),
        (
            [
                ("send", [["send", "x", 1]], [["send", "x", [0, 1]]]),
                ("send", [["send", "x", 2]], [["send", "x", [1, 2]]]),
                ("poll", [["poll"]], [["poll", {"x": [[0, 1]]}]]),
            ],
            ["unseen"],
        ),
    ],
)
def test_an_anomaly_of_logs_has_its_name(calls: list[Any], expected: list[str]) -> None:
    assert names(check_kafka(one_after_the_other(*calls))) == expected


def test_a_commit_of_a_lower_offset_is_nobody_s_fault() -> None:
    lines = one_after_the_other(
        ("commit", {"x": 9}, {"x": 9}),
        ("commit", {"x": 5}, {"x": 5}),
        ("committed", None, {"x": 5}),
    )
    assert check_kafka(lines).anomalies == ()


def test_a_rebalance_may_move_a_consumer() -> None:
    lines = one_after_the_other(
        ("subscribe", ["x"], ["x"]),
        (
            "send",
            [["send", "x", 1], ["send", "x", 2]],
            [["send", "x", [0, 1]], ["send", "x", [1, 2]]],
        ),
        ("poll", [["poll"]], [["poll", {"x": [[0, 1], [1, 2]]}]]),
        ("poll", [["poll"]], [["poll", {"x": [[0, 1]]}]]),
    )
    verdict = check_kafka(lines)
    assert verdict.valid is True
    assert [note.name for note in verdict.notes] == ["nonmonotonic-poll"]
