"""From rows in any order to the verdicts on registers."""

from __future__ import annotations

import numpy as np

from jepsen.compiled.codes import NEVER
from jepsen.compiled.registers import judge_table

CONFIGURATIONS_MAX = 1_024
"""Beyond, the searches in Python do better: they leave out more."""


def judge_rows(rows: bytearray, initial: int) -> list[tuple[int, int, int, int]]:
    """(key, verdict, its operations, configurations at most), by their first lines.

    `rows`: six int64 each (f, a, b, invoked, returned, key), keys being numbers from 0 on. A
    negative `f` says nothing, but its operation is counted.
    """
    table = np.frombuffer(rows, np.int64).reshape(-1, 6)
    key, invoked = table[:, 5], table[:, 3]
    counts = np.bincount(key)
    firsts = np.full(len(counts), NEVER)
    np.minimum.at(firsts, key, invoked)
    spoken = np.flatnonzero(table[:, 0] >= 0)
    spoken = spoken[np.lexsort((invoked[spoken], key[spoken]))]
    sorted_table = table[spoken]
    starts = np.searchsorted(sorted_table[:, 5], np.arange(len(counts) + 1))
    sorted_table[:, 5] = sorted_table[:, 4]
    verdicts, peaks = judge_table(starts, sorted_table, initial, CONFIGURATIONS_MAX)
    order = np.argsort(firsts)
    columns = (order, verdicts[order], counts[order], peaks[order])
    return list(zip(*(column.tolist() for column in columns), strict=True))
