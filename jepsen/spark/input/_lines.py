"""JSON lines as columns: what a stream reads, without an object for each line.

Lines as `to_json` of `jepsen.history.formats` writes them, with plain values, are taken apart by a
compiled loop over their bytes; their values need not be read, since text is what the table has. All
other lines go through `from_json`, one by one, and come out the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jepsen.compiled import available
from jepsen.history import HistoryError, OpType
from jepsen.history.formats import from_json
from jepsen.history.table import NULL, OPERATIONS, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
"""For fewer lines it takes longer to load what is compiled than to do without."""
_LINE_FEED = ord("\n")
_INVOKE = str(OpType.INVOKE)


class Paired(NamedTuple):
    """What lines say of operations; both are tables of `LINES`."""

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
    """Raises HistoryError if the lines are not numbered from there on."""
    found = lines["index"].to_numpy()
    wanted = np.arange(first, first + len(found))
    wrong = np.flatnonzero(found != wanted)
    if len(wrong):
        raise HistoryError(f"line {wanted[wrong[0]] + 1} has index {found[wrong[0]]}")


def paired(opened: pa.Table, lines: pa.Table) -> Paired:
    """The lines behind invocations that were open where they begin. Raises HistoryError."""
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
    """Rows of `OPERATIONS`: those that have ended and then, if they are wanted, the others."""
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
