"""`format("jepsen-history")`: a history as a table of Spark, whole or while it is being written.

`spark.dataSource.register(HistorySource)`, then `spark.read.format("jepsen-history").load(PATH)`, a
run folder or a file in any form of text, or `spark.readStream...` for JSON lines that still grow.
The columns are those of `jepsen.history.table.OPERATIONS`.

A stream emits an operation when it completes. With `option("open", "true")` each micro-batch
also has those that were open at its end, without `complete_index`; they come again until they end.
How far the stream is: the position in the file, the lines before it, and the position of each open
invocation. So it goes on from a checkpoint, and a micro-batch that is read again has the same rows.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from jepsen.errors import InputError
from jepsen.history import HistoryError
from jepsen.history.table import OPERATIONS, batch_of, ddl
from jepsen.spark.input._lines import lines_of, operations, paired, refuse_gaps
from jepsen.spark.input._staging import BATCH_ROWS, history_file, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "jepsen-history"
BATCH_BYTES = 64 << 20
"""A micro-batch reads so much of the file."""
LINE_BYTES_MAX = 16 << 20
_LINE_FEED = ord("\n")
Offset = dict[str, Any]
"""`position` in bytes, `index` of the line there, in `open` by process where its invocation is."""


class HistorySource(DataSource):
    """Options: `path`, `failures` as for `jepsen check`, and of a stream `open`."""

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return NAME

    def schema(self) -> str:
        """The columns of `OPERATIONS`."""
        return ddl(OPERATIONS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of the whole history."""
        return _Whole(self._path(), self.options.get("failures", "auto"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Of a history that grows."""
        lenient = self.options.get("failures", "auto") == "ignore"
        with_open = self.options.get("open", "false").lower() == "true"
        return _Growing(self._path(), lenient=lenient, with_open=with_open)

    def _path(self) -> str:
        path = self.options.get("path", "")
        if not path:
            raise InputError(f"{NAME}: no path: name the history in load(PATH)")
        return str(path)


class _Whole(DataSourceReader):
    def __init__(self, path: str, failures: str) -> None:
        self._path = path
        self._failures = failures

    def partitions(self) -> list[InputPartition]:
        """One, since lines belong together."""
        return [InputPartition(self._path)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All rows. Raises InputError, naming the file."""
        rows = rows_of(self._path, self._failures)
        while chunk := list(islice(rows, BATCH_ROWS)):
            yield batch_of(chunk)


class _Span(NamedTuple):
    """What a micro-batch reads."""

    start: Offset
    end: Offset


class _Growing(DataSourceStreamReader):
    def __init__(self, path: str, *, lenient: bool, with_open: bool) -> None:
        self._path = path
        self._lenient = lenient
        self._with_open = with_open

    def initialOffset(self) -> Offset:
        """The beginning of the file."""
        return {"position": 0, "index": 0, "open": {}}

    def latestOffset(self, start: Offset, limit: object = None) -> Offset:
        """As far as lines are complete. They are read here too, to know what is open.

        Raises HistoryError.
        """
        path = history_file(Path(self._path))
        if not path.exists():
            return start
        position, index = start["position"], start["index"]
        with path.open("rb") as file:
            opened = _invocations(file, start["open"])
            data = _complete_lines(file, position)
        lines = _lines(data, position)
        refuse_gaps(lines, index)
        calls = paired(opened, lines).opened
        begins = zip(calls["process"].to_pylist(), calls["begin"].to_pylist(), strict=True)
        # An offset is kept as JSON, whose keys are text.
        open_now = {str(process): begin for process, begin in begins}
        return {"position": position + len(data), "index": index + len(lines), "open": open_now}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """One, or none if nothing has come."""
        return [] if start == end else [InputPartition(_Span(start, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a micro-batch."""
        span = partition.value
        begin, end = span.start["position"], span.end["position"]
        with history_file(Path(self._path)).open("rb") as file:
            opened = _invocations(file, span.start["open"])
            file.seek(begin)
            data = file.read(end - begin)
        found = paired(opened, _lines(data, begin))
        table = operations(self._path, found, lenient=self._lenient, with_open=self._with_open)
        yield from table.to_batches(max_chunksize=BATCH_ROWS)


def _complete_lines(file: BinaryIO, begin: int) -> bytes:
    """The complete lines of which the first begins there and the last within `BATCH_BYTES`.

    Raises HistoryError if one is too long.
    """
    file.seek(begin)
    data = file.read(BATCH_BYTES)
    if not data.endswith(b"\n"):
        data += file.readline(LINE_BYTES_MAX)
    end = data.rfind(b"\n") + 1
    if len(data) - end >= LINE_BYTES_MAX:
        raise HistoryError(f"the line at byte {begin + end} is longer than {LINE_BYTES_MAX} bytes")
    return data[:end]


def _lines(data: bytes, begin: int) -> pa.Table:
    """`LINES` of complete lines of which the first begins there. Raises HistoryError."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_FEED)
    return lines_of(data, begin + np.append(0, ends[:-1] + 1)[: len(ends)])


def _invocations(file: BinaryIO, positions: dict[str, int]) -> pa.Table:
    """`LINES` of those that begin there."""
    begins = sorted(positions.values())
    data = []
    for begin in begins:
        file.seek(begin)
        data.append(file.readline())
    return lines_of(b"".join(data), np.array(begins, np.int64))
