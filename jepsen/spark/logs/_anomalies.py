"""The anomalies of logs in a block, each as `jepsen.checkers.kafka._anomalies` defines it.

Where one has a list of values that were skipped, it is cut at `SKIPPED_MAX`.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jepsen.spark.logs._block import NEVER, Steps
from jepsen.spark.logs._records import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jepsen.spark.logs._block import Block

SKIPPED_MAX = 100


class Found(NamedTuple):
    """An anomaly of a key."""

    group: int
    name: str
    detail: str
    """JSON."""
    lines: list[int]


class Logs(NamedTuple):
    """Some logs, and what is to be known of them for telling what is wrong."""

    block: Block
    keys: Sequence[str]
    """By group."""
    resets: Any
    """How many resets each record's process has had up to it."""
    has_sends: Any
    """By group: whether anything was sent in the history, be it to another key."""

    def found(self, row: int, name: str, lines: Iterable[int], **fields: object) -> Found:
        """An anomaly of the record's key; the fields are JSON or numbers."""
        group = int(self.block.group[row])
        return Found(group, name, _object(key=shown(self.keys[group]), **fields), [*lines])

    def shown(self, row: int) -> str:
        """The record's value as JSON."""
        return self.value(self.block.value[row])

    def value(self, value: int) -> str:
        """As JSON."""
        return shown(self.block.text(value))

    def writers(self, values: Iterable[int]) -> list[int]:
        """The lines of those who sent these values, as far as anybody has."""
        rows = [int(self.block.writer[value]) for value in values]
        return [self.block.line(row) for row in rows if row >= 0]


def shown(text: str) -> str:
    """The text of a value as JSON, also if it is EDN."""
    return json.dumps(text, ensure_ascii=False) if text.startswith("#") else text


def _object(**fields: object) -> str:
    inside = (f'"{name.replace("_", "-")}": {value}' for name, value in fields.items())
    return "{" + ", ".join(inside) + "}"


def _list(parts: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, parts)) + "]"


def _rows(mask: Any) -> Iterator[int]:
    yield from np.flatnonzero(mask).tolist()


# --- of values and places -------------------------------------------------------------------------


def _duplicates(logs: Logs) -> Iterator[Found]:
    block = logs.block
    pairs = zip(*(column.tolist() for column in block.moved), strict=True)
    for value, places in groupby(pairs, lambda pair: pair[0]):
        offsets = [int(block.offset[block.place_row[place]]) for _, place in places]
        fields = {"value": logs.value(value), "count": len(offsets), "offsets": _list(offsets)}
        yield logs.found(int(block.example[value]), "duplicate", logs.writers([value]), **fields)


def _inconsistent_offsets(logs: Logs) -> Iterator[Found]:
    block = logs.block
    for place in np.unique(block.shared.place).tolist():
        row = int(block.place_row[place])
        values = sorted(block.values_at(place), key=lambda value: _rank(block.text(value)))
        fields = {"offset": block.offset[row], "index": block.index(place)}
        texts = _list(map(logs.value, values))
        lines = logs.writers(values)
        yield logs.found(row, "inconsistent-offsets", lines, **fields, values=texts)


def _rank(text: str) -> tuple[str, int, str]:
    """Numbers first, each kind of values in its own order."""
    if text.lstrip("-").isdecimal():
        return "int", int(text), text
    return "str" if text.startswith('"') else "other", 0, text


def _spurious_zero_offsets(logs: Logs) -> Iterator[Found]:
    block = logs.block
    polled: Any = np.zeros(len(block.example), bool)
    at_zero: Any = np.zeros(len(block.example), bool)
    polled[block.value[block.poll]] = True
    at_zero[block.value[block.poll & (block.offset == 0)]] = True
    told = block.send & block.ok & (block.offset == 0)
    for row in _rows(told & (polled & ~at_zero)[block.value]):
        lines = [block.line(row)]
        yield logs.found(row, "spurious-zero-offset", lines, value=logs.shown(row))


# --- of reads -------------------------------------------------------------------------------------


def _aborted_reads(logs: Logs) -> Iterator[Found]:
    block = logs.block
    aborted = (block.writer >= 0) & block.failed[block.writer]
    for row in _rows(block.read & aborted[block.value]):
        lines = [*logs.writers([block.value[row]]), block.line(row)]
        fields = {"value": logs.shown(row), "writer": lines[0], "reader": lines[1]}
        yield logs.found(row, "G1a", lines, **fields)


def _unexpected(logs: Logs) -> Iterator[Found]:
    block = logs.block
    nobody = block.poll & (block.writer < 0)[block.value]
    for row in _rows(nobody & logs.has_sends[block.group]):
        offset = "null" if block.offset[row] == NO_OFFSET else block.offset[row]
        lines = [block.line(row)]
        yield logs.found(row, "unexpected", lines, value=logs.shown(row), offset=offset)


def _precommitted_reads(logs: Logs) -> Iterator[Found]:
    for row in _rows(logs.block.read & logs.block.own):
        lines = [logs.block.line(row)]
        yield logs.found(row, "precommitted-read", lines, value=logs.shown(row))


# --- of what nobody has read ----------------------------------------------------------------------


