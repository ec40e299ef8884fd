"""Records that a history of logs sent and polled, packed by key.

A row holds the part of a key's history that is in one piece, as an array of `RECORD`, so that a
shuffle moves few rows however many records there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from jepsen.checkers.kafka import SUBSCRIBED
from jepsen.checkers.kafka.log import ASSIGNING, POLLING, SENDING, records_in
from jepsen.compiled import available
from jepsen.history.edn import hashable
from jepsen.history.table import reader, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from jepsen.checkers.kafka.log import Record


RECORD = np.dtype(
    [
        ("call", "<i8"),
        ("invoked", "<i8"),
        ("process", "<i8"),
        ("value", "<i8"),
        ("offset", "<i8"),
        ("flags", "<i4"),
    ]
)
"""`call` is the line that ended the operation, else that of its invocation. Of a value that is no
integer (`TEXT`) the row has the text instead, in the order of the records."""
NO_OFFSET = np.iinfo(np.int64).min
POLL, OWN, FAIL, INFO, TXN, SEVERAL, TEXT = (1 << bit for bit in range(7))
"""Flags: polled, not sent; by the operation that sends it; the operation failed; nobody knows
whether it did; it is a transaction; it sent several records; see `RECORD`. The first two are those
of `jepsen.compiled.text`, too."""
TURN_SHIFT = 7
"""Above the flags: how often the operation has gone on to another key before this record."""
_TURNS_MAX = (1 << 24) - 1

RECORDS, MARKS, RESET, REFUSED = "records", "marks", "reset", "refused"
SENT, SENT_OK, POLLED_OK, MOVED, SPREAD = "sent", "sent-ok", "polled-ok", "moved", "spread"
BOTH = "both"
"""The last of the marks of a history. SENT: something was sent; SENT_OK: with success; POLLED_OK:
polled with success; MOVED: there is a group; SPREAD: an operation whose outcome is unknown sent
several records; BOTH: one that succeeded both sent and polled."""
PACKED = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("process", pa.int64()),
        pa.field("call", pa.int64()),
        pa.field("texts", pa.list_(pa.string())),
        pa.field("records", pa.binary()),
    ]
)
"""`records` of a key, in the order of their operations, with the `texts` of values; `marks`: words
about the history; `reset`: where a process stands is forgotten but for the keys in `texts`, in all
if that is null; `refused`: `texts` has the reason why an operation is none of these.
"""
PACKED_SQL = (
    "history string, kind string, key string, process long, call long, texts array<string>, "
    "records binary"
)
NO_KEY = "null"
PIECE_BYTES = 4 << 20
"""Text that is read at a time; its records take up to ten times as much."""
COMPILED_MIN = 1000
"""The operations from which loading compiled code takes less time than to do without."""
_INTEGER_DIGITS = 18
"""So many fit any number of 64 bits."""
_NAMES = ", ".join(f"'{f}'" for f in ASSIGNING)
_COLUMNS = (
    "history",
    "process",
    "f",
    "CASE WHEN complete_index IS NULL THEN 'info' ELSE type END AS type",
    "invoke_index AS invoked",
    "coalesce(complete_index, invoke_index) AS call",
    # What ended badly may have noted nothing more.
    f"""CASE WHEN f IN ({_NAMES}) OR complete_index IS NULL OR result = 'null'
        THEN argument ELSE result END AS text""",
)
_TYPES = {"ok": 0, "fail": FAIL, "info": INFO}


def packed_of(operations: DataFrame) -> DataFrame:
    """Return the rows of `PACKED` of all operations."""
    return operations.selectExpr(*_COLUMNS).mapInArrow(_batches, PACKED_SQL)


def _batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    read = reader()
    for batch in batches:
        for piece in _pieces(batch):
            yield from _Piece(piece, read).rows()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Operations in a row with so much text that their records fit in memory."""
    ends = _texts(batch)[1].astype(np.int64)
    first = 0
    while first < len(batch):
        last = int(np.searchsorted(ends, ends[first] + PIECE_BYTES, "right")) - 1
        last = min(max(last, first + 1), len(batch))
        yield batch.slice(first, last - first)
        first = last


