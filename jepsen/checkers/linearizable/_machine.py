"""A model with small numbers for its states and calls, and what a search may spend.

Searches ask for the same few transitions again and again: each is computed once.
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
"""What one configuration takes in memory, roughly, with its place in the sets."""
CHECK_INTERVAL = 512
"""Steps between two looks at the clock."""
_ILLEGAL_ID = -1


@dataclass(frozen=True, slots=True)
class Budget:
    """What a check may use; after that it says "unknown"."""

    memory_bytes_max: int = 1 << 30
    deadline: float | None = None
    """On the `clock`; None: no limit."""
    clock: Callable[[], float] | None = None


class Exhausted(Exception):
    """The budget is used up; the message says which."""


class Purse:
    """What is left of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.steps = 0

    def spend(self, configurations: int) -> None:
        """Tells of a step, and how much is held. Raises Exhausted."""
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
        """By the number of the call."""
        self.overwrites: list[bool] = []
        """By the number of the call."""
        self.call_numbers: dict[tuple[Any, ...], int] = {}
        """By the call."""
        self.written: list[int] = []
        """By the number of a call that overwrites: the state after it."""
        self.steps: list[dict[int, int]] = []
        """By state and call, what `step` has been asked for."""
        self.initial = self.state_id(model.initial)

    def call_id(self, call: Call) -> int:
        """The number of the call."""
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
        """The number of the state."""
        number = self._state_ids.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.steps.append({})
        return number

    def step(self, state: int, call: int) -> int:
        """The state after the call, or a negative number."""
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
    """One way in which things may stand, for people."""

    state: Any
    pending: tuple[Operation, ...]
    """Invoked, not returned, and not in effect yet."""
    effective: tuple[Operation, ...]
    """Invoked, not returned, and in effect."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Why a key's history is not linearizable."""

    operation: Operation
    """The first to return that fits nowhere: the history up to here is not linearizable, and the
    one without this last line is."""
    previous: Operation | None
    """The one that returned before it, when all was well."""
    configurations: tuple[Configuration, ...]
    """How things may have stood before it returned; at most so many as are worth showing."""
    configuration_count: int


def observed(operation: Operation, model: Model) -> bool:
    """Whether the operation returns with something to be explained."""
    completion = operation.completion
    if completion is None:
        return False
    if completion.type is OpType.FAIL:
        return completion.error is None and completion.f in model.observed_failures
    return completion.type is OpType.OK


def call_of(operation: Operation) -> Call:
    """The operation as a model sees it."""
    invoke, completion = operation.invoke, operation.completion
    if completion is None or completion.type is OpType.INFO:
        return Call(invoke.f, hashable(invoke.value), None, OpType.INFO)
    return Call(invoke.f, hashable(invoke.value), hashable(completion.value), completion.type)


def end_of(operation: Operation) -> int:
    """Where in the history it returns, as those in slots do."""
    return -1 if operation.completion is None else operation.completion.index
