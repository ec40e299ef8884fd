"""Reads sends and polls from the text of operations, without an object for each.

Only the plainest form is understood, and there is only one text of each value in it: JSON without
spaces, keys that are integers or strings without escapes, and integers of up to 18 digits.

    [["send",KEY,VALUE],["send",KEY,[OFFSET,VALUE]],["poll"],["poll",{"KEY":[[OFFSET,VALUE],...]}]]
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jepsen.compiled._compiler import compiled
from jepsen.compiled._text import (
    CLOSE,
    COLON,
    COMMA,
    LEFT,
    OPEN,
    QUOTE,
    RIGHT,
    begins,
    integer,
    string,
)

NO_OFFSET = np.iinfo(np.int64).min
POLL, OWN = 1, 2
"""Flags of a record: polled, not sent; sent by the same operation."""
_SEND_BEGINS, _POLL_BEGINS = (np.frombuffer(text, np.uint8) for text in (b'["send",', b'["poll"'))
_NULL = np.frombuffer(b"null", np.uint8)
_HASH_SEED, _HASH_FACTOR, _HASH_MASK = 5381, 33, 0xFFFFFFFF


class Room(NamedTuple):
    """Arrays that the loops fill."""

    records: Any
    """A row each: number of the operation, flags, number of the key, value, offset."""
    keys: Any
    """A row each: where its text begins and ends."""
    slots: Any
    """A hash table of the keys' numbers; -1 where there is none."""
    polls: Any
    """By key where the poll begins that it was last seen in."""
    sizes: Any
    """How many records there are, and how many keys."""


@compiled
def _key(data: Any, at: int, end: int) -> int:
    """Where the key ends, or -1."""
    if at < end and data[at] == QUOTE:
        return string(data, at, end)
    return integer(data, at, end)[1]


@compiled
def _key_number(data: Any, at: int, end: int, room: Room) -> int:
    """The number of the key with this text, which is noted if it is new."""
    mixed = _HASH_SEED
    for place in range(at, end):
        mixed = (mixed * _HASH_FACTOR + data[place]) & _HASH_MASK
    slot = mixed & (len(room.slots) - 1)
    while room.slots[slot] >= 0:
        number = int(room.slots[slot])
        first = room.keys[number, 0]
        if room.keys[number, 1] - first == end - at:
            same = 0
            while same < end - at and data[first + same] == data[at + same]:
                same += 1
            if same == end - at:
                return number
        slot = (slot + 1) & (len(room.slots) - 1)
    number = int(room.sizes[1])
    room.slots[slot] = number
    room.keys[number, 0], room.keys[number, 1] = at, end
    room.sizes[1] += 1
    return number


