"""Is the history linearizable? Just-in-time linearization, one key after the other.

A set of configurations is carried along the history. A configuration is a state of the model, the
pending operations that have taken effect already, and how many operations of each kind with unknown
outcome have. Where an operation returns, only configurations survive in which it has taken effect;
those in which it has not are extended by whatever else may have come before it. The history is not
linearizable when none survives. Four things keep the set small:

* A pending operation that only reads takes effect as soon as it is legal: in any completion it does
  so later, and moving it here changes no state. (A write of the value that is there already only
  seems to be like that: the completion may need it later, when the value is another.)
* Of pending operations that are equal the one that returns first takes effect first: had another,
  the two could change places.
* Operations with unknown outcome that are equal are interchangeable, so they are counted, not told
  apart; of two configurations that differ only in the counts, the one that used fewer suffices.
* Only what must take effect now does; whatever may wait, waits.

Whoever may run out of time or memory says "unknown". Pure: the clock is an argument.
Sources: Lowe, "Testing for linearizability"; Wing and Gong; Knossos' `linear`; Herlihy and Wing for
why keys can be checked one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.models import ILLEGAL, Call
from jepsen.checkers.verdict import Valid, merge_valid
from jepsen.edn import hashable
from jepsen.history import Operation, OpType, operations

if TYPE_CHECKING:
    from jepsen.checkers.models import Model
    from jepsen.history import Op

CONFIGURATIONS_SHOWN_MAX = 10
CONFIGURATION_BYTES = 400
"""What one configuration takes in memory, roughly, with its place in the sets."""
CHECK_INTERVAL = 512
"""Steps between two looks at the clock."""
_COUNT_BITS = 32
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_NONE_USED = [0]
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


@dataclass(frozen=True, slots=True)
class KeyResult:
    """The verdict on one key."""

    key: Any
    valid: Valid
    operation_count: int
    configurations_peak: int
    counterexample: Counterexample | None = None
    why_unknown: str = ""


@dataclass(frozen=True, slots=True)
class LinearizabilityResult:
    """The verdict on a history: that on all keys together."""

    valid: Valid
    keys: tuple[KeyResult, ...] = field(repr=False)

    @property
    def failures(self) -> tuple[KeyResult, ...]:
        """The keys whose histories are not linearizable."""
        return tuple(result for result in self.keys if result.valid is False)


def check_linearizable(
    history: Iterable[Op], model: Model, budget: Budget | None = None
) -> LinearizabilityResult:
    """Checks each key of the history against the model. Raises HistoryError, ValueError."""
    by_key: dict[Any, list[Operation]] = {}
    for operation in operations(history):
        by_key.setdefault(hashable(operation.invoke.key), []).append(operation)
    results = tuple(check_key(key, mine, model, budget or Budget()) for key, mine in by_key.items())
    return LinearizabilityResult(merge_valid(result.valid for result in results), results)


def check_key(key: Any, mine: list[Operation], model: Model, budget: Budget) -> KeyResult:
    """Checks the operations on one key."""
    search = _Search(model, budget)
    try:
        counterexample = search.run(mine)
    except Exhausted as error:
        return KeyResult(key, "unknown", len(mine), search.peak, why_unknown=str(error))
    valid = counterexample is None
    return KeyResult(key, valid, len(mine), search.peak, counterexample)


def _observed(operation: Operation, model: Model) -> bool:
    """Whether the operation returns with something to be explained."""
    completion = operation.completion
    if completion is None or completion.type is OpType.INFO:
        return False
    if completion.type is OpType.FAIL:
        return completion.error is None and completion.f in model.observed_failures
    return True


def _call(operation: Operation) -> Call:
    completion = operation.completion
    known = completion is not None and operation.type is not OpType.INFO
    result = hashable(completion.value) if known and completion else None
    return Call(operation.invoke.f, hashable(operation.invoke.value), result, operation.type)


def _events(mine: list[Operation], model: Model) -> Iterator[tuple[bool, Operation]]:
    """(whether it returns, operation) in the order of the history; what says nothing is left out.

    An operation with unknown outcome never returns.
    """
    moments: list[tuple[int, bool, Operation]] = []
    for operation in mine:
        returns = _observed(operation, model)
        if returns and operation.completion is not None:
            moments.append((operation.completion.index, True, operation))
        if returns or operation.type is OpType.INFO:
            moments.append((operation.invoke.index, False, operation))
    moments.sort(key=lambda moment: moment[0])
    return ((returns, operation) for _, returns, operation in moments)


def _end(operation: Operation) -> int:
    """Where in the history it returns, as those in slots do."""
    return -1 if operation.completion is None else operation.completion.index


class _Machine:
    """The model with states and calls as small numbers, each transition computed once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.states: list[Any] = []
        self._state_ids: dict[Any, int] = {}
        self._calls: list[Call] = []
        self.only_reads: list[bool] = []
        """By the number of the call."""
        self._call_ids: dict[Call, int] = {}
        self._steps: list[dict[int, int]] = []
        self.initial = self._state_id(model.initial)

    def call_id(self, call: Call) -> int:
        """The number of the call."""
        number = self._call_ids.setdefault(call, len(self._calls))
        if number == len(self._calls):
            self._calls.append(call)
            self.only_reads.append(self._model.only_reads(call))
        return number

    def _state_id(self, state: Any) -> int:
        number = self._state_ids.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self._steps.append({})
        return number

    def step(self, state: int, call: int) -> int:
        """The state after the call, or a negative number."""
        steps = self._steps[state]
        after = steps.get(call)
        if after is None:
            result = self._model.step(self.states[state], self._calls[call])
            after = _ILLEGAL_ID if result is ILLEGAL else self._state_id(result)
            steps[call] = after
        return after


