"""`Linger`: when the shards of a coordinator write what they have gathered.

Each write costs the followers a fetch, whatever it holds, so that few large ones are cheaper than
many small ones. As with Apache Kafka's `group.coordinator.append.linger.ms`: -1 waits only while
something else is on its way to the followers, and then not for long; a client that is alone is not
kept waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

ADAPTIVE = -1
_ADAPTIVE_MAX_MS = 5
"""What is on its way may wait for a follower that is gone; what was gathered must not."""


class Linger:
    """The linger of all shards of one coordinator: what one has on its way delays all of them.

    They share the followers' fetches, so a batch of any partition is a reason to wait for company.
    """

    def __init__(self, linger_ms: int) -> None:
        self._linger_ms = linger_ms
        # Dicts for their order.
        self._gathered: dict[Hashable, Callable[[], None]] = {}
        self._on_their_way: dict[Hashable, None] = {}
        self._handle: asyncio.Handle | None = None
        self._is_soon = False

    def gathered(self, shard: Hashable, write: Callable[[], None]) -> None:
        """Note that the shard has something to write, with others if possible."""
        self._gathered[shard] = write
        if self._handle is not None:
            return
        if self._linger_ms != ADAPTIVE:
            self._write_in(self._linger_ms)
        elif self._on_their_way:
            self._write_in(_ADAPTIVE_MAX_MS)
        else:
            self._write_soon()

    def written(self, shard: Hashable) -> None:
        """Something of the shard's is on its way to the followers."""
        self._on_their_way[shard] = None

    def committed(self, shard: Hashable) -> None:
        """Note that nothing of the shard's is on its way any more."""
        self._on_their_way.pop(shard, None)
        if self._gathered and not self._on_their_way and self._linger_ms == ADAPTIVE:
            self._write_soon()

    def closed(self, shard: Hashable) -> None:
        """Note that the shard writes no more."""
        self._gathered.pop(shard, None)
        self.committed(shard)

    def _write_in(self, delay_ms: int) -> None:
        self._handle = asyncio.get_running_loop().call_later(delay_ms / 1000, self._write)

    def _write_soon(self) -> None:
        """Not at once: others of this turn of the loop come along."""
        if self._is_soon:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._is_soon = True
        self._handle = asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._handle, self._is_soon = None, False
        gathered, self._gathered = self._gathered, {}
        with contextlib.ExitStack() as writes:
            # Called in order when the block ends, also if one of them fails.
            for write in reversed(gathered.values()):
                writes.callback(write)
