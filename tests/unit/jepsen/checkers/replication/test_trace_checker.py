"""What servers tell of themselves, judged in one process."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.replication.trace import (
    ANOMALIES,
    ASSIGNMENT,
    LEADER,
    METADATA_LOG,
    NOTHING,
    RECORD,
    REPLICA,
    check_trace,
)
from jepsen.history import HistoryError, Op, OpType
from tests.kit.spark.traces import random_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.req("J4")

KEY = "orders-0"


def _trace(*told: tuple[str, str, Any], key: str | None = KEY) -> list[Op]:
    """Lines of (node, event, value)."""
    return [
        Op(index, index, node, OpType.INFO, f, value, None if f == LEADER else key)
        for index, (node, f, value) in enumerate(told)
    ]


def _replica(epoch: int, high_watermark: int, log_end: int = 9, **more: Any) -> dict[str, Any]:
    told = {"leads": False, "epoch": epoch, "high_watermark": high_watermark, "log_end": log_end}
    return told | more


def _assignment(leader: int, epochs: tuple[int, int], isr: Sequence[int]) -> dict[str, Any]:
    leader_epoch, partition_epoch = epochs
    fields = {"leader": leader, "leader_epoch": leader_epoch, "partition_epoch": partition_epoch}
    return fields | {"isr": list(isr)}


GOOD = (
    ("b-1", ASSIGNMENT, _assignment(1, (4, 7), (1, 2))),
    ("b-2", ASSIGNMENT, _assignment(1, (4, 7), (1, 2))),
    ("b-1", REPLICA, _replica(4, 2, leads=True)),
    ("b-2", REPLICA, _replica(4, 0)),
    ("b-1", RECORD, {"offset": 0, "record": "a"}),
    ("b-2", RECORD, {"offset": 0, "record": "a"}),
    ("b-1", REPLICA, _replica(3, 1, life=1)),
    ("b-1", ASSIGNMENT, _assignment(-1, (5, 8), (1,))),
    ("observer", LEADER, ["c-1", 4]),
)


def test_servers_that_agree_are_valid_and_silence_is_unknown() -> None:
    verdict = check_trace(_trace(*GOOD))
    assert (verdict.valid, dict(verdict.statistics)) == (True, {"events": 9, "partitions": 2})
    others = [replace(GOOD_OP, process=3) for GOOD_OP in _trace(*GOOD)]
    verdict = check_trace(others)
    assert (verdict.valid, verdict.why_unknown) == ("unknown", NOTHING)
    for seed in range(100):
        assert check_trace(random_trace(random.Random(seed), 0.0)).anomalies == ()


@pytest.mark.parametrize(
    ("told", "name", "lines", "detail"),
    [
        (
            ("b-2", REPLICA, _replica(4, 0, leads=True)),
            "two-leaders",
            (2, 9),
            {"at": 4, "told": [{"what": "b-1", "node": "b-1"}, {"what": "b-2", "node": "b-2"}]},
        ),
        (
            ("observer", LEADER, ("c-2", 4)),
            "two-leaders",
            (8, 9),
            {
                "partition": METADATA_LOG,
                "at": 4,
                "told": [{"what": one, "node": "observer"} for one in ("c-1", "c-2")],
            },
        ),
        (
            ("b-3", RECORD, {"offset": 0, "record": "b"}),
            "diverged-record",
            (4, 5, 9),
            {
                "at": 0,
                "told": [
                    {"what": what, "node": f"b-{n}"} for what, n in (("a", 1), ("a", 2), ("b", 3))
                ],
            },
        ),
        (
            ("b-3", ASSIGNMENT, _assignment(1, (4, 7), (1, 2, 3))),
            "inconsistent-assignment",
            (0, 1, 9),
            {
                "at": 7,
                "told": [
                    {"what": f"leader 1 of epoch 4, in sync {isr}", "node": f"b-{node}"}
                    for isr, node in (("1 2", 1), ("1 2", 2), ("1 2 3", 3))
                ],
            },
        ),
        (
            ("b-2", REPLICA, _replica(3, 0)),
            "epoch-went-back",
            (3, 9),
            {"node": "b-2", "of": "epoch", "value": 3, "after": 4},
        ),
        (
            ("b-1", ASSIGNMENT, _assignment(1, (4, 9), (1,))),
            "epoch-went-back",
            (7, 9),
            {"node": "b-1", "of": "leader_epoch", "value": 4, "after": 5},
        ),
        (
            ("b-1", REPLICA, _replica(4, 0, life=1)),
            "high-watermark-went-back",
            (6, 9),
            {"node": "b-1", "of": "high_watermark", "value": 0, "after": 1},
        ),
        (
            ("b-2", REPLICA, _replica(4, 10)),
            "high-watermark-beyond-log",
            (9,),
            {"node": "b-2", "high_watermark": 10, "log_end": 9},
        ),
        (
            ("b-2", ASSIGNMENT, _assignment(3, (6, 9), (1, 2))),
            "leader-not-in-isr",
            (9,),
            {"node": "b-2", "leader": 3, "isr": [1, 2]},
        ),
    ],
)
def test_what_is_wrong_is_found_and_nothing_else(
    told: tuple[str, str, Any], name: str, lines: tuple[int, ...], detail: dict[str, Any]
) -> None:
    verdict = check_trace(_trace(*GOOD, told))
    assert verdict.valid is False
    (found,) = verdict.anomalies
    assert found.name == name in ANOMALIES
    assert found.ops == lines
    assert found.detail == {"partition": KEY} | detail


@pytest.mark.parametrize(
    ("f", "value", "key"),
    [
        (REPLICA, _replica(1, 1), None),
        (REPLICA, _replica(1, 1, leads=1), KEY),
        (RECORD, {"offset": True, "record": "a"}, KEY),
        (RECORD, "a", KEY),
        (ASSIGNMENT, _assignment(1, (1, 1), ()) | {"isr": ["1"]}, KEY),
        (ASSIGNMENT, _assignment(1, (1, 1), ()) | {"life": "first"}, KEY),
        (LEADER, ["c-1", "4"], None),
        (LEADER, None, None),
    ],
)
def test_what_lacks_a_field_is_refused(f: str, value: Any, key: str | None) -> None:
    with pytest.raises(HistoryError, match=f"line 0: {f} needs"):
        check_trace(_trace(("b-1", f, value), key=key))