_Key = tuple[int, int]
"""State, and bits of the slots whose operations have taken effect."""
_Configurations = dict[_Key, list[int]]
"""To the counts of operations with unknown outcome that were used, none of which needs another.

Counts stand side by side in one integer, `_COUNT_BITS` each, the highest bit of which stays free.
"""


class _Move(NamedTuple):
    """What one pending operation does in one state."""

    needed: int
    """Equal operations that return earlier: they take effect first."""
    both: int
    """Those and the operation itself."""
    gained: int
    """The operation itself and the reads that are legal after it."""
    after: int
    """The state after it."""


class _Search:
    """The check of one key."""

    def __init__(self, model: Model, budget: Budget) -> None:
        self._model = model
        self._machine = _Machine(model)
        self._budget = budget
        self._slots: list[Operation | None] = []
        """The pending operations that will return; a slot is used again after that."""
        self._calls: list[int] = []
        """The call in each slot."""
        self._unknown: dict[int, int] = {}
        """Call with unknown outcome to its place among the counts."""
        self._available: list[int] = []
        """How many there are of each so far."""
        self._guards = 0
        self._reads: dict[int, int] = {}
        """State to the slots whose operations only read and are legal there."""
        self._configurations: _Configurations = {(self._machine.initial, 0): [0]}
        self._steps = 0
        self.peak = 1

    def run(self, mine: list[Operation]) -> Counterexample | None:
        """Goes through the history. Raises Exhausted."""
        previous = None
        slots: dict[int, int] = {}
        for returns, operation in _events(mine, self._model):
            index = operation.invoke.index
            if not returns:
                call = self._machine.call_id(_call(operation))
                if operation.type is OpType.INFO:
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
        """Gives the operation a slot."""
        self._reads.clear()
        for slot, occupant in enumerate(self._slots):
            if occupant is None:
                self._slots[slot], self._calls[slot] = operation, call
                return slot
        self._slots.append(operation)
        self._calls.append(call)
        return len(self._slots) - 1

    def _legal_reads(self, state: int) -> int:
        """The slots whose operations only read and are legal in the state."""
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
        """The configurations in which the slot's operation is in effect; its slot is freed."""
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
        if waiting and not self._unknown:
            self._extend_plainly(list(waiting), bit, survivors)
        elif waiting:
            self._extend(waiting, bit, survivors)
        self.peak = max(self.peak, len(survivors))
        return survivors

    def _extend_plainly(self, waiting: list[_Key], bit: int, survivors: _Configurations) -> None:
        """`_extend` while there are no unknown outcomes: most histories, most of the time."""
        seen = set(waiting)
        moves: dict[int, list[_Move]] = {}
        while waiting:
            state, effective = waiting.pop()
            found = moves.get(state)
            if found is None:
                found = moves[state] = self._moves(state)
            for needed, both, gained, after in found:
                if effective & both != needed:
                    continue
                now = effective | gained
                if now & bit:
                    survivors[after, now ^ bit] = _NONE_USED
                    continue
                key = after, now
                if key not in seen:
                    seen.add(key)
                    waiting.append(key)
            self._spend(len(seen) + len(survivors))

    def _extend(self, seen: _Configurations, bit: int, survivors: _Configurations) -> None:
        """Adds to the survivors what becomes of those that wait. Those that used less go first."""
        queue = deque((key, used) for key, counts in seen.items() for used in counts)
        moves: dict[int, list[_Move]] = {}
        while queue:
            key, used = queue.popleft()
            if used not in seen[key]:
                continue  # another that used fewer has taken its place
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
            self._spend(len(seen) + len(survivors))

    def _moves(self, state: int) -> list[_Move]:
        """What the pending operations can do in the state."""
        moves = []
        earlier: dict[int, int] = {}
        pending = [(_end(one), slot) for slot, one in enumerate(self._slots) if one is not None]
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
        """(state after, counts after) of operations with unknown outcome."""
        for call, place in self._unknown.items():
            after = self._machine.step(state, call)
            if after < 0 or after == state:
                continue
            shift = place * _COUNT_BITS
            if (used >> shift) & _COUNT_MASK < self._available[place]:
                yield after, used + (1 << shift)

    def _add(self, configurations: _Configurations, key: _Key, used: int) -> bool:
        """Adds a configuration unless one is there that used no more; takes out who used more."""
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

    def _spend(self, configurations: int) -> None:
        self._steps += 1
        if self._steps % CHECK_INTERVAL and configurations < CHECK_INTERVAL:
            return
        budget = self._budget
        size = configurations + len(self._configurations) + len(self._machine.states)
        if size * CONFIGURATION_BYTES > budget.memory_bytes_max:
            raise Exhausted(f"{size} configurations need more memory than is allowed")
        clock, deadline = budget.clock, budget.deadline
        if clock is not None and deadline is not None and clock() > deadline:
            raise Exhausted("the deadline came first")

    # --- for people ---------------------------------------------------------------------------

    def _explain(self, operation: Operation, previous: Operation | None) -> Counterexample:
        shown: list[Configuration] = []
        for state, effective in self._configurations:
            if len(shown) == CONFIGURATIONS_SHOWN_MAX:
                break
            pending = [(slot, one) for slot, one in enumerate(self._slots) if one is not None]
            shown.append(
                Configuration(
                    self._machine.states[state],
                    tuple(one for slot, one in pending if not effective >> slot & 1),
                    tuple(one for slot, one in pending if effective >> slot & 1),
                )
            )
        count = sum(map(len, self._configurations.values()))
        return Counterexample(operation, previous, tuple(shown), count)
