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

from jepsen.checkers.linearizable._key_history import SILENT
from jepsen.checkers.linearizable._machine import (
    CONFIGURATIONS_SHOWN_MAX,
    Configuration,
    Counterexample,
    Machine,
    Purse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jepsen.checkers.linearizable._key_history import Track

_EVERYTHING = -1
"""Bits of all slots."""
_READS_CACHED_MAX = 256
_STATE_BITS = 32
_STATE = (1 << _STATE_BITS) - 1
"""Bits of the state; above them one for each slot whose operation has taken effect."""


class VisitSearch:
    """The check of one key all of whose outcomes are known.

    A configuration is one number: a bit for each slot whose operation has taken effect, and the
    state's number in the lowest bits.
    """

    def __init__(self, machine: Machine, purse: Purse, track: Track, calls: Sequence[int]) -> None:
        """`calls`: of each operation of the track; those that say nothing are left out."""
        self._machine = machine
        self._purse = purse
        self._track = track
        self._calls = calls
        self._slots = 0
        """So many operations were pending at once, at most."""
        self._free: list[int] = []
        """The bits of slots that nobody has."""
        self._pending: dict[int, int] = {}
        """Slot's bit to the number of its operation."""
        self._began: dict[int, int] = {}
        """When, by the bit of the slot."""
        self._readers: dict[int, int] = {}
        """Of the pending that only read: bit to call."""
        self._mutators: dict[int, list[int]] = {}
        """Call to the bits of those that do it, by when they return; so too those overwriting."""
        self._overwriters: dict[int, list[int]] = {}
        self._reads: dict[int, int] = {}
        """State to the slots whose operations only read and are legal there."""
        self._configurations: dict[int, int] = {machine.initial: 0}
        """To their moments."""
        self.peak = 1

    def begin_with(self, states: Iterable[int]) -> None:
        """In any of these instead of the model's first; before `run`."""
        self._configurations = dict.fromkeys(states, 0)

    def states(self) -> set[int]:
        """In which things may stand when all has returned."""
        return {one & _STATE for one in self._configurations}

    def run(self) -> Counterexample | None:
        """Goes through the history. Raises Exhausted."""
        calls, free, only_reads = self._calls, self._free, self._machine.only_reads
        bits = [0] * len(calls)
        previous = -1
        for now, moment in enumerate(self._track.moments, start=1):
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
        """Whether an operation that only reads takes effect at once, however things stand.

        It needs no slot then.
        """
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
        """Gives the operation the slot."""
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
        alike.sort(key=lambda one: self._track.end(self._pending[one]))

    def _read_at_once(self, bit: int, call: int) -> None:
        """An operation that only reads takes effect where it is legal."""
        step = self._machine.step
        self._configurations = {
            one | bit if step(one & _STATE, call) >= 0 else one: moment
            for one, moment in self._configurations.items()
        }

    def _end(self, bit: int, call: int) -> None:
        """Frees the slot."""
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
        """As `_overwrite` and `_claim` where nothing follows from any state: mostly it is so."""
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
        """The slots whose operations were pending at the moment."""
        before = 0
        for bit, began in self._began.items():
            if began < moment:
                before |= bit
        return before

    def _overwrite(
        self, those: list[int], before: int, call: int, now: int, survivors: dict[int, int]
    ) -> None:
        """The operation, which overwrites, is placed now, after what may follow from the state."""
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
        """What each of the slots that overwrites makes of a configuration."""
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
        """What pending calls that do not overwrite make of configurations, and these themselves.

        Of each group of slots the first of equal operations is taken. Where a slot of `stop` is in
        effect nothing more is done.
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
            self._purse.spend(len(seen) + len(self._configurations))
        return seen

    # --- for people ---------------------------------------------------------------------------

    def _explain(self, now: int, number: int, previous: int) -> Counterexample:
        states, operation = self._machine.states, self._track.operation
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
        """What was pending just before that moment, of what says something."""
        found: dict[int, None] = {}
        for moment in self._track.moments[: now - 1]:
            if moment < 0:
                found.pop(~moment, None)
            elif self._calls[moment] != SILENT:
                found[moment] = None
        return list(found)


def _keep(configurations: dict[int, int], one: int, moment: int) -> None:
    """Adds a configuration, with the later moment if it is there."""
    if configurations.get(one, -1) < moment:
        configurations[one] = moment
