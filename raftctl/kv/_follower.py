"""Requests that wait for keys and locks on this node: woken by committed images, no herd.

Every controller follows the log, so any of them can serve those who wait, and the active one is
spared. Who waits for a lock is woken when its own turn has come, or when its place in the queue is
gone; nobody else is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests.kv import NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.loader import MetadataLoader
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.image.coordination import KvWaiter

WAITING_MAX = 10_000
"""Requests of clients that wait for a lock or for a change on one node."""


class KvFollower:
    """A publisher of the loader. What it reports is committed, but may be behind other nodes."""

    def __init__(self, loader: MetadataLoader) -> None:
        self._loader = loader
        self._loop = asyncio.get_running_loop()
        self._changed: asyncio.Future[None] | None = None
        """Resolves with the next image; None while nobody waits for it."""
        self._locks: dict[str, dict[asyncio.Future[None], int | None]] = {}
        """Lock to who waits, with the token whose turn it waits for; None: for any change."""
        self._waiting = 0
        self._closed = False

    def close(self) -> None:
        """End all waiting, with KafkaError: BROKER_NOT_AVAILABLE; this node stops."""
        self._closed = True
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None
        for waiting in self._locks.values():
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node stops: ask another")

    @property
    def image(self) -> MetadataImage:
        """The newest committed image."""
        return self._loader.image

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Wake those whom the change concerns."""
        if self._changed is not None:
            changed, self._changed = self._changed, None
            changed.set_result(None)
        if self._locks and delta.coordination is not None:
            for lock in delta.coordination.changed_queues:
                self._wake(lock, image.coordination.queue(lock))

    def _wake(self, lock: str, queue: tuple[KvWaiter, ...]) -> None:
        tokens = [waiter.token for waiter in queue]
        for future, token in self._locks.get(lock, {}).items():
            its_turn = token is None or token not in tokens or token == tokens[0]
            if its_turn and not future.done():
                future.set_result(None)

    async def changed(self) -> None:
        """Return with the next image."""
        self._check_open()
        if self._changed is None:
            self._changed = self._loop.create_future()
        await asyncio.shield(self._changed)
        self._check_open()

    async def reached(self, offset: int) -> MetadataImage:
        """Return an image of this offset or a later one, as soon as there is one."""
        while self.image.offset < offset:
            await self.changed()
        return self.image

    async def turn(self, lock: str, token: int) -> KvWaiter | None:
        """Return when the place with this token holds the lock, with who holds it then.

        That is somebody else, or nobody, if the place is gone.
        """
        image = await self.reached(token)

        def waits() -> bool:
            queue = self.image.coordination.queue(lock)
            return any(waiter.token == token for waiter in queue[1:])

        if waits():
            await self._until(lock, token, lambda: not waits())
            image = self.image
        return image.coordination.holder(lock)

    async def another_holder(self, lock: str, token: int) -> None:
        """Return when the lock is not held with this token; `NO_TOKEN`: when it is held."""

        def is_other() -> bool:
            holder = self.image.coordination.holder(lock)
            return (NO_TOKEN if holder is None else holder.token) != token

        if not is_other():
            await self._until(lock, None, is_other)

    async def _until(self, lock: str, token: int | None, holds: Callable[[], bool]) -> None:
        """Raise KafkaError: THROTTLING_QUOTA_EXCEEDED if too many wait already."""
        if self._waiting >= WAITING_MAX:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many wait on this node")
        self._waiting += 1
        try:
            while not holds():
                await self._woken(lock, token)
        finally:
            self._waiting -= 1

    async def _woken(self, lock: str, token: int | None) -> None:
        self._check_open()
        future: asyncio.Future[None] = self._loop.create_future()
        self._locks.setdefault(lock, {})[future] = token
        try:
            await future
        finally:
            waiting = self._locks[lock]
            del waiting[future]
            if not waiting:
                del self._locks[lock]
