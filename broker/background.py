"""Tasks that run as long as their owner; one that fails ends the node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Background:
    """The tasks of one owner, in the order in which they were started."""

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_stopped = False

    def start(self, run: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Runs until it returns, is cancelled, or fails."""
        invariant(
            not self._is_stopped, "nobody would stop a task that starts after its owner's stop"
        )
        task = asyncio.get_running_loop().create_task(run)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def stop(self) -> None:
        """Cancels all tasks and waits for their ends."""
        self._is_stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