def _lost_writes(logs: Logs) -> Iterator[Found]:
    block = logs.block
    reads = block.placed(block.read)
    place = block.place_of[block.value[reads]]
    furthest: Any = np.full(len(logs.keys), -1, np.int64)
    np.maximum.at(furthest, block.group[reads], place)
    who = reads[place == furthest[block.group[reads]]][::-1]
    reader: Any = np.full(len(logs.keys), -1, np.int64)
    reader[block.group[who]] = who  # the first stays
    mine = block.placed(block.certain & ~block.seen[block.value])
    place = block.place_of[block.value[mine]]
    for row in mine[place <= furthest[block.group[mine]]].tolist():
        group, at = block.group[row], block.place_of[block.value[row]]
        lines = [block.line(row), block.line(reader[group])]
        fields = {"index": block.index(at), "max_read_index": block.index(furthest[group])}
        names = {"writer": lines[0], "max_read": lines[1]}
        yield logs.found(row, "lost-write", lines, value=logs.shown(row), **fields, **names)


def _unseen(logs: Logs) -> Iterator[Found]:
    block = logs.block
    missing = _rows(block.send & block.ok & ~block.seen[block.value])
    for _, rows in groupby(missing, lambda row: int(block.group[row])):
        mine = list(rows)
        messages = _list(map(logs.shown, mine))
        lines = map(block.line, mine)
        yield logs.found(mine[0], "unseen", lines, count=len(mine), messages=messages)


# --- of steps from one record to the next ---------------------------------------------------------


def _poll_steps(logs: Logs) -> Iterator[Found]:
    block = logs.block
    for one, other, internal, delta in _taken(block.steps(block.poll, block.ok, logs.resets)):
        ops, values = _ends(logs, one, other)
        inside = {"values": values, "delta": delta, "op": ops[1]}
        if delta > 1:
            skipped = _skipped(logs, one, delta)
            if internal:
                yield logs.found(one, "int-poll-skip", ops[1:], **inside, skipped=skipped)
            else:
                fields = {"delta": delta, "ops": _list(ops), "skipped": skipped}
                yield logs.found(one, "poll-skip", ops, **fields)
        elif internal:
            yield logs.found(one, "int-nonmonotonic-poll", ops[1:], **inside)
        else:
            fields = {"delta": delta, "ops": _list(ops), "values": values}
            yield logs.found(one, "nonmonotonic-poll", ops, **fields)


def _skipped(logs: Logs, one: int, delta: int) -> str:
    first = int(logs.block.place_of[logs.block.value[one]]) + 1
    places = range(first, first + min(delta - 1, SKIPPED_MAX))
    return _list(min(map(logs.value, logs.block.values_at(place))) for place in places)


def _send_steps(logs: Logs) -> Iterator[Found]:
    steps = logs.block.steps(logs.block.send, ~logs.block.failed, logs.resets)
    # Others may send in between, so that from one operation to the next it may go far.
    odd = steps.internal | (steps.delta < 1)
    for one, other, internal, delta in _taken(Steps(*(column[odd] for column in steps))):
        ops, values = _ends(logs, one, other)
        if internal:
            name = "int-send-skip" if delta > 1 else "int-nonmonotonic-send"
            yield logs.found(one, name, ops[1:], values=values, delta=delta, op=ops[1])
        elif delta < 1:
            fields = {"values": values, "delta": delta, "ops": _list(ops)}
            yield logs.found(one, "nonmonotonic-send", ops, **fields)


def _taken(steps: Steps) -> Iterator[tuple[int, int, bool, int]]:
    yield from zip(*(column.tolist() for column in steps), strict=True)


def _ends(logs: Logs, one: int, other: int) -> tuple[list[int], str]:
    """(the lines of the two records, their values)."""
    ops = [logs.block.line(one), logs.block.line(other)]
    return ops, _list((logs.shown(one), logs.shown(other)))


FINDERS: tuple[Callable[[Logs], Iterator[Found]], ...] = (
    _duplicates,
    _inconsistent_offsets,
    _spurious_zero_offsets,
    _aborted_reads,
    _unexpected,
    _precommitted_reads,
    _lost_writes,
    _unseen,
    _poll_steps,
    _send_steps,
)
"""All but transactions that are torn, which takes a look at several keys."""


# --- for transactions that are torn ---------------------------------------------------------------


class Parts(NamedTuple):
    """Arrays of equal length: what transactions of several sends sent to a key."""

    row: Any
    shown: Any
    """The line of the operation that first read it, else NEVER."""


def parts(block: Block) -> Parts:
    """Of all transactions that have not failed."""
    rows = np.flatnonzero(block.send & block.txn & block.several & ~block.failed)
    reader = block.reader[block.value[rows]]
    return Parts(rows, np.where(reader < 0, NEVER, block.call[reader]))


def last_sent(block: Block, groups: int) -> Any:
    """By group the latest invocation of a send whose value was read, or -1."""
    found: Any = np.full(groups, -1, np.int64)
    writer = block.writer[block.value[block.read]]
    writer = writer[writer >= 0]
    np.maximum.at(found, block.group[writer], block.invoked[writer])
    return found
