"""Histories as tables: what is written is what is read, without Spark."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jepsen.history import Op, OpType, ended_operations, operations
from jepsen.history.edn import Keyword
from tests.unit.jepsen.histories import made_history

schema = pytest.importorskip("jepsen.history.table", reason="needs raftctl[spark]")

VALUES = (
    None,
    True,
    -7,
    1 << 70,
    2.5,
    "",
    'say "ä"',
    "#{1}",
    [1, [None, "x"]],
    {"a": [1]},
    {0: [[0, "x"]]},
    frozenset({1, 2}),
    [{"a": frozenset({Keyword("k")})}],
)


@pytest.mark.req("J7")
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_survives_as_text(value: Any) -> None:
    assert schema.value_of(schema.text_of(value)) == value


@pytest.mark.req("J7")
def test_operations_survive_as_rows() -> None:
    lines = made_history(random.Random(4), operation_count=60, concurrency=4, crashes=0.1)
    nemesis = Op(len(lines), 0, "nemesis", OpType.INFO, "kill", None)
    unfinished = Op(len(lines) + 1, 0, 900, OpType.INVOKE, "write", 3, "key", None)
    refused = [
        Op(len(lines) + 2, 0, 901, OpType.INVOKE, "cas", [1, 2], ["key"]),
        Op(len(lines) + 3, 0, 901, OpType.FAIL, "cas", None, ["key"], "timeout"),
    ]
    lines = [Op(op.index, 0, op.process, op.type, op.f, op.value) for op in lines]
    lines += [nemesis, unfinished, *refused]
    rows = [schema.row_of("h", True, one) for one in ended_operations(lines)]
    found = list(schema.operations_of([schema.batch_of(rows[:7]), schema.batch_of(rows[7:])]))
    assert {(history, lenient) for history, lenient, _, _ in found} == {("h", True)}
    restored = sorted((one for *_, one in found), key=lambda one: int(one.invoke.index))
    assert restored == operations(lines)