def _texts(batch: pa.RecordBatch) -> tuple[Any, Any]:
    """(all bytes, where in them each text begins and the last ends) of the column `text`."""
    column = batch.column("text")
    _, offsets, data = column.buffers()
    kind = np.int64 if pa.types.is_large_string(column.type) else np.int32
    ends = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data if data is not None else b"", np.uint8), ends


def _codes(column: pa.Array, code: Callable[[str], int]) -> Any:
    """The code of each text, as an array."""
    encoded = column.dictionary_encode()
    table = np.array([code(text) for text in encoded.dictionary.to_pylist()], np.int64)
    return table[encoded.indices.to_numpy()]


class Mops(NamedTuple):
    """Records as arrays of equal length."""

    row: Any
    """The number of the operation in its piece; never less than that before it."""
    flags: Any
    key: Any
    """Numbers of keys."""
    value: Any
    offset: Any


@dataclass
class _Read:
    """What is read of operations one after the other."""

    keys: dict[str, int]
    """The number of each key's text; grows."""
    records: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """The values of `Mops`."""
    texts: list[str] = field(default_factory=list)
    """Of the values that are no integers."""

    def note(self, row: int, sends: Sequence[Record], polls: Sequence[Record]) -> None:
        """Add the records of an operation. Raises TypeError and EdnError."""
        sent = {(record.key, record.value) for record in sends}
        found, texts = [], []
        for kind, records in ((0, sends), (POLL, polls)):
            for record in records:
                own = OWN if kind and (record.key, record.value) in sent else 0
                text, offset = text_of(record.value), _offset(record.offset)
                number = integer(text)
                if number is None:
                    texts.append(text)
                flags = kind | own | (TEXT if number is None else 0)
                key = self.keys.setdefault(text_of(record.key), len(self.keys))
                found.append((row, flags, key, number or 0, offset))
        self.records += found
        self.texts += texts

    def mops(self) -> Mops:
        """All records as arrays."""
        return Mops(*np.array(self.records, np.int64).reshape(-1, len(Mops._fields)).T)


def integer(text: str) -> int | None:
    """Return the number that has this text and no other, if it fits."""
    if text.lstrip("-").isdecimal() and len(text) <= _INTEGER_DIGITS and str(int(text)) == text:
        return int(text)
    return None


def _offset(offset: Any) -> int:
    if offset is None:
        return int(NO_OFFSET)
    if type(offset) is not int or not -(1 << 62) < offset < 1 << 62:
        raise TypeError(f"the offset {offset} is no number of 64 bits")
    return offset


