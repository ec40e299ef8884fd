"""Runs a checker of one process on whole histories, many of them at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jepsen.checkers.registry import CHECKERS
from jepsen.spark.schema import READ_COLUMNS, operations_of
from jepsen.spark.search import VERDICTS, VERDICTS_SQL, anomaly_row, verdict_word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from jepsen.history import Op

NO_KEY = "null"


def check_histories(operations: DataFrame, checker: str) -> DataFrame:
    """A row of `VERDICTS` for each history. One task holds a history as a whole."""

    def checked(table: pa.Table) -> pa.Table:
        # Spark wants a function with annotations.
        return _checked(table, checker)

    grouped = operations.select(*READ_COLUMNS).groupBy("history")
    return grouped.applyInArrow(checked, VERDICTS_SQL)


def _checked(table: pa.Table, checker: str) -> pa.Table:
    history = table.column("history")[0].as_py()
    row: dict[str, Any] = {"history": history, "key": NO_KEY, "method": "whole", "refused": ""}
    row |= {"valid": "unknown", "why_unknown": "", "anomalies": [], "operations": table.num_rows}
    try:
        verdict = CHECKERS[checker](sorted(_lines(table), key=lambda op: op.index))
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        row["refused"] = str(error) or "its values are others"
    else:
        row |= {"valid": verdict_word(verdict.valid), "why_unknown": verdict.why_unknown}
        row["anomalies"] = [anomaly_row(one) for one in verdict.anomalies]
        row["anomalies"] += [anomaly_row(one, allowed=True) for one in verdict.notes]
    return pa.Table.from_pylist([row], VERDICTS)


def _lines(table: pa.Table) -> Iterator[Op]:
    for _, _, _, operation in operations_of(table.to_batches()):
        yield operation.invoke
        if operation.completion is not None:
            yield operation.completion
