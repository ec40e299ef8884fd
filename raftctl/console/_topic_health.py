"""How well each topic is, without looking at all partitions for each question.

A publisher of the loader, from the first question on: a node whose console nobody opens does
nothing for it. Each image's counts are the last one's and what its delta changed. Where that is
much, a part is counted in each turn of the event loop.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from raftctl.loader import SlicedPublisher
from raftctl.metadata.configs.topic import TOPIC_KEYS, broker_topic_defaults
from raftctl.metadata.records import BROKER_RESOURCE, NO_LEADER, TOPIC_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from uuid import UUID

    from raftctl.loader import MetadataLoader
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataDelta, MetadataImage, PartitionImage, TopicImage

MIN_ISR = "min.insync.replicas"
_SHARED_MAX = 10_000


class Condition(IntEnum):
    """What a partition may be that an operator should know of; the number is a place in counts."""

    OFFLINE = 0
    """It has no leader."""
    UNDER_MIN_ISR = 1
    """Its ISR is too small for a produce with acks=all."""
    UNDER_REPLICATED = 2
    """Its ISR lacks a replica."""
    NOT_PREFERRED = 3
    """It has a leader, which is not its first replica."""
    REASSIGNING = 4


Counts = tuple[int, int, int, int, int]
"""The number of partitions in each `Condition`."""


class TopicHealth(NamedTuple):
    """A topic's partitions in numbers. Equal ones are one object: most topics are well."""

    partitions: int
    replication_factor: int
    """Of its first partition, without those that a reassignment adds."""
    min_isr: int
    """`min.insync.replicas` in force."""
    counts: Counts

    def count(self, condition: Condition) -> int:
        """Return the number of partitions in a condition."""
        return self.counts[condition]

    @property
    def has_problem(self) -> bool:
        """True if a partition cannot be written to, or lacks a replica."""
        return any(self.counts[: Condition.NOT_PREFERRED])


def conditions(partition: PartitionImage, min_isr: int) -> Counts:
    """Return 1 for each condition in which a partition is, else 0."""
    replicas, leader, in_sync = partition.replicas, partition.leader, len(partition.isr)
    return (
        int(leader == NO_LEADER),
        int(in_sync < min(min_isr, len(replicas))),
        int(in_sync < len(replicas)),
        int(leader not in (NO_LEADER, replicas[0])),
        int(bool(partition.adding_replicas or partition.removing_replicas)),
    )


