"""The assignors that a broker runs for consumer groups of KIP-848: `uniform` and `range`.

Pure: from who reads which topics, and who has what now, to who shall have what. Racks are not
looked at. The same input gives the same assignment.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from broker.groups._consumer_records import Slot

Assignment = dict[str, "frozenset[Slot]"]
"""Member id to its partitions."""


class Subscription(NamedTuple):
    """Topics that a member reads."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    """The ids of those topics that exist."""


def assign_range(
    members: Sequence[Subscription],
    counts: Mapping[UUID, int],
    current: Mapping[str, frozenset[Slot]],
) -> Assignment:
    """Give each subscriber of a topic a run of partitions; the first ones get one more.

    Members come in the order of their instance ids, then of member ids; so those who read the same
    topics get the same numbers of each.
    """
    del current
    given: dict[str, list[Slot]] = {one.member_id: [] for one in members}
    order = sorted(members, key=_by_instance)
    for topic_id in sorted(counts):
        readers = [one.member_id for one in order if topic_id in one.topics]
        if not readers:
            continue
        share, more = divmod(counts[topic_id], len(readers))
        start = 0
        for place, member_id in enumerate(readers):
            end = start + share + (place < more)
            given[member_id] += [(topic_id, number) for number in range(start, end)]
            start = end
    return {member_id: frozenset(slots) for member_id, slots in given.items()}


def _by_instance(one: Subscription) -> tuple[bool, str]:
    return (one.instance_id is None, one.instance_id or one.member_id)


def assign_uniform(
    members: Sequence[Subscription],
    counts: Mapping[UUID, int],
    current: Mapping[str, frozenset[Slot]],
) -> Assignment:
    """Everybody gets as many partitions as the others, as far as subscriptions allow, and keeps
    what it has as far as that allows.
    """
    if not members:
        return {}
    wanted = {one.topics for one in members}
    if len(wanted) == 1:
        return _alike(members, counts, current)
    return _Balance(members, counts, current).assignment()


def _slots(topics: frozenset[UUID], counts: Mapping[UUID, int]) -> list[Slot]:
    known = sorted(topic_id for topic_id in topics if topic_id in counts)
    return [(topic_id, number) for topic_id in known for number in range(counts[topic_id])]


def _alike(
    members: Sequence[Subscription],
    counts: Mapping[UUID, int],
    current: Mapping[str, frozenset[Slot]],
) -> Assignment:
    """All read the same: a quota each, some one more."""
    everything = _slots(members[0].topics, counts)
    known = frozenset(everything)
    quota, more = divmod(len(everything), len(members))
    given: dict[str, list[Slot]] = {}
    for member_id in sorted(one.member_id for one in members):
        mine = sorted(current.get(member_id, frozenset()) & known)
        extra = more > 0 and len(mine) > quota
        more -= extra
        given[member_id] = mine[: quota + extra]
    taken = {slot for slots in given.values() for slot in slots}
    free = (slot for slot in everything if slot not in taken)
    for mine in given.values():
        missing = quota - len(mine)
        if missing >= 0 and more > 0:
            missing, more = missing + 1, more - 1
        mine += [slot for _, slot in zip(range(missing), free, strict=False)]
    return {member_id: frozenset(slots) for member_id, slots in given.items()}


class _Balance:
    """Members read different topics: first what nobody has goes to who has least, then one moves
    at a time from who has most.
    """

    def __init__(
        self,
        members: Sequence[Subscription],
        counts: Mapping[UUID, int],
        current: Mapping[str, frozenset[Slot]],
    ) -> None:
        order = sorted(one.member_id for one in members)
        topics = {one.member_id: one.topics for one in members}
        self._readers = {
            topic_id: [one for one in order if topic_id in topics[one]]
            for topic_id in sorted(counts)
        }
        self._given: dict[str, set[Slot]] = {one: set() for one in order}
        self._owner: dict[Slot, str] = {}
        for member_id in order:
            for slot in sorted(current.get(member_id, frozenset())):
                topic_id, number = slot
                wanted = topic_id in topics[member_id] and number < counts.get(topic_id, 0)
                if wanted and slot not in self._owner:
                    self._give(slot, member_id)
        self._counts = counts

    def _give(self, slot: Slot, member_id: str) -> None:
        before = self._owner.get(slot)
        if before is not None:
            self._given[before].discard(slot)
        self._owner[slot] = member_id
        self._given[member_id].add(slot)

    def assignment(self) -> Assignment:
        """What everybody shall have."""
        for topic_id in sorted(self._readers, key=lambda one: (len(self._readers[one]), one)):
            self._fill(topic_id)
        moved = True
        while moved:
            moved = False
            for topic_id in self._readers:
                moved = self._even_out(topic_id) or moved
        return {member_id: frozenset(slots) for member_id, slots in self._given.items()}

    def _fill(self, topic_id: UUID) -> None:
        """Gives what nobody has of a topic to those who have least."""
        heap = [(len(self._given[one]), one) for one in self._readers[topic_id]]
        heapify(heap)
        for number in range(self._counts[topic_id]) if heap else ():
            if (topic_id, number) not in self._owner:
                count, member_id = heap[0]
                self._give((topic_id, number), member_id)
                heapreplace(heap, (count + 1, member_id))

    def _even_out(self, topic_id: UUID) -> bool:
        """Moves partitions of a topic to who has at least two less. Each move makes the sum of
        squares of the counts smaller, so this ends.
        """
        heap = [(len(self._given[one]), one) for one in self._readers[topic_id]]
        if not heap or max(heap)[0] - min(heap)[0] < 2:
            return False
        heapify(heap)
        moved = False
        for number in range(self._counts[topic_id]):
            owner = self._owner[topic_id, number]
            count, least = self._least(heap)
            if len(self._given[owner]) - count >= 2:
                self._give((topic_id, number), least)
                heapreplace(heap, (count + 1, least))
                heappush(heap, (len(self._given[owner]), owner))
                moved = True
        return moved

    def _least(self, heap: list[tuple[int, str]]) -> tuple[int, str]:
        """Who has least, and how many: what the heap says of who has given something since is
        dropped.
        """
        while heap[0][0] != len(self._given[heap[0][1]]):
            heappop(heap)
        return heap[0]


ASSIGNORS = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by the names that clients and `group.consumer.assignors` use."""
