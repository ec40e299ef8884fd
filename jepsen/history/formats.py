"""Text forms of histories: JSON lines, EDN, and the log that Jepsen prints.

The form of a text is recognized by its content, not by the name of its file. A test writes JSON
lines while it runs, so a checker that fails costs no history. A last line that a crash cut short
is ignored. Values are what JSON can hold: a tuple is read back as a list.

Sources: Jepsen's history format; Knossos' and Porcupine's test data for the other forms.
"""

from __future__ import annotations

import enum
import io
import json
import os
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jepsen.history import edn
from jepsen.history._operations import TXN, HistoryError, Op, OpType
from jepsen.history.edn import Keyword

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

SYNC_OPS = 1_000
"""How many operations a crash of the machine may cost; a crash of the process costs none."""


class Format(enum.StrEnum):
    """The forms of histories."""

    AUTO = "auto"
    JSON_LINES = "json"
    EDN = "edn"
    LOG = "log"


_LOG = re.compile(r"^.*\bINFO +jepsen\.util - \S+\s+:(?:invoke|ok|fail|info)\b", re.MULTILINE)
_EDN_MAP = re.compile(r":(?:process|type|f)\s")


def detect(text: str) -> Format:
    """Return the form of the text. Raises HistoryError if it has none of them."""
    start = text.lstrip("\ufeff \t\r\n")
    first = start.partition("\n")[0]
    if first.startswith("{") and _is_json_object(first):
        return Format.JSON_LINES
    if _LOG.search(start):
        return Format.LOG
    if start.startswith(("{", "[", "(", "#", ";")) and _EDN_MAP.search(start):
        return Format.EDN
    what = f"it begins with {first[:60]!r}" if first else "it is empty"
    raise HistoryError(f"not a history: {what}; write JSON lines, EDN or Jepsen's log")


def read_text(text: str, form: Format = Format.AUTO) -> list[Op]:
    """Return the operations. Raises HistoryError, which names what is wrong with the text."""
    match detect(text) if form is Format.AUTO else form:
        case Format.EDN:
            return read_edn(text)
        case Format.LOG:
            return read_jepsen_log(text)
    return list(json_lines(io.StringIO(text, newline="\n")))


def json_lines(lines: Iterable[str]) -> Iterator[Op]:
    """Return the operations of lines with their line feeds, as they are read. Raises HistoryError.

    A last line that a crash has cut short is left out.
    """
    for number, line in enumerate(lines):
        if not line.endswith("\n") and not _is_json_object(line):
            return
        yield numbered_json(line, number)


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


# --- JSON lines -----------------------------------------------------------------------------------


def to_json(op: Op) -> str:
    """Return the operation as a line without its line feed; `key` and `error` only where there is
    one.
    """
    process = op.process if isinstance(op.process, int) else _encode(op.process)
    line = (
        f'{{"index":{op.index},"time":{op.time},"process":{process},"type":"{op.type}",'
        f'"f":{_encode(op.f)},"value":{_encode(op.value)}'
    )
    if op.key is not None:
        line += f',"key":{_encode(op.key)}'
    if op.error is not None:
        line += f',"error":{_encode(op.error)}'
    return line + "}"


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    raise TypeError(f"{type(value).__name__} has no form in a history")


_encode_any = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_plain).encode


def _encode(value: Any) -> str:
    # Most values and keys are numbers or nothing, for which the encoder is slow to begin.
    if type(value) is int:
        return str(value)
    return "null" if value is None else _encode_any(value)


_decode = json.JSONDecoder().decode
_TYPES = {one.value: one for one in OpType}


def _interned(f: Any) -> Any:
    """The same text for all lines with the same function, of which there are a few."""
    return sys.intern(f) if isinstance(f, str) else f


