"""`format("jepsen-history")`: a history as a table of Spark, whole or while it is being written.

`spark.dataSource.register(HistorySource)`, then `spark.read.format("jepsen-history").load(PATH)`, a
run folder or a file in any form of text, or `spark.readStream...` for JSON lines that still grow.
The columns are those of `jepsen.spark.schema.OPERATIONS`.

In a stream an operation comes when it has ended. With `option("open", "true")` each micro-batch
also has those that were open at its end, without `complete_index`; they come again until they end.
How far the stream is: the position in the file, the lines before it, and the position of each open
invocation. So it goes on from a checkpoint, and a micro-batch that is read again has the same rows.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from jepsen.errors import InputError
from jepsen.history import HistoryError, Operation, OpType, from_json
from jepsen.spark.schema import OPERATIONS, batch_of, ddl, row_of
from jepsen.spark.staging import BATCH_ROWS, history_file, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from jepsen.history import Op

NAME = "jepsen-history"
BATCH_BYTES = 64 << 20
"""A micro-batch reads so much of the file."""
LINE_BYTES_MAX = 16 << 20
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
        position, index, calls = start["position"], start["index"], dict(start["open"])
        with path.open("rb") as file:
            for begin, op, end in _lines(file, position, position + BATCH_BYTES):
                position = end
                if op.index != index:
                    raise HistoryError(f"line {index + 1} has index {op.index}")
                index += 1
                if op.by_client:
                    _follow(calls, op, begin)
        return {"position": position, "index": index, "open": calls}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """One, or none if nothing has come."""
        return [] if start == end else [InputPartition(_Span(start, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a micro-batch."""
        span = partition.value
        with history_file(Path(self._path)).open("rb") as file:
            rows = (
                row_of(self._path, self._lenient, one)
                for one in _operations(file, span, with_open=self._with_open)
            )
            while chunk := list(islice(rows, BATCH_ROWS)):
                yield batch_of(chunk)


def _follow(calls: dict[str, int], op: Op, begin: int) -> None:
    """Notes in `calls` that the line at `begin` opens or ends a call. Raises HistoryError."""
    process = str(op.process)  # an offset is kept as JSON, whose keys are text
    if (op.type is OpType.INVOKE) == (process in calls):
        wrong = "has not finished another" if process in calls else "has begun nothing"
        raise HistoryError(f"op {op.index}: process {process} {wrong}")
    if op.type is OpType.INVOKE:
        calls[process] = begin
    else:
        del calls[process]


def _lines(file: BinaryIO, begin: int, stop: int) -> Iterator[tuple[int, Op, int]]:
    """(where it begins, its operation, where it ends) of each complete line before `stop`."""
    file.seek(begin)
    while begin < stop and (line := file.readline(LINE_BYTES_MAX)).endswith(b"\n"):
        end = begin + len(line)
        yield begin, _op_of(line), end
        begin = end
    if begin < stop and len(line) == LINE_BYTES_MAX:
        raise HistoryError(f"the line at byte {begin} is longer than {LINE_BYTES_MAX} bytes")


def _op_of(line: bytes) -> Op:
    return from_json(line.decode(errors="replace"))


def _operations(file: BinaryIO, span: _Span, *, with_open: bool) -> Iterator[Operation]:
    calls = {op.process: op for op in _invocations(file, span.start["open"])}
    for _, op, _ in _lines(file, span.start["position"], span.end["position"]):
        if op.by_client and op.type is OpType.INVOKE:
            calls[op.process] = op
        elif op.by_client:
            yield Operation(calls.pop(op.process), op)
    if with_open:
        for op in calls.values():
            yield Operation(op, None)


def _invocations(file: BinaryIO, positions: dict[str, int]) -> Iterator[Op]:
    for begin in positions.values():
        file.seek(begin)
        yield _op_of(file.readline())
