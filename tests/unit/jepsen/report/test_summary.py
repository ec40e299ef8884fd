"""A run in numbers, and what the demo counts."""

from __future__ import annotations

from typing import Any

import pytest

from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.cli.commands.demo import PLAN, TIME_LIMIT_S, counted, summary_of
from jepsen.generator.core import NEMESIS, OBSERVER, SECOND_NS
from jepsen.history import Op, OpType

pytestmark = pytest.mark.req("A2", "J1")
OK, INFO = OpType.OK, OpType.INFO


def history(*lines: tuple[float, int | str, OpType, str, Any]) -> list[Op]:
    return [
        Op(at, round(seconds * SECOND_NS), process, kind, f, value)
        for at, (seconds, process, kind, f, value) in enumerate(lines)
    ]


def test_the_longest_interruption_is_between_two_writes_of_any_client() -> None:
    sent = [["send", "0", [0, 1]]]
    found = summary_of(
        history(
            (1, 0, OK, "send", sent),
            (2, 1, OK, "send", [*sent, *sent]),
            (3, 1, OK, "poll", []),
            (4.5, 0, OK, "send", sent),
            (5, 1, OpType.FAIL, "send", sent),
            (30, 0, OK, "send", sent),
        ),
        time_limit_s=20,
    )
    assert (found["acknowledged"], found["longest_interruption_s"]) == (5, 2.5)


def test_a_failover_ends_when_another_controller_is_observed() -> None:
    before = [(0.5, OBSERVER, INFO, "leader", ["controller-1", 1])]
    killed = [(2, NEMESIS, INFO, "kill", ["controller-1"])]
    after = [(3.25, OBSERVER, INFO, "leader", ["controller-2", 2])]
    assert summary_of(history(*before, *killed, *after), 9)["new_controller_s"] == 1.25
    assert summary_of(history(*before, *killed), 9)["new_controller_s"] is None
    other = [(2, NEMESIS, INFO, "kill", ["broker-1"])]
    assert summary_of(history(*before, *other, *after), 9)["new_controller_s"] is None


def test_anomalies_are_counted_as_lost_duplicated_and_out_of_order() -> None:
    names = ("lost-write", "unseen", "duplicate", "nonmonotonic-send", "poll-skip")
    verdict = Verdict(False, tuple(Anomaly(name, {}) for name in names))
    assert counted(verdict) == {"lost": 2, "duplicated": 1, "out_of_order": 1}


def test_every_fault_of_the_demo_ends_in_time() -> None:
    assert all(0 < fault.at_ms + fault.for_ms < TIME_LIMIT_S * 1000 for fault in PLAN)