class _Piece:
    """Operations in a row, and what is read of them."""

    def __init__(self, batch: pa.RecordBatch, read: Callable[[str], Any]) -> None:
        self._batch = batch
        self._value_of = read
        names = batch.column("history").dictionary_encode()
        self._histories: list[str] = names.dictionary.to_pylist()
        self._history = names.indices.to_numpy()
        self._type = _codes(batch.column("type"), _TYPES.__getitem__)
        self._others: list[dict[str, Any]] = []
        """Rows that are no records."""
        self._read = _Read({})

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All of it as rows of `PACKED`."""
        f = self._batch.column("f")
        moving = _codes(f, lambda name: name in ASSIGNING or name == "final-poll")
        wanted = _codes(f, lambda name: name in SENDING or name in POLLING).astype(bool)
        for row in np.flatnonzero(moving).tolist():
            self._reset(row)
        mops = self._mops(wanted)
        mops = self._with_flags(mops, _codes(f, lambda name: TXN if name == "txn" else 0))
        self._tell(mops, _codes(f, lambda name: name in SUBSCRIBED).astype(bool))
        if len(mops.row):
            yield self._grouped(mops)
        yield pa.RecordBatch.from_pylist(self._others, PACKED)

    def _at(self, name: str, row: int) -> Any:
        return self._batch.column(name)[row].as_py()

    def _other(self, kind: str, history: str, texts: list[str] | None, **more: Any) -> None:
        row = {"history": history, "kind": kind, "key": NO_KEY, "texts": texts, **more}
        self._others.append(row)

    def _mops(self, wanted: Any) -> Mops:
        """All records of those operations: most are plain, the others take longer."""
        if not available() or wanted.sum() < COMPILED_MIN:
            self._take(np.flatnonzero(wanted))
            return self._read.mops()
        from jepsen.compiled.text import read_mops

        data, ends = _texts(self._batch)
        plain = read_mops(data, ends, wanted)
        for number, (first, last) in enumerate(plain.keys.tolist()):
            self._read.keys[data[first:last].tobytes().decode()] = number
        self._take(np.flatnonzero(wanted & ~plain.understood))
        parts = zip(plain.records.T, self._read.mops(), strict=True)
        mops = Mops(*map(np.concatenate, parts))
        order = np.argsort(mops.row, kind="stable")
        return Mops(*(column[order] for column in mops))

    def _take(self, rows: Any) -> None:
        """Read the records of operations one after the other."""
        texts = self._batch.column("text").take(pa.array(rows)).to_pylist()
        for row, text in zip(rows.tolist(), texts, strict=True):
            self._take_one(row, text)

    def _take_one(self, row: int, text: str) -> None:
        try:
            self._read.note(row, *records_in(self._value_of(text)))
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            self._refuse(row, error)

    def _refuse(self, row: int, error: Exception) -> None:
        self._other(REFUSED, self._at("history", row), [str(error) or "its values are others"])

    def _reset(self, row: int) -> None:
        """Notes an assignment that has not failed, or a final poll."""
        kept: list[str] | None = None
        if self._at("f", row) in ASSIGNING:
            try:
                keys = self._value_of(self._at("text", row)) or ()
                kept = [text_of(hashable(key)) for key in keys]
            except (ValueError, TypeError) as error:
                self._refuse(row, error)
            if self._type[row] == FAIL:
                return
        process, call = self._at("process", row), self._at("call", row)
        self._other(RESET, self._at("history", row), kept, process=process, call=call)

    def _with_flags(self, mops: Mops, txn: Any) -> Mops:
        sends = np.bincount(mops.row[mops.flags & POLL == 0], minlength=len(self._batch))
        of_row = self._type | txn | np.where(sends > 1, SEVERAL, 0)
        return mops._replace(flags=mops.flags | of_row[mops.row] | _turns(mops) << TURN_SHIFT)

    def _tell(self, mops: Mops, subscribed: Any) -> None:
        """Notes what is said of histories as a whole."""
        sent = mops.flags & POLL == 0
        ok = mops.flags & (FAIL | INFO) == 0
        spread = sent & (mops.flags & SEVERAL != 0) & (mops.flags & INFO != 0)
        words: list[list[str]] = [[] for _ in self._histories]
        masks = ((SENT, sent), (SENT_OK, sent & ok), (POLLED_OK, ~sent & ok), (SPREAD, spread))
        found = [(word, mops.row[mask]) for word, mask in masks]
        senders, readers = (self._among(mops.row[mask & ok]) for mask in (sent, ~sent))
        for word, rows in (*found, (BOTH, senders & readers), (MOVED, subscribed)):
            for history in np.unique(self._history[rows]).tolist():
                words[history].append(word)
        for history, mine in zip(self._histories, words, strict=True):
            self._other(MARKS, history, mine)

    def _among(self, rows: Any) -> Any:
        """Of each operation whether its number is one of these."""
        among: Any = np.zeros(len(self._batch), bool)
        among[rows] = True
        return among

    def _grouped(self, mops: Mops) -> pa.RecordBatch:
        """The records by history and key."""
        group = self._history[mops.row].astype(np.int64) * len(self._read.keys) + mops.key
        order = np.argsort(group, kind="stable")
        row, group, flags = mops.row[order], group[order], mops.flags[order]
        records: Any = np.empty(len(row), RECORD)
        for name in ("call", "invoked", "process"):
            records[name] = self._batch.column(name).to_numpy()[row]
        records["value"], records["offset"] = mops.value[order], mops.offset[order]
        records["flags"] = flags
        first = np.flatnonzero(np.diff(group, prepend=-1))
        bounds: Any = np.append(first, len(group)).astype(np.int32)
        histories, keys = np.divmod(group[first], len(self._read.keys))
        nothing = pa.nulls(len(first), pa.int64())
        columns = [
            pa.array(self._histories).take(pa.array(histories)),
            pa.array([RECORDS] * len(first)),
            pa.array(list(self._read.keys)).take(pa.array(keys)),
            nothing,
            nothing,
            self._texts_of(mops.flags & TEXT != 0, order, bounds),
            _binary(bounds * np.int32(RECORD.itemsize), records),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=PACKED)

    def _texts_of(self, is_text: Any, order: Any, bounds: Any) -> pa.Array:
        """The texts of values of each stretch of the records in this order."""
        place, is_mine = np.cumsum(is_text) - 1, is_text[order]
        mine = pa.array(self._read.texts, pa.string()).take(pa.array(place[order[is_mine]]))
        ends = np.append(0, np.cumsum(is_mine))[bounds].astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), mine)


def _turns(mops: Mops) -> Any:
    """How often each record's operation has gone on to another key before it."""
    same = np.diff(mops.row, prepend=-1) == 0
    turned = np.cumsum(same & (np.diff(mops.key, prepend=-1) != 0))
    first = np.flatnonzero(~same)
    turns = turned - np.repeat(turned[first], np.diff(np.append(first, len(same))))
    return np.minimum(turns, _TURNS_MAX)


