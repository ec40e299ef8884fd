"""The search for keys with operations that crashed: those that ended with `info`, or never.

A crashed operation may take effect at any time after its invocation, or never. A configuration is
a state, the pending operations in effect, and for each crashed call how many of its operations
were used. Three rules keep the set small, beside those of `_search_complete` for reads and for
equal operations:

* Equal crashed operations are interchangeable, so they are counted, not distinguished. Of two
  configurations that differ only in the counts, the one that used fewer suffices.
* Only operations that must take effect now do; all others wait.
* Crashed operations that only read are left out.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from jepsen.checkers.linearizable._machine import (
    CONFIGURATIONS_SHOWN_MAX,
    BudgetMeter,
    Configuration,
    Counterexample,
    Machine,
    Moment,
    call_of,
    end_of,
)
from jepsen.history import Operation, OpType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COUNT_BITS = 32
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_Key = tuple[int, int]
"""State, and bits of the slots whose operations have taken effect."""
_Configurations = dict[_Key, list[int]]
"""Each configuration with the counts of crashed operations used, none of them dominated.

Counts stand side by side in one integer, `_COUNT_BITS` each, the highest bit of which stays free.
"""


class _Move(NamedTuple):
    """The effect of one pending operation in one state."""

    needed: int
    """Equal operations that return earlier, and so take effect first."""
    both: int
    """`needed` and the operation itself."""
    gained: int
    """The operation itself and the reads that are legal after it."""
    after: int
    """The state after it."""


class CrashedSearch:
    """The search for one key."""

    def __init__(self, machine: Machine, meter: BudgetMeter, moments: Iterable[Moment]) -> None:
        self._moments = moments
        self._machine = machine
        self._meter = meter
        self._slots: list[Operation | None] = []
        """The pending operations that will return; a slot is reused after the return."""
        self._calls: list[int] = []
        """The call in each slot."""
        self._unknown: dict[int, int] = {}
        """Crashed call to its place among the counts."""
        self._available: list[int] = []
        """The number of crashed operations of each call so far."""
        self._guards = 0
        self._reads: dict[int, int] = {}
        """State to the slots whose operations only read and are legal there."""
        self._configurations: _Configurations = {(self._machine.initial, 0): [0]}
        self.peak = 1

    def begin_with(self, states: Iterable[int]) -> None:
        """Begin in any of these states instead of the model's first. Call it before `run`."""
        self._configurations = {(state, 0): [0] for state in states}

    def states(self) -> set[int]:
        """Return the possible states after all operations that return have returned."""
        return {state for state, _ in self._configurations}

    def run(self) -> Counterexample | None:
        """Search the history. Returns None if it is linearizable. Exhausted if the budget ends."""
        previous = None
        slots: dict[int, int] = {}
        for returns, operation in self._moments:
            index = operation.invoke.index
            if not returns:
                call = self._machine.call_id(call_of(operation))
                if operation.type is OpType.INFO:
                    if not self._machine.only_reads[call]:
                        self._add_unknown(call)
                else:
                    slots[index] = self._occupy(operation, call)
                continue
            slot = slots.pop(index)
            survivors = self._return(slot)
            if not survivors:
                return self._explain(operation, previous)
            self._configurations = survivors
            self._slots[slot] = None
            self._reads.clear()
            previous = operation
        return None

    def _add_unknown(self, call: int) -> None:
        place = self._unknown.setdefault(call, len(self._available))
        if place == len(self._available):
            self._available.append(0)
            self._guards |= 1 << (place * _COUNT_BITS + _COUNT_BITS - 1)
        self._available[place] += 1

    def _occupy(self, operation: Operation, call: int) -> int:
        """Put an operation into a slot and return its number."""
        self._reads.clear()
        for slot, occupant in enumerate(self._slots):
            if occupant is None:
                self._slots[slot], self._calls[slot] = operation, call
                return slot
        self._slots.append(operation)
        self._calls.append(call)
        return len(self._slots) - 1

    def _legal_reads(self, state: int) -> int:
        """Return the slots whose operations only read and are legal in the state."""
        found = self._reads.get(state)
        if found is None:
            found, step, only_reads = 0, self._machine.step, self._machine.only_reads
            for slot, call in enumerate(self._calls):
                if only_reads[call] and self._slots[slot] and step(state, call) == state:
                    found |= 1 << slot
            self._reads[state] = found
        return found

    # --- where an operation returns -----------------------------------------------------------

    def _return(self, slot: int) -> _Configurations:
        """Return the configurations with the slot's operation in effect; the slot is freed."""
        bit = 1 << slot
        survivors: _Configurations = {}
        waiting: _Configurations = {}
        for (state, effective), counts in self._configurations.items():
            now = effective | self._legal_reads(state)
            for used in counts:
                if now & bit:
                    self._add(survivors, (state, now ^ bit), used)
                else:
                    self._add(waiting, (state, now), used)
        if waiting:
            self._extend(waiting, bit, survivors)
        self.peak = max(self.peak, len(survivors))
        return survivors

    def _extend(self, seen: _Configurations, bit: int, survivors: _Configurations) -> None:
        """Extend waiting configurations until they survive, those with lower counts first."""
        queue = deque((key, used) for key, counts in seen.items() for used in counts)
        moves: dict[int, list[_Move]] = {}
        while queue:
            key, used = queue.popleft()
            if used not in seen[key]:
                continue  # replaced by a configuration with lower counts
            state, effective = key
            if state not in moves:
                moves[state] = self._moves(state)
            nexts = [
                ((after, effective | gained), used)
                for needed, both, gained, after in moves[state]
                if effective & both == needed
            ]
            nexts += [
                ((after, effective | self._legal_reads(after)), more)
                for after, more in self._unknown_moves(state, used)
            ]
            for (after, now), more in nexts:
                if now & bit:
                    self._add(survivors, (after, now ^ bit), more)
                elif self._add(seen, (after, now), more):
                    queue.append(((after, now), more))
            self._meter.spend(len(seen) + len(survivors) + len(self._configurations))

    def _moves(self, state: int) -> list[_Move]:
        """Return the moves of the pending operations in the state."""
        moves = []
        earlier: dict[int, int] = {}
        pending = [(end_of(one), slot) for slot, one in enumerate(self._slots) if one is not None]
        for _, slot in sorted(pending):
            call, bit = self._calls[slot], 1 << slot
            needed = earlier.get(call, 0)
            earlier[call] = needed | bit
            after = self._machine.step(state, call)
            if after >= 0 and not self._machine.only_reads[call]:
                gained = bit | self._legal_reads(after)
                moves.append(_Move(needed, needed | bit, gained, after))
        return moves

    def _unknown_moves(self, state: int, used: int) -> Iterator[tuple[int, int]]:
        """Yield (state, counts) after each crashed call that is legal and still available."""
        for call, place in self._unknown.items():
            after = self._machine.step(state, call)
            if after < 0 or after == state:
                continue
            shift = place * _COUNT_BITS
            if (used >> shift) & _COUNT_MASK < self._available[place]:
                yield after, used + (1 << shift)

    def _add(self, configurations: _Configurations, key: _Key, used: int) -> bool:
        """Add a configuration unless one with lower counts exists; remove higher ones."""
        counts = configurations.get(key)
        if counts is None:
            configurations[key] = [used]
            return True
        guards = self._guards
        for other in counts:
            if ((used | guards) - other) & guards == guards:
                return False
        counts[:] = [other for other in counts if ((other | guards) - used) & guards != guards]
        counts.append(used)
        return True

    # --- explanation ---------------------------------------------------------------------------

    def _explain(self, operation: Operation, previous: Operation | None) -> Counterexample:
        pending = [(slot, one) for slot, one in enumerate(self._slots) if one is not None]
        shown = [
            Configuration(
                self._machine.states[state],
                tuple(one for slot, one in pending if not effective >> slot & 1),
                tuple(one for slot, one in pending if effective >> slot & 1),
            )
            for state, effective in islice(self._configurations, CONFIGURATIONS_SHOWN_MAX)
        ]
        count = sum(map(len, self._configurations.values()))
        return Counterexample(operation, previous, tuple(shown), count)
