"""How operations are put in order for the compiled search, beside numpy's ways."""

from __future__ import annotations

from typing import Any

import pytest

from jepsen.compiled import codes

pytestmark = [
    pytest.mark.req("J7"),
    # Whoever comes first compiles, which takes seconds of a processor that others may use.
    pytest.mark.timeout(900),
]
np = pytest.importorskip("numpy", reason="needs raftctl[fast]")
sorting = pytest.importorskip("jepsen.compiled.registers", reason="needs raftctl[fast]")

SILENT, NIL, SMALL_NIL = codes.FAILED_CAS + 1, -(2**63), -(2**31)
KEYS = 7


def _operations(seed: int, rows: int, largest: int) -> tuple[Any, ...]:
    """(key, f, a, b, invoked, returned)."""
    rng = np.random.default_rng(seed)
    invoked = rng.permutation(rows) * 2
    returned = invoked + rng.integers(1, largest, rows)
    returned[rng.random(rows) < 0.1] = codes.NEVER
    a, b = rng.integers(-largest, largest, (2, rows))
    a[rng.random(rows) < 0.2] = NIL
    f = rng.integers(0, SILENT + 1, rows).astype(np.int8)
    return rng.integers(0, KEYS, rows), f, a, b, invoked, returned


@pytest.mark.parametrize("rows", [0, 1, 40, 2_000])
def test_rows_come_by_key_and_then_by_when_they_begin(rows: int) -> None:
    key, f, *columns = _operations(rows, rows, 1000)
    left = np.arange(KEYS) == 3
    starts, found = sorting.sorted_rows(key, f, *columns, left)
    said = np.flatnonzero((f < SILENT) & ~left[key])
    order = said[np.lexsort((columns[2][said], key[said]))]
    wanted = np.stack([f, *columns, columns[3]], axis=1)[order]
    assert found.tolist() == wanted.tolist()
    assert np.diff(starts).tolist() == np.bincount(key[said], minlength=KEYS).tolist()


@pytest.mark.parametrize(("largest", "small"), [(2**30, True), (2**40, False)])
def test_parts_hold_each_row_in_its_order(largest: int, small: bool) -> None:
    key, f, *columns = _operations(5, 500, largest)
    kind, nil = (np.int32, SMALL_NIL) if small else (np.int64, NIL)
    assert sorting.are_small(f, tuple(columns), NIL) is small
    part, place = np.array([0, 2, 2, 0, 1, 1, 2], np.uint16), np.arange(KEYS) + 10
    out = np.empty(500, np.int32), np.empty(500, np.int8), np.empty((4, 500), kind)
    ends = np.zeros(4, np.int64)
    sorting.parted(key, f, tuple(columns), part, place, (NIL, nil), ends, out)
    order = np.argsort(part[key], kind="stable")
    a, b, invoked, returned = (column[order] for column in columns)
    said = f[order] < SILENT
    took = np.where(returned == codes.NEVER, 0, returned - invoked)
    wanted = [np.where(a == NIL, nil, a), b, invoked, took]
    assert ends.tolist() == [*np.cumsum(np.bincount(part[key])).tolist(), 500]
    assert out[0].tolist() == place[key[order]].tolist()
    assert out[1].tolist() == f[order].tolist()
    assert out[2].tolist() == [np.where(said, column, 0).tolist() for column in wanted]
