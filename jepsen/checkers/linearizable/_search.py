"""The searches for one key: for outcomes that are all known, and for crashed operations.

`CompleteSearch` is for keys whose outcomes are all known. A configuration is a state, the pending
operations in effect, and the moment at which a call that overwrites the state (a `write`) was last
placed. Just before such a moment other operations may have taken effect unseen: a pending
overwrite, calls that follow from it, and then the overwrite that hid them. Such an excursion is
called a *detour*.

A detour is not guessed at its moment. It is claimed later, when an operation returns that must have
been part of one. Until then a single configuration stands for all detours. This is correct because:

* A detour ends with an overwrite, so it leaves the state as it was. Detours at one moment do not
  disturb each other.
* An operation that was pending at an earlier moment, and is not in effect, was also pending at the
  last one. So of two configurations that differ only in the moment, the later one suffices.
* Of equal pending operations that began on the same side of the moment, the one that returns first
  takes effect first. If another had, the two could change places.
* A pending operation that only reads takes effect as soon as it is legal.
* Only operations that must take effect now do; all others wait. So before an operation returns,
  calls follow one another from the current state, with at most one overwrite among them.

`CrashedSearch` is for keys with crashed operations: those that ended with `info`, or never. A
crashed operation may take effect at any time after its invocation, or never. A configuration is
a state, the pending operations in effect, and for each crashed call how many of its operations
were used. Three rules keep the set small, beside those above for reads and for equal operations:

* Equal crashed operations are interchangeable, so they are counted, not distinguished. Of two
  configurations that differ only in the counts, the one that used fewer suffices.
* Only operations that must take effect now do; all others wait.
* Crashed operations that only read are left out.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from jepsen.checkers.linearizable._key_history import SILENT
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
    from collections.abc import Iterable, Iterator, Sequence

    from jepsen.checkers.linearizable._key_history import KeyHistory


_EVERYTHING = -1
"""Bits of all slots."""
_READS_CACHED_MAX = 256
_STATE_BITS = 32
_STATE = (1 << _STATE_BITS) - 1
"""Bits of the state; above them one for each slot whose operation has taken effect."""


class CompleteSearch:
    """The search for one key.

    A configuration is one number: a bit for each slot whose operation has taken effect, and the
    state's number in the lowest bits.
    """

    def __init__(
        self, machine: Machine, meter: BudgetMeter, history: KeyHistory, calls: Sequence[int]
    ) -> None:
        """`calls`: the call of each operation; operations with SILENT are left out."""
        self._machine = machine
        self._meter = meter
        self._history = history
        self._calls = calls
        self._slots = 0
        """The largest number of operations pending at once."""
        self._free: list[int] = []
        """The bits of free slots."""
        self._pending: dict[int, int] = {}
        """Slot's bit to the number of its operation."""
        self._began: dict[int, int] = {}
        """The moment at which the operation in a slot began, by the bit of the slot."""
        self._readers: dict[int, int] = {}
        """Pending operations that only read: bit to call."""
        self._mutators: dict[int, list[int]] = {}
        """Call to the bits of its operations, in the order of their returns."""
        self._overwriters: dict[int, list[int]] = {}
        self._reads: dict[int, int] = {}
        """State to the slots whose operations only read and are legal there."""
        self._configurations: dict[int, int] = {machine.initial: 0}
        """Each configuration with the moment of its last overwrite."""
        self.peak = 1

    def begin_with(self, states: Iterable[int]) -> None:
        """Begin in any of these states instead of the model's first. Call it before `run`."""
        self._configurations = dict.fromkeys(states, 0)

    def states(self) -> set[int]:
        """Return the possible states after all operations have returned."""
        return {one & _STATE for one in self._configurations}

    def run(self) -> Counterexample | None:
        """Search the history. Returns None if it is linearizable. Exhausted if the budget ends."""
        calls, free, only_reads = self._calls, self._free, self._machine.only_reads
        bits = [0] * len(calls)
        previous = -1
        for now, moment in enumerate(self._history.moments, start=1):
            number = moment if moment >= 0 else ~moment
            call = calls[number]
            if call == SILENT:
                continue
            if moment >= 0:
                if not only_reads[call] or not self._legal_everywhere(call):
                    bit = bits[number] = free.pop() if free else self._new_slot()
                    self._begin(number, bit, call, now)
                continue
            bit = bits[number]
            if bit:
                survivors = self._return(bit, call, now)
                if not survivors:
                    return self._explain(now, number, previous)
                self._configurations = survivors
                if len(survivors) > self.peak:
                    self.peak = len(survivors)
                self._end(bit, call)
            previous = number
        return None

    def _legal_everywhere(self, call: int) -> bool:
        """Whether a call that only reads is legal in every configuration, so it needs no slot."""
        steps, step = self._machine.steps, self._machine.step
        for one in self._configurations:
            state = one & _STATE
            if (steps[state].get(call) or step(state, call)) < 0:
                return False
        return True

    def _new_slot(self) -> int:
        self._slots += 1
        return _STATE + 1 << self._slots - 1

    def _begin(self, number: int, bit: int, call: int, now: int) -> None:
        """Put an operation into a slot."""
        self._pending[bit] = number
        self._began[bit] = now
        machine = self._machine
        if machine.only_reads[call]:
            self._readers[bit] = call
            self._reads.clear()
            self._read_at_once(bit, call)
            return
        those = self._overwriters if machine.overwrites[call] else self._mutators
        alike = those.get(call)
        if alike is None:
            those[call] = [bit]
            return
        alike.append(bit)
        alike.sort(key=lambda one: self._history.end(self._pending[one]))

    def _read_at_once(self, bit: int, call: int) -> None:
        """Let an operation that only reads take effect where it is legal."""
        step = self._machine.step
        self._configurations = {
            one | bit if step(one & _STATE, call) >= 0 else one: moment
            for one, moment in self._configurations.items()
        }

    def _end(self, bit: int, call: int) -> None:
        """Free the slot of an operation that has returned."""
        del self._pending[bit], self._began[bit]
        self._free.append(bit)
        machine = self._machine
        if machine.only_reads[call]:
            del self._readers[bit]
            self._reads.clear()
            return
        those = self._overwriters if machine.overwrites[call] else self._mutators
        if len(those[call]) == 1:
            del those[call]
        else:
            those[call].remove(bit)

    def _legal_reads(self, state: int) -> int:
        """Return the slots whose operations only read and are legal in the state."""
        found = self._reads.get(state)
        if found is None:
            found, step = 0, self._machine.step
            for bit, call in self._readers.items():
                if step(state, call) >= 0:
                    found |= bit
            if len(self._reads) >= _READS_CACHED_MAX:
                self._reads.clear()
            self._reads[state] = found
        return found

    # --- where an operation returns -----------------------------------------------------------

    def _return(self, bit: int, call: int, now: int) -> dict[int, int]:
        """Return the configurations with the slot's operation in effect, and their moments."""
        if self._machine.overwrites[call] and not self._mutators:
            return self._overwrite_alone(bit, call, now)
        survivors: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}
        for one, moment in self._configurations.items():
            if one & bit:
                survivors[one ^ bit] = moment
            elif moment in waiting:
                waiting[moment].append(one)
            else:
                waiting[moment] = [one]
        overwrites = self._machine.overwrites[call]
        for moment, those in waiting.items():
            before = self._began_before(moment)
            if overwrites:
                self._overwrite(those, before, call, now, survivors)
            else:
                self._reach(those, before, bit, moment, now, survivors)
            if before & bit:
                for one in those:
                    self._claim(one, before, bit, call if overwrites else None, moment, survivors)
        return survivors

    def _overwrite_alone(self, bit: int, call: int, now: int) -> dict[int, int]:
        """Do `_overwrite` and `_claim` for the common case without other pending mutators."""
        after = self._machine.written[call]
        reads = self._legal_reads(after)
        placed = after | reads
        began = self._began[bit]
        survivors: dict[int, int] = {}
        for one, moment in self._configurations.items():
            if one & bit:
                _keep(survivors, one ^ bit, moment)
                continue
            survivors[placed | (one & ~_STATE)] = now
            if began < moment:
                visited = one | (reads and reads & self._began_before(moment))
                _keep(survivors, visited, moment)
        return survivors

    def _began_before(self, moment: int) -> int:
        """Return the slots whose operations were pending at the moment."""
        before = 0
        for bit, began in self._began.items():
            if began < moment:
                before |= bit
        return before

    def _overwrite(
        self, those: list[int], before: int, call: int, now: int, survivors: dict[int, int]
    ) -> None:
        """Place an overwrite now, after the calls that may follow from the state."""
        after = self._machine.written[call]
        placed = after | self._legal_reads(after)
        for one in self._closure(those, (before, ~before), 0):
            _keep(survivors, placed | (one & ~_STATE), now)

    def _reach(
        self,
        those: list[int],
        before: int,
        bit: int,
        moment: int,
        now: int,
        survivors: dict[int, int],
    ) -> None:
        """Place calls that make the operation legal, with at most one overwrite among them."""
        overwritten = []
        for one in self._closure(those, (before, ~before), bit):
            if one & bit:
                _keep(survivors, one ^ bit, moment)
            else:
                overwritten += self._overwritten(one, _EVERYTHING)
        if overwritten:
            for one in self._closure(overwritten, (_EVERYTHING,), bit):
                if one & bit:
                    _keep(survivors, one ^ bit, now)

    def _claim(
        self,
        one: int,
        before: int,
        bit: int,
        overwrites: int | None,
        moment: int,
        survivors: dict[int, int],
    ) -> None:
        """Claim that the operation was part of a detour before the moment."""
        if overwrites is not None:
            after = self._machine.written[overwrites]
            reads = self._legal_reads(after) & before
            starts = [after | (one & ~_STATE) | reads | bit]
        else:
            starts = self._overwritten(one, before)
        kept = one & _STATE
        for visited in self._closure(starts, (before,), 0):
            if visited & bit:
                _keep(survivors, kept | (visited & ~_STATE & ~bit), moment)

    def _overwritten(self, one: int, among: int) -> list[int]:
        """Return the configurations that each pending overwrite makes of this one."""
        found = []
        for call, alike in self._overwriters.items():
            for bit in alike:
                if bit & among and not one & bit:
                    after = self._machine.written[call]
                    reads = self._legal_reads(after) & among
                    found.append(after | (one & ~_STATE) | reads | bit)
                    break
        return found

    def _closure(self, those: list[int], groups: Sequence[int], stop: int) -> Iterable[int]:
        """Return these configurations and all that pending calls without overwrites make of them.

        Of equal operations the first in each group of slots is taken. A configuration in which a
        slot of `stop` is in effect is not extended.
        """
        if not self._mutators:
            return those
        seen = set(those)
        left = list(those)
        step = self._machine.step
        while left:
            one = left.pop()
            if one & stop:
                continue
            state = one & _STATE
            for call, alike in self._mutators.items():
                after = step(state, call)
                if after < 0:
                    continue
                for group in groups:
                    bit = next((bit for bit in alike if bit & group and not one & bit), 0)
                    if not bit:
                        continue
                    reads = self._legal_reads(after)
                    if len(groups) == 1:
                        reads &= group
                    new = after | (one & ~_STATE) | reads | bit
                    if new not in seen:
                        seen.add(new)
                        left.append(new)
            self._meter.spend(len(seen) + len(self._configurations))
        return seen

    # --- explanation ---------------------------------------------------------------------------

    def _explain(self, now: int, number: int, previous: int) -> Counterexample:
        states, operation = self._machine.states, self._history.operation
        open_calls = self._open_before(now)
        bits = {mine: bit for bit, mine in self._pending.items()}
        shown = []
        for one in islice(self._configurations, CONFIGURATIONS_SHOWN_MAX):
            waiting = [mine for mine in open_calls if mine in bits and not one & bits[mine]]
            effective = [mine for mine in open_calls if mine not in waiting]
            shown.append(
                Configuration(
                    states[one & _STATE],
                    tuple(map(operation, waiting)),
                    tuple(map(operation, effective)),
                )
            )
        return Counterexample(
            operation(number),
            None if previous < 0 else operation(previous),
            tuple(shown),
            len(self._configurations),
        )

    def _open_before(self, now: int) -> list[int]:
        """Return the operations pending just before that moment, without silent ones."""
        found: dict[int, None] = {}
        for moment in self._history.moments[: now - 1]:
            if moment < 0:
                found.pop(~moment, None)
            elif self._calls[moment] != SILENT:
                found[moment] = None
        return list(found)


def _keep(configurations: dict[int, int], one: int, moment: int) -> None:
    """Add a configuration; if it exists, keep the later moment."""
    if configurations.get(one, -1) < moment:
        configurations[one] = moment


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
