"""One register's history cut where nothing is under way, so that its parts can be judged apart.

Where all that was begun has ended, only the value goes from one part to the next. A part is judged
for each value with which it may begin, and tells with which it may end: its relation. Relations are
made independently of each other, and composed in order: the history is linearizable exactly if some
value comes through. Of the values with which a part may begin only those count that an operation
may see; all others stand and fall together (`ELSE`).
Source: Horn and Kroening, "Faster linearizability checking via P-compositionality", for parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable._check import end_states
from jepsen.checkers.linearizable._machine import Machine, observed
from jepsen.history import OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jepsen.checkers.linearizable._machine import Budget
    from jepsen.checkers.linearizable.models import Register
    from jepsen.history import Operation

ELSE = object()
"""A value that the part does not know; in what a part ends with: the one it began with."""
Relation = dict[Any, frozenset[Any]]
"""The value at the beginning to those at the end; none: it cannot have begun so."""


def relation(mine: Sequence[Operation], model: Register, budget: Budget) -> Relation:
    """What the operations, in the order of their invocations, make of a value. Raises Exhausted.

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
    """Whether a register that begins so is linearizable, from the relations of its parts."""
    states = {initial}
    for one in relations:
        states = {
            state if end is ELSE else end for state in states for end in one.get(state, one[ELSE])
        }
    return bool(states)


def parts(mine: Iterable[Operation], model: Register) -> Iterator[list[Operation]]:
    """The operations cut wherever none is under way that says anything."""
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
