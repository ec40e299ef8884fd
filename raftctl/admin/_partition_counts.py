"""How many partitions there are, are led and are kept by whom, without looking at all of them.

A publisher of the loader: each image's counts are the last one's and what its delta changed. Where
that is much, as for who joins or is sent a snapshot, the counts follow a part in each turn of the
event loop.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raftctl.loader import SlicedPublisher
from raftctl.metadata.records import NO_LEADER
from raftctl.metrics import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.metadata.image import MetadataDelta, MetadataImage, PartitionImage, TopicDelta


class PartitionCounts(SlicedPublisher):
    """The counts of the newest committed image, or of one shortly before."""

    def __init__(
        self, fail: Callable[[BaseException], None], is_active: Callable[[], bool] = lambda: True
    ) -> None:
        """`fail` ends the node. `is_active` says whether it is the controller: others count no
        elections.
        """
        super().__init__(fail)
        self._is_active = is_active
        self.partitions = 0
        self.offline = 0
        """Without a leader."""
        self.under_replicated = 0
        """With an ISR smaller than the assignment."""
        self.leaders: Counter[int] = Counter()
        """Broker id to how many partitions it leads."""
        self.replicas: Counter[int] = Counter()
        """Broker id to how many replicas are assigned to it."""

        self.elections = Meter()
        """How often a partition has got another leader, while this node was the controller."""
        self.unclean_elections = Meter()
        """Those whose leader may lack committed records."""

    def follow(self, delta: MetadataDelta, _image: MetadataImage) -> Iterator[None]:
        """Count what changed, a topic in each step."""
        for topic in delta.deleted_topics.values():
            for partition in topic.partitions.values():
                self._remove(partition)
            yield
        for change in delta.changed_topics.values():
            self._follow_topic(change)
            yield

    def _follow_topic(self, change: TopicDelta) -> None:
        """Count what changed in a topic."""
        known = {} if change.before is None else change.before.partitions
        for partition_id, after in change.changes():
            before = known.get(partition_id)
            if before is None:
                self._add(after)
                continue
            if before.replicas == after.replicas:
                self._change(before, after)
            else:
                self._remove(before)
                self._add(after)
            if after.leader not in (before.leader, NO_LEADER) and self._is_active():
                self.elections.count += 1
                is_clean = after.leader in (*before.isr, *before.elr)
                self.unclean_elections.count += after.leader_recovering and not is_clean

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
