"""Deadlines by name, for pure cores: those that are put off again and again cost little."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """Each key has one deadline, in milliseconds of any clock."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        """May be earlier than the deadline of a key, or of one that is gone: seen when due."""
        self._queued: dict[K, int] = {}
        self._count = 0

    def set(self, key: K, deadline_ms: int) -> None:
        """Set or move the deadline of a key."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or queued > deadline_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Forget a key."""
        self._deadlines.pop(key, None)

    def __len__(self) -> int:
        """Number of keys that have a deadline."""
        return len(self._deadlines)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._deadlines

    def next_ms(self) -> int | None:
        """Return the time at which `due` should be asked; None if nothing waits."""
        while self._heap and self._heap[0][2] not in self._deadlines:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[K]:
        """Return the keys whose deadlines have come, which are forgotten; the earliest first.

        What is set or cancelled while one is dealt with counts for the next.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            key = self._pop()
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline <= now_ms:
                del self._deadlines[key]
                yield key
            elif key not in self._queued:
                self._push(key, deadline)

    def _push(self, key: K, deadline_ms: int) -> None:
        self._count += 1
        self._queued[key] = deadline_ms
        heappush(self._heap, (deadline_ms, self._count, key))

    def _pop(self) -> K:
        deadline_ms, _, key = heappop(self._heap)
        if self._queued.get(key) == deadline_ms:
            del self._queued[key]
        return key