def _binary(ends: Any, records: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(records)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


NEVER = np.iinfo(np.int64).max
_NUMBERS_MAX = 1 << 62


def order_of(*columns: Any) -> Any:
    """Return a number for each row, in the order of the rows' columns."""
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
    """True where both are records of one operation."""
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
        """Return the records that were read of those that operations of unknown outcome sent."""
        return np.flatnonzero(self.send & self.unknown & self.seen[self.value])

    def place(self, committed: Any) -> None:
        """Find the place of each value. `committed`: two rows of numbers, the group and the line
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
        """By place, a record at it."""
        self.place_row[place] = rows
        self._some_value: Any = np.empty(count, np.int64)
        self._some_value[place] = value
        self.place_of: Any = np.full(len(self.example), -1, np.int64)
        """The last place of each value, or -1."""
        self.place_of[value] = place
        self._begin = self._first(self.group[self.place_row], *_all(count, self.group))
        self._find_pairs(value, place)

    def _find_pairs(self, value: Any, place: Any) -> None:
        """Sort out values of several places, and places of several values."""
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
        """Return how many places of the key come before."""
        return place - self._begin[self.group[self.place_row[place]]]

    def values_at(self, place: int) -> list[int]:
        """Return all values that stand there."""
        mine = self.shared.value[self.shared.place == place]
        return mine.tolist() or [int(self._some_value[place])]

    def text(self, value: int) -> str:
        """Return the text of a value."""
        row = self.example[value]
        number = int(self._number[row])
        return self._texts[number] if self._is_text[row] else str(number)

    def line(self, row: int) -> int:
        """Return the line of the record's operation."""
        return int(self.call[row])

    def placed(self, mask: Any) -> Any:
        """Return the records of the mask whose place is known."""
        return np.flatnonzero(mask & (self.place_of[self.value] >= 0))

    def steps(self, of: Any, moves: Any, resets: Any) -> Steps:
        """Return the steps of the records of the mask `of`, within operations and between them.

        An operation continues where the last one of its process stood that `moves`, unless more
        `resets` came between; these are counted up to each record.
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
