"""Operations of a history, and the two lines of which each consists."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TXN = "txn"
"""What a transaction is called; a line without a function is one."""
BEFORE_ALL = -(1 << 40)
"""What is added to a line's number for the unknown one before all of them where it began."""


class OpType(enum.StrEnum):
    """Type of a line of a history."""

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
        """True if a client invoked it, not the nemesis."""
        return isinstance(self.process, int)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation from end to end: its two lines together."""

    invoke: Op
    completion: Op | None
    """None if the history ends before: then nobody knows, as with `info`."""

    @property
    def type(self) -> OpType:
        """Type of the completion; `info` if there is none."""
        return OpType.INFO if self.completion is None else self.completion.type

    @property
    def value(self) -> Any:
        """The value with which it ended, else with which it began."""
        known = self.completion is not None and self.completion.type is not OpType.INFO
        return self.completion.value if known and self.completion else self.invoke.value


def operations(history: Iterable[Op]) -> list[Operation]:
    """Return the clients' operations, in the order of their invocations. Raises HistoryError."""
    return sorted(ended_operations(history), key=lambda operation: operation.invoke.index)


def ended_operations(history: Iterable[Op]) -> Iterator[Operation]:
    """Return the clients' operations as they end; those that never do come last. Raises
    HistoryError.

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
