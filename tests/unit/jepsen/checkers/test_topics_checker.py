"""Topics that are created and deleted: what the checker finds, and what answers come to."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.errors import for_code

from jepsen.checkers import check_topics
from jepsen.history import Op, OpType
from jepsen.workloads.topics import completion_of
from tests.unit.jepsen.histories import history

CREATED = ("create", 2, "ok")
DELETED = ("delete", None, "ok")


def one_by_one(*calls: tuple[str, Any, str]) -> list[Any]:
    """(f, partitions, how it ended) of the topic 0, one after the other; what crashes does not."""
    lines = []
    for number, (f, value, kind) in enumerate(calls):
        process = number + 1 if kind == "info" else 0
        ended = value if kind == "ok" else None
        lines += [(process, "invoke", f, value, 0), (process, kind, f, ended, 0)]
    return lines


def at_the_end(seen: dict[str, int]) -> list[Any]:
    return [(0, "invoke", "topics", None), (0, "ok", "topics", seen)]


@pytest.mark.req("J3", "J4")
@pytest.mark.parametrize(
    ("calls", "end", "valid"),
    [
        ([CREATED], {"0": 2}, True),
        ([CREATED], {}, False),  # an acknowledged creation is gone
        ([CREATED], {"0": 1}, False),  # or is there in part
        ([CREATED, CREATED], {"0": 2}, False),  # two cannot both have created it
        ([CREATED, DELETED, CREATED], {"0": 2}, True),
        ([CREATED, DELETED], {}, True),
        ([CREATED, DELETED], {"0": 2}, False),  # a deleted topic is there again
        ([CREATED, DELETED, DELETED], {}, False),
        ([DELETED], {}, False),
        ([CREATED, ("grow", 3, "ok")], {"0": 3}, True),
        ([CREATED, ("grow", 3, "ok")], {"0": 2}, False),
        ([CREATED, ("grow", 2, "ok")], {"0": 2}, False),  # that is no more than there are
        ([("grow", 3, "ok")], {}, False),
        ([], {"0": 2}, True),  # no topic of this test
        # A refused change may have been made, when the answer to it was lost; once.
        ([("create", 3, "fail")], {"0": 3}, True),
        ([("create", 3, "fail")], {}, True),
        ([CREATED, ("create", 3, "fail")], {"0": 3}, False),
        ([CREATED, ("delete", None, "fail"), CREATED], {"0": 2}, True),
        # One that was refused, and so may have been made, beside one that nobody knows of.
        ([("create", 3, "fail"), ("create", 2, "info")], {}, True),
        ([("create", 3, "info"), DELETED], {}, True),
        ([("create", 3, "info"), DELETED, DELETED], {}, False),
    ],
)
def test_what_is_acknowledged_holds(
    calls: list[tuple[str, Any, str]], end: dict[str, int], valid: bool
) -> None:
    verdict = check_topics(history(*one_by_one(*calls), *at_the_end(end)))
    assert verdict.valid is valid
    assert [one.name for one in verdict.anomalies] == ([] if valid else ["nonlinearizable"])


@pytest.mark.req("J4")
def test_of_two_at_once_one_comes_first() -> None:
    both = [(0, "invoke", "create", 1, 0), (1, "invoke", "delete", None, 0)]
    ends = [(1, "ok", "delete", None, 0), (0, "ok", "create", 1, 0)]
    assert check_topics(history(*both, *ends, *at_the_end({}))).valid is True
    assert check_topics(history(*both, *ends, *at_the_end({"0": 1}))).valid is False


@pytest.mark.req("J4")
def test_topics_are_judged_one_by_one_and_only_with_an_end() -> None:
    other = [(0, "invoke", "create", 1, 7), (0, "ok", "create", 1, 7)]
    lines = [*one_by_one(CREATED), *other]
    verdict = check_topics(history(*lines, *at_the_end({"0": 2})))
    assert [one.detail["key"] for one in verdict.anomalies] == [7]
    assert check_topics(history(*lines)).valid == "unknown"


@pytest.mark.req("J3")
@pytest.mark.parametrize(
    ("code", "kind", "value", "error"),
    [
        (0, OpType.OK, 2, None),
        (36, OpType.FAIL, "TopicAlreadyExistsError", None),
        (7, OpType.INFO, 2, "RequestTimedOutError"),
        (41, OpType.INFO, 2, "NotControllerError"),
        (-1, OpType.INFO, 2, "UnknownError"),
    ],
)
def test_only_a_refusal_by_who_decides_is_certain(
    code: int, kind: OpType, value: Any, error: str | None
) -> None:
    op = Op(0, 0, 0, OpType.INVOKE, "create", 2, 0)
    assert completion_of(op, for_code(code)) == (kind, value, error)
