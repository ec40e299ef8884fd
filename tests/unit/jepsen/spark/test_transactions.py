"""What tasks make of transactions, without Spark running."""

from __future__ import annotations

from typing import Any

import pytest

from jepsen.history import operations
from tests.unit.jepsen.histories import history

cycles = pytest.importorskip("jepsen.spark._transactions", reason="needs raftctl[spark]")

pytestmark = pytest.mark.req("J7")


def _shown(asked: Any, found: Any) -> list[dict[str, Any]]:
    from jepsen.history.table import READ_COLUMNS, batch_of, row_of

    mine = operations(history((0, "invoke", "txn", asked), (0, "ok", "txn", found)))
    batch = batch_of([row_of("h", False, one) for one in mine]).select(list(READ_COLUMNS))
    return [
        row
        for one in cycles._inferred(cycles._parts([batch]), "serializable")
        for row in one.to_pylist()
    ]


@pytest.mark.parametrize("value", [5, [5], [["append"]], None, [["r", "x", 7]]], ids=str)
def test_what_is_no_transaction_is_refused(value: Any) -> None:
    (row,) = _shown(value, value)
    assert row["what"] == "refused"
    assert row["detail"]


def test_each_key_shows_what_is_wrong_there() -> None:
    asked = [["append", "x", 1], ["r", "x", None], ["r", "y", None], ["r", "y", None]]
    found = [["append", "x", 1], ["r", "x", [1]], ["r", "y", []], ["r", "y", [4]]]
    rows = [(row["key"], row["what"], row["name"]) for row in _shown(asked, found)]
    assert sorted(rows) == [
        ('"x"', "read", ""),
        ('"y"', "anomaly", "garbage-read"),
        ('"y"', "anomaly", "internal"),
        ('"y"', "read", ""),
    ]
