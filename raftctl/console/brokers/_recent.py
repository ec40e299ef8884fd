"""Answers that are kept for a moment, so that many who look cost as much as one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable
    from typing import Any

T = TypeVar("T")

KEPT_S = 1.0
KEPT_MAX = 200
"""Answers, each of one requester to one question."""


class _Kept(NamedTuple, Generic[T]):
    task: asyncio.Task[T]
    until: float


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
        if kept is None or (kept.task.done() and kept.until <= loop.time()):
            self._forget_old(loop.time())
            kept = self._kept[key] = _Kept(loop.create_task(make()), loop.time() + self._kept_s)
        try:
            # Somebody who leaves does not take it from the others.
            return await asyncio.shield(kept.task)
        except BaseException:
            if kept.task.done() and self._kept.get(key) is kept:
                del self._kept[key]
            raise

    def _forget_old(self, now: float) -> None:
        if len(self._kept) >= KEPT_MAX:
            fresh = {key: one for key, one in self._kept.items() if one.until > now}
            self._kept = fresh if len(fresh) < KEPT_MAX else {}