@compiled
def _pair(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """(offset, value, where `[OFFSET,VALUE]` ends, or -1)."""
    if at >= end or data[at] != OPEN:
        return 0, 0, -1
    if begins(data, at + 1, end, _NULL):
        offset, place = NO_OFFSET, at + 1 + len(_NULL)
    else:
        offset, place = integer(data, at + 1, end)
    if place < 0 or place >= end or data[place] != COMMA:
        return 0, 0, -1
    value, place = integer(data, place + 1, end)
    if place < 0 or place >= end or data[place] != CLOSE:
        return 0, 0, -1
    return offset, value, place + 1


@compiled
def _note(room: Room, row: int, flags: int, key: int, value: int, offset: int) -> None:
    count = room.sizes[0]
    room.records[count, 0], room.records[count, 1], room.records[count, 2] = row, flags, key
    room.records[count, 3], room.records[count, 4] = value, offset
    room.sizes[0] = count + 1


@compiled
def _send(data: Any, at: int, end: int, row: int, room: Room) -> int:
    """Notes `KEY,VALUE]`; where it ends, or -1."""
    place = _key(data, at, end)
    if place < 0 or place + 1 >= end or data[place] != COMMA:
        return -1
    key = _key_number(data, at, place, room)
    if data[place + 1] == OPEN:
        offset, value, place = _pair(data, place + 1, end)
    else:
        offset = NO_OFFSET
        value, place = integer(data, place + 1, end)
    if place < 0 or place >= end or data[place] != CLOSE:
        return -1
    _note(room, row, 0, key, value, offset)
    return place + 1


@compiled
def _polled(data: Any, at: int, end: int, row: int, key: int, room: Room) -> int:
    """Notes `[[OFFSET,VALUE],...]`; where it ends, or -1."""
    if at + 1 >= end or data[at] != OPEN:
        return -1
    if data[at + 1] == CLOSE:
        return at + 2
    place = at
    while place < end and (data[place] == COMMA or place == at):
        offset, value, place = _pair(data, place + 1, end)
        if place < 0:
            return -1
        _note(room, row, POLL, key, value, offset)
    return place + 1 if place < end and data[place] == CLOSE else -1


@compiled
def _poll(data: Any, at: int, end: int, row: int, room: Room) -> int:
    """Notes `]` or `,{...}]`; where it ends, or -1."""
    if at < end and data[at] == CLOSE:
        return at + 1
    if at + 3 >= end or data[at] != COMMA or data[at + 1] != LEFT:
        return -1
    place = at + 1
    if data[at + 2] == RIGHT:
        place = at + 2
    while data[place] == COMMA or place == at + 1:
        first = place + 1
        if first >= end or data[first] != QUOTE:
            return -1
        place = _key(data, first, end)
        if place < 0 or place >= end or data[place] != COLON:
            return -1
        key = _key_number(data, first, place, room)
        if room.polls[key] == at:
            return -1  # a map has a key once: which one counts is not for us
        room.polls[key] = at
        place = _polled(data, place + 1, end, row, key, room)
        if place < 0 or place >= end:
            return -1
    if place + 1 >= end or data[place] != RIGHT or data[place + 1] != CLOSE:
        return -1
    return place + 2


@compiled
def _operation(data: Any, at: int, end: int, row: int, room: Room) -> bool:
    """Notes all records of an operation, or says that it is not understood."""
    if at + 1 >= end or data[at] != OPEN:
        return False
    place = at
    while place < end and (data[place] == COMMA or place == at):
        if begins(data, place + 1, end, _SEND_BEGINS):
            place = _send(data, place + 1 + len(_SEND_BEGINS), end, row, room)
        elif begins(data, place + 1, end, _POLL_BEGINS):
            place = _poll(data, place + 1 + len(_POLL_BEGINS), end, row, room)
        else:
            return False
        if place < 0:
            return False
    return place + 1 == end and data[place] == CLOSE


@compiled
def _order(first: int, room: Room) -> None:
    """Puts the sends of an operation before what it polled, and finds what it polled of them."""
    records, last = room.records, room.sizes[0]
    sends = 0
    for place in range(first, last):
        sends += records[place, 1] == 0
    if sends == 0 or sends == last - first:
        return
    # By insertion: sends nearly always come first.
    for place in range(first, last):
        at = place
        while at > first and records[at, 1] < records[at - 1, 1]:
            for column in range(records.shape[1]):
                before = records[at - 1, column]
                records[at - 1, column] = records[at, column]
                records[at, column] = before
            at -= 1
    for polled in range(first + sends, last):
        for sent in range(first, first + sends):
            if records[polled, 2] == records[sent, 2] and records[polled, 3] == records[sent, 3]:
                records[polled, 1] = POLL | OWN


@compiled
def _operations(data: Any, ends: Any, wanted: Any, understood: Any, room: Room) -> None:
    for row in range(len(wanted)):
        if not wanted[row]:
            continue
        first = room.sizes[0]
        understood[row] = _operation(data, ends[row], ends[row + 1], row, room)
        if understood[row]:
            _order(first, room)
        else:
            room.sizes[0] = first


class Mops(NamedTuple):
    """What was read."""

    understood: Any
    """By operation whether its records are there."""
    records: Any
    """As in `Room`, in the order of operations; of each the sends first."""
    keys: Any
    """As in `Room`."""


def read_mops(data: Any, ends: Any, wanted: Any) -> Mops:
    """The records of those operations that are wanted.

    `data`: bytes of all texts; `ends`: where in them each text begins, and the last ends.
    """
    mine = data[ends[0] : ends[-1]]
    # Each record has a bracket of its own.
    most = int(np.count_nonzero(mine == OPEN)) + 1
    slots = 1 << (2 * most).bit_length()
    room = Room(
        np.empty((most, 5), np.int64),
        np.empty((most, 2), np.int64),
        np.full(slots, -1, np.int64),
        np.full(most, -1, np.int64),
        np.zeros(2, np.int64),
    )
    understood: Any = np.zeros(len(wanted), np.bool_)
    _operations(mine, ends.astype(np.int64) - ends[0], wanted, understood, room)
    count, keys = room.sizes
    return Mops(understood, room.records[:count], room.keys[:keys] + ends[0])
