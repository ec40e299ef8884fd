"""Offsets that groups commit, judged by the checker of one process: there are few of them."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from jepsen.checkers.kafka import LOOKS, offset_regressions
from jepsen.checkers.kafka.log import call_of
from jepsen.history.table import READ_COLUMNS, batches_of, operations_of, text_of
from jepsen.spark._findings import FOUND, FOUND_SQL, refusal
from jepsen.spark._search import anomaly_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from jepsen.history import Operation


def regressions_of(operations: DataFrame) -> DataFrame:
    """The anomalies (`FOUND`) of commits. One task has all commits of a history."""
    mine = operations.where(f"f IN {LOOKS} AND type <> 'fail'").select(*READ_COLUMNS)
    ordered = mine.repartition("history").sortWithinPartitions("history", "invoke_index")
    return ordered.mapInArrow(_judged, FOUND_SQL)


def _judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    groups = groupby(operations_of(batches), key=itemgetter(0))
    rows = (row for history, group in groups for row in _rows(history, [one for *_, one in group]))
    return batches_of(rows, FOUND)


def _rows(history: str, mine: list[Operation]) -> Iterator[tuple[Any, ...]]:
    calls = sorted(map(call_of, mine), key=lambda call: call.index)
    try:
        for anomaly in offset_regressions(calls):
            row = anomaly_row(anomaly)
            key = text_of(anomaly.detail["key"])
            yield history, key, row["name"], row["detail"], row["lines"], row["allowed"]
    except (ValueError, TypeError, AttributeError) as error:
        raise refusal(history, str(error)) from None
