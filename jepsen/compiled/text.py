"""Fields found in the text of histories, without an object for each.

Two readers, each of which understands only text that has one spelling for each value.

`find_fields` reads the lines of clients as `to_json` of `jepsen.history.formats` writes them: no
spaces, no escapes, no fractions, no map that has a key twice.

`read_mops` reads sends and polls from the text of operations. Keys are integers or strings without
escapes, and integers have up to 18 digits.

    [["send",KEY,VALUE],["send",KEY,[OFFSET,VALUE]],["poll"],["poll",{"KEY":[[OFFSET,VALUE],...]}]]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jepsen.compiled._compiler import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


DIGITS_MAX = 18
"""So many fit any number of 64 bits."""
QUOTE, COMMA, MINUS, ZERO, NINE, COLON, OPEN, BACKSLASH, CLOSE, LEFT, RIGHT = b'",-09:[\\]{}'
SPACE = 32
"""What is less is a control character."""


@compiled
def begins(data: Any, at: int, end: int, text: Any) -> bool:
    """Return whether the text is there."""
    same = 0
    while same < len(text) and at + same < end and data[at + same] == text[same]:
        same += 1
    return same == len(text)


@compiled
def integer(data: Any, at: int, end: int) -> tuple[int, int]:
    """(the number, where it ends, or -1 if it is none that is understood)."""
    negative = at < end and data[at] == MINUS
    first = at + 1 if negative else at
    number, place = 0, first
    while place < end and ZERO <= data[place] <= NINE:
        if place - first == DIGITS_MAX:
            return 0, -1
        number = number * 10 + data[place] - ZERO
        place += 1
    if place == first or (data[first] == ZERO and (negative or place > first + 1)):
        return 0, -1
    return (-number if negative else number), place


@compiled
def string(data: Any, at: int, end: int) -> int:
    """Return the end of a string without escapes, or -1."""
    if at >= end or data[at] != QUOTE:
        return -1
    place = at + 1
    while place < end and data[place] != QUOTE:
        if data[place] == BACKSLASH or data[place] < SPACE:
            return -1
        place += 1
    return place + 1 if place < end else -1


INDEX, TIME, PROCESS, TYPE, F, VALUE, KEY, ERROR = 0, 1, 2, 3, 4, 6, 8, 10
"""Columns of what is found: numbers, and of texts two each: where they begin and where they end,
which is the same place if there is none."""
COLUMNS = 12
NOT_UNDERSTOOD = -1
"""As TYPE, which is a place in `TYPES` otherwise."""
TYPES = ("invoke", "ok", "fail", "info")
_DIGITS_MAX, _DEPTH_MAX, _NAMES_MAX = 100, 50, 64


def _bytes(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


_INDEX, _TIME, _PROCESS = map(_bytes, ('{"index":', ',"time":', ',"process":'))
_INVOKE, _OK, _FAIL, _INFO = (_bytes(f',"type":"{name}","f":') for name in TYPES)
_VALUE, _KEY, _ERROR = map(_bytes, (',"value":', ',"key":', ',"error":'))
_NULL, _TRUE, _FALSE, _END = map(_bytes, ("null", "true", "false", "}\n"))


def find_fields(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a row a line. `ends`: where in the data each line ends, its line feed included."""
    found: NDArray[np.int64] = np.zeros((len(ends), COLUMNS), np.int64)
    opened: NDArray[np.int64] = np.empty(_DEPTH_MAX, np.int64)
    names: NDArray[np.int64] = np.empty((_NAMES_MAX, 3), np.int64)
    _find(data, np.append(0, ends), found, opened, names)
    return found


