"""`Turns`: work that comes in pieces, of which each turn of the event loop does one.

A broker may coordinate fifty partitions, and what is due in one of them is often due in all: each
has its log to load when the broker starts, and looks for old offsets as often as the others. One
piece takes some milliseconds; all of them in a row would keep everybody else waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Turns:
    """First come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, work: Callable[[], None]) -> None:
        """Does the work in a turn of the event loop in which no other piece is done."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._do_one)

    async def mine(self) -> None:
        """Returns when it is the caller's turn."""
        turn = asyncio.get_running_loop().create_future()
        self.take(lambda: None if turn.done() else turn.set_result(None))
        # Who is woken goes on in the turn that follows.
        self.take(lambda: None)
        await turn

    def _do_one(self) -> None:
        work = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._do_one)
        work()
