"""Histories of single keys, with numbers for operations: the input of the searches.

A history is read once. No object is made for an operation, since there may be millions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable._machine import call_of
from jepsen.history import HistoryError, Op, Operation, OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jepsen.checkers.linearizable._machine import Machine
    from jepsen.checkers.linearizable.models import Model

SILENT = -1
"""The code of an operation that constrains nothing, such as a read without an answer."""


class KeyHistory:
    """The operations on one key, numbered in the order in which they begin."""

    __slots__ = ("completions", "invokes", "moments")

    def __init__(self) -> None:
        self.invokes: list[Op] = []
        self.completions: list[Op | None] = []
        """The completion of each call; None if the history ends first."""
        self.moments: list[int] = []
        """An operation's number where it begins, its complement (~) where it ends, in order."""

    def operation(self, number: int) -> Operation:
        """Return the operation with its completion."""
        return Operation(self.invokes[number], self.completions[number])

    def operations(self) -> list[Operation]:
        """Return all operations, in the order in which they begin."""
        return list(map(Operation, self.invokes, self.completions))

    def end(self, number: int) -> int:
        """Return the line at which the operation completes; -1 if it does not."""
        completion = self.completions[number]
        return -1 if completion is None else completion.index


def key_histories_of(history: Iterable[Op]) -> dict[Any, KeyHistory]:
    """Split a history by key, in the order of first operations.

    HistoryError if a process begins an operation while another is open, or ends none.
    """
    histories: dict[Any, KeyHistory] = {}
    open_calls: dict[int | str, tuple[KeyHistory, int]] = {}
    last, in_order = -1, True
    for op in history:
        process = op.process
        if not isinstance(process, int):
            continue
        if op.index < last:
            in_order = False
        last = op.index
        if op.type is OpType.INVOKE:
            if process in open_calls:
                raise HistoryError(f"op {op.index}: process {process} has not finished another")
            mine = _history_of(histories, op.key)
            number = len(mine.invokes)
            open_calls[process] = mine, number
            mine.invokes.append(op)
            mine.completions.append(None)
            mine.moments.append(number)
        else:
            begun = open_calls.pop(process, None)
            if begun is None:
                raise HistoryError(f"op {op.index}: process {process} has begun nothing")
            mine, number = begun
            mine.completions[number] = op
            mine.moments.append(~number)
    return histories if in_order else _sorted(histories)


def _sorted(histories: dict[Any, KeyHistory]) -> dict[Any, KeyHistory]:
    """Sort histories whose lines were out of order."""
    found = [(key, key_history_of(history.operations())) for key, history in histories.items()]
    found.sort(key=lambda pair: pair[1].invokes[0].index)
    return dict(found)


def _history_of(histories: dict[Any, KeyHistory], key: Any) -> KeyHistory:
    key = hashable(key)
    history = histories.get(key)
    if history is None:
        history = histories[key] = KeyHistory()
    return history


def key_history_of(mine: Iterable[Operation]) -> KeyHistory:
    """Return the history of these operations, which are those of one key."""
    history = KeyHistory()
    moments = []
    for number, operation in enumerate(sorted(mine, key=lambda one: one.invoke.index)):
        history.invokes.append(operation.invoke)
        history.completions.append(operation.completion)
        moments.append((operation.invoke.index, number))
        if operation.completion is not None:
            moments.append((operation.completion.index, ~number))
    moments.sort()  # no two have the same line
    history.moments = [moment for _, moment in moments]
    return history


def calls_of(history: KeyHistory, machine: Machine, model: Model) -> list[int] | None:
    """Return the call of each operation, SILENT where it constrains nothing.

    None if an operation with unknown outcome may have changed the state: then only
    `CrashedSearch` applies.
    """
    calls = []
    numbers, ok, fails = machine.call_numbers, OpType.OK, model.observed_failures
    for invoke, completion in zip(history.invokes, history.completions, strict=True):
        if completion is None or completion.type is OpType.INFO:
            if not model.only_reads(call_of(Operation(invoke, completion))):
                return None
            calls.append(SILENT)
        elif completion.type is ok or (completion.f in fails and completion.error is None):
            argument, result = invoke.value, completion.value
            if argument.__class__ is list:
                argument = tuple(argument)
            if result.__class__ is list:
                result = tuple(result)
            try:
                calls.append(numbers[invoke.f, argument, result, completion.type])
            except (KeyError, TypeError):  # not seen yet, or no key as it is
                calls.append(machine.call_id(call_of(Operation(invoke, completion))))
        else:
            calls.append(SILENT)
    return calls
