"""Each anomaly of each checker has a history, and what nearly has it is valid."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.linearizable._machine import Budget
from jepsen.checkers.registry import CHECKERS, LINEARIZABLE, TRACE, checker_named, model_named
from jepsen.history.formats import read_text, to_json, write_edn
from tests.kit.checker_cases import CASES, Case
from tests.kit.spark.equality import write_table
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from jepsen.checkers.verdict import Verdict
    from jepsen.history import Op
    from tests.kit.checker_cases import Line

pytestmark = pytest.mark.req("J4")
ROOT = Path(__file__).parents[4]


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


ELSEWHERE = {
    "committed-offset-regression": "test_checkers.py",
    "held-by-two": "test_checkers.py",
    "int-send-skip": "../spark/test_check.py",
    "outage": "test_checkers.py",
    "written-after-next-grant": "test_checkers.py",
}
"""Anomalies of an option, and notes, with the test that has a history of each."""


def names_in_source() -> set[str]:
    """Of the anomalies that the checkers tell by a name that stands in their source."""
    found = set[str]()
    for path in (ROOT / "jepsen").glob("checkers/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(ast.Name("Anomaly" | "_backwards"), [ast.Constant(str(name)), *_]):
                    found.add(name)
                case ast.Assign(
                    [ast.Name("name")], ast.IfExp(_, ast.Constant(str(a)), ast.Constant(str(b)))
                ):
                    found |= {a, b}
    return found


def test_each_anomaly_that_a_checker_tells_has_a_history() -> None:
    told = names_in_source()
    assert len(told) > 30
    lists = json.loads((Path(__file__).parent / "cases/list_append.json").read_text())
    shown = {case.anomaly for case in CASES}
    shown |= {name for case in lists for names in case["invalid"].values() for name in names}
    missing = told - shown - set(ELSEWHERE)
    assert missing == set()
    for name, test in ELSEWHERE.items():
        assert f'"{name}"' in (Path(__file__).parent / test).read_text(), name


@pytest.mark.timeout(600)
def test_spark_says_the_same(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs raftctl[spark]")
    from jepsen.spark.check import Question, check
    from tests.kit.spark.sessions import quick_session

    by_question: dict[tuple[str, str], dict[str, tuple[Line, ...]]] = {}
    for case in CASES:
        name = case.checker.partition("(")[0]
        name = "kafka-log" if name == "kafka" else name
        mine = by_question.setdefault((name, case.model), {})
        mine[f"{case.anomaly}-has"], mine[f"{case.anomaly}-near"] = case.lines, case.near
    with quick_session("local[2]") as spark:
        for (name, model), mine in by_question.items():
            folder = tmp_path / f"{name}-{model}"
            folder.mkdir()
            table = folder / "cases.parquet"
            write_table({one: history(*lines) for one, lines in mine.items()}, table)
            question = Question(name, model=model or "register")
            found = check(spark, [str(table)], "auto", question, folder / "out", folder / "scratch")
            for one in mine:
                verdict = found[f"{table}:{one}"]
                anomaly, _, kind = one.rpartition("-")
                assert verdict.valid is (kind == "near"), (name, model, one, verdict)
                names = {anomaly.name for anomaly in verdict.anomalies}
                assert (anomaly in names) is (kind == "has")
