"""Partition reconciler: partitions follow the available brokers, a slice at a time.

What a broker's start or stop changes concerns every partition it has a replica of. Those may be
hundreds of thousands: more than a batch holds, and more work than may pass between two messages
of the quorum. So a *pass* examines partitions in *slices*. The first slice of a pass belongs to
the operation that caused it, and in most clusters it is all of it. The others are due at once,
one at a tick, so that heartbeats and the quorum's messages come in between:

    fenced, unfenced, drained ──▶ begin ──first slice──▶ next_slice ──▶ … ──▶ nothing pending

A pass has two rounds over all topics. The first finds the partitions that need another leader,
since clients wait for these. The second finds all others that are concerned; most of them lose or
regain a follower. The leader round of a new pass goes before the second round of earlier passes,
since a partition without a leader is worse than an ISR that is too large:

    begin ──▶ leaders ──another pass waits──▶ leaders ──▶ others ──▶ …
                 ▲                                          │
                 └──────────── begin, meanwhile ────────────┘

Each slice starts from the newest image and applies the one rule for partitions, so other changes
made meanwhile do no harm. While a broker's pass is pending, its partitions may still name it. So
the broker is neither unfenced, nor allowed to stop, nor replaced by another incarnation before the
pass is over. A broker thus starts few passes before all are done, and no pass waits for ever.

Passes are soft state. A controller that becomes active starts with one over all partitions, since
it cannot know how far the pass of its predecessor came.

Rules that change for all topics (`min.insync.replicas`, `unclean.leader.election.enable`) start a
pass as well. Until it is over, a replica may be eligible to lead by the old rules alone. After one
change of `min.insync.replicas` a partition itself shows that, so another change has to wait.

Sources: KIP-631 (fencing), KIP-841 (controlled shutdown), KIP-858 (log directories), KIP-966
(unclean shutdown).
"""

from __future__ import annotations

from collections import deque
from functools import reduce
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.codec import maker
from raftctl.controller.partitions._availability import availability
from raftctl.controller.partitions._partition_change import (
    TopicRules,
    change_record,
    elect,
    reconciled,
    without_eligible_leaders,
)
from raftctl.errors import invariant
from raftctl.ids import ZERO_UUID
from raftctl.metadata.image import PartitionImage
from raftctl.metadata.records import NO_LEADER, PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from raftctl.controller._config import ControllerConfig
    from raftctl.controller.partitions._availability import Availability
    from raftctl.controller.partitions._partition_change import ElectionRules
    from raftctl.metadata.image import BrokerImage, MetadataImage, TopicImage

    NumberedPartitions = Iterable[tuple[int, PartitionImage]]
    """Partitions of a topic with their ids."""

Change = tuple[Any, ...]
"""The fields of a PartitionChangeRecord after its ids."""
KNOWN_MAX = 1 << 14
"""Decisions that the cache keeps; a cluster of millions of partitions has a few thousand."""
_AFTER_EPOCHS = PartitionImage._fields.index("partition_epoch") + 1
_IDS = 2
_change_of: Callable[[PartitionChangeRecord], Change] = attrgetter(
    *PartitionChangeRecord.__slots__[_IDS:]
)
_make_records = maker(PartitionChangeRecord)


# --- one decision for all partitions that are alike -----------------------------------------------


