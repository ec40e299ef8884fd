"""Registers with very many operations, cut where nothing is under way: the parts of one key are
judged side by side.

SQL finds where a key can be cut and makes chunks of about `CHUNK_OPERATIONS`; each becomes the
relation of `jepsen.checkers.linearizable.quiescence`, and the driver composes those of a key in
order.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from jepsen.checkers.linearizable import Budget, Exhausted
from jepsen.checkers.linearizable.quiescence import ELSE, comes_through, relation
from jepsen.checkers.registry import model_named
from jepsen.history.edn import hashable
from jepsen.history.table import READ_COLUMNS, operations_of, text_of, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, Row

    from jepsen.checkers.linearizable.models import Register
    from jepsen.history import Operation
    from jepsen.spark._search import Limits

HOT_OPERATIONS = 100_000
"""A key with more is cut."""
CHUNK_OPERATIONS = 20_000
_TASKS_A_CORE = 12
"""Chunks are shared out by chance: with few tasks, one has twice as many as another."""
_NEVER = "9223372036854775807L"

# What never returns may take effect at any time, but for reads, which then say nothing.
_CHUNKS = f"""
WITH mine AS (
    SELECT operations.*, CASE
        WHEN type <> 'info' AND complete_index IS NOT NULL THEN complete_index
        WHEN f = 'read' THEN -1L ELSE {_NEVER} END AS returned
    FROM {{operations}} operations LEFT SEMI JOIN {{hot}} hot USING (history, key)
), placed AS (
    SELECT *, row_number() OVER (PARTITION BY history, key ORDER BY invoke_index) - 1 AS place,
        coalesce(max(returned) OVER (
            PARTITION BY history, key ORDER BY invoke_index
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), -1L) < invoke_index AS quiet
    FROM mine
)
SELECT {", ".join(READ_COLUMNS)}, max(CASE WHEN quiet THEN place DIV :chunk END) OVER (
        PARTITION BY history, key ORDER BY invoke_index
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS chunk
FROM placed
"""
_HOT_SQL = "history string, key string, operations long"
RELATIONS = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("chunk", pa.int64(), nullable=False),
        pa.field("start", pa.string(), nullable=False),
        pa.field("ends", pa.list_(pa.string())),
    ]
)
"""A row a chunk and value that it may begin with; without `ends` the search ran into its limits.
`_ELSE` stands for any other value."""
_RELATIONS_SQL = "history string, key string, chunk long, start string, ends array<string>"
_ELSE = ""
_Group = tuple[str, str, int, bool]


def settled_by_segments(
    operations: DataFrame, keys: list[Row], model: str, initial: Any, limits: Limits
) -> DataFrame | None:
    """Of these keys (history, key, operations: how many) those that are linearizable, or None.

    Those that are not, and those whose search ran into its limits, are for others to explain.
    """
    spark = operations.sparkSession
    hot = spark.createDataFrame(keys, _HOT_SQL)
    chunks = spark.sql(_CHUNKS, args={"chunk": CHUNK_OPERATIONS}, operations=operations, hot=hot)
    order = ("history", "key", "chunk")
    made = partial(_relations, model=model, initial=initial, limits=limits)
    rows = (
        chunks.repartition(spark.sparkContext.defaultParallelism * _TASKS_A_CORE, *order)
        .sortWithinPartitions(*order, "invoke_index")
        .mapInArrow(made, _RELATIONS_SQL)
        .collect()
    )
    # Here, since Spark would make all relations once more to see how to share the sorting out.
    rows.sort(key=itemgetter(*order))
    valid = {
        key
        for key, mine in groupby(rows, key=lambda row: (row["history"], row["key"]))
        if _linearizable(list(mine), hashable(initial))
    }
    found = [row for row in keys if (row["history"], row["key"]) in valid]
    return spark.createDataFrame(found, _HOT_SQL) if found else None


def _linearizable(rows: list[Any], initial: Any) -> bool:
    if any(row["ends"] is None for row in rows):
        return False
    relations = (
        {_value(row["start"]): frozenset(map(_value, row["ends"])) for row in mine}
        for _, mine in groupby(rows, key=lambda row: row["chunk"])
    )
    return comes_through(initial, relations)


def _value(text: str) -> Any:
    return ELSE if text == _ELSE else hashable(value_of(text))


def _text(value: Any) -> str:
    return _ELSE if value is ELSE else text_of(value)


def _relations(
    batches: Iterable[pa.RecordBatch], *, model: str, initial: Any, limits: Limits
) -> Iterator[pa.RecordBatch]:
    for group, rows in groupby(_placed(batches), key=lambda row: row[0]):
        history, key, chunk, lenient = group
        register = cast("Register", model_named(model, lenient=lenient, initial=initial))
        found = _relation([operation for _, operation in rows], register, limits)
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "history": history,
                    "key": key,
                    "chunk": chunk,
                    "start": _text(start),
                    "ends": None if ends is None else [_text(end) for end in ends],
                }
                for start, ends in found.items()
            ],
            RELATIONS,
        )


def _placed(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[_Group, Operation]]:
    for batch in batches:
        chunks = batch.column("chunk").to_pylist()
        for chunk, row in zip(chunks, operations_of([batch]), strict=True):
            history, lenient, key, operation = row
            yield (history, key, chunk, lenient), operation


def _relation(
    mine: list[Operation], model: Register, limits: Limits
) -> Mapping[Any, frozenset[Any] | None]:
    """Of a chunk; the search runs out or refuses: None for what it may end with."""
    deadline = time.monotonic() + limits.time_s
    try:
        return relation(mine, model, Budget(limits.memory_bytes, deadline, time.monotonic))
    except (Exhausted, ValueError, TypeError, IndexError):
        return {ELSE: None}
