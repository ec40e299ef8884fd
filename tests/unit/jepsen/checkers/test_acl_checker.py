"""The checker of rules beside its definition: small histories, of which every schedule is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen.checkers import check_acl
from jepsen.checkers._acl import Right, Rule
from jepsen.history import OpType, operations
from tests.kit.checker_cases import RULE, info, lines, reached, rule, used
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.history import Op, Operation

pytestmark = pytest.mark.req("J4", "S4")
ALLOW, DENY, OF_PREFIX = (
    list(RULE),
    ["DENY", *RULE[1:]],
    [*RULE[:4], "PREFIXED", ""],
)
ASKED = [1, *RULE[1:4], "t"]
NEVER = 1_000_000


@pytest.mark.parametrize(
    ("operation", "permission", "of_rule", "allowed"),
    [
        ("WRITE", "ALLOW", "ALL", True),
        ("DESCRIBE", "ALLOW", "WRITE", True),
        ("DESCRIBE", "ALLOW", "CREATE", False),
        ("WRITE", "ALLOW", "DESCRIBE", False),
        ("DESCRIBE_CONFIGS", "ALLOW", "ALTER_CONFIGS", True),
        ("WRITE", "DENY", "ALL", False),
        ("DESCRIBE", "DENY", "WRITE", True),
        ("WRITE", "DENY", "WRITE", False),
    ],
)
def test_an_operation_allows_those_that_it_implies_and_denies_no_other(
    operation: str, permission: str, of_rule: str, *, allowed: bool
) -> None:
    all_of = {Rule("ALLOW", "User:a", operation, "TOPIC", "LITERAL", "t")}
    rules = {Rule(permission, "User:a", of_rule, "TOPIC", "LITERAL", "t")}
    rules |= all_of if permission == "DENY" else set()
    right = Right("User:a", operation, "TOPIC", "t")
    assert right.decision(frozenset(rules)) == ("allowed" if allowed else "denied")


def test_a_finding_names_the_right_and_the_lines_that_show_it() -> None:
    shown = lines(rule("add"), reached(1), rule("remove"), reached(1), used("allowed"))
    (found,) = check_acl(history(*shown)).anomalies
    assert found.name == "used-without-right"
    assert found.detail == {
        "broker": 1,
        "principal": "User:a",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "name": "t",
    }
    assert found.ops == (5, 8, 9)


def test_what_shows_nothing_is_unknown() -> None:
    open_change = lines(info(2, "add", list(RULE)))
    assert check_acl(history(*open_change, *used("allowed"))).valid == "unknown"
    assert check_acl(history()).valid == "unknown"
    told = check_acl(history(*open_change, *used("allowed"), *used("allowed")))
    assert told.statistics["uses"] == 2
    assert told.statistics["certain_uses"] == 1


def test_a_search_that_is_cut_short_is_unknown() -> None:
    parts = [info(10 + n, ("add", "remove")[n % 2], list(RULE)) for n in range(12)]
    shown = history(*lines(*parts, used("allowed"), used("denied"), used("allowed")))
    assert check_acl(shown).valid in (True, "unknown")
    told = check_acl(shown, states_max=50)
    assert told.valid == "unknown"
    assert "more than 50 states: broker 1: User:a WRITE TOPIC t" in told.why_unknown


# --- beside the definition ------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Op]:
    """A few changes, uses and reaches, overlapping anyhow."""
    shown: list[tuple[Any, ...]] = []
    under_way: dict[int, tuple[str, Any]] = {}
    process = 0
    for _ in range(draw(st.integers(2, 13))):
        if under_way and (len(under_way) > 2 or draw(st.booleans())):
            which = draw(st.sampled_from(sorted(under_way)))
            f, value = under_way.pop(which)
            kinds = ["ok"] if f in ("use", "reached") else ["ok", "ok", "info", "fail"]
            kind = draw(st.sampled_from(kinds))
            if f == "use":
                value = [*value, draw(st.sampled_from(["allowed", "denied"]))]
            shown.append((which, kind, f, [1] if f == "reached" else value))
            continue
        f = draw(st.sampled_from(["add", "remove", "use", "use", "reached"]))
        value = None if f == "reached" else ASKED
        if f in ("add", "remove"):
            value = draw(st.sampled_from([ALLOW, DENY, OF_PREFIX]))
        process += 1
        under_way[process] = f, value
        shown.append((process, "invoke", f, value))
    return history(*shown)


@given(histories())
def test_a_history_is_valid_where_some_schedule_explains_every_use(lines: list[Op]) -> None:
    found = check_acl(lines, states_max=NEVER)
    assert (found.anomalies == ()) is _is_explained(operations(lines))


def _is_explained(mine: list[Operation]) -> bool:
    """Whether changes can be taken up at such times that each use was right at some time."""
    changes = [one for one in mine if one.invoke.f in ("add", "remove")]
    possible = [one for one in changes if one.type is not OpType.FAIL]
    uses = [one for one in mine if one.invoke.f == "use" and one.type is OpType.OK]
    return any(
        all(_is_right(use, schedule) for use in uses)
        for schedule in _schedules([], possible, mine, 0)
    )


Schedule = list[tuple[int, Any]]
"""Changes in the order in which they are taken up, each with the line behind which that is."""


def _schedules(
    taken: Schedule, left: list[Operation], mine: list[Operation], since: int
) -> Iterator[Schedule]:
    lines = sum(2 if one.completion else 1 for one in mine)
    if all(_latest(one, mine) == NEVER for one in left):
        yield taken
    for change in left:
        others = [one for one in left if one is not change]
        if any(_end(one) < change.invoke.index for one in others):
            continue  # that one comes first
        last = min(_latest(change, mine), lines)
        for line in range(max(since, change.invoke.index), last):
            yield from _schedules([*taken, (line, change)], others, mine, line)


def _end(change: Operation) -> int:
    done = change.completion if change.type is OpType.OK else None
    return NEVER if done is None else done.index


def _latest(change: Operation, mine: list[Operation]) -> int:
    """The line before which the broker has it."""
    return min(
        (
            one.completion.index
            for one in mine
            if one.invoke.f == "reached" and one.completion and one.invoke.index > _end(change)
        ),
        default=NEVER,
    )


def _is_right(use: Operation, schedule: Schedule) -> bool:
    assert use.completion is not None
    begin, end, decision = use.invoke.index, use.completion.index, use.value[-1]
    rules: set[str] = set()
    seen = set[str]()
    for line, change in schedule:
        if line >= end:
            break
        if line >= begin:
            seen.add(_decision(rules))
        (rules.add if change.invoke.f == "add" else rules.discard)(str(change.invoke.value))
    return decision in seen | {_decision(rules)}


def _decision(rules: set[str]) -> str:
    if str(DENY) in rules:
        return "denied"
    return "allowed" if rules else "denied"
