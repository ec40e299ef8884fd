"""`format("jepsen-history")`: a history as a table of Spark, whole or while it is being written.

`spark.dataSource.register(HistorySource)`, then `spark.read.format("jepsen-history").load(PATH)`, a
run folder or a file in any form of text, or `spark.readStream...` for JSON lines that still grow.
The columns are those of `jepsen.history.table.OPERATIONS`.

A stream emits an operation when it completes. With `option("open", "true")` each micro-batch
also has those that were open at its end, without `complete_index`; they come again until they end.
How far the stream is: the position in the file, the lines before it, and the position of each open
invocation. So it goes on from a checkpoint, and a micro-batch that is read again has the same rows.

`load` makes one table of everything that the command line names. Text is paired and written as
Parquet first, in memory that does not grow with the history. Lines as `to_json` of
`jepsen.history.formats` writes them are taken apart by a compiled loop over their bytes. All other
lines go through `from_json`, one by one, and come out the same.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from jepsen.compiled import available
from jepsen.errors import InputError
from jepsen.history import HistoryError, OpType, ended_operations
from jepsen.history.formats import Format, detect, from_json, json_lines, read_text
from jepsen.history.table import ADDED, NULL, OPERATIONS, batch_of, ddl, row_of, text_of
from jepsen.spark.input._pieces import Piece, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from jepsen.history import Op

LINES = pa.schema(
    [
        pa.field("begin", pa.int64()),
        pa.field("index", pa.int64()),
        pa.field("time", pa.int64()),
        pa.field("process", pa.int64()),
        pa.field("type", pa.string()),
        pa.field("f", pa.string()),
        pa.field("value", pa.string()),
        pa.field("key", pa.string()),
        pa.field("error", pa.string()),
    ]
)
"""A row a line. `begin`: its first byte; `process` is null where it is no client's; `value`, `key`
and `error` are text as in `OPERATIONS`."""
COMPILED_MIN = 5_000
"""The lines from which loading compiled code takes less time than to do without."""
_LINE_FEED = ord("\n")
_INVOKE = str(OpType.INVOKE)


class Paired(NamedTuple):
    """Operations of some lines; both are tables of `LINES`."""

    calls: pa.Table
    """The invocations of those that have ended, in the order of their ends."""
    ends: pa.Table
    """Their completions, row by row."""
    opened: pa.Table
    """The invocations of the others."""


def lines_of(data: bytes, begins: NDArray[np.int64]) -> pa.Table:
    """`LINES` of complete lines, and where each begins. Raises HistoryError."""
    ends: NDArray[np.int64] = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_FEED) + 1
    plain, others = _plain(data, begins, ends)
    if not len(others):
        return plain
    starts: NDArray[np.int64] = np.append(0, ends)
    texts = [data[starts[one] : ends[one]].decode(errors="replace") for one in others.tolist()]
    return pa.concat_tables([plain, _read(texts, begins[others].tolist())]).sort_by("begin")


def _plain(
    data: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[pa.Table, NDArray[np.int64]]:
    """`LINES` of what the compiled loop understands, and the numbers of the other lines."""
    if len(ends) < COMPILED_MIN or not available() or not _is_text(data):
        return LINES.empty_table(), np.arange(len(ends))
    from jepsen.compiled import text

    whole = np.frombuffer(data, np.uint8)
    found = text.find_fields(whole, ends)
    understood = found[:, text.TYPE] != text.NOT_UNDERSTOOD
    mine = found[understood]
    f, value, key, error = (
        _gathered(*text.gathered(whole, mine[:, column : column + 2]))
        for column in (text.F, text.VALUE, text.KEY, text.ERROR)
    )
    nothing = pa.scalar(None, pa.string())
    columns = {
        "begin": begins[understood],
        "index": mine[:, text.INDEX],
        "time": mine[:, text.TIME],
        "process": mine[:, text.PROCESS],
        "type": pa.array(text.TYPES).take(pa.array(mine[:, text.TYPE])),
        "f": f,
        "value": value,
        "key": pc.if_else(pc.equal(key, ""), NULL, key),
        "error": pc.if_else(pc.is_in(error, pa.array(["", NULL])), nothing, error),
    }
    return pa.table(columns, LINES), np.flatnonzero(~understood)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _gathered(ends: NDArray[np.int32], texts: NDArray[np.uint8]) -> pa.StringArray:
    return pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(texts))


def _read(text: Sequence[str], begins: Sequence[int]) -> pa.Table:
    """The same, of any JSON."""
    rows = [_row(line, begin) for line, begin in zip(text, begins, strict=True)]
    try:
        return pa.Table.from_pylist(rows, LINES)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise HistoryError(f"between bytes {begins[0]} and {begins[-1]}: {error}") from None


def _row(line: str, begin: int) -> dict[str, Any]:
    op = from_json(line)
    return {
        "begin": begin,
        "index": op.index,
        "time": op.time,
        "process": op.process if op.by_client else None,
        "type": str(op.type),
        "f": op.f,
        "value": text_of(op.value),
        "key": text_of(op.key),
        "error": None if op.error is None else text_of(op.error),
    }


def refuse_gaps(lines: pa.Table, first: int) -> None:
    """Raise HistoryError if the lines are not numbered from there on."""
    found = lines["index"].to_numpy()
    wanted = np.arange(first, first + len(found))
    wrong = np.flatnonzero(found != wanted)
    if len(wrong):
        raise HistoryError(f"line {wanted[wrong[0]] + 1} has index {found[wrong[0]]}")


def paired(opened: pa.Table, lines: pa.Table) -> Paired:
    """Return the lines behind invocations that were open where they begin. Raises HistoryError."""
    both = pa.concat_tables([opened, lines.filter(pc.is_valid(lines["process"]))])
    process, begin = both["process"].to_numpy(), both["begin"].to_numpy()
    order = np.lexsort((begin, process))
    of_process = process[order]
    fresh: NDArray[np.bool_] = np.append(True, of_process[1:] != of_process[:-1])[: len(order)]
    places = np.arange(len(order))
    # The lines of a process are an invocation and a completion in turn.
    turn = places - np.maximum.accumulate(np.where(fresh, places, 0))
    invokes = pc.equal(both["type"], _INVOKE).to_numpy()[order]
    _refuse_turns(both.take(order[invokes != (turn % 2 == 0)]))
    last: NDArray[np.bool_] = np.append(fresh[1:], True)[: len(order)]
    ends = places[turn % 2 == 1]
    ends = ends[np.argsort(begin[order[ends]])]
    opened_now = order[last & (turn % 2 == 0)]
    return Paired(
        both.take(order[ends - 1]), both.take(order[ends]), both.take(np.sort(opened_now))
    )


def _refuse_turns(wrong: pa.Table) -> None:
    if not len(wrong):
        return
    line = wrong.sort_by("begin").slice(0, 1).to_pylist()[0]
    begins = line["type"] == _INVOKE
    why = "has not finished another" if begins else "has begun nothing"
    raise HistoryError(f"op {line['index']}: process {line['process']} {why}")


def operations(history: str, found: Paired, *, lenient: bool, with_open: bool) -> pa.Table:
    """Return rows of `OPERATIONS`: first the ended ones and then, if asked for, the open ones."""
    columns = {
        "history": pa.repeat(history, len(found.calls)),
        "lenient": pa.repeat(lenient, len(found.calls)),
        "key": found.calls["key"],
        "process": found.calls["process"],
        "f": found.calls["f"],
        "type": found.ends["type"],
        "invoke_index": found.calls["index"],
        "complete_index": found.ends["index"],
        "invoke_time": found.calls["time"],
        "complete_time": found.ends["time"],
        "argument": found.calls["value"],
        "result": found.ends["value"],
        "error": found.ends["error"],
    }
    ended = pa.table([columns[one.name] for one in OPERATIONS], OPERATIONS)
    if not with_open:
        return ended
    return pa.concat_tables([ended, _unended(history, found.opened, lenient=lenient)])


def _unended(history: str, opened: pa.Table, *, lenient: bool) -> pa.Table:
    count = len(opened)
    columns = {
        "history": pa.repeat(history, count),
        "lenient": pa.repeat(lenient, count),
        "type": pa.repeat(str(OpType.INFO), count),
        "invoke_index": opened["index"],
        "invoke_time": opened["time"],
        "argument": opened["value"],
        "result": pa.repeat(NULL, count),
    }
    columns |= {name: opened[name] for name in ("key", "process", "f")}
    nothing = ("complete_index", "complete_time", "error")
    columns |= {name: pa.nulls(count, OPERATIONS.field(name).type) for name in nothing}
    return pa.table([columns[one.name] for one in OPERATIONS], OPERATIONS)


BATCH_ROWS = 20_000
FILE_ROWS = 500_000
"""A file is what one task reads."""


def stage(files: Sequence[str], failures: str, folder: Path) -> None:
    """Write the operations of text files below the folder. Raises InputError, naming the file.

    `failures` as for `jepsen check`: `auto`, `observe` or `ignore`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = (row for file in files for row in rows_of(file, failures))
    number = 0
    while True:
        first = list(islice(rows, BATCH_ROWS))
        if number and not first:
            return
        with pq.ParquetWriter(folder / f"part-{number:05}.parquet", OPERATIONS) as writer:
            if first:
                writer.write_batch(batch_of(first))
            for _ in range(FILE_ROWS // BATCH_ROWS - 1):
                more = list(islice(rows, BATCH_ROWS))
                if not more:
                    return
                writer.write_batch(batch_of(more))
        number += 1


def rows_of(file: str, failures: str) -> Iterator[tuple[object, ...]]:
    """Return the rows of `OPERATIONS` of a history in text. Raises InputError, naming the file."""
    with readable(file):
        form, ops = operations_in(file)
        lenient = failures == "ignore" or (failures == "auto" and form is Format.EDN)
        for operation in ended_operations(ops):
            yield row_of(file, lenient, operation)


@contextmanager
def readable(file: str) -> Iterator[None]:
    """Raise InputError, naming the file, where it turns out to be no history."""
    try:
        yield
    except UnicodeDecodeError:
        raise InputError(f"{file}: not a history: it is not text") from None
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None


def history_file(path: Path) -> Path:
    """Return the history of a run if the path is a run folder, else the path itself."""
    return path / "history.jsonl" if path.is_dir() else path


def operations_in(file: str) -> tuple[Format, Iterator[Op]]:
    """JSON lines are read while they are used; the other forms are small. See `readable`."""
    path = history_file(Path(file))
    with path.open(encoding="utf-8", newline="\n") as opened:
        first = opened.readline()
    if first.startswith("{") and _is_json_lines(first):
        return Format.JSON_LINES, _json_lines(path)
    text = path.read_text(encoding="utf-8")
    form = detect(text)
    return form, iter(read_text(text, form))


def _is_json_lines(first: str) -> bool:
    try:
        return detect(first) is Format.JSON_LINES
    except HistoryError:
        return False


def _json_lines(path: Path) -> Iterator[Op]:
    with path.open(encoding="utf-8", newline="\n") as file:
        yield from json_lines(file)


TEST = "test.json"


@dataclass(frozen=True)
class Histories:
    """Histories to be judged."""

    operations: DataFrame
    """The operations, with the columns of `jepsen.history.table.OPERATIONS`."""
    names: tuple[str, ...]
    """The names of the histories that are known to exist, empty ones included."""
    rows: int
    """Operations in all."""
    pieces: tuple[Piece, ...] = ()
    """The operations as they lie in files; none if they do not."""


def load(spark: SparkSession, files: Sequence[str], failures: str, scratch: Path) -> Histories:
    """Load histories: run folders, JSON lines, EDN, Jepsen's log, Parquet files and folders.

    Text is turned into Parquet below `scratch` first. Raises InputError for files that are no
    histories.
    """
    tables = [file for file in files if _is_table(Path(file))]
    texts = [file for file in files if file not in tables]
    lenient = failures == "ignore"
    parts = [_table(spark, file, lenient=lenient) for file in tables]
    pieces = [one for file in tables for one in _pieces(file, lenient=lenient)]
    rows = sum(map(_row_count, tables))
    if texts:
        staged = scratch / "operations"
        stage(texts, failures, staged)
        parts.append(spark.read.schema(ddl(OPERATIONS)).parquet(str(staged)))
        rows += _row_count(str(staged))
        pieces += [one for path in _parts(str(staged)) for one in pieces_of(path, "", None)]
    operations = parts[0]
    for part in parts[1:]:
        operations = operations.unionByName(part)
    single = [file for file in tables if "history" not in _schema(file).names]
    names = tuple(dict.fromkeys([*texts, *single]))
    return Histories(operations, names, rows, tuple(pieces))


def _is_table(path: Path) -> bool:
    if not path.exists():
        raise InputError(f"{path}: cannot be read: there is no such file")
    if path.is_dir():
        return not (path / TEST).is_file()
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _parts(file: str) -> list[Path]:
    path = Path(file)
    found = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not found:
        raise InputError(f"{file}: neither a run ({TEST}) nor Parquet files are in it")
    return found


def _pieces(file: str, *, lenient: bool) -> Iterator[Piece]:
    """As `_table` has it."""
    assumed = None if "lenient" in _schema(file).names and not lenient else lenient
    return (one for path in _parts(file) for one in pieces_of(path, file, assumed))


def _schema(file: str) -> pa.Schema:
    return pq.read_schema(_parts(file)[0])


def _row_count(file: str) -> int:
    return sum(pq.read_metadata(part).num_rows for part in _parts(file))


def _table(spark: SparkSession, file: str, *, lenient: bool) -> DataFrame:
    """A file of operations; several histories in one are distinguished by their names behind it."""
    schema = _schema(file)
    for field in OPERATIONS:
        if field.name in ADDED and field.name not in schema.names:
            continue
        if field.name not in schema.names:
            raise InputError(f"{file}: not a history: it lacks the column {field.name}")
        if schema.field(field.name).type != field.type:
            found = schema.field(field.name).type
            raise InputError(
                f"{file}: not a history: the column {field.name} is {found}, "
                f"write it as {field.type}"
            )
    table = spark.read.parquet(file)
    name = sql.lit(file)
    if "history" in schema.names:
        name = sql.concat(name, sql.lit(":"), sql.col("history"))
    table = table.withColumn("history", name)
    if lenient or "lenient" not in schema.names:
        table = table.withColumn("lenient", sql.lit(lenient))
    return table.select(*OPERATIONS.names)


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
        """Return the name that `format` takes."""
        return NAME

    def schema(self) -> str:
        """Return the columns of `OPERATIONS`."""
        return ddl(OPERATIONS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the whole history."""
        return _Whole(self._path(), self.options.get("failures", "auto"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a history that grows."""
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
