"""Checkpoints of one key whose history is still growing.

A checkpoint has the possible states of the key at a moment when no operation was open. Operations
before that moment are decided and not needed again. So a check costs the operations since the
checkpoint, however long the history is. The verdict, and the operation that no configuration
survives, are those of the whole history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable._check import KeyResult, check_key, end_states
from jepsen.checkers.linearizable._machine import Exhausted, call_of, observed
from jepsen.history import OpType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.checkers.linearizable._machine import Budget, Machine
    from jepsen.checkers.linearizable.models import Model
    from jepsen.history import Operation

RECHECKED_OPERATIONS = 256
"""Up to this many operations are checked again rather than moving the checkpoint."""


@dataclass(frozen=True, slots=True)
class KeyCheckpoint:
    """The possible states of a key at a moment when no operation was open."""

    states: tuple[Any, ...] | None = None
    """The states before line `since`; None: the model's first."""
    since: int = 0
    until: int | None = None
    """The completion that no configuration survives, if any; later operations do not matter."""

    def needs(self, operation: Operation) -> bool:
        """Whether the next check needs an operation that has ended."""
        line = operation.invoke.index
        return line >= self.since and (self.until is None or line < self.until)


def check_growing(
    key: Any,
    checkpoint: KeyCheckpoint,
    mine: Sequence[Operation],
    model: Model,
    budget: Budget,
    machine: Machine,
) -> tuple[KeyResult, KeyCheckpoint]:
    """Check a key from its checkpoint on; returns the verdict and the next checkpoint.

    `mine`: the operations that the checkpoint needs, those that ended since, and those that are
    open and end later. `operation_count` of the result counts these.
    """
    result = check_key(key, mine, model, budget, machine, checkpoint.states)
    if result.counterexample is not None:
        completion = result.counterexample.operation.completion
        return result, replace(checkpoint, until=None if completion is None else completion.index)
    if result.valid is not True or len(mine) <= RECHECKED_OPERATIONS:
        return result, checkpoint
    ordered = sorted(mine, key=lambda one: one.invoke.index)
    decided = _decided(ordered, model)
    if not decided:
        return result, checkpoint
    starts = (model.initial,) if checkpoint.states is None else checkpoint.states
    try:
        states = end_states(ordered[:decided], model, starts, budget, machine)
    except Exhausted:
        return result, checkpoint
    return result, KeyCheckpoint(tuple(states), ordered[decided].invoke.index)


def _decided(ordered: Sequence[Operation], model: Model) -> int:
    """Return how many operations the next check does not need: after them none was open.

    The last operation that returned is not among them. If no configuration survives the next one,
    the explanation shows it.
    """
    quiet, decided, ends = 0, 0, -1.0
    for number, operation in enumerate(ordered):
        if operation.invoke.index > ends:
            quiet = number
        if observed(operation, model):
            decided = quiet
        ends = max(ends, _end(operation, model))
    return decided


def _end(operation: Operation, model: Model) -> float:
    """Return the last line at which the operation may take effect or return."""
    completion = operation.completion
    if completion is None:
        return float("inf")
    if observed(operation, model):
        return completion.index
    unknown = operation.type is OpType.INFO and not model.only_reads(call_of(operation))
    return float("inf") if unknown else -1.0
