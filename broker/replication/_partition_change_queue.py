"""Changes of partitions from the image, applied a few at a time.

A topic may bring thousands of replicas at once, each with a directory and files to make. A broker
that leaves hands over the lead of as many. Between a few of them other tasks must run: without
heartbeats the broker would be fenced.
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
"""The number of new replicas in one turn of the loop: some milliseconds."""
CHANGES_AT_ONCE = 250
"""The number of changes to replicas that are here: some 10 ms if all of them begin to lead."""


class PartitionChangeQueue:
    """Partitions to change, each with its newest image, in the order of their first change."""

    def __init__(
        self,
        take: Callable[[TopicPartition, UUID, PartitionImage], None],
        all_taken: Callable[[], None],
        at_once: int = AT_ONCE,
    ) -> None:
        """`take` applies one change; `all_taken` is called each time the queue becomes empty."""
        self._at_once = at_once
        self._take = take
        self._all_taken = all_taken
        self._waiting: dict[TopicPartition, tuple[UUID, PartitionImage]] = {}
        self._more = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, partition: TopicPartition, topic_id: UUID, image: PartitionImage) -> None:
        """Add a change; an earlier one of the same partition is out of date."""
        self._waiting[partition] = (topic_id, image)

    def forget(self, partition: TopicPartition, topic_id: UUID) -> None:
        """Drop the change of a partition that is deleted, or that has moved away."""
        waiting = self._waiting.get(partition)
        if waiting is not None and waiting[0] == topic_id:
            del self._waiting[partition]

    def take_some(self) -> None:
        """Apply the first changes; `run` goes on with the others."""
        for partition in list(islice(self._waiting, self._at_once)):
            self._take(partition, *self._waiting.pop(partition))
        if self._waiting:
            self._more.set()
        else:
            self._more.clear()
            self._all_taken()

    async def run(self) -> None:
        """Apply the waiting changes, a few in each turn of the loop; until cancelled."""
        while True:
            await self._more.wait()
            self.take_some()
            await asyncio.sleep(0)
