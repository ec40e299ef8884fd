"""Brings partitions into line with who is active, a slice at a time (rows C2, C5, C13).

What follows from a broker's coming or going concerns every partition it has. Those may be hundreds
of thousands: more than a batch holds, and more work than may pass between two messages of the
quorum. So partitions are looked at in passes over all topics. The first slice of a pass belongs to
the operation that caused it, and in most clusters it is all of it; the others are due at once, one
at a tick, so that heartbeats and the quorum's messages come in between:

    fenced, unfenced, drained ──▶ begin ──first slice──▶ go_on ──▶ … ──▶ nothing is pending

Each slice starts from the newest image and applies the one rule for partitions, so that it does not
matter what else happened to them meanwhile. While a broker's pass is pending, its partitions may
still name it; so the broker is neither unfenced nor let go nor replaced by another incarnation
before that is over. Passes are soft state: an active controller begins with one over everything,
since it cannot know how far the last one came.

So do partitions follow other rules for all topics (`min.insync.replicas`,
`unclean.leader.election.enable`). Until they have, whoever is eligible to lead may be so by the old
rules alone. After one change of `min.insync.replicas` a partition itself shows that, so another
change of it has to wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from raftctl.controller.availability import availability
from raftctl.controller.partition_change import (
    TopicRules,
    change_record,
    elect,
    settled,
    without_eligible,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from raftctl.controller.availability import Availability
    from raftctl.controller.config import ControllerConfig
    from raftctl.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
    from raftctl.metadata.records import PartitionChangeRecord


class _Pass(NamedTuple):
    """Whose partitions are looked at; None for everybody's."""

    broker_ids: frozenset[int] | None
    forgetful: frozenset[int]
    """Those that may have lost what they had not flushed."""
    rules: bool = False
    """Whether how many must be in sync has changed, so that eligible leaders may be none."""

    def concerns(self, broker_id: int) -> bool:
        """Whether this broker's partitions are looked at."""
        return self.broker_ids is None or broker_id in self.broker_ids

    def joined(self, other: _Pass) -> _Pass:
        """One pass that does for both."""
        everybody = self.broker_ids is None or other.broker_ids is None
        both = (self.broker_ids or frozenset()) | (other.broker_ids or frozenset())
        forgetful = self.forgetful | other.forgetful
        return _Pass(None if everybody else both, forgetful, self.rules or other.rules)


_NOBODY = _Pass(frozenset(), frozenset())
_EVERYBODY = _Pass(None, frozenset(), rules=True)


