"""The records of some keys as arrays, with what is known of each value and each place of a log.

As `jepsen.checkers.kafka.log.Logs` has it, for histories of millions of records: all that needs a
look at every record is done on whole arrays, and nearly all records turn out to be innocent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jepsen.spark.logs._records import FAIL, INFO, OWN, POLL, SEVERAL, TEXT, TURN_SHIFT, TXN

if TYPE_CHECKING:
    from collections.abc import Sequence

NEVER = np.iinfo(np.int64).max
_NUMBERS_MAX = 1 << 62


def order_of(*columns: Any) -> Any:
    """For each row a number that is to others as the row of the columns is to theirs."""
    code: Any = np.zeros(len(columns[0]), np.int64)
    if not len(code):
        return code
    numbers = 1
    for column in columns:
        low = int(column.min())
        span = int(column.max()) - low + 1
        if numbers * span >= _NUMBERS_MAX:
            (code, numbers), (column, span), low = dense(code), dense(column), 0
        code = code * span + (column - low)
        numbers *= span
    return code


def dense(code: Any) -> tuple[Any, int]:
    """(for each number its place among those that differ, how many do)."""
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    places: Any = np.empty(len(code), np.int64)
    places[order] = np.cumsum(np.diff(ordered, prepend=ordered[:1]) != 0)
    return places, int(places.max()) + 1 if len(places) else 0


class Pairs(NamedTuple):
    """Arrays of equal length: which value stands at which place, of those that are not alone."""

    value: Any
    place: Any


class Steps(NamedTuple):
    """Arrays of equal length: steps from one record to the next that do not lead one place on."""

    one: Any
    """The number of the record."""
    other: Any
    internal: Any
    """Whether they are of one operation."""
    delta: Any


class Block:
    """Whole keys.

    Rows are ordered by key, operation and place in the operation, so the first is the earliest.
    """

    def __init__(self, group: Any, records: Any, texts: Sequence[str]) -> None:
        """`group`: the number of each record's key; `texts` of values, in their order."""
        value = records["value"].copy()
        is_text = records["flags"] & TEXT != 0
        known: dict[str, int] = {}
        value[is_text] = [known.setdefault(text, len(known)) for text in texts]
        self._texts = list(known)
        order = np.argsort(order_of(group, records["call"]), kind="stable")
        mine = records[order]
        self.group = group[order]
        self._number, self._is_text = value[order], is_text[order]
        self.call, self.invoked, self.process, self.offset = (
            np.ascontiguousarray(mine[name]) for name in ("call", "invoked", "process", "offset")
        )
        self._flag(np.ascontiguousarray(mine["flags"]))
        new = np.diff(self.call, prepend=-1) != 0
        new |= np.diff(self.group, prepend=-1) != 0
        self.operation = np.cumsum(new) - 1
        """The number of each record's operation on its key."""
        self.operations = int(new.sum())
        self._name_values()

    def _flag(self, flags: Any) -> None:
        self.poll, self.failed, self.unknown = (flags & bit != 0 for bit in (POLL, FAIL, INFO))
        self.txn, self.several, self.own = (flags & bit != 0 for bit in (TXN, SEVERAL, OWN))
        self.turn = flags >> TURN_SHIFT
        self.ok = ~(self.failed | self.unknown)
        self.send = ~self.poll
        self.read = self.poll & self.ok

    def _name_values(self) -> None:
        """Notes which values there are, and of each what does not need the places."""
        code = order_of(self.group, self._is_text, self._number)
        self.value, count = dense(code)
        """The number of each record's value, whatever its key."""
        self.example = self._first(self.value, np.ones(len(code), bool), count)
        """By value a record of it, and the first that sent it or read it, or -1."""
        self.writer = self._first(self.value, self.send, count)
        self.reader = self._first(self.value, self.read, count)
        self.seen = self.reader >= 0

    def _first(self, numbers: Any, mask: Any, count: int) -> Any:
        """By number its first record of those in the mask, or -1."""
        found: Any = np.full(count, -1, np.int64)
        rows = np.flatnonzero(mask)[::-1]
        found[numbers[rows]] = rows  # of several the last stays
        return found

    def shown(self) -> Any:
        """The records that were read of those that operations of unknown outcome sent."""
        return np.flatnonzero(self.send & self.unknown & self.seen[self.value])

    def place(self, committed: Any) -> None:
        """Finds the place of each value. `committed`: two rows of numbers, the group and the line
        of operations of unknown outcome that took effect, as other keys show.
        """
        took: Any = np.zeros(self.operations, bool)
        unknown = self.send & self.unknown
        took[self.operation[unknown & self.seen[self.value]]] = True
        if committed.shape[1]:
            columns = zip((self.group, self.call), committed, strict=True)
            code = order_of(*map(np.concatenate, columns))
            count = len(self.call)
            took[self.operation[unknown & np.isin(code[:count], code[count:])]] = True
        self.certain = self.send & (self.ok | (unknown & took[self.operation]))
        rows = np.flatnonzero((self.poll | self.certain) & (self.offset >= 0))
        value = self.value[rows]
        place, count = dense(order_of(self.group[rows], self.offset[rows]))
        self.place_row: Any = np.empty(count, np.int64)
        """By place a record at it."""
        self.place_row[place] = rows
        self._some_value: Any = np.empty(count, np.int64)
        self._some_value[place] = value
        self.place_of: Any = np.full(len(self.example), -1, np.int64)
        """By value its last place, or -1."""
        self.place_of[value] = place
        self._begin = self._first(self.group[self.place_row], *_all(count, self.group))
        self._find_pairs(value, place)

    def _find_pairs(self, value: Any, place: Any) -> None:
        """Sorts out values of several places, and places of several values."""
        twice: Any = np.zeros(len(self.place_of), bool)
        twice[value[self.place_of[value] != place]] = True
        shared: Any = np.zeros(len(self._some_value), bool)
        shared[place[self._some_value[place] != value]] = True
        mine = twice[value]
        pairs: Any = np.unique(np.stack((value[mine], place[mine])), axis=1)
        self.moved = Pairs(*pairs)
        """Of values with several places; by value, then place."""
        self.place_of[pairs[0]] = pairs[1]  # the last stays
        mine = shared[place]
        pairs = np.unique(np.stack((place[mine], value[mine])), axis=1)
        self.shared = Pairs(pairs[1], pairs[0])
        """Of places with several values; by place."""

    def index(self, place: Any) -> Any:
        """How many places of the key come before."""
        return place - self._begin[self.group[self.place_row[place]]]

    def values_at(self, place: int) -> list[int]:
        """All values that stand there."""
        mine = self.shared.value[self.shared.place == place]
        return mine.tolist() or [int(self._some_value[place])]

    def text(self, value: int) -> str:
        """The text of a value."""
        row = self.example[value]
        number = int(self._number[row])
        return self._texts[number] if self._is_text[row] else str(number)

    def line(self, row: int) -> int:
        """The line of the record's operation."""
        return int(self.call[row])

    def placed(self, mask: Any) -> Any:
        """The records of the mask whose place is known."""
        return np.flatnonzero(mask & (self.place_of[self.value] >= 0))

    def steps(self, of: Any, moves: Any, resets: Any) -> Steps:
        """Steps of the records of the mask `of`, within operations and from one to the next.

        An operation goes on where the last one of its process stood that `moves`, unless more
        `resets` came between: how many did up to each record.
        """
        rows: Any = self.placed(of)
        same = np.diff(self.operation[rows], append=-1) == 0
        inside = np.flatnonzero(same)
        last = rows[~same]
        first: Any = rows[np.append(True, ~same[:-1])] if len(rows) else rows
        track: Any = np.argsort(order_of(self.group[last], self.process[last]), kind="stable")
        first, last = first[track], last[track]
        place = np.arange(len(last))
        stood = np.maximum.accumulate(np.where(moves[last], place, -1))
        stood = np.append(-1, stood[:-1])[: len(last)]
        one, other = last[stood], first
        begun = (stood >= 0) & (self.group[one] == self.group[other])
        begun &= (self.process[one] == self.process[other]) & (resets[one] == resets[other])
        one = np.append(rows[inside], one[begun])
        other = np.append(rows[inside + 1], other[begun])
        delta = self.place_of[self.value[other]] - self.place_of[self.value[one]]
        internal = np.arange(len(one)) < len(inside)
        odd = delta != 1
        return Steps(one[odd], other[odd], internal[odd], delta[odd])


def _all(count: int, group: Any) -> tuple[Any, int]:
    return np.ones(count, bool), int(group.max()) + 1 if len(group) else 0
