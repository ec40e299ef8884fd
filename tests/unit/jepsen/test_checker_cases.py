"""Each anomaly of each checker has a history, and what nearly has it is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.machine import Budget
from jepsen.checkers.registry import CHECKERS, LINEARIZABLE, TRACE, checker_named, model_named
from jepsen.formats import read_text
from jepsen.history import to_json, write_edn
from tests.checker_cases import CASES, Case
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from jepsen.checkers.verdict import Verdict
    from jepsen.history import Op

pytestmark = pytest.mark.req("J4")


def judged(case: Case, lines: list[Op]) -> Verdict:
    model = model_named(case.model or "register")
    return checker_named(case.checker.partition("(")[0], model, Budget)(lines)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.checker}-{case.anomaly}")
def test_a_history_has_its_anomaly_and_the_near_one_has_none(case: Case) -> None:
    found = judged(case, history(*case.lines))
    assert found.valid is False
    assert case.anomaly in {one.name for one in found.anomalies}
    near = judged(case, history(*case.near))
    assert near.anomalies == ()
    assert near.valid is True, near.why_unknown


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.checker}-{case.anomaly}")
def test_a_history_is_judged_alike_in_json_and_edn(case: Case) -> None:
    lines = history(*case.lines)
    for text in ("".join(f"{to_json(op)}\n" for op in lines), write_edn(lines)):
        found = judged(case, read_text(text))
        assert case.anomaly in {one.name for one in found.anomalies}


def test_each_checker_has_cases() -> None:
    elsewhere = {"list-append", "availability", TRACE}
    names = {case.checker.partition("(")[0] for case in CASES}
    assert names == {LINEARIZABLE, *CHECKERS} - elsewhere
