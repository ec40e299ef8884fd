"""Operations in any order, as the search wants them: by key, and by when they begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from jepsen.compiled._compiler import compiled
from jepsen.compiled.codes import FAILED_CAS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Column: TypeAlias = "NDArray[np.int64]"

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