class ClusterHealth(SlicedPublisher):
    """The health of all topics of the newest image, or of one shortly before."""

    def __init__(
        self, loader: MetadataLoader, static: TopicConfig, fail: Callable[[BaseException], None]
    ) -> None:
        """`static` has the values of a topic by this node's file; `fail` ends the node."""
        super().__init__(fail)
        self._loader = loader
        self._static = static
        self._is_following = False
        self.begun: Callable[[], None] = lambda: None
        """Called once, when the first question comes."""
        self._shared: dict[TopicHealth, TopicHealth] = {}
        self._min_isr = 0
        """Of a topic without an override; 0 before the first image."""
        self.topics: dict[UUID, TopicHealth] = {}
        self.partitions = 0
        self.counts: Counts = (0, 0, 0, 0, 0)
        """Partitions of the cluster in each condition."""
        self.since: tuple[dict[UUID, int | None], ...] = tuple({} for _ in Condition)
        """For each condition the topics with such partitions, the oldest first, and since when.
        None: it was so when this began to follow."""
        self.fenced_since: dict[int, int | None] = {}
        """Broker id of each that is fenced to since when; None as above."""
        self.leaders: Counter[int] = Counter()
        """Broker id to how many partitions it leads, and NO_LEADER to how many nobody leads."""
        self._assignments: Counter[tuple[int, ...]] = Counter()
        """Replicas of a partition to how many have the same: few thousands of 100,000."""

    async def current(self) -> MetadataImage:
        """Return the newest image once everything of it is counted."""
        if not self._is_following:
            self._is_following = True
            self._loader.add_publisher(self)
            self.begun()
        await self.followed()
        return self._loader.image

    def fill_since(
        self,
        topic_since: Callable[[UUID, Condition], int | None],
        fenced_since: Callable[[int], int | None],
    ) -> None:
        """Take times at which began what was so when this began to follow."""
        for condition in Condition:
            known = self.since[condition]
            for topic_id in [one for one, at in known.items() if at is None]:
                known[topic_id] = topic_since(topic_id, condition)
        for broker_id in [one for one, at in self.fenced_since.items() if at is None]:
            self.fenced_since[broker_id] = fenced_since(broker_id)

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        """Count what changed, a topic in each step."""
        since = None if delta.image.offset < 0 else image.timestamp_ms
        for broker_id, broker in delta.changed_brokers.items():
            if broker is None or not broker.fenced:
                self.fenced_since.pop(broker_id, None)
            else:
                self.fenced_since.setdefault(broker_id, since)
        for topic in delta.deleted_topics.values():
            self._place(topic.partitions.values(), -1)
            self._set(topic.topic_id, None, since)
            yield
        again = self._with_other_configs(delta, image)
        for topic_id, change in delta.changed_topics.items():
            topic, before = image.topics.topics[topic_id], change.before
            if before is None or topic_id in again:
                if before is not None:
                    self._place(before.partitions.values(), -1)
                self._place(topic.partitions.values(), 1)
                self._set(topic_id, self._look_at(topic, image), since)
            else:
                self._set(topic_id, self._changed(before, change.changes()), since)
            again.discard(topic_id)
            yield
        for topic_id in again:
            self._set(topic_id, self._look_at(image.topics.topics[topic_id], image), since)
            yield

    def _with_other_configs(self, delta: MetadataDelta, image: MetadataImage) -> set[UUID]:
        """Return the topics whose `min.insync.replicas` may have changed."""
        known, self._min_isr = self._min_isr, self._min_isr_of_brokers(image, delta)
        if known != self._min_isr:
            return {*image.topics.topics}
        names = [name for kind, name in delta.changed_configs if kind == TOPIC_RESOURCE]
        return {image.topics.ids[name] for name in names if name in image.topics.ids}

    def _min_isr_of_brokers(self, image: MetadataImage, delta: MetadataDelta) -> int:
        if self._min_isr and (BROKER_RESOURCE, "") not in delta.changed_configs:
            return self._min_isr
        return broker_topic_defaults(image, self._static).min_insync_replicas

    def _look_at(self, topic: TopicImage, image: MetadataImage) -> TopicHealth:
        """Return the health of a topic from all its partitions."""
        override = image.config(TOPIC_RESOURCE, topic.name).get(MIN_ISR)
        min_isr = self._min_isr if override is None else int(str(_PARSE(override.strip())))
        found = _NOTHING
        for partition in topic.partitions.values():
            # Most partitions are well, and there are 100,000.
            replicas, isr, leader, _, _, adding, removing, _, _, _ = partition
            if len(isr) < len(replicas) or leader != replicas[0] or adding or removing:
                found = _sum(found, conditions(partition, min_isr), 1)
        first = topic.partitions[0]
        return TopicHealth(
            len(topic.partitions), len(first.replicas) - len(first.adding_replicas), min_isr, found
        )

    def _changed(
        self, before: TopicImage, changes: Iterable[tuple[int, PartitionImage]]
    ) -> TopicHealth:
        """Return the health of a topic from what it was."""
        known = self.topics[before.topic_id]
        found, partitions, first = known.counts, known.partitions, before.partitions[0]
        for partition_id, after in changes:
            was = before.partitions.get(partition_id)
            if was is None:
                partitions += 1
            else:
                self._place([was], -1)
                found = _sum(found, conditions(was, known.min_isr), -1)
            self._place([after], 1)
            found = _sum(found, conditions(after, known.min_isr), 1)
            first = after if partition_id == 0 else first
        return TopicHealth(
            partitions, len(first.replicas) - len(first.adding_replicas), known.min_isr, found
        )

    def _place(self, partitions: Iterable[PartitionImage], sign: int) -> None:
        """Count who leads and keeps these partitions, or no more."""
        listed = list(partitions)
        for counter, part in ((self.leaders, _LEADER), (self._assignments, _REPLICAS)):
            if sign > 0:
                counter.update(map(part, listed))
            else:
                counter.subtract(map(part, listed))

    @property
    def replicas(self) -> Counter[int]:
        """Return broker id to how many replicas are assigned to it."""
        found: Counter[int] = Counter()
        for replicas, count in self._assignments.items():
            for broker_id in replicas:
                found[broker_id] += count
        return found

    def _set(self, topic_id: UUID, health: TopicHealth | None, since: int | None) -> None:
        """Take the health of a topic; None if it is gone."""
        before = self.topics.pop(topic_id, _GONE)
        after = _GONE if health is None else health
        self.partitions += after.partitions - before.partitions
        if health is not None:
            if len(self._shared) >= _SHARED_MAX:
                self._shared.clear()
            self.topics[topic_id] = self._shared.setdefault(health, health)
        if after.counts == before.counts:
            return
        self.counts = _sum(_sum(self.counts, before.counts, -1), after.counts, 1)
        for condition in Condition:
            if not after.counts[condition]:
                self.since[condition].pop(topic_id, None)
            elif not before.counts[condition]:
                self.since[condition][topic_id] = since


_NOTHING: Counts = (0, 0, 0, 0, 0)
_LEADER, _REPLICAS = itemgetter(2), itemgetter(0)
_GONE = TopicHealth(0, 0, 0, _NOTHING)
_PARSE = TOPIC_KEYS[MIN_ISR].parse


def _sum(one: Counts, other: Counts, sign: int) -> Counts:
    a, b, c, d, e = one
    f, g, h, i, j = other
    return (a + sign * f, b + sign * g, c + sign * h, d + sign * i, e + sign * j)
