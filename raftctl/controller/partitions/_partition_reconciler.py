"""Brings partitions into line with who is active, a slice at a time (rows C2, C5, C13).

What follows from a broker's coming or going concerns every partition it has. Those may be hundreds
of thousands: more than a batch holds, and more work than may pass between two messages of the
quorum. So partitions are looked at in passes, a slice at a time. The first slice of a pass belongs
to the operation that caused it, and in most clusters it is all of it; the others are due at once,
one at a tick, so that heartbeats and the quorum's messages come in between:

    fenced, unfenced, drained ──▶ begin ──first slice──▶ go_on ──▶ … ──▶ nothing is pending

A pass is two rounds over all topics. The first finds the partitions that want another leader, since
clients wait for these; the second all others that are concerned, which mostly have to do without a
follower. The leaders of whoever comes to be gone meanwhile go before the second round of earlier
passes:

    begin ──▶ leaders ──another pass waits──▶ leaders ──▶ others ──▶ …
                 ▲                                          │
                 └──────────── begin, meanwhile ────────────┘

Each slice starts from the newest image and applies the one rule for partitions, so that it does not
matter what else happened to them meanwhile. While a broker's pass is pending, its partitions may
still name it; so the broker is neither unfenced nor let go nor replaced by another incarnation
before that is over. Hence a broker begins few passes before all are done, and none waits for ever.
Passes are soft state: an active controller begins with one over everything, since it cannot know
how far the last one came.

So do partitions follow other rules for all topics (`min.insync.replicas`,
`unclean.leader.election.enable`). Until they have, whoever is eligible to lead may be so by the old
rules alone. After one change of `min.insync.replicas` a partition itself shows that, so another
change of it has to wait.
"""

from __future__ import annotations

from collections import deque
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from raftctl.codec import maker
from raftctl.controller.partitions._availability import availability
from raftctl.controller.partitions._partition_change import TopicRules
from raftctl.controller.partitions._partition_change_cache import ChangeMemo
from raftctl.metadata.records import NO_LEADER, PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from raftctl.controller._config import ControllerConfig
    from raftctl.controller.partitions._availability import Availability
    from raftctl.controller.partitions._partition_change_cache import Change
    from raftctl.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage

    Places = Iterable[tuple[int, PartitionImage]]
    """Partitions of a topic with their ids."""

_make_records = maker(PartitionChangeRecord)


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


class _Round:
    """One way over all topics, for a pass: for its leaders, or for all that it concerns."""

    def __init__(self, of: _Pass, image: MetadataImage, *, leaders: bool) -> None:
        self.of = of
        self.leaders = leaders
        # In the order of the ids' hashes, which are those of numbers: the same in every process.
        self.topic_ids = deque(image.topics.topics)
        """Those that are not done."""
        self.next_partition = 0
        """Of the first of them."""

    def concerned(self, partitions: Places, active: frozenset[int]) -> Places:
        """Those of the partitions that are to be decided on."""
        wanted = self.of.broker_ids
        if wanted is None:
            return (
                [one for one in partitions if one[1].leader not in active]
                if self.leaders
                else partitions
            )
        if not self.leaders:
            return [one for one in partitions if not wanted.isdisjoint(one[1].replicas)]
        without = wanted | {NO_LEADER}
        led = [one for one in partitions if one[1].leader in without]
        return [one for one in led if not wanted.isdisjoint(one[1].replicas)]


class _Slice:
    """What one tick changes; no partition twice, since each change starts from the same image."""

    def __init__(
        self, image: MetadataImage, active: frozenset[int], rules: TopicRules, memo: ChangeMemo
    ) -> None:
        self.image = image
        self.active = active
        self._rules = rules
        self._memo = memo
        self._changed: dict[UUID, dict[int, Change]] = {}
        self.count = 0

    def decide(self, topic: TopicImage, concerned: Places, changes_max: int) -> int | None:
        """Decides on partitions of a topic; returns the first for which there is no room."""
        changed = self._changed.setdefault(topic.topic_id, {})
        rules = self._rules.of(topic.name)
        for partition_id, partition in concerned:
            if self.count >= changes_max:
                return partition_id
            change = self._memo.of(partition, rules)
            if change is not None and partition_id not in changed:
                changed[partition_id] = change
                self.count += 1
        return None

    def records(self) -> list[PartitionChangeRecord]:
        """The changes, in the order in which they were decided."""
        if not self.count:
            return []
        rows = [
            (topic_id, partition_id, *change)
            for topic_id, changed in self._changed.items()
            for partition_id, change in changed.items()
        ]
        return _make_records([*zip(*rows, strict=True)])


