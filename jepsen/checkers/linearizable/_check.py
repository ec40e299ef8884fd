"""The check of a history: which search applies to each key, and the verdict that follows.

The method is in the docstring of the package. Long histories of registers go to the compiled search
first: they become rows of numbers as they are read, without an object for an operation or a key.
Only that a key is linearizable is taken from it. `_search` judges all other keys, with one search
for keys whose outcomes are all known and one for keys with crashed operations.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen import compiled
from jepsen.checkers.linearizable._key_history import calls_of, key_histories_of, key_history_of
from jepsen.checkers.linearizable._machine import (
    Budget,
    BudgetMeter,
    Counterexample,
    Exhausted,
    Machine,
    Moment,
    call_of,
    observed,
)
from jepsen.checkers.linearizable._search import CompleteSearch, CrashedSearch
from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.verdict import Anomaly, Valid, merge_valid
from jepsen.compiled.codes import CAS, FAILED_CAS, NEVER, READ, VALID, WRITE
from jepsen.history import Operation, OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from jepsen.checkers.linearizable._key_history import KeyHistory
    from jepsen.checkers.linearizable.models import Model
    from jepsen.history import Op


LINES_MIN = 200_000
"""The lines from which loading compiled code pays: half a second, seconds the first time."""
_SILENT = -1
PAIRS = (list, tuple)


class Found(NamedTuple):
    """Result for a key that is linearizable."""

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


def search_compiled(
    history: Iterable[Op], model: Model
) -> tuple[dict[Any, Found | None], Iterable[Op]]:
    """Return the result of each key, in the order of their first operations, and lines for others.

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
                if f == "cas" and seen and isinstance(invoke.value, PAIRS):
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


STATES_SHARED_MAX = 10_000
"""Keys share the computed transitions of a model until it has this many states."""


@dataclass(frozen=True, slots=True)
class KeyResult:
    """The verdict on one key."""

    key: Any
    valid: Valid
    operation_count: int
    configurations_peak: int
    counterexample: Counterexample | None = None
    why_unknown: str = ""


@dataclass(frozen=True, slots=True)
class LinearizabilityResult:
    """The verdict on a history: that on all keys together."""

    valid: Valid
    keys: tuple[KeyResult, ...] = field(repr=False)

    @property
    def failures(self) -> tuple[KeyResult, ...]:
        """The keys whose histories are not linearizable."""
        return tuple(result for result in self.keys if result.valid is False)


def check_linearizable(
    history: Iterable[Op], model: Model, budget: Budget | None = None
) -> LinearizabilityResult:
    """Check each key of a history against a model.

    HistoryError if processes interleave operations; ValueError if the model rejects a value.
    """
    found, rest = search_compiled(history, model)
    histories = key_histories_of(rest)
    machine = Machine(model)
    results = []
    for key in found or histories:
        known = found.get(key)
        if known is not None:
            results.append(KeyResult(key, True, *known))
            continue
        if len(machine.states) > STATES_SHARED_MAX:
            machine = Machine(model)
        results.append(_check_history(key, histories[key], model, budget or Budget(), machine))
    valid = merge_valid(result.valid for result in results)
    return LinearizabilityResult(valid, tuple(results))


def check_key(
    key: Any,
    mine: Iterable[Operation],
    model: Model,
    budget: Budget,
    machine: Machine | None = None,
    starts: Iterable[Any] | None = None,
) -> KeyResult:
    """Check the operations on one key.

    `machine`: that of the model, shared by several keys. `starts`: possible first states; by
    default the model's.
    """
    return _check_history(
        key, key_history_of(mine), model, budget, machine or Machine(model), starts
    )


def _check_history(
    key: Any,
    history: KeyHistory,
    model: Model,
    budget: Budget,
    machine: Machine,
    starts: Iterable[Any] | None = None,
) -> KeyResult:
    search = _search(history, model, budget, machine)
    if starts is not None:
        search.begin_with(map(machine.state_id, starts))
    count = len(history.invokes)
    try:
        counterexample = search.run()
    except Exhausted as error:
        return KeyResult(key, "unknown", count, search.peak, why_unknown=str(error))
    return KeyResult(key, counterexample is None, count, search.peak, counterexample)


def end_states(
    mine: Iterable[Operation],
    model: Model,
    starts: Iterable[Any],
    budget: Budget,
    machine: Machine | None = None,
) -> frozenset[Any]:
    """Return the possible states after the operations on one key, from any of the first states.

    Empty if the operations are not linearizable. A crashed operation may also take effect later.
    Exhausted if the budget ends.
    """
    machine = machine or Machine(model)
    search = _search(key_history_of(mine), model, budget, machine)
    search.begin_with(map(machine.state_id, starts))
    if search.run() is not None:
        return frozenset()
    return frozenset(machine.states[state] for state in search.states())


def _search(
    history: KeyHistory, model: Model, budget: Budget, machine: Machine
) -> CompleteSearch | CrashedSearch:
    """The one that is made for what is known of the operations."""
    calls = calls_of(history, machine, model)
    if calls is not None:
        return CompleteSearch(machine, BudgetMeter(budget), history, calls)
    return CrashedSearch(machine, BudgetMeter(budget), _moments(history, model))


def _moments(history: KeyHistory, model: Model) -> Iterator[Moment]:
    """Yield begins and returns in order, without operations that constrain nothing.

    A crashed operation never returns.
    """
    mine = history.operations()
    returns = [observed(one, model) for one in mine]
    begins = [
        known or (one.type is OpType.INFO and not model.only_reads(call_of(one)))
        for one, known in zip(mine, returns, strict=True)
    ]
    for moment in history.moments:
        number = moment if moment >= 0 else ~moment
        if (begins if moment >= 0 else returns)[number]:
            yield moment < 0, mine[number]


def nonlinearizable(result: KeyResult) -> Anomaly:
    """Return the anomaly of a key that is not linearizable."""
    example = result.counterexample
    if example is None:
        return Anomaly("nonlinearizable", {"key": result.key})
    states = [repr(one.state) for one in example.configurations]
    detail: dict[str, Any] = {"key": result.key, "possible-states": states}
    detail["operation"] = _described(example.operation)
    ops = [_line(example.operation)]
    if example.previous is not None:
        detail["previous"] = _described(example.previous)
        ops.insert(0, _line(example.previous))
    if example.configurations:
        first = example.configurations[0]
        detail["pending"] = [_described(one) for one in (*first.pending, *first.effective)]
        ops += [_line(one) for one in (*first.pending, *first.effective)]
    return Anomaly("nonlinearizable", detail, tuple(dict.fromkeys(ops)))


def _line(operation: Operation) -> int:
    return (operation.completion or operation.invoke).index


def _described(operation: Operation) -> dict[str, Any]:
    return {
        "index": _line(operation),
        "process": operation.invoke.process,
        "f": operation.invoke.f,
        "value": operation.value,
        "type": operation.type,
    }
