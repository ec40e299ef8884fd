"""Long work on the event loop, cut into slices: between two of them, other work has its turn.

A slice is over when it has taken some milliseconds, whatever the machine. A simulated loop has
a rule of its own: virtual time stands still while code runs, and real time would make a run depend
on the machine. It draws the number of steps from its seed.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    IsOver = Callable[[], bool]

SLICE_S = 0.005
"""How long other work waits for a slice, at most, if no step takes longer."""


class _LoopWithSlices(Protocol):
    """An event loop that decides itself when slices end, as a simulated world does."""

    def begin_slice(self) -> IsOver:
        """Return what says, after each step, whether the slice is over."""


class Slices:
    """The slices of one piece of work; the first begins at once, each other with its first step."""

    def __init__(self, slice_s: float = SLICE_S) -> None:
        """To be made on the event loop."""
        loop = asyncio.get_running_loop()
        self._begin: Callable[[], IsOver] = partial(_begin_slice, slice_s)
        if hasattr(loop, "begin_slice"):
            self._begin = cast("_LoopWithSlices", loop).begin_slice
        self._is_over: IsOver | None = self._begin()

    def is_over(self) -> bool:
        """Return after a step whether its slice is over; the next step begins another."""
        if self._is_over is None:
            self._is_over = self._begin()
        over = self._is_over()
        if over:
            self._is_over = None
        return over

    async def rest(self) -> None:
        """Let other work have its turn after a step, if the slice is over."""
        if self.is_over():
            await asyncio.sleep(0)


def _begin_slice(slice_s: float) -> IsOver:
    end_s = time.perf_counter() + slice_s
    return lambda: time.perf_counter() >= end_s
