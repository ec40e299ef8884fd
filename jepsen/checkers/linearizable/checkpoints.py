"""One key judged again and again while its history is being written.

What is known of it between two looks is its standing: the states in which it may have been at a
moment when nothing was under way, and from where on operations are still needed. What came before
that moment is settled, so a look costs what has come since, however long the history is. The
verdict, and the operation that fits nowhere, are those of the whole.
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

SETTLE_OPERATIONS = 256
"""As many as are looked at again rather than settled."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a key."""

    states: tuple[Any, ...] | None = None
    """Before line `since`; None: the model's first."""
    since: int = 0
    until: int | None = None
    """The line that fits nowhere, if there is one: what began later does not matter."""

    def needs(self, operation: Operation) -> bool:
        """Whether an operation that has ended is to be there at the next look."""
        line = operation.invoke.index
        return line >= self.since and (self.until is None or line < self.until)


def look(
    key: Any,
    standing: Standing,
    mine: Sequence[Operation],
    model: Model,
    budget: Budget,
    machine: Machine,
) -> tuple[KeyResult, Standing]:
    """Checks a key as far as its history has come, and what is known of it then.

    `mine`: those operations that the standing needs, those that have ended since, and those that
    are open, which end later. `operation_count` of the result is of these.
    """
    result = check_key(key, mine, model, budget, machine, standing.states)
    if result.counterexample is not None:
        completion = result.counterexample.operation.completion
        return result, replace(standing, until=None if completion is None else completion.index)
    if result.valid is not True or len(mine) <= SETTLE_OPERATIONS:
        return result, standing
    ordered = sorted(mine, key=lambda one: one.invoke.index)
    settled = _settled(ordered, model)
    if not settled:
        return result, standing
    starts = (model.initial,) if standing.states is None else standing.states
    try:
        states = end_states(ordered[:settled], model, starts, budget, machine)
    except Exhausted:
        return result, standing
    return result, Standing(tuple(states), ordered[settled].invoke.index)


def _settled(ordered: Sequence[Operation], model: Model) -> int:
    """How many of the operations nobody will need any more: behind them nothing was under way.

    The last one that returned something is not among them: should the next fit nowhere, it is part
    of the explanation.
    """
    quiet, settled, ends = 0, 0, -1.0
    for number, operation in enumerate(ordered):
        if operation.invoke.index > ends:
            quiet = number
        if observed(operation, model):
            settled = quiet
        ends = max(ends, _end(operation, model))
    return settled


def _end(operation: Operation, model: Model) -> float:
    """The line until which it may take effect or return something."""
    completion = operation.completion
    if completion is None:
        return float("inf")
    if observed(operation, model):
        return completion.index
    unknown = operation.type is OpType.INFO and not model.only_reads(call_of(operation))
    return float("inf") if unknown else -1.0
