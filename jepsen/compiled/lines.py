"""Finds the fields of a history's lines, without an object for each.

Only lines as `to_json` of `jepsen.history.formats` writes them are understood, of clients, with
values of which there is only one text: no spaces, no escapes, no fractions, no map that has a key
twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jepsen.compiled._compiler import compiled
from jepsen.compiled._text import (
    CLOSE,
    COLON,
    COMMA,
    LEFT,
    MINUS,
    NINE,
    OPEN,
    QUOTE,
    RIGHT,
    ZERO,
    begins,
    integer,
    string,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    """A row a line. `ends`: where in the data each line ends, its line feed included."""
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
