"""Each rule of the checkers is planted with a bug, and a case of the tables notices it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.linearizable._machine import Budget
from jepsen.checkers.registry import checker_named, model_named
from jepsen.checkers.transactions import consistency
from jepsen.checkers.transactions.consistency import forbidden, implied, orders
from jepsen.checkers.transactions.list_append import check_list_append
from tests.kit.checker_cases import CASES
from tests.mutants.checker_catalog import CHECKER_EDITS
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.checkers.verdict import Verdict
    from tests.mutants.edit import Edit

pytestmark = pytest.mark.req("J9")
LISTS = json.loads((Path(__file__).parent / "cases/list_append.json").read_text())


def verdicts_of_lists() -> Iterator[bool]:
    """Whether each case of lists is judged as it is to be."""
    for case in LISTS:
        parts = ((process, kind, "txn", micros) for process, kind, micros in case["lines"])
        lines = history(*parts)
        wanted: dict[str, Any] = dict.fromkeys(case["valid"], True)
        wanted |= dict.fromkeys(case["invalid"], False)
        wanted |= dict.fromkeys(case["unknown"], "unknown")
        for model, valid in wanted.items():
            verdict = check_list_append(lines, model)
            names = {one.name for one in verdict.anomalies}
            yield verdict.valid == valid and names.issuperset(case["invalid"].get(model, ()))


def verdicts_of(checker: str) -> Iterator[bool]:
    """As above, of the cases of another checker."""
    for case in CASES:
        name = case.checker.partition("(")[0]
        if name == checker:
            judge = checker_named(name, model_named(case.model or "register"), Budget)
            found: Verdict = judge(history(*case.lines))
            yield case.anomaly in {one.name for one in found.anomalies}
            yield judge(history(*case.near)).valid is True


def is_noticed(checker: str) -> bool:
    return not all(verdicts_of_lists() if checker == "list-append" else verdicts_of(checker))


def forget_models() -> None:
    """What models forbid is remembered, and is to be asked anew."""
    for cached in (forbidden, orders, implied, consistency._cases):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("edit", "checker"), CHECKER_EDITS, ids=lambda one: getattr(one, "name", "")
)
def test_a_bug_in_a_rule_is_noticed(
    edit: Edit, checker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as planted:
        planted.setattr(edit.target, "__code__", edit.code())
        forget_models()
        assert is_noticed(checker)
    forget_models()


@pytest.mark.parametrize("checker", sorted({checker for _, checker in CHECKER_EDITS}))
def test_without_a_bug_nothing_is_noticed(checker: str) -> None:
    assert not is_noticed(checker)
