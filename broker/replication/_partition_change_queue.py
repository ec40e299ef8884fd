"""Replicas that are new to this broker, or changed, taken up a few at a time.

A topic may bring thousands at once, and each makes a directory and files; a broker that leaves
hands over the lead of as many. Meanwhile the loop must answer, and heartbeats must go out, or the
broker is fenced for its diligence.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from broker.types import TopicPartition
    from raftctl.metadata.image import PartitionImage

AT_ONCE = 20
"""So many new ones in one turn of the loop: some milliseconds."""
CHANGES_AT_ONCE = 250
"""So many that are here already: some 10 ms where all of them begin to lead."""


class PartitionChangeQueue:
    """Partitions to take up, each with the newest image of it, in the order they were told."""

    def __init__(
        self,
        take: Callable[[TopicPartition, UUID, PartitionImage], None],
        all_taken: Callable[[], None],
        at_once: int = AT_ONCE,
    ) -> None:
        """`all_taken` hears of each time that nothing waits any more."""
        self._at_once = at_once
        self._take = take
        self._all_taken = all_taken
        self._waiting: dict[TopicPartition, tuple[UUID, PartitionImage]] = {}
        self._more = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, partition: TopicPartition, topic_id: UUID, image: PartitionImage) -> None:
        """What was told of the partition before and still waits is out of date."""
        self._waiting[partition] = (topic_id, image)

    def forget(self, partition: TopicPartition, topic_id: UUID) -> None:
        """The partition is deleted, or moved away before it was taken up."""
        waiting = self._waiting.get(partition)
        if waiting is not None and waiting[0] == topic_id:
            del self._waiting[partition]

    def take_some(self) -> None:
        """Takes up the first that wait; `run` goes on with the others."""
        for partition in list(islice(self._waiting, self._at_once)):
            self._take(partition, *self._waiting.pop(partition))
        if self._waiting:
            self._more.set()
        else:
            self._more.clear()
            self._all_taken()

    async def run(self) -> None:
        """Takes up what waits, a turn of the loop for each few; until cancelled."""
        while True:
            await self._more.wait()
            self.take_some()
            await asyncio.sleep(0)
