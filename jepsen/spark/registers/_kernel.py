"""Registers of whole numbers, judged by the compiled search: all keys of a task at once.

Workers take pieces of the history apart into packages (`packing.py`), these travel to the task of
their keys, and there become arrays again. Nothing is done for an operation by itself, be it in
Python or in a row of Spark's.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from jepsen import compiled
from jepsen.compiled.codes import OPEN
from jepsen.history.table import OPERATIONS, ddl
from jepsen.spark.input import (
    COLUMNS,
    NIL,
    OTHER,
    PACKAGES_SQL,
    coded,
    dense,
    over_pieces,
    packages,
    read_piece,
    rows_of_keys,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from jepsen.spark.input import Histories, Piece

KERNEL_OPERATIONS = 100_000
"""Fewer are searched before the compiled search is there."""
PART_OPERATIONS = 1_000_000
"""What one task judges, roughly; its keys are whole."""
WHOLE_OPERATIONS_MAX = 4_000_000
"""A key with more is left: a task would need too much memory, 200 bytes for each operation."""
PARTS_MAX = 1 << 16
LEFT_KEYS_MAX = 50_000
"""So many keys that are left for others are looked for by name."""
_NUMBERS_MAX = 10**18
JUDGED = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("operations", pa.int64(), nullable=False),
        pa.field("verdict", pa.int8(), nullable=False),
    ]
)
"""A row a key; verdicts are those of `jepsen.compiled.codes`."""
JUDGED_SQL = "history string, key string, operations long, verdict byte"


def is_for_kernel(histories: Histories, initial: Any) -> bool:
    """Whether the compiled search is there, knows the first value, and is worth its start."""
    known = initial is None or (type(initial) is int and abs(initial) < _NUMBERS_MAX)
    return known and histories.rows >= KERNEL_OPERATIONS and _is_there()


def _is_there() -> bool:
    if not compiled.available():
        return False
    try:
        importlib.import_module("jepsen.compiled.registers")
    except ImportError:  # numba may be there and refuse the numpy that is
        return False
    return True


def judge_all(histories: Histories, initial: Any) -> DataFrame:
    """A row of `JUDGED` for each key. What is OPEN is for those who know more."""
    spark = histories.operations.sparkSession
    cores = spark.sparkContext.defaultParallelism
    parts = min(PARTS_MAX, max(cores, histories.rows // PART_OPERATIONS + 1))
    if histories.pieces:
        made = partial(_packages_of_pieces, parts=parts)
        packed = over_pieces(spark, histories.pieces, made, PACKAGES_SQL)
    else:
        rows = histories.operations.select(*COLUMNS)
        packed = rows.mapInArrow(partial(_packages_of_rows, parts=parts), PACKAGES_SQL)
    code = NIL if initial is None else initial
    judged = partial(_judged, initial=code, hot=WHOLE_OPERATIONS_MAX)
    return packed.repartitionById(parts, "part").mapInArrow(judged, JUDGED_SQL)


def rest_of(histories: Histories, left: DataFrame, keys: int) -> DataFrame:
    """The operations on so many keys that are left: (history, key)."""
    operations = histories.operations
    if not histories.pieces or keys > LEFT_KEYS_MAX:
        mine = operations.join(left, ["history", "key"], "left_semi")
        return mine.select(*OPERATIONS.names)
    wanted = frozenset((row["history"], row["key"]) for row in left.collect())
    found = partial(rows_of_keys, wanted=wanted)
    return over_pieces(operations.sparkSession, histories.pieces, found, ddl(OPERATIONS))


def _packages_of_pieces(pieces: Iterable[Piece], *, parts: int) -> Iterator[pa.RecordBatch]:
    return packages((read_piece(piece, COLUMNS) for piece in pieces), parts)


def _packages_of_rows(batches: Iterable[pa.RecordBatch], *, parts: int) -> Iterator[pa.RecordBatch]:
    return packages((pa.Table.from_batches([batch]) for batch in batches), parts)


def _judged(
    batches: Iterable[pa.RecordBatch], *, initial: int, hot: int
) -> Iterator[pa.RecordBatch]:
    yield judged(batches, initial, hot)


def judged(batches: Iterable[pa.RecordBatch], initial: int, hot: int) -> pa.RecordBatch:
    """Rows of `JUDGED` for all keys in the packages, whose operations all are there.

    OPEN are those with other operations or values than the search knows, and with more than `hot`.
    """
    from jepsen.compiled.registers import CONFIGURATIONS_MAX, judge_table
    from jepsen.compiled.sorting import sorted_rows

    keys, histories, found = unpacked(batches)
    of_key, all_keys = coded(pa.chunked_array([keys]))
    of_history, all_histories = coded(pa.chunked_array([histories]))
    numbers = of_history * len(all_keys) + of_key
    both, numbers = dense(numbers, len(all_histories) * len(all_keys))
    key = numbers[found.key]
    operations = np.bincount(key, minlength=len(both))
    left = np.bincount(key[found.f == OTHER], minlength=len(both)) > 0
    left |= operations > hot
    starts, rows = sorted_rows(key, *found[1:], left)
    verdicts, _ = judge_table(starts, rows, initial, CONFIGURATIONS_MAX)
    verdicts[left] = OPEN
    arrays = [
        all_histories.take(pa.array(both // max(1, len(all_keys)))),
        all_keys.take(pa.array(both % max(1, len(all_keys)))),
        pa.array(operations),
        pa.array(verdicts),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=JUDGED)
