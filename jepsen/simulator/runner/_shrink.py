"""Makes a failing run small: fewer operations, fewer faults, as long as it still fails.

What is taken away changes the course of everything after it, so the smaller run may fail for
another reason; it is still a failure of the same seed, and easier to read. Bounded in runs, since
each costs seconds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jepsen.simulator.cuts import Cuts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RUNS_MAX = 24
_SIZE = re.compile(r"^size: faults=(\d+) operations=(\d+)$", re.MULTILINE)


def size_line(cuts: Cuts) -> str:
    """What a failed run prints so that it can be shrunk."""
    return f"size: faults={cuts.had_faults} operations={cuts.had_operations}\n"


def shrink(output: str, fails: Callable[[Cuts], bool]) -> Cuts | None:
    """The smallest cuts found with which the run fails; None if nothing could be taken away.

    `output` is what the whole run printed; `fails` repeats the run with cuts.
    """
    size = _SIZE.search(output)
    if size is None:
        return None
    search = _Search(fails)
    faults = search.faults(tuple(range(int(size[1]))))
    operations = search.operations(faults, int(size[2]))
    kept = search.faults(faults, operations)
    whole = len(kept) == int(size[1]) and operations == int(size[2])
    return None if whole else Cuts(kept, operations)


class _Search:
    """A search with a budget of runs."""

    def __init__(self, fails: Callable[[Cuts], bool]) -> None:
        self._fails = fails
        self._left = RUNS_MAX
        self._tried: dict[tuple[tuple[int, ...], int | None], bool] = {}

    def _still_fails(self, faults: Sequence[int], operations: int | None) -> bool:
        key = (tuple(faults), operations)
        if key not in self._tried:
            if self._left <= 0:
                return False
            self._left -= 1
            self._tried[key] = self._fails(Cuts(tuple(faults), operations))
        return self._tried[key]

    def faults(self, faults: tuple[int, ...], operations: int | None = None) -> tuple[int, ...]:
        """Takes away pieces, large ones first, down to single faults (delta debugging)."""
        if self._still_fails((), operations):
            return ()
        piece = max(len(faults) // 2, 1)
        while faults:
            for start in range(0, len(faults), piece):
                fewer = faults[:start] + faults[start + piece :]
                if fewer and self._still_fails(fewer, operations):
                    faults = fewer
                    break
            else:
                if piece == 1:
                    break
                piece //= 2
            piece = min(piece, max(len(faults) // 2, 1))
        return faults

    def operations(self, faults: tuple[int, ...], operations: int) -> int:
        """Halves the number as long as the run fails."""
        while operations > 1 and self._still_fails(faults, operations // 2):
            operations //= 2
        return operations
