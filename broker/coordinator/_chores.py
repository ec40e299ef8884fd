"""What a core does a little at a time, so that others have their turn in between."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from raftctl.timers import Timers

CHORES = ("chores",)
"""The timer at which the next step is due."""
AT_ONCE = 1_000
"""Offsets, or whatever takes as long, looked at in one step; and offsets in one batch."""
PAUSE_MS = 1
"""Between two steps: a shell gives others their turn when it waits for a timer."""


class Chores:
    """Work that comes in steps, each of some milliseconds at most. Chores take turns."""

    def __init__(self, timers: Timers[Hashable]) -> None:
        self._timers = timers
        self._under_way: dict[Hashable, Iterator[None]] = {}

    def begin(self, name: Hashable, steps: Iterator[None], now_ms: int) -> None:
        """Makes the first step at once if nothing else is under way; no new chore if one of this
        name is.
        """
        if name not in self._under_way:
            self._under_way[name] = steps
            if len(self._under_way) == 1:
                self.go_on(now_ms)

    def go_on(self, now_ms: int) -> None:
        """Makes one step. To be called when the timer is due."""
        invariant(bool(self._under_way), "a step is due only while something is under way")
        name, steps = next(iter(self._under_way.items()))
        del self._under_way[name]
        with contextlib.suppress(StopIteration):
            next(steps)
            self._under_way[name] = steps
        if self._under_way:
            self._timers.set(CHORES, now_ms + PAUSE_MS)
