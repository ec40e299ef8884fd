"""From rows in any order to the verdicts on registers."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jepsen.compiled.codes import NEVER
from jepsen.compiled.registers import judge_table

if TYPE_CHECKING:
    from collections.abc import Iterable

CONFIGURATIONS_MAX = 1_024
"""Beyond, the searches in Python do better: they leave out more."""
SHARE_ROWS = 100_000
"""Fewer are not worth a thread of their own."""
_F, _INVOKED, _RETURNED, _KEY = 0, 3, 4, 5


class _Share(NamedTuple):
    """Keys that a thread judges."""

    begin: int
    end: int


def judge_rows(rows: bytearray, initial: int) -> list[tuple[int, int, int, int]]:
    """(key, verdict, its operations, configurations at most), by their first lines.

    `rows`: six int64 each (f, a, b, invoked, returned, key), keys being numbers from 0 on. A
    negative `f` says nothing, but its operation is counted.
    """
    table = np.frombuffer(rows, np.int64).reshape(-1, 6)
    key = table[:, _KEY]
    counts = np.bincount(key)
    firsts = np.full(len(counts), NEVER)
    np.minimum.at(firsts, key, table[:, _INVOKED])
    threads = max(1, min(os.cpu_count() or 1, len(table) // SHARE_ROWS))
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(partial(_judged, table, initial), _shares(counts, threads)))
    verdicts, peaks = (np.concatenate([one[at] for one in found]) for at in range(2))
    order = np.argsort(firsts)
    columns = (order, verdicts[order], counts[order], peaks[order])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _shares(counts: Any, number: int) -> Iterable[_Share]:
    """So many, of about as many rows each."""
    wanted = counts.sum() * np.arange(1, number) // number
    ends: Any = np.searchsorted(np.cumsum(counts), wanted, side="right")
    borders = [0, *ends.tolist(), len(counts)]
    return map(_Share, borders, borders[1:])


def _judged(table: Any, initial: int, share: _Share) -> tuple[Any, Any]:
    """The verdicts on these keys, and their peaks. Others may run meanwhile."""
    key = table[:, _KEY]
    mine = np.flatnonzero((table[:, _F] >= 0) & (key >= share.begin) & (key < share.end))
    mine = mine[np.lexsort((table[mine, _INVOKED], key[mine]))]
    own = table[mine]
    starts = np.searchsorted(own[:, _KEY], np.arange(share.begin, share.end + 1))
    own[:, _KEY] = own[:, _RETURNED]
    return judge_table(starts, own, initial, CONFIGURATIONS_MAX)
