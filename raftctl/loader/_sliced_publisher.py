"""A publisher whose work for a large change would keep the event loop too long for one turn."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from raftctl.failures import HandingTo, resolve
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.metadata.image import MetadataDelta, MetadataImage


class SlicedPublisher(ABC):
    """Follows the images of a loader in their order, some steps in each turn of the event loop."""

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        """`fail` ends the node."""
        self._fail = fail
        self._changes: deque[Iterator[None]] = deque()
        """Those that are not followed, the first perhaps in part."""
        self._idle: list[asyncio.Future[None]] = []

    @abstractmethod
    def follow(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        """Follow the change to `image`, one small step of it each time."""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take a change; a small one is followed at once."""
        self._changes.append(self.follow(delta, image))
        if len(self._changes) == 1:
            self._follow_some()

    async def followed(self) -> None:
        """Wait until all that was published is followed."""
        if self._changes:
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

    def _follow_some(self) -> None:
        with HandingTo(self._fail):
            slices = Slices()
            while self._changes:
                for _ in self._changes[0]:
                    if slices.is_over():
                        asyncio.get_running_loop().call_soon(self._follow_some)
                        return
                self._changes.popleft()
            idle, self._idle = self._idle, []
            for one in idle:
                resolve(one, None)
