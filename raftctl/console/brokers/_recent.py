"""Answers that are kept for a moment, so that many who look cost as much as one."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable
    from typing import Any

T = TypeVar("T")

KEPT_S = 1.0
KEPT_MAX = 200
"""Answers, each of one requester to one question."""


PAUSE_FACTOR = 9
"""An answer is kept for so many times as long as it took, so that it takes a tenth of the time at
most, however many ask again and again."""


class _Kept(Generic[T]):
    """An answer that is there, or being made."""

    def __init__(self, task: asyncio.Task[T], kept_s: float) -> None:
        self.task = task
        self.until = inf
        self._kept_s = kept_s
        self._began = task.get_loop().time()
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[T]) -> None:
        now = task.get_loop().time()
        failed = task.cancelled() or task.exception() is not None
        kept_s = 0.0 if failed else max(self._kept_s, PAUSE_FACTOR * (now - self._began))
        self.until = now + kept_s


class Recent(Generic[T]):
    """Answers by key. One that is being made is made once, however many wait for it."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._kept: dict[Hashable, _Kept[T]] = {}

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the answer for the key, made now if there is none of the last `kept_s`.

        An error is kept for nobody but those who wait already.
        """
        loop = asyncio.get_running_loop()
        kept = self._kept.get(key)
        if kept is None or kept.until <= loop.time():
            self._forget_old(loop.time())
            kept = self._kept[key] = _Kept(loop.create_task(make()), self._kept_s)
        # Somebody who leaves does not take it from the others.
        return await asyncio.shield(kept.task)

    def _forget_old(self, now: float) -> None:
        if len(self._kept) >= KEPT_MAX:
            fresh = {key: one for key, one in self._kept.items() if one.until > now}
            self._kept = fresh if len(fresh) < KEPT_MAX else {}
