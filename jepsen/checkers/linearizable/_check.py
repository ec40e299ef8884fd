"""The check of a history: which search applies to each key, and the verdict that follows.

The method is in the docstring of the package. This module chooses between the compiled search for
long histories of registers (`_registers`), the search for keys whose outcomes are all known
(`_search_complete`) and the search with crashed operations (`_search_crashed`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable import _registers as registers
from jepsen.checkers.linearizable._key_history import calls_of, key_histories_of, key_history_of
from jepsen.checkers.linearizable._machine import (
    Budget,
    BudgetMeter,
    Configuration,
    Counterexample,
    Exhausted,
    Machine,
    Moment,
    call_of,
    observed,
)
from jepsen.checkers.linearizable._search_complete import CompleteSearch
from jepsen.checkers.linearizable._search_crashed import CrashedSearch
from jepsen.checkers.verdict import Anomaly, Valid, merge_valid
from jepsen.history import Operation, OpType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jepsen.checkers.linearizable._key_history import KeyHistory
    from jepsen.checkers.linearizable.models import Model
    from jepsen.history import Op

__all__ = [
    "Budget",
    "Configuration",
    "Counterexample",
    "KeyResult",
    "LinearizabilityResult",
    "check_key",
    "check_linearizable",
    "nonlinearizable",
]


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
    found, rest = registers.search(history, model)
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
