"""Runs a checker of one process on whole histories, many of them at a time."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jepsen.checkers.registry import CHECKERS
from jepsen.history.table import READ_COLUMNS, operations_of
from jepsen.spark._search import VERDICTS, VERDICTS_SQL, anomaly_row, verdict_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from jepsen.history import Op, Operation

NO_KEY = "null"


def check_histories(operations: DataFrame, checker: str) -> DataFrame:
    """A row of `VERDICTS` for each history. One task holds a history as a whole."""
    together = operations.select(*READ_COLUMNS).repartition("history")
    ordered = together.sortWithinPartitions("history", "invoke_index")
    return ordered.mapInArrow(partial(_checked, checker=checker), VERDICTS_SQL)


def _checked(batches: Iterable[pa.RecordBatch], *, checker: str) -> Iterator[pa.RecordBatch]:
    for history, group in groupby(operations_of(batches), key=itemgetter(0)):
        row = _row(history, [operation for *_, operation in group], checker)
        yield pa.RecordBatch.from_pylist([row], VERDICTS)


def _row(history: str, mine: list[Operation], checker: str) -> dict[str, Any]:
    row: dict[str, Any] = {"history": history, "key": NO_KEY, "method": "whole", "refused": ""}
    row |= {"valid": "unknown", "why_unknown": "", "anomalies": [], "operations": len(mine)}
    try:
        verdict = CHECKERS[checker](sorted(_lines(mine), key=lambda op: op.index))
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        row["refused"] = str(error) or "its values are others"
    else:
        row |= {"valid": verdict_word(verdict.valid), "why_unknown": verdict.why_unknown}
        row["anomalies"] = [anomaly_row(one) for one in verdict.anomalies]
        row["anomalies"] += [anomaly_row(one, allowed=True) for one in verdict.notes]
    return row


def _lines(mine: list[Operation]) -> Iterator[Op]:
    for operation in mine:
        yield operation.invoke
        if operation.completion is not None:
            yield operation.completion
