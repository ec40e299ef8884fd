"""Cooperative work: long work cut into steps, so that no group keeps the others waiting.

`StepQueue` is for a core, which is pure: a step is a `next` of an iterator, and a timer of the core
asks for it. `TurnQueue` is for the runtime: each turn of the event loop runs one piece of work. A
broker may coordinate fifty partitions, and what is due in one of them is often due in all: each
loads its log at start, and looks for old offsets as often as the others. One piece takes some
milliseconds; all of them in a row would stall every client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from raftctl.timers import Timers

STEPS = ("steps",)
"""The timer at which the next step is due."""
STEP_ITEMS = 1_000
"""Offsets, or items that take as long, of one step; and offsets in one batch."""
STEP_PAUSE_MS = 1
"""Between two steps: a shell runs other shards while it waits for a timer."""


class StepQueue:
    """Work of one core in steps of some milliseconds each. Iterators take turns."""

    def __init__(self, timers: Timers[Hashable]) -> None:
        self._timers = timers
        self._under_way: dict[Hashable, Iterator[None]] = {}

    def __contains__(self, name: Hashable) -> bool:
        """Whether an iterator of this name is under way."""
        return name in self._under_way

    def begin(self, name: Hashable, steps: Iterator[None], now_ms: int) -> None:
        """Add an iterator, unless one of this name is under way; the first one starts at once."""
        if name not in self._under_way:
            self._under_way[name] = steps
            if len(self._under_way) == 1:
                self.go_on(now_ms)

    def go_on(self, now_ms: int) -> None:
        """Make one step. To be called when the timer `STEPS` is due."""
        invariant(bool(self._under_way), "a step is due only while something is under way")
        name, steps = next(iter(self._under_way.items()))
        del self._under_way[name]
        with contextlib.suppress(StopIteration):
            next(steps)
            self._under_way[name] = steps
        if self._under_way:
            self._timers.set(STEPS, now_ms + STEP_PAUSE_MS)


class TurnQueue:
    """Work of all shards of a broker, first come, first served: one piece in each turn."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` in a turn of the event loop that runs no other piece."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._run_one)

    async def next(self) -> None:
        """Return in a turn that is the caller's."""
        turn = asyncio.get_running_loop().create_future()
        self.submit(lambda: None if turn.done() else turn.set_result(None))
        # The caller resumes in the turn that follows, so that one is taken, too.
        self.submit(lambda: None)
        await turn

    def _run_one(self) -> None:
        work = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run_one)
        work()