class PartitionChangeCache:
    """Changes of partitions under fixed circumstances, decided once for all that are alike.

    Many partitions have the same replicas, ISR and leader: among millions a few thousand differ.
    The rule ignores a partition's ids and epochs, so one decision serves all of them.
    """

    def __init__(
        self, available: Availability, unclean_brokers: frozenset[int], *, rules: bool
    ) -> None:
        """Decide for these available brokers.

        `unclean_brokers` may have lost records that they had not flushed. `rules`: the minimum of
        in-sync replicas has changed, so replicas that were eligible to lead may be so no more.
        """
        self._available = available
        self._unclean_brokers = unclean_brokers
        self._rules_changed = rules
        self._known: dict[Any, Change | None] = {}

    def is_for(
        self, available: Availability, unclean_brokers: frozenset[int], *, rules: bool
    ) -> bool:
        """Return whether the decisions hold under these circumstances."""
        known = (self._available, self._unclean_brokers, self._rules_changed)
        return known == (available, unclean_brokers, rules)

    def change_of(self, partition: PartitionImage, rules: ElectionRules) -> Change | None:
        """Return the change that reconciles the partition; None if it needs none."""
        alike = (partition[:3], partition[_AFTER_EPOCHS:], rules)
        try:
            return self._known[alike]
        except KeyError:
            # Cleared as a whole: to track the oldest would cost more than to decide again.
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            record = self._decide(partition, rules)
            change = self._known[alike] = None if record is None else _change_of(record)
            return change

    def _decide(
        self, partition: PartitionImage, rules: ElectionRules
    ) -> PartitionChangeRecord | None:
        unclean, min_isr = rules
        active = self._available.replicas_of(partition)
        lossy = self._unclean_brokers.intersection(partition.isr + partition.elr)
        may_be_stale = self._rules_changed and partition.elr
        if not may_be_stale and (not lossy or not min_isr):
            return elect(ZERO_UUID, 0, partition, active, unclean=unclean, min_isr=min_isr)
        after = reconciled(partition, active, rules)
        if min_isr:
            # Without eligible leaders a lossy replica may stay the last member of the ISR: the
            # partition then waits for it, as Kafka did before KIP-966.
            after = without_eligible_leaders(after, lossy)
        return change_record(ZERO_UUID, 0, partition, after)


# --- passes, rounds and slices --------------------------------------------------------------------


class _Pass(NamedTuple):
    """Scope of one or several passes: whose partitions are examined, and why."""

    broker_ids: frozenset[int] | None
    """Brokers whose partitions are examined; None for all partitions."""
    unclean_brokers: frozenset[int]
    """Brokers that may have lost records that they had not flushed."""
    rules: bool = False
    """True if the minimum of in-sync replicas has changed."""

    def concerns(self, broker_id: int) -> bool:
        """Return whether this broker's partitions are examined."""
        return self.broker_ids is None or broker_id in self.broker_ids

    def union(self, other: _Pass) -> _Pass:
        """Return the pass that does the work of both."""
        everywhere = self.broker_ids is None or other.broker_ids is None
        both = (self.broker_ids or frozenset()) | (other.broker_ids or frozenset())
        unclean = self.unclean_brokers | other.unclean_brokers
        return _Pass(None if everywhere else both, unclean, self.rules or other.rules)


_NO_BROKERS = _Pass(frozenset(), frozenset())
_ALL_BROKERS = _Pass(None, frozenset(), rules=True)


class _Round:
    """One walk over all topics for a pass: over its leaders, or over all that it concerns."""

    def __init__(self, scope: _Pass, image: MetadataImage, *, leaders: bool) -> None:
        self.scope = scope
        self.leaders = leaders
        # In the order of the ids' hashes, which are those of numbers: the same in every process.
        self.topic_ids = deque(image.topics.topics)
        """Topics that are not done."""
        self.next_partition = 0
        """First partition of the first of them that is not done."""

    def concerned(
        self, partitions: NumberedPartitions, active: frozenset[int]
    ) -> NumberedPartitions:
        """Return the partitions that this round decides on."""
        brokers = self.scope.broker_ids
        if brokers is None:
            return (
                [item for item in partitions if item[1].leader not in active]
                if self.leaders
                else partitions
            )
        if not self.leaders:
            return [item for item in partitions if not brokers.isdisjoint(item[1].replicas)]
        without = brokers | {NO_LEADER}
        led = [item for item in partitions if item[1].leader in without]
        return [item for item in led if not brokers.isdisjoint(item[1].replicas)]


class _Slice:
    """Changes of one tick; no partition twice, since each change starts from the same image."""

    def __init__(
        self,
        image: MetadataImage,
        active: frozenset[int],
        rules: TopicRules,
        cache: PartitionChangeCache,
    ) -> None:
        self.image = image
        self.active = active
        self._rules = rules
        self._cache = cache
        self._changed: dict[UUID, dict[int, Change]] = {}
        self.count = 0

    def decide(
        self, topic: TopicImage, concerned: NumberedPartitions, changes_max: int
    ) -> int | None:
        """Decide on partitions of a topic, up to `changes_max` changes in the slice.

        Return the id of the first partition for which there is no room; None if all have room.
        """
        changed = self._changed.setdefault(topic.topic_id, {})
        rules = self._rules.of(topic.name)
        for partition_id, partition in concerned:
            if self.count >= changes_max:
                return partition_id
            change = self._cache.change_of(partition, rules)
            if change is not None and partition_id not in changed:
                changed[partition_id] = change
                self.count += 1
        return None

    def records(self) -> list[PartitionChangeRecord]:
        """Return the changes, in the order in which they were decided."""
        if not self.count:
            return []
        rows = [
            (topic_id, partition_id, *change)
            for topic_id, changed in self._changed.items()
            for partition_id, change in changed.items()
        ]
        return _make_records([*zip(*rows, strict=True)])


