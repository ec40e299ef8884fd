"""Is the history linearizable? Just-in-time linearization, one key after the other.

A set of configurations, each one way in which things may stand, is carried along the history. Where
an operation returns, only configurations survive in which it has taken effect; those in which it
has not are extended by whatever else may have come before it. The history is not linearizable when
none survives. What keeps the set small is in the two searches: `visits.py` where every outcome is
known, `counting.py` where some are not.

Whoever may run out of time or memory says "unknown". Pure: the clock is an argument.
Sources: Lowe, "Testing for linearizability"; Wing and Gong; Knossos' `linear`; Herlihy and Wing for
why keys can be checked one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable import _registers as registers
from jepsen.checkers.linearizable._key_history import calls_of, track_of, tracks_of
from jepsen.checkers.linearizable._machine import (
    Budget,
    Configuration,
    Counterexample,
    Exhausted,
    Machine,
    Moment,
    Purse,
    call_of,
    observed,
)
from jepsen.checkers.linearizable._search_complete import VisitSearch
from jepsen.checkers.linearizable._search_crashed import CountingSearch
from jepsen.checkers.verdict import Anomaly, Valid, merge_valid
from jepsen.history import Operation, OpType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jepsen.checkers.linearizable._key_history import Track
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
"""Keys share what was computed of the model until it has seen so many states."""


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
    """Checks each key of the history against the model. Raises HistoryError, ValueError."""
    found, rest = registers.search(history, model)
    tracks = tracks_of(rest)
    machine = Machine(model)
    results = []
    for key in found or tracks:
        known = found.get(key)
        if known is not None:
            results.append(KeyResult(key, True, *known))
            continue
        if len(machine.states) > STATES_SHARED_MAX:
            machine = Machine(model)
        results.append(_check_track(key, tracks[key], model, budget or Budget(), machine))
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
    """Checks the operations on one key. A `machine` of the model may serve several keys.

    `starts`: the states that it may begin with, if it is not the model's first.
    """
    return _check_track(key, track_of(mine), model, budget, machine or Machine(model), starts)


def _check_track(
    key: Any,
    track: Track,
    model: Model,
    budget: Budget,
    machine: Machine,
    starts: Iterable[Any] | None = None,
) -> KeyResult:
    search = _search(track, model, budget, machine)
    if starts is not None:
        search.begin_with(map(machine.state_id, starts))
    count = len(track.invokes)
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
    """The states in which the operations on one key may leave it, from any of the states it may
    begin with; none if nothing explains them. Raises Exhausted.

    An operation with unknown outcome may take effect yet, after all others.
    """
    machine = machine or Machine(model)
    search = _search(track_of(mine), model, budget, machine)
    search.begin_with(map(machine.state_id, starts))
    if search.run() is not None:
        return frozenset()
    return frozenset(machine.states[state] for state in search.states())


def _search(
    track: Track, model: Model, budget: Budget, machine: Machine
) -> VisitSearch | CountingSearch:
    """The one that is made for what is known of the operations."""
    calls = calls_of(track, machine, model)
    if calls is not None:
        return VisitSearch(machine, Purse(budget), track, calls)
    return CountingSearch(machine, Purse(budget), _moments(track, model))


def _moments(track: Track, model: Model) -> Iterator[Moment]:
    """The moments in their order. What says nothing is left out; an operation with unknown outcome
    never returns.
    """
    mine = track.operations()
    returns = [observed(one, model) for one in mine]
    begins = [
        known or (one.type is OpType.INFO and not model.only_reads(call_of(one)))
        for one, known in zip(mine, returns, strict=True)
    ]
    for moment in track.moments:
        number = moment if moment >= 0 else ~moment
        if (begins if moment >= 0 else returns)[number]:
            yield moment < 0, mine[number]


def nonlinearizable(result: KeyResult) -> Anomaly:
    """The anomaly that a key's result shows."""
    example = result.counterexample
    if example is None:
        return Anomaly("nonlinearizable", {"key": result.key})
    states = [repr(one.state) for one in example.configurations]
    detail: dict[str, Any] = {"key": result.key, "possible-states": states}
    detail["operation"] = _told(example.operation)
    ops = [_line(example.operation)]
    if example.previous is not None:
        detail["previous"] = _told(example.previous)
        ops.insert(0, _line(example.previous))
    if example.configurations:
        first = example.configurations[0]
        detail["pending"] = [_told(one) for one in (*first.pending, *first.effective)]
        ops += [_line(one) for one in (*first.pending, *first.effective)]
    return Anomaly("nonlinearizable", detail, tuple(dict.fromkeys(ops)))


def _line(operation: Operation) -> int:
    return (operation.completion or operation.invoke).index


def _told(operation: Operation) -> dict[str, Any]:
    return {
        "index": _line(operation),
        "process": operation.invoke.process,
        "f": operation.invoke.f,
        "value": operation.value,
        "type": operation.type,
    }
