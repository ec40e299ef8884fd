"""Conditions of the replicas of this broker: leading, in sync, and what is wrong with them.

The counts follow each change of a replica, so that nobody has to look at all of them. Terms and
rules are those of Apache Kafka's ReplicaManager; a leader answers for its partition.
"""

from __future__ import annotations

import enum
from collections import Counter
from itertools import chain, islice
from typing import TYPE_CHECKING

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


class Conditions:
    """The condition of each replica, and how many have which."""

    def __init__(self) -> None:
        self._conditions: dict[TopicPartition, Condition] = {}
        self._counts: Counter[Condition] = Counter()
        """Of whole combinations: there are few."""
        self._problems: dict[Condition, dict[TopicPartition, None]] = {one: {} for one in PROBLEMS}
        """Each replica that has any under the worst of its own."""

    def __getitem__(self, partition: TopicPartition) -> Condition:
        return self._conditions[partition]

    def invariants(self, here: Collection[TopicPartition], changed: Iterable[Partition]) -> None:
        """Check that each condition is counted, and that of what changed is as it is now."""
        invariant(self._conditions.keys() == set(here), "each replica here has a condition")
        for replica in changed:
            known, now = self._conditions[replica.partition], condition_of(replica)
            # Those of a directory that has just failed are taken offline in the next turn.
            noted = known == now or now == Condition.OFFLINE
            invariant(noted, "a change of a replica is noted")
        invariant(self._counts == Counter(self._conditions.values()), "each condition is counted")
        named = {one for found in self._problems.values() for one in found}
        wrong = {key for key, one in self._conditions.items() if _worst(one) is not None}
        invariant(named == wrong, "each problem is known")

    def count(self, condition: Condition) -> int:
        """Return for how many replicas this holds."""
        return sum(count for one, count in self._counts.items() if condition in one)

    def note(self, replica: Partition) -> None:
        """Take up a change of a replica."""
        partition, now = replica.partition, condition_of(replica)
        before = self._conditions.get(partition)
        if before == now:
            return
        self.forget(partition)
        self._conditions[partition] = now
        self._counts[now] += 1
        worst = _worst(now)
        if worst is not None:
            self._problems[worst][partition] = None

    def forget(self, partition: TopicPartition) -> None:
        """Drop a replica that is here no more."""
        before = self._conditions.pop(partition, None)
        if before is None:
            return
        self._counts[before] -= 1
        worst = _worst(before)
        if worst is not None:
            del self._problems[worst][partition]

    def problems(self, at_most: int) -> list[TopicPartition]:
        """Return so many replicas with problems, the worst first, then who has it for longest."""
        return list(islice(chain.from_iterable(self._problems.values()), at_most))


def _worst(condition: Condition) -> Condition | None:
    return next((one for one in PROBLEMS if one in condition), None)
