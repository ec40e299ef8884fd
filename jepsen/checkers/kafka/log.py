"""The logs that a history shows: the value at each offset of each key, and its writer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jepsen.history import Op, Operation, OpType, operations
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SENDING = ("send", "txn")
POLLING = ("poll", "txn", "final-poll", "drain")
ASSIGNING = ("assign", "subscribe")


@dataclass(frozen=True, slots=True)
class Record:
    """A value of a key, as one operation sent or polled it."""

    key: Any
    offset: int | None
    """The offset; None if it is not known."""
    value: Any


@dataclass(slots=True)
class Call:
    """An operation on logs."""

    operation: Operation
    sends: list[Record] = field(default_factory=list)
    polls: list[Record] = field(default_factory=list)

    @property
    def index(self) -> int:
        """Index of the completion, or of the invocation if there is none."""
        op = self.operation.completion or self.operation.invoke
        return op.index

    @property
    def type(self) -> OpType:
        """Type of the completion."""
        return self.operation.type

    @property
    def process(self) -> int | str:
        """Process of the operation."""
        return self.operation.invoke.process

    @property
    def ok(self) -> bool:
        """True if it succeeded."""
        return self.type is OpType.OK


def calls(history: Sequence[Op]) -> list[Call]:
    """Return the clients' operations, in the order in which they ended."""
    found = [call_of(operation) for operation in operations(history)]
    return sorted(found, key=lambda call: call.index)


def call_of(operation: Operation) -> Call:
    """Return the operation with what it sent and polled.

    Failed ones count as well, since what they saw and sent was seen and sent.
    """
    call = Call(operation)
    last = operation.completion or operation.invoke
    if operation.invoke.f in SENDING or operation.invoke.f in POLLING:
        # What ended badly may have noted nothing more.
        micro = last.value if last.value is not None else operation.invoke.value
        call.sends, call.polls = records_in(micro)
    return call


def records_in(micro: Any) -> tuple[list[Record], list[Record]]:
    """(what was sent, what was polled) by the micro-operations of one operation."""
    sends: list[Record] = []
    polls: list[Record] = []
    for one in micro or ():
        if one[0] == "send":
            sends.append(_sent(one[1], one[2]))
        elif one[0] == "poll" and len(one) > 1:
            polls += _polled(one[1])
    return sends, polls


def _sent(key: Any, value: Any) -> Record:
    if isinstance(value, list | tuple):
        offset, value = value
        return Record(hashable(key), offset, hashable(value))
    return Record(hashable(key), None, hashable(value))


def _polled(by_key: Mapping[Any, Any]) -> Iterator[Record]:
    for key, pairs in by_key.items():
        for offset, value in pairs:
            yield Record(hashable(key), offset, hashable(value))


@dataclass
class VersionOrder:
    """The log of one key, without the offsets at which nothing was seen."""

    offsets: list[int] = field(default_factory=list)
    values: list[set[Any]] = field(default_factory=list)
    """The values at each of the offsets; more than one if the log contradicts itself."""
    index_of: dict[Any, int] = field(default_factory=dict)
    """Value to the last place at which it was seen."""

    def some_values(self, start: int, stop: int) -> list[Any]:
        """Return one value of each place; of several it does not matter which."""
        return [min(values, key=repr) for values in self.values[start:stop]]


def version_order(log: Mapping[int, set[Any]]) -> VersionOrder:
    """Return the order of a log, given as offset to the values seen there."""
    order = VersionOrder(sorted(log))
    for index, offset in enumerate(order.offsets):
        order.values.append(log[offset])
        for value in log[offset]:
            order.index_of[value] = index
    return order


class Logs:
    """Everything that was sent and polled."""

    def __init__(self, history: Sequence[Op]) -> None:
        self.calls = calls(history)
        self.seen: defaultdict[Any, set[Any]] = defaultdict(set)
        """Key to what polls that succeeded returned."""
        for call in self.calls:
            if call.ok:
                for record in call.polls:
                    self.seen[record.key].add(record.value)
        self.writers: dict[tuple[Any, Any], Call] = {}
        """(key, value) to the operation that sent it."""
        for call in self.calls:
            for record in call.sends:
                self.writers.setdefault((record.key, record.value), call)
        self._log: defaultdict[Any, defaultdict[int, set[Any]]] = defaultdict(_offsets)
        for call in self.calls:
            self._note(call)
        self.orders = {key: version_order(log) for key, log in self._log.items()}

    def committed(self, call: Call) -> bool:
        """Return whether the operation certainly took effect: acknowledged, or seen by a read."""
        if call.ok:
            return True
        sends = call.sends if call.type is OpType.INFO else ()
        return any(record.value in self.seen.get(record.key, ()) for record in sends)

    def _note(self, call: Call) -> None:
        counts = self.committed(call)
        for record in [*call.polls, *(call.sends if counts else ())]:
            if record.offset is not None and record.offset >= 0:
                self._log[record.key][record.offset].add(record.value)

    def index(self, record: Record) -> int | None:
        """Return the place of a value in its key's log, if it is known."""
        order = self.orders.get(record.key)
        return None if order is None else order.index_of.get(record.value)

    def placed(self, records: Sequence[Record]) -> dict[Any, list[tuple[int, Record]]]:
        """Return (place, record) by key, in the order of the records, unknown places left out."""
        found: dict[Any, list[tuple[int, Record]]] = {}
        for record in records:
            index = self.index(record)
            if index is not None:
                found.setdefault(record.key, []).append((index, record))
        return found

    def between(self, key: Any, low: int, high: int) -> list[Any]:
        """Return the values at the places strictly between."""
        return self.orders[key].some_values(low + 1, high)


def _offsets() -> defaultdict[int, set[Any]]:
    return defaultdict(set)
