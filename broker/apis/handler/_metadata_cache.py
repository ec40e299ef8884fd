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

    from broker.types import TopicPartition
    from raftctl.metadata.image import BrokerImage, MetadataImage
    from raftctl.metadata.records import Endpoint

_BODIES_MAX = 64
LISTED_FENCED_S = 3.0
"""The time for which a broker is still named after it was fenced. Some clients (librdkafka) lose
sight of partitions for a second if one answer says that their broker is gone and that they have
moved. They ask once a second while a leader does not answer, so this is time enough to hear the one
first: docs/decisions/0010."""


class MetadataCache:
    """One a broker. `image` is never None; before the first publish it is the empty one."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._bodies: dict[Hashable, bytes] = {}
        self._fenced: dict[int, asyncio.TimerHandle] = {}
        """The brokers that were fenced lately."""
        self._waiters: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[None]]] = []

    def publish(self, image: MetadataImage) -> None:
        """Replace the image by a newer one, and wake callers of `until` whose condition holds."""
        before, self.image = self.image, image
        if image.topics is not before.topics or image.brokers is not before.brokers:
            self._bodies.clear()
        if image.brokers is not before.brokers:
            self._note_fenced(before, image)
        waiters, self._waiters = self._waiters, []
        for condition, future in waiters:
            if future.done():
                continue
            if condition(image):
                future.set_result(None)
            else:
                self._waiters.append((condition, future))

    def has(self, partition: TopicPartition) -> bool:
        """Return True if the partition exists, as far as this broker knows."""
        return self.image.topics.partition(*partition) is not None

    async def until(self, condition: Callable[[MetadataImage], bool], timeout_ms: int) -> bool:
        """Wait for an image of which `condition` holds; return False if none came in time."""
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
        """Return the brokers that clients may use, in order of their ids, with their endpoints."""
        listed = self.listed_brokers(listener).items()
        return {broker_id: found for broker_id, found in listed if not found[0].fenced}

    def listed_brokers(self, listener: str) -> dict[int, tuple[BrokerImage, Endpoint]]:
        """Return the same, and those that were fenced lately; they lead nothing."""
        found = {}
        for broker_id in sorted(self.image.brokers):
            broker = self.image.brokers[broker_id]
            endpoint = broker.endpoint(listener)
            if endpoint is not None and (not broker.fenced or broker_id in self._fenced):
                found[broker_id] = (broker, endpoint)
        return found

    def hidden_brokers(self, listener: str) -> frozenset[int]:
        """Return the brokers that serve, but have no listener of this name."""
        return frozenset(
            broker_id
            for broker_id, broker in self.image.brokers.items()
            if not broker.fenced and broker.endpoint(listener) is None
        )

    def _note_fenced(self, before: MetadataImage, image: MetadataImage) -> None:
        for broker_id in sorted(before.brokers):
            now = image.brokers.get(broker_id)
            if before.brokers[broker_id].fenced or now is None or not now.fenced:
                continue
            if broker_id in self._fenced:
                self._fenced[broker_id].cancel()
            loop = asyncio.get_running_loop()
            self._fenced[broker_id] = loop.call_later(LISTED_FENCED_S, self._unlist, broker_id)

    def _unlist(self, broker_id: int) -> None:
        del self._fenced[broker_id]
        self._bodies.clear()

    def body(self, key: Hashable) -> bytes | None:
        """Return an encoded answer kept under this key, if it still holds."""
        return self._bodies.get(key)

    def keep_body(self, key: Hashable, body: bytes) -> None:
        """Keep an encoded answer until topics or brokers change."""
        if len(self._bodies) >= _BODIES_MAX:
            self._bodies.clear()
        self._bodies[key] = body
