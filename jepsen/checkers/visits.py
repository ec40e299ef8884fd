"""The search where every outcome is known: writes that nobody sees are not followed up.

A configuration is a state, the pending operations in effect, and the moment at which a call that
overwrites whatever was there (a `write`) was last placed. Just before such a moment the thing may
have been *visited*: a pending overwrite, calls that follow from it, then the one that hid it all.
A visit is not guessed when the moment comes but claimed later, when an operation returns that must
have been part of one; until then a single configuration stands for all visits. What makes that
right:

* A visit ends by being overwritten, so it leaves the state as it was, and visits at one moment do
  not disturb each other.
* Whatever was pending at an earlier moment and is not yet in effect was so at the last one too, so
  of two configurations that differ only in the moment the later one suffices.
* Of pending operations that are equal, and began on the same side of the moment, the one that
  returns first takes effect first: had another, the two could change places.
* A pending operation that only reads takes effect as soon as it is legal.
* Only what must take effect now does; whatever may wait, waits. So before an operation returns
  calls follow one another from the state there is, with one overwrite among them at most.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from jepsen.checkers.machine import (
    CONFIGURATIONS_SHOWN_MAX,
    Configuration,
    Counterexample,
    Machine,
    Moment,
    Purse,
    call_of,
    end_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jepsen.history import Operation

_EVERYTHING = -1
"""Bits of all slots."""
_READS_CACHED_MAX = 256


class VisitSearch:
    """The check of one key all of whose outcomes are known.

    A configuration is one number: the state's above `width` bits, one for each slot whose
    operation has taken effect.
    """

    def __init__(self, machine: Machine, purse: Purse, width: int) -> None:
        self._machine = machine
        self._purse = purse
        self._width = width
        """So many operations are pending at once, at most."""
        self._slot_bits = (1 << width) - 1
        self._free = [1 << slot for slot in reversed(range(width))]
        """The bits of slots that nobody has."""
        self._pending: dict[int, Operation] = {}
        """By the bit of their slots."""
        self._began: dict[int, int] = {}
        """When, by the bit of the slot."""
        self._readers: dict[int, int] = {}
        """Of the pending that only read: bit to call."""
        self._mutators: dict[int, list[int]] = {}
        """Call to the bits of those that do it, by when they return; so too those overwriting."""
        self._overwriters: dict[int, list[int]] = {}
        self._reads: dict[int, int] = {}
        """State to the slots whose operations only read and are legal there."""
        self._configurations: dict[int, int] = {machine.initial << width: 0}
        """To their moments."""
        self.peak = 1

    def begin_with(self, states: Iterable[int]) -> None:
        """In any of these instead of the model's first; before `run`."""
        self._configurations = {state << self._width: 0 for state in states}

    def states(self) -> set[int]:
        """In which things may stand when all has returned."""
        return {one >> self._width for one in self._configurations}

    def run(self, moments: Iterable[Moment]) -> Counterexample | None:
        """Goes through the history. Raises Exhausted."""
        previous = None
        slots: dict[int, tuple[int, int]] = {}
        for now, (_, returns, operation) in enumerate(moments, start=1):
            index = operation.invoke.index
            if not returns:
                call = self._machine.call_id(call_of(operation))
                slots[index] = self._begin(operation, call, now), call
                continue
            bit, call = slots.pop(index)
            survivors = self._return(bit, call, now)
            if not survivors:
                return self._explain(operation, previous)
            self._configurations = survivors
            if len(survivors) > self.peak:
                self.peak = len(survivors)
            self._end(bit, call)
            previous = operation
        return None

    def _begin(self, operation: Operation, call: int, now: int) -> int:
        """Gives the operation a slot; the bit of it."""
        bit = self._free.pop()
        self._pending[bit] = operation
        self._began[bit] = now
        if self._machine.only_reads[call]:
            self._readers[bit] = call
            self._reads.clear()
            self._read_at_once(bit, call)
            return bit
        alike = self._alike(call).setdefault(call, [])
        alike.append(bit)
        if len(alike) > 1:
            alike.sort(key=lambda one: end_of(self._pending[one]))
        return bit

    def _alike(self, call: int) -> dict[int, list[int]]:
        return self._overwriters if self._machine.overwrites[call] else self._mutators

    def _read_at_once(self, bit: int, call: int) -> None:
        """An operation that only reads takes effect where it is legal."""
        step, width = self._machine.step, self._width
        self._configurations = {
            one | bit if step(one >> width, call) >= 0 else one: moment
            for one, moment in self._configurations.items()
        }

    def _end(self, bit: int, call: int) -> None:
        """Frees the slot."""
        del self._pending[bit]
        self._free.append(bit)
        if self._readers.pop(bit, None) is not None:
            self._reads.clear()
            return
        alike = self._alike(call)
        alike[call].remove(bit)
        if not alike[call]:
            del alike[call]

    def _legal_reads(self, state: int) -> int:
        """The slots whose operations only read and are legal in the state."""
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
        """The configurations in which the slot's operation is in effect, and their moments."""
        survivors: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}
        for one, moment in self._configurations.items():
            if one & bit:
                _keep(survivors, one ^ bit, moment)
            else:
                waiting.setdefault(moment, []).append(one)
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

    def _began_before(self, moment: int) -> int:
        """The slots whose operations were pending at the moment."""
        return sum(bit for bit in self._pending if self._began[bit] < moment)

    def _overwrite(
        self, those: list[int], before: int, call: int, now: int, survivors: dict[int, int]
    ) -> None:
        """The operation, which overwrites, is placed now, after what may follow from the state."""
        after = self._machine.step(self._machine.initial, call)
        placed = after << self._width | self._legal_reads(after)
        for one in self._closure(those, (before, ~before), 0):
            _keep(survivors, placed | (one & self._slot_bits), now)

    def _reach(
        self,
        those: list[int],
        before: int,
        bit: int,
        moment: int,
        now: int,
        survivors: dict[int, int],
    ) -> None:
        """Places what leads to a state in which the operation is legal: one overwrite at most."""
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
        """The operation was part of a visit before the moment."""
        if overwrites is not None:
            after = self._machine.step(self._machine.initial, overwrites)
            reads = self._legal_reads(after) & before
            starts = [after << self._width | (one & self._slot_bits) | reads | bit]
        else:
            starts = self._overwritten(one, before)
        kept = one & ~self._slot_bits
        for visited in self._closure(starts, (before,), 0):
            if visited & bit:
                _keep(survivors, kept | (visited & self._slot_bits & ~bit), moment)

    def _overwritten(self, one: int, among: int) -> list[int]:
        """What each of the slots that overwrites makes of a configuration."""
        found = []
        for call, alike in self._overwriters.items():
            for bit in alike:
                if bit & among and not one & bit:
                    after = self._machine.step(self._machine.initial, call)
                    reads = self._legal_reads(after) & among
                    found.append(after << self._width | (one & self._slot_bits) | reads | bit)
                    break
        return found

    def _closure(self, those: list[int], groups: Sequence[int], stop: int) -> Iterable[int]:
        """What pending calls that do not overwrite make of configurations, and these themselves.

        Of each group of slots the first of equal operations is taken. Where a slot of `stop` is in
        effect nothing more is done.
        """
        if not self._mutators:
            return those
        seen = set(those)
        left = list(those)
        step, width = self._machine.step, self._width
        while left:
            one = left.pop()
            if one & stop:
                continue
            state = one >> width
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
                    new = after << width | (one & self._slot_bits) | reads | bit
                    if new not in seen:
                        seen.add(new)
                        left.append(new)
            self._purse.spend(len(seen) + len(self._configurations))
        return seen

    # --- for people ---------------------------------------------------------------------------

    def _explain(self, operation: Operation, previous: Operation | None) -> Counterexample:
        states = self._machine.states
        shown = [
            Configuration(
                states[one >> self._width],
                tuple(mine for bit, mine in self._pending.items() if not one & bit),
                tuple(mine for bit, mine in self._pending.items() if one & bit),
            )
            for one in islice(self._configurations, CONFIGURATIONS_SHOWN_MAX)
        ]
        return Counterexample(operation, previous, tuple(shown), len(self._configurations))


def _keep(configurations: dict[int, int], one: int, moment: int) -> None:
    """Adds a configuration, with the later moment if it is there."""
    if configurations.get(one, -1) < moment:
        configurations[one] = moment
