"""A model with small numbers for states and calls, and the budget of a search.

Searches ask for the same few transitions often, so each is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.linearizable.models import ILLEGAL, Call
from jepsen.history import Operation, OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from jepsen.checkers.linearizable.models import Model

CONFIGURATIONS_SHOWN_MAX = 10
CONFIGURATION_BYTES = 400
"""Approximate memory of one configuration, with its place in the sets."""
CHECK_INTERVAL = 512
"""Steps between two checks of the clock."""
_ILLEGAL_ID = -1


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a check; beyond them the verdict is "unknown"."""

    memory_bytes_max: int = 1 << 30
    deadline: float | None = None
    """A time of `clock`; None: no limit."""
    clock: Callable[[], float] | None = None


class Exhausted(Exception):
    """A budget is used up; the message names the limit."""


class BudgetMeter:
    """The use of a budget by one search."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.steps = 0

    def spend(self, configurations: int) -> None:
        """Count a step that holds so many configurations. Exhausted if a limit is exceeded."""
        self.steps += 1
        if self.steps % CHECK_INTERVAL and configurations < CHECK_INTERVAL:
            return
        budget = self._budget
        if configurations * CONFIGURATION_BYTES > budget.memory_bytes_max:
            raise Exhausted(f"{configurations} configurations need more memory than is allowed")
        clock, deadline = budget.clock, budget.deadline
        if clock is not None and deadline is not None and clock() > deadline:
            raise Exhausted("the deadline came first")


class Machine:
    """The model with states and calls as small numbers, each transition computed once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.states: list[Any] = []
        self._state_ids: dict[Any, int] = {}
        self._calls: list[Call] = []
        self.only_reads: list[bool] = []
        """Indexed by the number of a call."""
        self.overwrites: list[bool] = []
        """Indexed by the number of a call."""
        self.call_numbers: dict[tuple[Any, ...], int] = {}
        """The number of each call."""
        self.written: list[int] = []
        """Indexed by the number of a call that overwrites: the state after it."""
        self.steps: list[dict[int, int]] = []
        """Cached results of `step`, by state and call."""
        self.initial = self.state_id(model.initial)

    def call_id(self, call: Call) -> int:
        """Return the number of a call."""
        number = self.call_numbers.get(call)
        if number is None:
            number = self.call_numbers[call] = len(self._calls)
            self._calls.append(call)
            self.only_reads.append(self._model.only_reads(call))
            overwrites = self._model.overwrites(call)
            self.overwrites.append(overwrites)
            self.written.append(self.step(self.initial, number) if overwrites else _ILLEGAL_ID)
        return number

    def state_id(self, state: Any) -> int:
        """Return the number of a state."""
        number = self._state_ids.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.steps.append({})
        return number

    def step(self, state: int, call: int) -> int:
        """Return the state after a call, or a negative number if the call is illegal."""
        steps = self.steps[state]
        after = steps.get(call)
        if after is None:
            result = self._model.step(self.states[state], self._calls[call])
            after = _ILLEGAL_ID if result is ILLEGAL else self.state_id(result)
            steps[call] = after
        return after


Moment = tuple[bool, Operation]
"""An operation begins or returns: (whether it returns, operation)."""


class Configuration(NamedTuple):
    """One possible situation, as reports show it."""

    state: Any
    pending: tuple[Operation, ...]
    """Invoked, neither returned nor in effect."""
    effective: tuple[Operation, ...]
    """Invoked, not returned, and in effect."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The proof that a key's history is not linearizable."""

    operation: Operation
    """The first operation whose return no configuration survives.

    The history up to its completion is not linearizable; without that line it is.
    """
    previous: Operation | None
    """The operation that returned before it; None if it was the first."""
    configurations: tuple[Configuration, ...]
    """Situations before it returned, at most CONFIGURATIONS_SHOWN_MAX."""
    configuration_count: int


def observed(operation: Operation, model: Model) -> bool:
    """Return whether the operation's completion constrains the search."""
    completion = operation.completion
    if completion is None:
        return False
    if completion.type is OpType.FAIL:
        return completion.error is None and completion.f in model.observed_failures
    return completion.type is OpType.OK


def call_of(operation: Operation) -> Call:
    """Return the call that a model sees."""
    invoke, completion = operation.invoke, operation.completion
    if completion is None or completion.type is OpType.INFO:
        return Call(invoke.f, hashable(invoke.value), None, OpType.INFO)
    return Call(invoke.f, hashable(invoke.value), hashable(completion.value), completion.type)


def end_of(operation: Operation) -> int:
    """Return the line at which the operation completes; -1 if it does not."""
    return -1 if operation.completion is None else operation.completion.index
