"""Histories as Parquet: the table of `jepsen.history.table` in a file, without Spark.

It has what clients did; what the nemesis did stays in the JSON lines beside it. pyarrow comes with
the extra `raftctl[parquet]`.
"""

from __future__ import annotations

import importlib.util
from itertools import islice
from typing import TYPE_CHECKING

from jepsen.errors import InputError
from jepsen.history._operations import HistoryError, Op, OpType, ended_operations

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Any

MAGIC = b"PAR1"
"""With which every such file begins."""
BATCH_ROWS = 20_000


def is_parquet(path: Path) -> bool:
    """Return whether the file is Parquet. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def available() -> bool:
    """Return whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def write_parquet(path: Path, name: str, history: Iterable[Op]) -> None:
    """Write the operations of clients in the order of their ends. `name` is the history's."""
    import pyarrow.parquet as pq

    from jepsen.history.table import OPERATIONS, batch_of, row_of

    rows = (row_of(name, False, operation) for operation in ended_operations(history))
    with pq.ParquetWriter(path, OPERATIONS) as writer:
        while batch := list(islice(rows, BATCH_ROWS)):
            writer.write_batch(batch_of(batch))


def read_parquet(path: Path) -> tuple[list[Op], bool]:
    """Return (lines in order, whether nil reads and failed cas say nothing).

    Raises InputError without pyarrow, HistoryError for another table or more than one history.
    """
    if not available():
        raise InputError(f"{path}: Parquet needs pyarrow: pip install '.[parquet]' in a checkout")
    import pyarrow as pa
    import pyarrow.parquet as pq

    from jepsen.history.table import ADDED, OPERATIONS, reader

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(str(error)) from None
    missing = [name for name in OPERATIONS.names if name not in (*ADDED, *table.schema.names)]
    if missing:
        raise HistoryError(f"not a history: it lacks the column {missing[0]}")
    if "history" in table.schema.names and len(table.column("history").unique()) > 1:
        raise HistoryError("it has several histories: jepsen spark check judges each")
    read = reader()
    lines: list[Op] = []
    lenient = False
    for batch in table.to_batches():
        for row in batch.to_pylist():
            lenient = lenient or row.get("lenient", False)
            lines += _lines(row, read)
    return sorted(lines, key=lambda op: op.index), lenient


def _lines(row: dict[str, Any], read: Any) -> list[Op]:
    """The lines of one operation."""
    key, process, f = read(row["key"]), row["process"], row["f"]
    begun = row["invoke_index"], row["invoke_time"], process, OpType.INVOKE
    lines = [Op(*begun, f, read(row["argument"]), key)]
    if row["complete_index"] is not None:
        ended = row["complete_index"], row["complete_time"], process, OpType(row["type"])
        error = None if row["error"] is None else read(row["error"])
        lines.append(Op(*ended, f, read(row["result"]), key, error))
    return lines
