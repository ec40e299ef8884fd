"""Histories of one key cut at quiescent points, at which no operation is open.

Only the possible states of the key go on from there, so the operations on both sides can be judged
apart. Two uses:

* A key whose history still grows (`check_growing`). A checkpoint has the states at the last
  quiescent point. Operations before it are decided and not needed again, so a check costs the
  operations since. The verdict, and the operation that no configuration survives, are those of the
  whole history.
* A register with very many operations (`relation`). Each part is judged for each value with which
  it may begin, and yields the values with which it may end. Relations are made independently of
  each other and composed in order (`comes_through`). Of the values with which a part may begin only
  those count that an operation may observe; all others behave alike (`ELSE`).

Source: Horn and Kroening, "Faster linearizability checking via P-compositionality", for parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable._check import KeyResult, check_key, end_states
from jepsen.checkers.linearizable._machine import Exhausted, Machine, call_of, observed
from jepsen.history import OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jepsen.checkers.linearizable._machine import Budget
    from jepsen.checkers.linearizable.models import Model, Register
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
        """Return whether the next check needs an operation that has ended."""
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


ELSE = object()
"""A value that the part does not know; in what a part ends with: the one it began with."""
Relation = dict[Any, frozenset[Any]]
"""The value at the beginning to those at the end; none: it cannot have begun so."""


def relation(mine: Sequence[Operation], model: Register, budget: Budget) -> Relation:
    """Return the values that the operations, in the order of their invocations, lead to. Raises
    Exhausted.

    Where an outcome is unknown the operation never ends, so such a part is to be the last one.
    """
    starts = {ELSE, *_seen_first(mine, model)}
    found: Relation = {start: frozenset({start}) for start in starts}
    machine = Machine(model)
    for part in parts(mine, model):
        after = {
            states: end_states(part, model, states, budget, machine)
            for states in set(found.values())
            if states
        }
        found = {start: after.get(states, states) for start, states in found.items()}
    return found


def comes_through(initial: Any, relations: Iterable[Mapping[Any, frozenset[Any]]]) -> bool:
    """Return whether a register that begins so is linearizable, from the relations of its parts."""
    states = {initial}
    for one in relations:
        states = {
            state if end is ELSE else end for state in states for end in one.get(state, one[ELSE])
        }
    return bool(states)


def parts(mine: Iterable[Operation], model: Register) -> Iterator[list[Operation]]:
    """Yield the operations, cut wherever no informative one is pending."""
    part: list[Operation] = []
    ends = -1
    unknown = False
    for operation in mine:
        returns = observed(operation, model)
        if part and not unknown and operation.invoke.index > ends:
            yield part
            part = []
        part.append(operation)
        if returns and operation.completion is not None:
            ends = max(ends, operation.completion.index)
        elif operation.type is OpType.INFO and operation.invoke.f != "read":
            unknown = True
    if part:
        yield part


def _seen_first(mine: Iterable[Operation], model: Register) -> set[Any]:
    """What operations look for before the first value of the part's own has certainly come."""
    seen = set()
    hidden: float = float("inf")
    for operation in mine:
        invoke, completion = operation.invoke, operation.completion
        if invoke.index > hidden:
            break
        if invoke.f == "cas":
            seen.add(hashable(invoke.value)[0])
        if completion is None or not observed(operation, model):
            continue
        if invoke.f == "read":
            seen.add(hashable(completion.value))
        elif invoke.f == "write":
            hidden = min(hidden, completion.index)
    return seen
