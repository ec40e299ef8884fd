"""Histories as input: files and streams, as tables of operations or as packed arrays.

Text (JSON lines and EDN) is paired and written as Parquet in one pass, whose memory does not
grow with the history. Parquet is read as it is. `HistorySource` is the Spark data source
`jepsen-history`, which also reads a file of JSON lines while it still grows.

For the compiled register search workers read pieces of the Parquet files themselves. Each
column comes with its dictionary, so a text that occurs in many rows is parsed once. A piece
becomes one package of small integers for each task that judges some of its keys.

This package decides how rows reach a task. It must not know what a checker asks of them.

Invariants:
* A line that the compiled reader does not understand is read by the plain one, with equal rows.
* All operations of one key travel to the same task.
* The rows of a micro-batch follow from two stream offsets alone, so a repeated one is equal.
* An invocation without a completion has no `complete_index`; it is never left out.

pyspark, pyarrow and numpy are required to import this package; numba is loaded where it is
used.
"""

from jepsen.spark.input._pieces import Piece, coded, over_pieces, read_piece, rows_of_keys
from jepsen.spark.input._source import (
    Histories,
    HistorySource,
    history_file,
    load,
    operations_in,
    readable,
)

__all__ = [
    "Histories",
    "HistorySource",
    "Piece",
    "coded",
    "history_file",
    "load",
    "operations_in",
    "over_pieces",
    "read_piece",
    "readable",
    "rows_of_keys",
]