class PartitionSettler:
    """The active controller's; between passes it holds nothing but what has been forgotten."""

    def __init__(self, config: ControllerConfig) -> None:
        self._defaults = config.topic_defaults
        self._looked_at_max = config.slice_looked_at_max
        self._changes_max = config.slice_changes_max
        self.stop()

    def start(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """Begins with a pass over everything; returns the changes of its first slice."""
        self._begin(image, _EVERYBODY)
        return self.go_on(image)

    def stop(self) -> None:
        """Nothing is pending."""
        self._topic_ids: deque[UUID] = deque()
        """Of the pass under way, those that are not done."""
        self._next_partition = 0
        """Of the first of them."""
        self._pass = _NOBODY
        self._waiting = _NOBODY
        """What has changed since the pass began, to be looked at by the next."""
        self._forgotten: dict[int, int] = {}
        """Broker id to the epoch of the incarnation that no partition counts on any more, or will
        not when nothing is pending."""

    @property
    def busy(self) -> bool:
        """Whether `go_on` has something to do."""
        return bool(self._topic_ids)

    def is_pending(self, broker_id: int) -> bool:
        """Whether partitions may still be as they were before the broker's last change."""
        return self.busy and (self._pass.concerns(broker_id) or self._waiting.concerns(broker_id))

    @property
    def follows_rules(self) -> bool:
        """Whether partitions may still be as other rules had them."""
        return self.busy and (self._pass.rules or self._waiting.rules)

    def has_forgotten(self, broker: BrokerImage) -> bool:
        """Whether `begin` was told that this incarnation is forgetful."""
        return self._forgotten.get(broker.broker_id) == broker.broker_epoch

    def begin(
        self,
        image: MetadataImage,
        becoming_active: Mapping[int, bool],
        *,
        forgetful: BrokerImage | None = None,
    ) -> list[PartitionChangeRecord]:
        """What follows first when these brokers become active, or cease to be.

        That of the image's brokers is to change in the same batch; so everything that follows
        stands in that batch if it fits into a slice. The incarnation `forgetful` ends, and the
        next one may lack what this one had not flushed.
        """
        begun = _Pass(frozenset(becoming_active), frozenset())
        if forgetful is not None:
            self._forgotten[forgetful.broker_id] = forgetful.broker_epoch
            begun = begun._replace(forgetful=frozenset((forgetful.broker_id,)))
        if self.busy:
            self._waiting = self._waiting.joined(begun)
            return []
        self._begin(image, begun)
        return self._slice(image, availability(image).after(becoming_active))

    def directories_failed(
        self, image: MetadataImage, broker_id: int, offline: Collection[UUID]
    ) -> list[PartitionChangeRecord]:
        """What follows first when these log directories of a broker have failed (KIP-858).

        Those of the image's broker are to change in the same batch.
        """
        begun = _Pass(frozenset((broker_id,)), frozenset())
        if self.busy:
            self._waiting = self._waiting.joined(begun)
            return []
        self._begin(image, begun)
        return self._slice(image, availability(image).without(broker_id, offline))

    def rules_changed(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """What follows first from other rules for all topics, which are those of the image.

        The rules are to change in the same batch.
        """
        if self.busy:
            self._waiting = self._waiting.joined(_EVERYBODY)
            return []
        return self.start(image)

    def go_on(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """The changes of the next slice; there may be none although more slices follow."""
        return self._slice(image, availability(image)) if self.busy else []

    def _begin(self, image: MetadataImage, begun: _Pass) -> None:
        # In the order of the ids' hashes, which are those of numbers: the same in every process.
        self._topic_ids = deque(image.topics.topics)
        self._next_partition = 0
        self._pass, self._waiting = begun, _NOBODY

    def _slice(self, image: MetadataImage, available: Availability) -> list[PartitionChangeRecord]:
        rules = TopicRules(image, self._defaults)
        records: list[PartitionChangeRecord] = []
        room = self._looked_at_max
        while self._topic_ids and room > 0 and len(records) < self._changes_max:
            topic = image.topics.by_id(self._topic_ids[0])
            count = 0 if topic is None else len(topic.partitions)
            begin, end = self._next_partition, min(count, self._next_partition + room)
            room -= end - begin + 1
            self._next_partition = end
            if topic is not None:
                self._look(topic, begin, end, available, rules, records)
            if self._next_partition >= count:
                self._topic_ids.popleft()
                self._next_partition = 0
        if not self._topic_ids and self._waiting != _NOBODY:
            self._begin(image, self._waiting)
        return records

    def _look(
        self,
        topic: TopicImage,
        begin: int,
        end: int,
        available: Availability,
        rules: TopicRules,
        records: list[PartitionChangeRecord],
    ) -> None:
        """Looks at partitions from `begin` until `end`, or until there are changes enough."""
        partitions, wanted = topic.partitions, self._pass.broker_ids
        concerned: Iterable[int] = range(begin, end)
        if wanted is not None:
            concerned = [i for i in concerned if not wanted.isdisjoint(partitions[i].replicas)]
        for partition_id in concerned:
            if len(records) >= self._changes_max:
                self._next_partition = partition_id
                return
            partition = partitions[partition_id]
            active = available.replicas_of(partition)
            record = self._change(topic, partition_id, partition, active, rules)
            if record is not None:
                records.append(record)

    def _change(
        self,
        topic: TopicImage,
        partition_id: int,
        partition: PartitionImage,
        active: frozenset[int],
        rules: TopicRules,
    ) -> PartitionChangeRecord | None:
        unclean, min_isr = rules.of(topic.name)
        forgetful = self._pass.forgetful
        if forgetful:
            forgetful = forgetful.intersection(partition.isr + partition.elr)
        may_be_stale = self._pass.rules and partition.elr
        if not may_be_stale and (not forgetful or not min_isr):
            return elect(
                topic.topic_id, partition_id, partition, active, unclean=unclean, min_isr=min_isr
            )
        after = settled(partition, active, rules.of(topic.name))
        if min_isr:
            after = without_eligible(after, forgetful)
        return change_record(topic.topic_id, partition_id, partition, after)
