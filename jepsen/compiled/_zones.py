"""Registers whose writes are unique, without a search.

The operations on a value are its cluster. Where they do not all overlap, the value must stand from
the first return of any of them to the last beginning (a forward zone); else it may stand for a
moment between the last beginning and the first return (a backward zone). The history is
linearizable if no two forward zones overlap and none holds a backward one.

Source: Gibbons and Korach, "Testing shared memories", theorem 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from jepsen.compiled._compiler import compiled
from jepsen.compiled._hashing import NOTHING, place_of, size_for
from jepsen.compiled.codes import NEVER, READ, VALID, WRITE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Column: TypeAlias = "NDArray[np.int64]"

_F, _A, _INVOKED, _RETURNED = 0, 1, 3, 4
_BEFORE = -NEVER
"""When the first value was written."""
_READ, _WRITTEN = 0, 1
"""What is known of a value."""
_BEGUN, _RETURN, _LAST = 0, 1, 2
"""Rows of clusters: when the write began; when first something returned; when last something
began."""


@compiled
def judge_zones(
    starts: _Column, rows: NDArray[np.int64], initial: int, verdicts: NDArray[np.int8]
) -> None:
    """Writes VALID for each key that is certainly linearizable, and leaves the others.

    Arguments are those of `jepsen.compiled.registers.judge_table`.
    """
    for key in range(len(verdicts)):
        if _is_linearizable(rows, starts[key], starts[key + 1], initial):
            verdicts[key] = VALID


@compiled
def _is_linearizable(rows: NDArray[np.int64], begin: int, end: int, initial: int) -> bool:
    """False also where this does not know.

    That is so if there is something else than reads and writes, or two writes are of one value.
    """
    for row in range(begin, end):
        if rows[row, _F] != READ and rows[row, _F] != WRITE:
            return False
    places = size_for(end - begin + 1)
    values: _Column = np.empty(places, np.int64)
    known: _Column = np.full(places, NOTHING)
    clusters: NDArray[np.int64] = np.empty((3, places), np.int64)
    at = _cluster(values, known, clusters, initial)
    known[at], clusters[_BEGUN, at], clusters[_RETURN, at] = _WRITTEN, _BEFORE, _BEFORE
    for row in range(begin, end):
        returned = rows[row, _RETURNED]
        if rows[row, _F] == READ and returned == NEVER:
            continue
        at = _cluster(values, known, clusters, rows[row, _A])
        if rows[row, _F] == WRITE:
            if known[at] == _WRITTEN:
                return False
            known[at], clusters[_BEGUN, at] = _WRITTEN, rows[row, _INVOKED]
        clusters[_RETURN, at] = min(clusters[_RETURN, at], returned)
        clusters[_LAST, at] = max(clusters[_LAST, at], rows[row, _INVOKED])
    return _fit(known, clusters)


@compiled
def _cluster(values: _Column, known: _Column, clusters: NDArray[np.int64], value: int) -> int:
    """The place of the value's cluster, which may be new."""
    at = place_of(values, known, value)
    if known[at] == NOTHING:
        values[at], known[at] = value, _READ
        clusters[_RETURN, at], clusters[_LAST, at] = NEVER, _BEFORE
    return at


@compiled
def _fit(known: _Column, clusters: NDArray[np.int64]) -> bool:
    """Whether all that was read had been written, and the zones are where they may be."""
    left: _Column = np.empty(len(known), np.int64)
    zones: _Column = np.empty(len(known), np.int64)
    count = 0
    for at in range(len(known)):
        # What was written with unknown outcome, and never read, need not have been written.
        if known[at] == NOTHING or clusters[_RETURN, at] == NEVER:
            continue
        if known[at] == _READ or clusters[_RETURN, at] < clusters[_BEGUN, at]:
            return False
        left[count], zones[count] = min(clusters[_RETURN, at], clusters[_LAST, at]), at
        count += 1
    until = _BEFORE
    for one in np.argsort(left[:count]):
        first_return, last_begin = clusters[_RETURN, zones[one]], clusters[_LAST, zones[one]]
        if max(first_return, last_begin) < until or (
            first_return < last_begin and left[one] < until
        ):
            return False
        if first_return < last_begin:
            until = last_begin
    return True