def _check_available(image: MetadataImage) -> None:
    available = availability(image)
    for topic in image.topics.topics.values():
        for partition in topic.partitions.values():
            online = available.replicas_of(partition)
            if partition.leader == NO_LEADER:
                idle = online.isdisjoint(partition.isr + partition.elr)
                invariant(idle, "a partition that has a replica to lead it has a leader")
            else:
                invariant(online.issuperset(partition.isr), "the ISR is available, with its leader")


class PartitionReconciler:
    """Passes of the active controller; between passes only unclean incarnations are kept."""

    def __init__(self, config: ControllerConfig) -> None:
        self._defaults = config.topic_defaults
        self._examined_max = config.slice_examined_max
        self._changes_max = config.slice_changes_max
        self.clear()

    def reconcile_all(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """Start a pass over all partitions; return the changes of its first slice."""
        return self._begin(image, _ALL_BROKERS, availability(image))

    def reconcile_topics(
        self, image: MetadataImage, topics: Iterable[TopicImage]
    ) -> list[PartitionChangeRecord]:
        """Return the changes that make these topics' partitions follow the rules of the image.

        All of them at once, without a pass: a topic stands in one batch with its configs.
        """
        rules = TopicRules(image, self._defaults)
        available = availability(image)
        records = []
        for topic in topics:
            for partition_id, partition in topic.items():
                after = reconciled(
                    partition, available.replicas_of(partition), rules.of(topic.name)
                )
                record = change_record(topic.topic_id, partition_id, partition, after)
                records += [] if record is None else [record]
        return records

    def clear(self) -> None:
        """Drop all passes."""
        self._leaders: _Round | None = None
        """The round for leaders that is under way."""
        self._others: _Round | None = None
        """The round for all others that is under way."""
        self._next_leaders = _NO_BROKERS
        """Passes that have begun since the round for leaders did."""
        self._next_others = _NO_BROKERS
        """Passes whose leaders are done, but not all others."""
        self._cache: PartitionChangeCache | None = None
        """Decisions of the newest slice."""
        self._unclean_epochs: dict[int, int] = {}
        """Broker id to the epoch of the incarnation that stopped uncleanly. No partition takes it
        for an eligible leader any more, or none will when nothing is pending."""

    @property
    def busy(self) -> bool:
        """True if `next_slice` has something to do."""
        return self._leaders is not None or self._others is not None

    def invariants(self, image: MetadataImage) -> None:
        """Check the passes; with none pending, that each partition is as the rule has it."""
        waits = self._next_leaders == _NO_BROKERS or self._leaders is not None
        invariant(waits, "a pass waits for its leaders only while another one does")
        waits = self._next_others == _NO_BROKERS or self._others is not None
        invariant(waits, "a pass waits for the others only while another one does")
        for under_way in (self._leaders, self._others):
            whole = under_way is None or under_way.topic_ids or not under_way.next_partition
            invariant(bool(whole), "a round without topics is at the beginning")
        for broker_id, broker_epoch in self._unclean_epochs.items():
            broker = image.brokers.get(broker_id)
            later = broker is None or broker.broker_epoch >= broker_epoch
            invariant(later, "an incarnation that has ended is not one to come")
        if not self.busy:
            _check_available(image)

    def is_pending(self, broker_id: int) -> bool:
        """Return whether partitions may still be as they were before the broker's last change."""
        return self._pending().concerns(broker_id)

    @property
    def rules_pending(self) -> bool:
        """True if partitions may still follow the rules of before."""
        return self._pending().rules

    def _pending(self) -> _Pass:
        """Return the union of all passes that are not over."""
        rounds = (self._leaders, self._others)
        under_way = [walk.scope for walk in rounds if walk is not None]
        return reduce(_Pass.union, [*under_way, self._next_leaders, self._next_others])

    def has_ended_uncleanly(self, broker: BrokerImage) -> bool:
        """Return whether `begin` was called for the unclean end of this incarnation."""
        return self._unclean_epochs.get(broker.broker_id) == broker.broker_epoch

    def begin(
        self,
        image: MetadataImage,
        becoming_active: Mapping[int, bool],
        *,
        unclean_shutdown: BrokerImage | None = None,
    ) -> list[PartitionChangeRecord]:
        """Start a pass for brokers that become active (True) or inactive (False).

        Return the changes of the first slice. The caller writes them in one batch with the change
        of the brokers, so whatever fits into a slice takes effect together. The incarnation
        `unclean_shutdown` ends, and the next one may lack records that this one had not flushed.
        """
        begun = _Pass(frozenset(becoming_active), frozenset())
        if unclean_shutdown is not None:
            self._unclean_epochs[unclean_shutdown.broker_id] = unclean_shutdown.broker_epoch
            begun = begun._replace(unclean_brokers=frozenset((unclean_shutdown.broker_id,)))
        return self._begin(image, begun, availability(image).after(becoming_active))

    def directories_failed(
        self, image: MetadataImage, broker_id: int, offline: Collection[UUID]
    ) -> list[PartitionChangeRecord]:
        """Start a pass for log directories of a broker that have failed (KIP-858).

        Return the changes of the first slice. The caller writes them in one batch with the change
        of the broker's directories.
        """
        begun = _Pass(frozenset((broker_id,)), frozenset())
        return self._begin(image, begun, availability(image).without(broker_id, offline))

    def next_slice(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """Return the changes of the next slice; there may be none although more slices follow."""
        return self._slice(image, availability(image)) if self.busy else []

    def _begin(
        self, image: MetadataImage, begun: _Pass, available: Availability
    ) -> list[PartitionChangeRecord]:
        if self._leaders is not None:
            self._next_leaders = self._next_leaders.union(begun)
            return []
        self._leaders = _Round(begun, image, leaders=True)
        return self._slice(image, available)

    def _slice(self, image: MetadataImage, available: Availability) -> list[PartitionChangeRecord]:
        # The causes of all passes are taken together: what one of them requires is right for every
        # partition, and a partition that two passes concern is changed once.
        _, unclean_brokers, rules = self._pending()
        cache = self._cache
        if cache is None or not cache.is_for(available, unclean_brokers, rules=rules):
            cache = PartitionChangeCache(available, unclean_brokers, rules=rules)
            self._cache = cache
        changes = _Slice(image, available.active, TopicRules(image, self._defaults), cache)
        room = self._examined_max
        while room > 0 and changes.count < self._changes_max:
            under_way = self._leaders or self._others
            if under_way is None:
                self._cache = None
                break
            if under_way.topic_ids:
                room -= self._examine(under_way, changes, room)
            if not under_way.topic_ids:
                self._end(under_way, image)
        return changes.records()

    def _examine(self, under_way: _Round, changes: _Slice, room: int) -> int:
        """Examine up to `room` partitions of the next topic, or until the slice is full.

        Return the number examined, and one for the topic: millions of topics with few partitions
        must not make a slice endless.
        """
        topic = changes.image.topics.by_id(under_way.topic_ids[0])
        begin, stop = under_way.next_partition, None
        count = 0 if topic is None else len(topic.partitions)
        end = min(count, begin + room)
        if topic is not None:
            numbers = range(begin, end)
            # A whole topic in the order of the hash trie: half the time of one look-up each.
            examined: NumberedPartitions = topic.partitions.items()
            if len(numbers) < count:
                examined = zip(numbers, map(topic.partitions.__getitem__, numbers), strict=True)
            concerned = sorted(under_way.concerned(examined, changes.active))
            if concerned:
                stop = changes.decide(topic, concerned, self._changes_max)
        under_way.next_partition = end if stop is None else stop
        if under_way.next_partition >= count:
            under_way.topic_ids.popleft()
            under_way.next_partition = 0
        return end - begin + 1

    def _end(self, ended: _Round, image: MetadataImage) -> None:
        """Begin the round that follows this one, if any does."""
        if ended is self._leaders:
            self._leaders = None
            self._next_others = self._next_others.union(ended.scope)
            if self._next_leaders != _NO_BROKERS:
                self._leaders = _Round(self._next_leaders, image, leaders=True)
                self._next_leaders = _NO_BROKERS
        else:
            self._others = None
        if self._others is None and self._next_others != _NO_BROKERS:
            self._others = _Round(self._next_others, image, leaders=False)
            self._next_others = _NO_BROKERS
