"""From rows in any order to the verdicts on registers."""

from __future__ import annotations

import numpy as np

from jepsen.compiled.registers import NEVER, judge_with_peaks

CONFIGURATIONS_MAX = 1_024
"""Beyond, the searches in Python do better: they leave out more."""


def judge_rows(rows: bytearray, initial: int) -> list[tuple[int, int, int, int]]:
    """(key, verdict, its operations, configurations at most), by their first lines.

    `rows`: six int64 each (key, f, a, b, invoked, returned), keys being numbers from 0 on. A
    negative `f` says nothing, but its operation is counted.
    """
    table = np.frombuffer(rows, np.int64).reshape(-1, 6)
    key, invoked = table[:, 0], table[:, 4]
    counts = np.bincount(key)
    firsts = np.full(len(counts), NEVER)
    np.minimum.at(firsts, key, invoked)
    spoken = np.flatnonzero(table[:, 1] >= 0)
    spoken = spoken[np.lexsort((invoked[spoken], key[spoken]))]
    key, f, a, b, invoked, returned = np.ascontiguousarray(table[spoken].T)
    starts = np.searchsorted(key, np.arange(len(counts) + 1))
    verdicts, peaks = judge_with_peaks(
        starts, f.astype(np.int8), a, b, invoked, returned, initial, CONFIGURATIONS_MAX
    )
    order = np.argsort(firsts)
    columns = (order, verdicts[order], counts[order], peaks[order])
    return list(zip(*(column.tolist() for column in columns), strict=True))
