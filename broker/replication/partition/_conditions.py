"""Conditions of the replicas of this broker: leading, in sync, and what is wrong with them.

The counts follow each change of a replica, so that nobody has to look at all of them. Terms and
rules are those of Apache Kafka's ReplicaManager; a leader answers for its partition.
"""

from __future__ import annotations

import enum
from collections import Counter
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from broker.replication.partition._partition import Partition
    from broker.types import TopicPartition


class Condition(enum.IntFlag):
    """What holds of one replica, as far as this broker knows."""

    LEADS = enum.auto()
    OFFLINE = enum.auto()
    """Its log directory has failed."""
    UNDER_MIN_ISR = enum.auto()
    """It leads, and too few replicas are in sync for acks=all."""
    UNDER_REPLICATED = enum.auto()
    """It leads, and a replica is not in sync, other than those that a reassignment adds."""
    OUT_OF_SYNC = enum.auto()
    """It does not lead, and is not in the ISR."""
    AT_MIN_ISR = enum.auto()
    """It leads, and if one more replica fell behind, acks=all would be refused."""
    REASSIGNING = enum.auto()
    """It leads, and a reassignment is under way."""


PROBLEMS = (
    Condition.OFFLINE,
    Condition.UNDER_MIN_ISR,
    Condition.UNDER_REPLICATED,
    Condition.OUT_OF_SYNC,
)
"""What somebody should look at, the worst first."""
_NOTHING = Condition(0)


def condition_of(replica: Partition) -> Condition:
    """Return what holds of a replica now."""
    state = replica.state
    if replica.log.offline is not None:
        return Condition.OFFLINE
    if not state.is_leader:
        return _NOTHING if state.broker_id in state.isr else Condition.OUT_OF_SYNC
    in_sync, needed = len(state.isr), state.effective_min_insync
    found = Condition.LEADS
    if in_sync < needed:
        found |= Condition.UNDER_MIN_ISR
    if in_sync == needed:
        found |= Condition.AT_MIN_ISR
    if in_sync < len(state.replicas) - len(state.adding):
        found |= Condition.UNDER_REPLICATED
    if state.is_reassigning:
        found |= Condition.REASSIGNING
    return found


class _Noted(NamedTuple):
    """What is noted of one replica; there are few different ones."""

    condition: Condition
    replicas: int
    """Of its partition, if it leads; else 0."""
    in_sync: int
    """So many of them."""
    is_preferred: bool
    """It leads, and is the first replica."""


class Totals(NamedTuple):
    """Sums over the partitions that this broker leads."""

    replicas: int
    in_sync: int
    led_as_preferred: int


_same = cache(_Noted)
"""One object for all replicas that are alike, of which there may be millions."""


def _noted(replica: Partition) -> _Noted:
    condition, state = condition_of(replica), replica.state
    if Condition.LEADS not in condition:
        return _same(condition, 0, 0, is_preferred=False)
    is_preferred = state.replicas[:1] == (state.broker_id,)
    return _same(condition, len(state.replicas), len(state.isr), is_preferred=is_preferred)


class Conditions:
    """The condition of each replica, how many have which, and how many replicas those led have."""

    def __init__(self) -> None:
        self._noted: dict[TopicPartition, _Noted] = {}
        self._counts: Counter[_Noted] = Counter()
        self._problems: dict[Condition, dict[TopicPartition, None]] = {one: {} for one in PROBLEMS}
        """Each replica that has any under the worst of its own."""

    def __getitem__(self, partition: TopicPartition) -> Condition:
        return self._noted[partition].condition

    def invariants(self, here: Collection[TopicPartition], changed: Iterable[Partition]) -> None:
        """Check that each condition is counted, and that of what changed is as it is now."""
        invariant(self._noted.keys() == set(here), "each replica here has a condition")
        for replica in changed:
            known, now = self._noted[replica.partition], _noted(replica)
            # Those of a directory that has just failed are taken offline in the next turn.
            noted = known == now or now.condition == Condition.OFFLINE
            invariant(noted, "a change of a replica is noted")
        invariant(self._counts == Counter(self._noted.values()), "each condition is counted")
        named = {one for found in self._problems.values() for one in found}
        wrong = {key for key, one in self._noted.items() if _worst(one.condition) is not None}
        invariant(named == wrong, "each problem is known")

    def count(self, condition: Condition) -> int:
        """Return for how many replicas this holds."""
        return sum(count for one, count in self._counts.items() if condition in one.condition)

    def totals(self) -> Totals:
        """Return the sums over what is led here."""
        counts = self._counts.items()
        return Totals(
            sum(one.replicas * count for one, count in counts),
            sum(one.in_sync * count for one, count in counts),
            sum(one.is_preferred * count for one, count in counts),
        )

    def note(self, replica: Partition) -> None:
        """Take up a change of a replica."""
        partition, now = replica.partition, _noted(replica)
        before = self._noted.get(partition)
        if before == now:
            return
        if before is not None:
            self._counts[before] -= 1
        self._noted[partition] = now
        self._counts[now] += 1
        was = None if before is None else _worst(before.condition)
        worst = _worst(now.condition)
        # Who has had a problem for longest comes first, whatever else has changed of it.
        if worst is not was:
            if was is not None:
                del self._problems[was][partition]
            if worst is not None:
                self._problems[worst][partition] = None

    def forget(self, partition: TopicPartition) -> None:
        """Drop a replica that is here no more."""
        before = self._noted.pop(partition, None)
        if before is None:
            return
        self._counts[before] -= 1
        worst = _worst(before.condition)
        if worst is not None:
            del self._problems[worst][partition]

    def problems(self, at_most: int) -> list[TopicPartition]:
        """Return so many replicas with problems, the worst first, then who has it for longest."""
        return list(islice(chain.from_iterable(self._problems.values()), at_most))


@cache
def _worst(condition: Condition) -> Condition | None:
    return next((one for one in PROBLEMS if one in condition), None)
