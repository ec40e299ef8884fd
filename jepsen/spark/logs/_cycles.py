"""Cycles of who sends and who polls, as `jepsen.checkers.kafka._check` has them.

An edge leads from who first sent a value to who polled it with success; process and real time are
the others. How cycles are found is said in `jepsen.spark._transactions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from jepsen.checkers.kafka import KINDS, ORDERS, WRONG
from jepsen.history.table import text_of, value_of
from jepsen.spark._search import ROWS_A_BATCH
from jepsen.spark._transactions import EDGE, SHOWN, Cycles, cycles_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from jepsen.spark.logs._block import Block

VERTEX = "vertex"
"""A row of `SHOWN`, one for each key at least: `name` is how the operation ended, `lines` its
vertex and its process, `begun` the line of its invocation."""
_WR, _OK, _INFO = "wr", "ok", "info"

# What never ended has the line of its invocation for a vertex.
_OPERATIONS = f"""
SELECT DISTINCT history, 'txn' AS f, name AS type, lines[1] AS process, begun[0] AS invoke_index,
    nullif(lines[0], begun[0]) AS complete_index
FROM {{shown}} WHERE what = '{VERTEX}'
"""


def log_cycles(shown: DataFrame, scratch: Path) -> DataFrame:
    """The cycles (`FOUND`) that the rows of `graph_rows` make."""
    operations = shown.sparkSession.sql(_OPERATIONS, shown=shown)
    return cycles_of(shown, operations, scratch, Cycles(KINDS, ORDERS, frozenset(WRONG)))


# --- in tasks -------------------------------------------------------------------------------------


class _Reads(NamedTuple):
    """Arrays of equal length: records polled with success that somebody sent who has not failed."""

    reader: Any
    """Numbers of records."""
    writer: Any


def _reads(block: Block) -> _Reads:
    reader = np.flatnonzero(block.read)
    writer = block.writer[block.value[reader]]
    # The number -1 stands for the last record, which does no harm.
    mine = (writer >= 0) & ~block.failed[writer]
    return _Reads(reader[mine], writer[mine])


def is_early(block: Block, groups: int) -> Any:
    """By group whether a poll ended before what it returned was sent."""
    reader, writer = _reads(block)
    found: Any = np.zeros(groups, bool)
    found[block.group[reader[block.call[reader] < block.invoked[writer]]]] = True
    return found


def graph_rows(block: Block, names: Sequence[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    """The vertices and edges of some keys as rows of `SHOWN`. `names`: by group (history, key)."""
    reads = _reads(block)
    for at in range(0, len(reads.reader), ROWS_A_BATCH):
        yield _edges(block, names, _Reads(*(rows[at : at + ROWS_A_BATCH] for rows in reads)))
    first = np.flatnonzero(block.ok & (np.diff(block.operation, prepend=-1) != 0))
    took = block.shown()
    for name, rows in ((_OK, first), (_INFO, took)):
        for at in range(0, len(rows), ROWS_A_BATCH):
            yield _vertices(block, names, rows[at : at + ROWS_A_BATCH], name)
    # Who took effect is a vertex even if another sent the same first: an edge to itself says so.
    for at in range(0, len(took), ROWS_A_BATCH):
        rows = took[at : at + ROWS_A_BATCH]
        yield _edges(block, names, _Reads(rows, rows))


def _edges(block: Block, names: Sequence[tuple[str, str]], reads: _Reads) -> pa.RecordBatch:
    reader, writer = reads
    pairs = zip(block.group[reader].tolist(), block.value[reader].tolist(), strict=True)
    why = [_why(names[group][1], block.text(value)) for group, value in pairs]
    # A poll's records follow each other by their turns, those of a turn as they are.
    lines = (block.call[writer], block.call[reader], block.turn[reader], reader)
    begun = (block.invoked[writer], block.invoked[reader])
    return _rows(_named(block, names, reader), (EDGE, _WR), why, _lists(*lines), _lists(*begun))


def _vertices(
    block: Block, names: Sequence[tuple[str, str]], rows: Any, name: str
) -> pa.RecordBatch:
    lines = _lists(block.call[rows], block.process[rows])
    nothing = [""] * len(rows)
    begun = _lists(block.invoked[rows])
    return _rows(_named(block, names, rows), (VERTEX, name), nothing, lines, begun)


def _why(key: str, value: str) -> str:
    """Both of them as one text."""
    if key.startswith("#") or value.startswith("#"):
        return text_of([value_of(key), value_of(value)])
    return f"[{key},{value}]"


def _named(block: Block, names: Sequence[tuple[str, str]], rows: Any) -> list[tuple[str, str]]:
    return [names[group] for group in block.group[rows].tolist()]


def _lists(*columns: Any) -> pa.Array:
    """A list for each row of the columns."""
    table = np.stack(columns, axis=1).astype(np.int64)
    ends = np.arange(len(table) + 1, dtype=np.int32) * np.int32(len(columns))
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(table.ravel()))


def _rows(
    named: list[tuple[str, str]],
    words: tuple[str, str],
    detail: list[str],
    lines: pa.Array,
    begun: pa.Array,
) -> pa.RecordBatch:
    """Rows of `SHOWN`; `words` are `what` and `name` of all."""
    histories, keys = zip(*named, strict=True)
    what, name = ([word] * len(named) for word in words)
    texts = [pa.array(column, pa.string()) for column in (histories, keys, what, name, detail)]
    return pa.RecordBatch.from_arrays([*texts, lines, begun], schema=SHOWN)
