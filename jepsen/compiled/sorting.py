"""Operations put in order: by key and by invocation for the search, and divided into parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jepsen.compiled._compiler import compiled
from jepsen.compiled.codes import FAILED_CAS, NEVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Column: TypeAlias = "NDArray[np.int64]"


_SMALL = 2**31


@compiled
def are_small(f: NDArray[np.int8], columns: tuple[NDArray[np.int64], ...], nil: int) -> bool:
    """Return whether all numbers have room in 32 bits, beside one for `nil`."""
    a, b, invoked, returned = columns
    for row in range(len(f)):
        if f[row] > FAILED_CAS:
            continue
        if not (a[row] == nil or -_SMALL < a[row] < _SMALL):
            return False
        if not (b[row] == nil or -_SMALL < b[row] < _SMALL):
            return False
        if invoked[row] >= _SMALL or _SMALL <= returned[row] < NEVER:
            return False
    return True


@compiled
def parted(
    key: NDArray[np.int64],
    f: NDArray[np.int8],
    columns: tuple[NDArray[np.int64], ...],
    key_part: NDArray[np.uint16],
    key_place: NDArray[np.int64],
    nil: tuple[int, int],
    ends: NDArray[np.int64],
    out: tuple[NDArray[np.int32], NDArray[np.int8], Any],
) -> None:
    """Write each row to its part's place in `out`, which ends at `ends[part]`.

    `columns`: (a, b, invoked, returned); `out`: (the place of the key in its part, f, a row of any
    whole numbers for each of the columns). Instead of when an operation returns stands how long it
    took, 0 if it never does; instead of `nil[0]` stands `nil[1]`. What says nothing is nothing but
    counted.
    """
    a, b, invoked, returned = columns
    out_key, out_f, out_columns = out
    ends[:] = 0
    for row in range(len(key)):
        ends[key_part[key[row]]] += 1
    total = 0
    for part in range(len(ends)):
        total, ends[part] = total + ends[part], total
    for row in range(len(key)):
        part = key_part[key[row]]
        at = ends[part]
        ends[part] += 1
        out_key[at], out_f[at] = key_place[key[row]], f[row]
        if f[row] > FAILED_CAS:
            out_columns[:, at] = 0
            continue
        out_columns[0, at] = nil[1] if a[row] == nil[0] else a[row]
        out_columns[1, at] = nil[1] if b[row] == nil[0] else b[row]
        out_columns[2, at] = invoked[row]
        out_columns[3, at] = 0 if returned[row] == NEVER else returned[row] - invoked[row]


_FEW = 32
"""Up to so many rows the plainest way to sort them is the quickest."""
_INVOKED, _COLUMNS = 3, 6


@compiled
def sorted_rows(
    key: _Column,
    f: NDArray[np.int8],
    a: _Column,
    b: _Column,
    invoked: _Column,
    returned: _Column,
    left: NDArray[np.bool_],
) -> tuple[_Column, NDArray[np.int64]]:
    """(starts, rows) for `jepsen.compiled.registers.judge_table`.

    Keys are numbers below `len(left)`. Without rows are keys that are `left` to others, and
    operations whose `f` is beyond FAILED_CAS, which say nothing.
    """
    starts: _Column = np.zeros(len(left) + 1, np.int64)
    for row in range(len(key)):
        if f[row] <= FAILED_CAS and not left[key[row]]:
            starts[key[row] + 1] += 1
    for one in range(len(left)):
        starts[one + 1] += starts[one]
    rows: _Column = np.empty((starts[-1], _COLUMNS), np.int64)
    free = starts[:-1].copy()
    for row in range(len(key)):
        if f[row] <= FAILED_CAS and not left[key[row]]:
            place = rows[free[key[row]]]
            free[key[row]] += 1
            place[0], place[1], place[2] = f[row], a[row], b[row]
            place[3], place[4], place[5] = invoked[row], returned[row], returned[row]
    for one in range(len(left)):
        _sort(rows[starts[one] : starts[one + 1]])
    return starts, rows


@compiled
def _sort(rows: NDArray[np.int64]) -> None:
    """By when they begin. Where they do so already, as a rule, nothing is moved."""
    count = len(rows)
    if count > _FEW:
        for at in range(1, count):
            if rows[at - 1, _INVOKED] > rows[at, _INVOKED]:
                rows[:] = rows[np.argsort(rows[:, _INVOKED])]
                return
        return
    for begin in range(1, count):
        if rows[begin - 1, _INVOKED] <= rows[begin, _INVOKED]:
            continue
        moved = rows[begin].copy()
        at = begin
        while at and rows[at - 1, _INVOKED] > moved[_INVOKED]:
            rows[at] = rows[at - 1]
            at -= 1
        rows[at] = moved