def gathered(
    data: NDArray[np.uint8], spans: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """(where each text begins and the last ends, all bytes) of texts that lie in these spans."""
    ends: NDArray[np.int32] = np.append(0, np.cumsum(spans[:, 1] - spans[:, 0])).astype(np.int32)
    texts: NDArray[np.uint8] = np.empty(ends[-1], np.uint8)
    _gather(data, spans, texts)
    return ends, texts


@compiled
def _gather(data: Any, spans: Any, texts: Any) -> None:
    to = 0
    for row in range(len(spans)):
        for place in range(spans[row, 0], spans[row, 1]):
            texts[to] = data[place]
            to += 1


@compiled
def _find(data: Any, bounds: Any, found: Any, opened: Any, names: Any) -> None:
    for row in range(len(found)):
        if not _line(data, bounds[row], bounds[row + 1], found[row], opened, names):
            found[row, TYPE] = NOT_UNDERSTOOD


@compiled
def _line(data: Any, at: int, end: int, found: Any, opened: Any, names: Any) -> bool:
    """Whether the line is understood."""
    for column, name in ((INDEX, _INDEX), (TIME, _TIME), (PROCESS, _PROCESS)):
        if not begins(data, at, end, name):
            return False
        found[column], at = integer(data, at + len(name), end)
        if at < 0 or found[column] < 0:
            return False
    found[TYPE], begin = _type(data, at, end)
    at = string(data, begin, end) if begin >= 0 else -1
    if at <= begin + 2 or not begins(data, at, end, _VALUE):
        return False
    found[F], found[F + 1] = begin + 1, at - 1
    for column, name in ((VALUE, _VALUE), (KEY, _KEY), (ERROR, _ERROR)):
        if begins(data, at, end, name):
            begin = at + len(name)
            at = _value(data, begin, end, opened, names)
            if at < 0:
                return False
            found[column], found[column + 1] = begin, at
    return at + len(_END) == end and begins(data, at, end, _END)


@compiled
def _type(data: Any, at: int, end: int) -> tuple[int, int]:
    """(which, where what `f` is begins, or -1)."""
    for number, text in enumerate((_INVOKE, _OK, _FAIL, _INFO)):
        if begins(data, at, end, text):
            return number, at + len(text)
    return NOT_UNDERSTOOD, -1


@compiled
def _value(data: Any, at: int, end: int, opened: Any, names: Any) -> int:
    """Where the value ends, or -1. `opened` and `names` are room for what is open."""
    depth = named = 0
    while True:
        # A value begins here.
        if at < end and (data[at] == OPEN or data[at] == LEFT):
            if depth == _DEPTH_MAX:
                return -1
            opened[depth] = at
            depth += 1
            at += 1
            fresh = True
        else:
            at = _atom(data, at, end)
            fresh = False
        while depth and 0 <= at < end and data[at] == _closing(data[opened[depth - 1]]):
            depth -= 1
            at += 1
            fresh = False
        if depth == 0 or at < 0:
            return at
        if not fresh:
            if at >= end or data[at] != COMMA:
                return -1
            at += 1
        if data[opened[depth - 1]] == LEFT:
            if named == _NAMES_MAX:
                return -1
            at = _name(data, at, end, opened[depth - 1], names, named)
            if at < 0:
                return -1
            named += 1


@compiled
def _closing(bracket: int) -> int:
    return CLOSE if bracket == OPEN else RIGHT


@compiled
def _name(data: Any, at: int, end: int, where: int, names: Any, named: int) -> int:
    """Notes a name of the map that begins there; where its value begins, or -1."""
    place = string(data, at, end)
    if place < 0 or place >= end or data[place] != COLON:
        return -1
    for one in range(named):
        if names[one, 0] == where and begins(data, at, place, data[names[one, 1] : names[one, 2]]):
            return -1
    names[named, 0], names[named, 1], names[named, 2] = where, at, place
    return place + 1


@compiled
def _atom(data: Any, at: int, end: int) -> int:
    """Where what is no list and no map ends, or -1."""
    if at >= end:
        return -1
    if data[at] == QUOTE:
        return string(data, at, end)
    for text in (_NULL, _TRUE, _FALSE):
        if begins(data, at, end, text):
            return at + len(text)
    first = at + 1 if data[at] == MINUS else at
    place = first
    while place < end and ZERO <= data[place] <= NINE:
        place += 1
    if place == first or place - first > _DIGITS_MAX:
        return -1
    return -1 if data[first] == ZERO and place > at + 1 else place


NO_OFFSET = np.iinfo(np.int64).min
POLL, OWN = 1, 2
"""Flags of a record: polled, not sent; sent by the same operation."""
_SEND_BEGINS, _POLL_BEGINS = (np.frombuffer(text, np.uint8) for text in (b'["send",', b'["poll"'))
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
    """Micro-operations that were read."""

    understood: Any
    """By operation whether its records are there."""
    records: Any
    """As in `Room`, in the order of operations; of each the sends first."""
    keys: Any
    """As in `Room`."""


def read_mops(data: Any, ends: Any, wanted: Any) -> Mops:
    """Return the records of the wanted operations.

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
