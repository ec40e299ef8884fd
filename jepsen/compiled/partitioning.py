"""Operations put into as many groups as there are parts, each in the order they had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.compiled._compiler import compiled
from jepsen.compiled.codes import FAILED_CAS, NEVER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_SMALL = 2**31


@compiled
def are_small(f: NDArray[np.int8], columns: tuple[NDArray[np.int64], ...], nil: int) -> bool:
    """Whether all numbers of what is said have room in 32 bits, beside one for `nil`."""
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
    """Writes each row to its part's place in `out`, which ends at `ends[part]`.

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