class PartitionSettler:
    """The active controller's; between passes it holds nothing but what has been forgotten."""

    def __init__(self, config: ControllerConfig) -> None:
        self._defaults = config.topic_defaults
        self._looked_at_max = config.slice_looked_at_max
        self._changes_max = config.slice_changes_max
        self.stop()

    def start(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """Begins with a pass over everything; returns the changes of its first slice."""
        return self._begin(image, _EVERYBODY, availability(image))

    def stop(self) -> None:
        """Nothing is pending."""
        self._leaders: _Round | None = None
        """The round for leaders that is under way: before all others."""
        self._others: _Round | None = None
        """The one for all others that is under way."""
        self._next_leaders = _NOBODY
        """Passes that have begun since the round for leaders did."""
        self._next_others = _NOBODY
        """Passes whose leaders are settled, but not all others."""
        self._memo: ChangeMemo | None = None
        """Of the newest slice."""
        self._forgotten: dict[int, int] = {}
        """Broker id to the epoch of the incarnation that no partition counts on any more, or will
        not when nothing is pending."""

    @property
    def busy(self) -> bool:
        """Whether `go_on` has something to do."""
        return self._leaders is not None or self._others is not None

    def is_pending(self, broker_id: int) -> bool:
        """Whether partitions may still be as they were before the broker's last change."""
        return self._pending().concerns(broker_id)

    @property
    def follows_rules(self) -> bool:
        """Whether partitions may still be as other rules had them."""
        return self._pending().rules

    def _pending(self) -> _Pass:
        """All passes that are not over."""
        under_way = [one.of for one in (self._leaders, self._others) if one is not None]
        return reduce(_Pass.joined, [*under_way, self._next_leaders, self._next_others])

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
        return self._begin(image, begun, availability(image).after(becoming_active))

    def directories_failed(
        self, image: MetadataImage, broker_id: int, offline: Collection[UUID]
    ) -> list[PartitionChangeRecord]:
        """What follows first when these log directories of a broker have failed (KIP-858).

        Those of the image's broker are to change in the same batch.
        """
        begun = _Pass(frozenset((broker_id,)), frozenset())
        return self._begin(image, begun, availability(image).without(broker_id, offline))

    def rules_changed(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """What follows first from other rules for all topics, which are those of the image.

        The rules are to change in the same batch.
        """
        return self.start(image)

    def go_on(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """The changes of the next slice; there may be none although more slices follow."""
        return self._slice(image, availability(image)) if self.busy else []

    def _begin(
        self, image: MetadataImage, begun: _Pass, available: Availability
    ) -> list[PartitionChangeRecord]:
        if self._leaders is not None:
            self._next_leaders = self._next_leaders.joined(begun)
            return []
        self._leaders = _Round(begun, image, leaders=True)
        return self._slice(image, available)

    def _slice(self, image: MetadataImage, available: Availability) -> list[PartitionChangeRecord]:
        # What any pass asks for is right for all partitions, and none is changed twice in a slice.
        _, forgetful, rules = self._pending()
        memo = self._memo
        if memo is None or not memo.holds(available, forgetful, rules=rules):
            memo = self._memo = ChangeMemo(available, forgetful, rules=rules)
        made = _Slice(image, available.active, TopicRules(image, self._defaults), memo)
        room = self._looked_at_max
        while room > 0 and made.count < self._changes_max:
            under_way = self._leaders or self._others
            if under_way is None:
                self._memo = None
                break
            if under_way.topic_ids:
                room -= self._look(under_way, made, room)
            if not under_way.topic_ids:
                self._end(under_way, image)
        return made.records()

    def _look(self, under_way: _Round, made: _Slice, room: int) -> int:
        """Looks at so many partitions of the next topic, or until there are changes enough.

        Returns how many it looked at, and one for the topic.
        """
        topic = made.image.topics.by_id(under_way.topic_ids[0])
        begin, stop = under_way.next_partition, None
        count = 0 if topic is None else len(topic.partitions)
        end = min(count, begin + room)
        if topic is not None:
            numbers = range(begin, end)
            # In the order of a hash trie, but in half the time of one by one.
            looked_at: Places = topic.partitions.items()
            if len(numbers) < count:
                looked_at = zip(numbers, map(topic.partitions.__getitem__, numbers), strict=True)
            concerned = sorted(under_way.concerned(looked_at, made.active))
            if concerned:
                stop = made.decide(topic, concerned, self._changes_max)
        under_way.next_partition = end if stop is None else stop
        if under_way.next_partition >= count:
            under_way.topic_ids.popleft()
            under_way.next_partition = 0
        return end - begin + 1

    def _end(self, ended: _Round, image: MetadataImage) -> None:
        """Begins the round that comes after this one, if any does."""
        if ended is self._leaders:
            self._leaders = None
            self._next_others = self._next_others.joined(ended.of)
            if self._next_leaders != _NOBODY:
                self._leaders = _Round(self._next_leaders, image, leaders=True)
                self._next_leaders = _NOBODY
        else:
            self._others = None
        if self._others is None and self._next_others != _NOBODY:
            self._others = _Round(self._next_others, image, leaders=False)
            self._next_others = _NOBODY