def from_json(line: str) -> Op:
    """Return the line's operation. Raises HistoryError."""
    try:
        fields = _decode(line)
        return Op(
            fields["index"],
            fields["time"],
            fields["process"],
            _TYPES[fields["type"]],
            _interned(fields["f"]),
            fields["value"],
            fields.get("key"),
            fields.get("error"),
        )
    except KeyError as error:
        raise HistoryError(f"no operation: {line.rstrip()[:80]!r} has no {error}") from None
    except json.JSONDecodeError as error:
        why = f"{error.msg} at column {error.colno}"
        raise HistoryError(f"no operation: {line.rstrip()[:80]!r}: {why}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise HistoryError(f"no operation: {line.rstrip()[:80]!r}: {error}") from None


def numbered_json(line: str, number: int) -> Op:
    """Return the operation of that line of a file, counted from 0. Raises HistoryError, which names
    the line.

    Fields that the line lacks, as those that are written by hand do: its index and its time are
    the number, its process is its own if it is a completion alone, its function is a transaction.
    """
    try:
        op = from_json(line)
    except HistoryError as error:
        op = _by_hand(line, number, error)
    if op.index != number:
        raise HistoryError(f"line {number + 1} has index {op.index}")
    return op


def _by_hand(line: str, number: int, error: HistoryError) -> Op:
    try:
        fields = _decode(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not {"type", "value"} <= fields.keys():
        raise HistoryError(f"line {number + 1}: {error}") from None
    begins = fields["type"] == OpType.INVOKE
    known = {"index": number, "time": number, "f": TXN} | ({} if begins else {"process": number})
    try:
        return from_json(json.dumps(known | fields))
    except HistoryError as other:
        raise HistoryError(f"line {number + 1}: {other}") from None


class HistoryWriter:
    """Appends operations to a file. Each is with the operating system when `append` returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._unsynced = 0
        self.count = 0
        """Operations written, which is the next one's index."""

    def append(self, op: Op) -> None:
        """Write the operation. Raises ValueError if its index is not the next one."""
        if op.index != self.count:
            raise ValueError(f"op {op.index} is written as number {self.count}")
        self._file.write(f"{to_json(op)}\n".encode())
        self._file.flush()
        self.count += 1
        self._unsynced += 1
        if self._unsynced >= SYNC_OPS:
            self.sync()

    def sync(self) -> None:
        """Make everything written so far durable."""
        os.fsync(self._file.fileno())
        self._unsynced = 0

    def close(self) -> None:
        """Make everything durable and close the file."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_history(path: Path) -> Iterator[Op]:
    """Return the operations of a file of JSON lines, as they are read. Raises HistoryError.

    A last line without its line feed was cut short by a crash and is left out.
    """
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file):
            if not line.endswith("\n"):
                return
            yield numbered_json(line, number)


# --- EDN ------------------------------------------------------------------------------------------


class _Independent(list[Any]):
    """Jepsen's pair of key and value."""


_TAGS = {"jepsen.independent/tuple": _Independent, "jepsen.history/MapEntry": _Independent}


def read_edn(text: str) -> list[Op]:
    """Read Jepsen's maps: one vector or list of them, or one after the other. Raises HistoryError.

    Operations without index and time get their place in the history for both.
    """
    maps: list[Any] = []
    try:
        for value in edn.read_all(text, _TAGS):
            maps += value if isinstance(value, list) else [value]
    except edn.EdnError as error:
        raise HistoryError(str(error)) from None
    return [_from_map(index, fields) for index, fields in enumerate(maps)]


def _from_map(index: int, fields: Any) -> Op:
    try:
        value, key, process = fields.get("value"), fields.get("key"), fields.get("process")
        kind = OpType(fields["type"])
        if process is None and kind is not OpType.INVOKE:
            process = index
        if isinstance(value, _Independent):
            key, value = value
        return Op(
            index,
            int(fields.get("time", index)),
            process if isinstance(process, int) else _named(process),
            kind,
            str(fields.get("f") or TXN),
            value,
            key,
            fields.get("error"),
        )
    except KeyError as error:
        raise HistoryError(f"operation {index} has no {error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise HistoryError(f"operation {index}: {error}") from None


def _named(process: Any) -> str:
    if process is None:
        raise KeyError("process")
    return str(process)


def write_edn(history: Iterable[Op]) -> str:
    """Return the history as Jepsen writes it, a map a line. A key precedes its value in a pair."""
    return "".join(f"{{{_edn_fields(op)}}}\n" for op in history)


def _edn_fields(op: Op) -> str:
    value = edn.write(op.value)
    if op.key is not None:
        value = f"#jepsen.independent/tuple [{edn.write(op.key)} {value}]"
    process = op.process if isinstance(op.process, int) else Keyword(op.process)
    fields = {
        "index": op.index,
        "time": op.time,
        "type": Keyword(op.type),
        "process": process,
        "f": Keyword(op.f),
    }
    parts = [f":{name} {edn.write(item)}" for name, item in fields.items()]
    parts.append(f":value {value}")
    if op.error is not None:
        parts.append(f":error {edn.write(op.error)}")
    return ", ".join(parts)


# --- Jepsen's log ---------------------------------------------------------------------------------

_LOG_LINE = re.compile(r"INFO +jepsen\.util - (\S+)\s+:(invoke|ok|fail|info)\s+:(\S+)\s+(.*)")


def read_jepsen_log(text: str) -> list[Op]:
    """Return the operations that Jepsen prints to its log; other lines are skipped.

    The last column of a line is its value, or for a `fail` or `info` perhaps an error (a keyword).
    """
    history: list[Op] = []
    for line in text.splitlines():
        match = _LOG_LINE.match(line)
        if match is None:
            continue
        process, kind, f, rest = match.groups()
        index = len(history)
        op = Op(index, index, int(process) if process.isdigit() else process, OpType(kind), f)
        values = list(edn.read_all(rest))
        value = values[0] if values else None
        if isinstance(value, Keyword):
            history.append(replace(op, error=value))
        else:
            history.append(replace(op, value=value))
    return history
