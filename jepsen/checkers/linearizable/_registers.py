"""Long histories of registers, judged by the compiled search as far as it goes.

A history becomes rows of numbers as it is gone through, without an object for an operation or a
key. Only that a key is linearizable is taken from here: the searches in Python judge what is not,
since they explain it, and what is too large.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen import compiled
from jepsen.checkers.linearizable._machine import observed
from jepsen.checkers.linearizable.models import Register
from jepsen.compiled.codes import CAS, FAILED_CAS, NEVER, READ, VALID, WRITE
from jepsen.history import Operation, OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from jepsen.checkers.linearizable.models import Model
    from jepsen.history import Op

LINES_MIN = 200_000
"""From so many lines on it pays to load what is compiled: half a second, seconds the first time."""
_SILENT = -1


class Found(NamedTuple):
    """What is known of a key that is linearizable."""

    operation_count: int
    configurations_peak: int


class _Unfit(Exception):
    """The history is not one of registers, or has what the search does not understand."""


class _Numbers(dict[Any, int]):
    """Numbers for things, from 0 on."""

    def __missing__(self, one: Any) -> int:
        if one != one:  # a dict finds it, but it equals nothing
            raise _Unfit
        number = self[one] = len(self)
        return number


def search(history: Iterable[Op], model: Model) -> tuple[dict[Any, Found | None], Iterable[Op]]:
    """What is found of each key, in the order of their first operations, and lines for others.

    Those are about the keys of which nothing is found. They are all where it does not pay to
    begin, or where the history is not what it should be: others say what is wrong.
    """
    if type(model) is not Register or not compiled.available():
        return {}, history
    history = list(history)
    if len(history) < LINES_MIN:
        return {}, history
    rows = _Rows(model)
    try:
        from jepsen.compiled.registers import judge_rows

        rows.read(history)
    except (ImportError, _Unfit):  # numba may be there and refuse the numpy that is
        return {}, history
    keys = list(rows.keys)
    found = {
        keys[key]: Found(count, peak) if verdict == VALID else None
        for key, verdict, count, peak in judge_rows(rows.packed, rows.values[model.initial])
    }
    left = {key for key, one in found.items() if one is None}
    return found, _lines_of(history, left) if left else ()


def _lines_of(history: Iterable[Op], keys: Container[Any]) -> Iterator[Op]:
    """The lines about these keys, of a history whose operations begin and end as they should."""
    processes = set()
    for op in history:
        if op.type is OpType.INVOKE:
            if hashable(op.key) in keys:
                processes.add(op.process)
                yield op
        elif op.process in processes:
            processes.remove(op.process)
            yield op


class _Rows:
    """Operations as numbers: f, a, b, where invoked, where returned, key."""

    def __init__(self, model: Register) -> None:
        self._model = model
        self.keys, self.values = _Numbers(), _Numbers()
        self.packed = bytearray()

    def read(self, history: Iterable[Op]) -> None:
        """Goes through the history. Raises _Unfit.

        Most of a check's time is spent here, so what is common is put down at once.
        """
        packed, pack = self.packed, struct.Struct("=6q").pack
        keys, values, model = self.keys, self.values, self._model
        invoked, ok, fail = OpType.INVOKE, OpType.OK, OpType.FAIL
        observes, nil_says = model.failed_cas_observes, not model.nil_read_matches
        open_calls: dict[int | str, Op] = {}
        for op in history:
            process, kind = op.process, op.type
            if not isinstance(process, int):
                continue
            if kind is invoked:
                if process in open_calls:
                    raise _Unfit
                open_calls[process] = op
                continue
            invoke = open_calls.pop(process, None)
            if invoke is None:
                raise _Unfit
            f, began = invoke.f, invoke.index
            try:
                if f == "read" and kind is ok and (nil_says or op.value is not None):
                    packed += pack(READ, values[op.value], 0, began, op.index, keys[invoke.key])
                    continue
                if f == "write" and kind is ok:
                    packed += pack(
                        WRITE, values[invoke.value], 0, began, op.index, keys[invoke.key]
                    )
                    continue
                seen = kind is ok or (kind is fail and observes and op.error is None)
                if f == "cas" and seen and isinstance(invoke.value, list | tuple):
                    expected, new = invoke.value
                    what = CAS if kind is ok else FAILED_CAS
                    a, b = values[expected], values[new]
                    packed += pack(what, a, b, began, op.index, keys[invoke.key])
                    continue
            except (TypeError, ValueError):
                pass  # something is no key of a dict as it is
            packed += pack(*self._row(invoke, op))
        for invoke in open_calls.values():
            packed += pack(*self._row(invoke, None))

    def _row(self, invoke: Op, completion: Op | None) -> tuple[int, int, int, int, int, int]:
        one = Operation(invoke, completion)
        f, a, b = self._meaning(one)
        known = completion is not None and one.type is not OpType.INFO
        end = completion.index if known and completion is not None else NEVER
        return f, a, b, invoke.index, end, self.keys[hashable(invoke.key)]

    def _meaning(self, one: Operation) -> tuple[int, int, int]:
        """(f, a, b)."""
        f, model, values = one.invoke.f, self._model, self.values
        known = observed(one, model)
        if f not in ("read", "write", "cas"):
            raise _Unfit
        if not known and (f == "read" or one.type is not OpType.INFO):
            return _SILENT, 0, 0
        if f == "read":
            if one.value is None and model.nil_read_matches:
                return _SILENT, 0, 0
            return READ, values[hashable(one.value)], 0
        if f == "write":
            return WRITE, values[hashable(one.invoke.value)], 0
        argument = hashable(one.invoke.value)
        if type(argument) is not tuple or len(argument) != 2:
            raise _Unfit
        expected, new = argument
        failed = one.type is OpType.FAIL
        return FAILED_CAS if failed else CAS, values[expected], values[new]
