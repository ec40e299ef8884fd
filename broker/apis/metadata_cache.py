"""The newest published image as the apis use it, and what is derived from it.

Encoded Metadata answers are kept as long as neither topics nor brokers changed: clients ask the
same again and again, and encoding is most of the work.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.metadata.image import EMPTY_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from raftctl.metadata.image import BrokerImage, MetadataImage
    from raftctl.metadata.records import Endpoint

_BODIES_MAX = 64


class MetadataCache:
    """One a broker. `image` is never None; before the first publish it is the empty one."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._bodies: dict[Hashable, bytes] = {}
        self._waiters: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[None]]] = []

    def publish(self, image: MetadataImage) -> None:
        """Takes a newer image and wakes those who waited for what it holds."""
        before, self.image = self.image, image
        if image.topics is not before.topics or image.brokers is not before.brokers:
            self._bodies.clear()
        waiters, self._waiters = self._waiters, []
        for condition, future in waiters:
            if future.done():
                continue
            if condition(image):
                future.set_result(None)
            else:
                self._waiters.append((condition, future))

    async def until(self, condition: Callable[[MetadataImage], bool], timeout_ms: int) -> bool:
        """Waits for an image of which `condition` holds; False if none came in time."""
        if condition(self.image):
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((condition, future))
        try:
            await asyncio.wait_for(future, max(timeout_ms, 0) / 1000)
        except TimeoutError:
            return False
        return True

    def live_brokers(self, listener: str) -> dict[int, tuple[BrokerImage, Endpoint]]:
        """The brokers that clients may use, in order of their ids, with their endpoints."""
        found = {}
        for broker_id in sorted(self.image.brokers):
            broker = self.image.brokers[broker_id]
            endpoint = broker.endpoint(listener)
            if endpoint is not None and not broker.fenced:
                found[broker_id] = (broker, endpoint)
        return found

    def body(self, key: Hashable) -> bytes | None:
        """An encoded answer kept under this key, if it still holds."""
        return self._bodies.get(key)

    def keep_body(self, key: Hashable, body: bytes) -> None:
        """Keeps an encoded answer until topics or brokers change."""
        if len(self._bodies) >= _BODIES_MAX:
            self._bodies.clear()
        self._bodies[key] = body
