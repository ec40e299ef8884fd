"""The history: what clients and the nemesis did and saw, in the order in which it was noted.

An operation is noted twice, when it is invoked and when it completes: `ok` (it happened), `fail`
(it did not happen) or `info` (nobody knows). A process whose operation ends with `info` is never
used again. On disk a history is JSON lines, written while the test runs, so that a checker that
fails costs no history; a line that a crash cut short is left out by the reader. A value is what
JSON can hold: a tuple comes back as a list.
Sources: Jepsen's history format; Knossos' and Porcupine's test data for the other forms.
"""

from __future__ import annotations

import enum
import json
import os
import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jepsen.history import edn
from jepsen.history.edn import Keyword

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

TXN = "txn"
"""What a transaction is called; a line without a function is one."""
BEFORE_ALL = -(1 << 40)
"""What is added to a line's number for the unknown one before all of them where it began."""
SYNC_OPS = 1_000
"""How many operations a crash of the machine may cost; a crash of the process costs none."""


class OpType(enum.StrEnum):
    """What a line of a history says about its operation."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class HistoryError(ValueError):
    """The text is not a history; the message names the line."""


@dataclass(frozen=True, slots=True)
class Op:
    """One line of a history."""

    index: int
    """From 0, without gaps."""
    time: int
    """Nanoseconds since the test began."""
    process: int | str
    """A client's number; the nemesis is a name."""
    type: OpType
    f: str
    value: Any = None
    key: Any = None
    """What the operation is about, if the test has many independent things of a kind."""
    error: Any = None

    @property
    def by_client(self) -> bool:
        """Whether a client did it, not the nemesis."""
        return isinstance(self.process, int)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation from end to end: its two lines together."""

    invoke: Op
    completion: Op | None
    """None if the history ends before: then nobody knows, as with `info`."""

    @property
    def type(self) -> OpType:
        """How it ended."""
        return OpType.INFO if self.completion is None else self.completion.type

    @property
    def value(self) -> Any:
        """The value with which it ended, else with which it began."""
        known = self.completion is not None and self.completion.type is not OpType.INFO
        return self.completion.value if known and self.completion else self.invoke.value


def operations(history: Iterable[Op]) -> list[Operation]:
    """The clients' operations, in the order of their invocations. Raises HistoryError."""
    return sorted(ended_operations(history), key=lambda operation: operation.invoke.index)


def ended_operations(history: Iterable[Op]) -> Iterator[Operation]:
    """The clients' operations as they end; those that never do come last. Raises HistoryError.

    Transactions may be completions alone, without one invocation in the history, as those that are
    written by hand are. Then all of them have begun before the first of them ends.
    """
    open_calls: dict[int | str, Op] = {}
    alone: Op | None = None
    begun = False
    for op in history:
        if not op.by_client:
            continue
        if op.type is OpType.INVOKE:
            if op.process in open_calls:
                raise HistoryError(f"op {op.index}: process {op.process} has not finished another")
            if alone is not None:
                raise _begun_nothing(alone)
            begun = True
            open_calls[op.process] = op
        else:
            invoke = open_calls.pop(op.process, None)
            if invoke is None and (begun or op.f != TXN):
                raise _begun_nothing(op)
            if invoke is None:
                alone = alone or op
                invoke = replace(op, index=op.index + BEFORE_ALL, type=OpType.INVOKE)
            yield Operation(invoke, op)
    for invoke in open_calls.values():
        yield Operation(invoke, None)


def _begun_nothing(op: Op) -> HistoryError:
    return HistoryError(f"op {op.index}: process {op.process} has begun nothing")


# --- JSON lines -----------------------------------------------------------------------------------


def to_json(op: Op) -> str:
    """One line, without the line feed; `key` and `error` only where there is one."""
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
    """The line's operation. Raises HistoryError."""
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
    """The operation of that line of a file, counted from 0. Raises HistoryError, naming the line.

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
        """Writes the operation. Raises ValueError if its index is not the next one."""
        if op.index != self.count:
            raise ValueError(f"op {op.index} is written as number {self.count}")
        self._file.write(f"{to_json(op)}\n".encode())
        self._file.flush()
        self.count += 1
        self._unsynced += 1
        if self._unsynced >= SYNC_OPS:
            self.sync()

    def sync(self) -> None:
        """Makes what is written durable."""
        os.fsync(self._file.fileno())
        self._unsynced = 0

    def close(self) -> None:
        """Makes everything durable and closes the file."""
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
    """The operations of a file of JSON lines, as they are read. Raises HistoryError.

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
    """Jepsen's maps: one vector or list of them, or one after the other. Raises HistoryError.

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
    """The history as Jepsen writes it, a map a line. A key stands before its value in a pair."""
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
    """The operations that Jepsen prints to its log; other lines are skipped.

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
