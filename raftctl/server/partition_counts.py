"""How many partitions there are, are led and are kept by whom, without looking at all of them.

A publisher of the loader: each image's counts are the last one's and what its delta changed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raftctl.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from raftctl.metadata.delta import MetadataDelta
    from raftctl.metadata.image import MetadataImage, PartitionImage


class PartitionCounts:
    """The counts of the newest committed image."""

    def __init__(self) -> None:
        self.partitions = 0
        self.offline = 0
        """Without a leader."""
        self.under_replicated = 0
        """With an ISR smaller than the assignment."""
        self.leaders: Counter[int] = Counter()
        """Broker id to how many partitions it leads."""
        self.replicas: Counter[int] = Counter()
        """Broker id to how many replicas are assigned to it."""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follows the change to `image`."""
        for topic in delta.deleted_topics.values():
            for partition in topic.partitions.values():
                self._remove(partition)
        for change in delta.changed_topics.values():
            known = {} if change.before is None else change.before.partitions
            for partition_id, after in change.partitions.items():
                before = known.get(partition_id)
                if before is None:
                    self._add(after)
                elif before.replicas == after.replicas:
                    self._change(before, after)
                else:
                    self._remove(before)
                    self._add(after)

    def _add(self, partition: PartitionImage) -> None:
        self.partitions += 1
        self.under_replicated += len(partition.isr) < len(partition.replicas)
        self._led(partition.leader, 1)
        for broker_id in partition.replicas:
            self.replicas[broker_id] += 1

    def _remove(self, partition: PartitionImage) -> None:
        self.partitions -= 1
        self.under_replicated -= len(partition.isr) < len(partition.replicas)
        self._led(partition.leader, -1)
        for broker_id in partition.replicas:
            self.replicas[broker_id] -= 1

    def _change(self, before: PartitionImage, after: PartitionImage) -> None:
        count = len(after.replicas)
        self.under_replicated += (len(after.isr) < count) - (len(before.isr) < count)
        if before.leader != after.leader:
            self._led(before.leader, -1)
            self._led(after.leader, 1)

    def _led(self, leader: int, count: int) -> None:
        if leader == NO_LEADER:
            self.offline += count
        else:
            self.leaders[leader] += count
