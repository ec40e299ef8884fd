"""Parquet files read by the workers themselves, in pieces of about so many operations.

A column comes with its dictionary, so a text that stands in many rows is looked at once; through
the tables of Spark each row would bring its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jepsen.history.table import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PIECE_ROWS = 500_000
"""The rows that one task reads at a time, roughly."""
_TASKS_A_CORE = 8


class Piece(NamedTuple):
    """Some row groups of a file."""

    path: str
    row_groups: tuple[int, ...]
    history: str
    """The history's name, or what stands before it if the file has a column of them."""
    lenient: bool | None
    """True if nil reads and failed cas constrain nothing; None: as the file has it."""


def pieces_of(path: Path, history: str, lenient: bool | None) -> Iterator[Piece]:
    """Return the pieces of a file. See `Piece`."""
    metadata = pq.read_metadata(path)
    mine: list[int] = []
    rows = 0
    for number in range(metadata.num_row_groups):
        mine.append(number)
        rows += metadata.row_group(number).num_rows
        if rows >= PIECE_ROWS or number == metadata.num_row_groups - 1:
            yield Piece(str(path), tuple(mine), history, lenient)
            mine, rows = [], 0


def read_piece(piece: Piece, columns: Sequence[str]) -> pa.Table:
    """Return these columns of `OPERATIONS`, with text as dictionaries."""
    schema = pq.read_schema(piece.path)
    texts = [name for name in schema.names if schema.field(name).type == pa.string()]
    with pq.ParquetFile(piece.path, read_dictionary=texts) as file:
        present = [name for name in columns if name in schema.names]
        table = file.read_row_groups(list(piece.row_groups), columns=present)
    if piece.lenient is not None:
        lenient = pa.chunked_array([pa.repeat(piece.lenient, table.num_rows)])
        table = _with(table, "lenient", lenient)
    return _with(table, "history", _names(table, piece.history)).select(columns)


def _names(table: pa.Table, name: str) -> pa.ChunkedArray:
    """The name of each row's history."""
    if "history" not in table.column_names:
        places = pa.array(np.zeros(table.num_rows, np.int32))
        return pa.chunked_array([pa.DictionaryArray.from_arrays(places, [name])])
    column = table.column("history")
    if not name:
        return column
    return pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(
                one.indices,
                pc.binary_join_element_wise(name, one.dictionary.cast(pa.string()), ":"),
            )
            for one in column.chunks
        ],
        column.type,
    )


def _with(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)


def over_pieces(
    spark: SparkSession,
    pieces: Sequence[Piece],
    made: Callable[[Iterable[Piece]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Return the table that workers make of the pieces."""
    tasks = min(len(pieces), spark.sparkContext.defaultParallelism * _TASKS_A_CORE)
    numbers = spark.range(0, len(pieces), 1, max(1, tasks))
    return numbers.mapInArrow(partial(_made, pieces=tuple(pieces), made=made), schema)


def _made(
    batches: Iterable[pa.RecordBatch],
    *,
    pieces: tuple[Piece, ...],
    made: Callable[[Iterable[Piece]], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    numbers = (number for batch in batches for number in batch.column("id").to_pylist())
    return made(pieces[number] for number in numbers)


def rows_of_keys(
    pieces: Iterable[Piece], *, wanted: frozenset[tuple[str, str]]
) -> Iterator[pa.RecordBatch]:
    """Return the rows of `OPERATIONS` of these keys: (history, key as text)."""
    keys = pa.array({key for _, key in wanted}, pa.string())
    for whole in pieces:
        # A key is in few places, as a rule: by row groups there is less to read.
        piece = whole._replace(row_groups=_groups_with(keys, whole))
        if not piece.row_groups:
            continue
        table = read_piece(piece, OPERATIONS.names)
        found = table.filter(pa.array(_is_in(table, keys))).cast(OPERATIONS)
        both = zip(found["history"].to_pylist(), found["key"].to_pylist(), strict=True)
        yield from found.filter(pa.array([one in wanted for one in both])).to_batches()


def _groups_with(keys: pa.Array, piece: Piece) -> tuple[int, ...]:
    """The row groups in which any of the keys is."""
    metadata = pq.read_metadata(piece.path)
    rows = [metadata.row_group(group).num_rows for group in piece.row_groups]
    found = np.flatnonzero(_is_in(read_piece(piece, ("key",)), keys))
    places = np.searchsorted(np.cumsum(rows), found, side="right")
    return tuple(piece.row_groups[place] for place in np.unique(places).tolist())


def _is_in(table: pa.Table, keys: pa.Array) -> Any:
    """Of each row whether its key is one of these."""
    rows, texts = coded(table.column("key"))
    return pc.is_in(texts, keys).to_numpy(zero_copy_only=False)[rows]


def coded(column: pa.ChunkedArray) -> tuple[Any, pa.Array]:
    """(the number of each row's text, the texts)."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    one = column.unify_dictionaries().combine_chunks()
    texts, rows = one.dictionary.cast(pa.string()), one.indices
    if one.null_count:
        # What is missing is a text of its own, which means nothing.
        rows, texts = rows.fill_null(len(texts)), pa.concat_arrays([texts, pa.array([""])])
    return rows.to_numpy().astype(np.int64), texts
