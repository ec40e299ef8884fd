"""Elections on demand: ElectLeaders, and the balancer of preferred leaders (rows C5, C8).

The preferred leader of a partition is its first replica. Placement spreads the first replicas over
the brokers, so load is even while they lead. After a restart others lead: followers took over, and
nothing moves leadership back by itself. An administrator can ask for that, partition by partition,
or for an unclean leader where no replica is in sync.

The balancer does it without being asked. At every check it counts all partitions, a slice at a tick
so that nothing else waits. A broker that does not lead more than a percentage of the partitions it
is preferred for gets them back, as far as it is in sync, again a slice at a tick.

Sources: KIP-460; Kafka's `auto.leader.rebalance.enable`.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from raftctl.controller._result import ControllerResult
from raftctl.controller.partitions._availability import availability
from raftctl.controller.partitions._partition_change import (
    ElectionRules,
    TopicRules,
    change_record,
    reconciled,
)
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.records import NO_LEADER
from raftctl.metadata.requests.admin import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    ElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from raftctl.controller._config import ControllerConfig
    from raftctl.controller.partitions._availability import Availability
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage, PartitionImage, TopicImage
    from raftctl.metadata.records import PartitionChangeRecord

EXAMINED_MAX = 10_000
"""Partitions examined in a tick; the last topic may exceed it."""
ELECTIONS_MAX = 1_000
"""Partitions that get their preferred leader back in a tick."""


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, defaults: TopicConfig
) -> ControllerResult:
    """Elect a leader for each partition on its own.

    Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED,
    PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        error = ErrorCode.INVALID_REQUEST
        message = f"election_type must be 0 (preferred) or 1 (unclean), not {request.election_type}"
        return ControllerResult((), ElectLeadersResponse(error, message, ()))
    rules = TopicRules(image, defaults)
    available = availability(image)
    records = []
    results = []
    # A partition that is named twice is elected once: a second election would start from the image,
    # which does not show the first.
    for name, partition_id in dict.fromkeys(request.partitions):
        try:
            record = _elect(image, request.election_type, name, partition_id, available, rules)
        except KafkaError as error:
            results.append(ElectionResult(name, partition_id, error.code, error.message))
            continue
        records.append(record)
        results.append(ElectionResult(name, partition_id, ErrorCode.NONE))
    last = len(records) - 1
    return ControllerResult(
        tuple(records),
        lambda base_offset: ElectLeadersResponse(
            ErrorCode.NONE, "", tuple(results), base_offset + last
        ),
    )


def _elect(
    image: MetadataImage,
    election_type: int,
    name: str,
    partition_id: int,
    available: Availability,
    rules: TopicRules,
) -> PartitionChangeRecord:
    topic = image.topics.by_name(name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {name}-{partition_id}")
    active = available.replicas_of(partition)
    if election_type == PREFERRED_ELECTION:
        record = elect_preferred(topic, partition_id, partition, active)
        if record is None:
            message = f"Broker {partition.replicas[0]} is not active or not in sync"
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
        return record
    return _elect_any(topic, partition_id, partition, active, rules.of(name))


def elect_preferred(
    topic: TopicImage, partition_id: int, partition: PartitionImage, active: frozenset[int]
) -> PartitionChangeRecord | None:
    """Return the change that makes the first replica lead; None if it is not active or in sync.

    Raises KafkaError(ELECTION_NOT_NEEDED) if it leads already.
    """
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica leads already")
    if preferred not in active or preferred not in partition.isr:
        return None
    after = partition._replace(leader=preferred)
    return change_record(topic.topic_id, partition_id, partition, after)


def _elect_any(
    topic: TopicImage,
    partition_id: int,
    partition: PartitionImage,
    active: frozenset[int],
    rules: ElectionRules,
) -> PartitionChangeRecord:
    if partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"Broker {partition.leader} leads")
    after = reconciled(partition, active, rules._replace(unclean=True))
    record = change_record(topic.topic_id, partition_id, partition, after)
    if record is None or after.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica is active")
    return record


# --- balancer ------------------------------------------------------------------------------------


class LeaderBalancer:
    """Balancer of the active controller; between checks it keeps only the time of the next."""

    def __init__(self, config: ControllerConfig) -> None:
        self._enabled = config.leader_rebalance
        self._interval_ms = config.leader_imbalance_check_ms
        self._percentage = config.leader_imbalance_percentage
        self._due_ms: int | None = None
        self.stop()

    def start(self, now_ms: int) -> None:
        """Schedule the first check an interval from now."""
        self._due_ms = now_ms + self._interval_ms if self._enabled else None

    def stop(self) -> None:
        """Drop the check that is due or under way."""
        self._due_ms = None
        self._begin(())

    def invariants(self) -> None:
        """Check the counts of the check that is under way."""
        invariant(self._elsewhere <= self._preferred, "a partition led elsewhere is counted once")
        moved = sum(self._elsewhere.values())
        invariant(len(self._displaced) <= moved, "each displaced partition is counted")
        idle = self._due_ms is None
        invariant(not idle or not self._topics, "a check is under way only while one is due")

    def deadline_ms(self) -> int | None:
        """Return when to call `tick` (ms); None while the balancer is stopped or disabled."""
        return self._due_ms

    def tick(self, image: MetadataImage, now_ms: int) -> list[PartitionChangeRecord]:
        """Continue the check that is due; return the elections of this slice."""
        if self._due_ms is None or now_ms < self._due_ms:
            return []
        if not self._topics and not self._displaced:
            self._begin(image.topics.topics)
        self._examine(image)
        self.invariants()
        records = [] if self._topics else self._move(image)
        if not self._topics and not self._displaced:
            self._begin(())
            self._due_ms = now_ms + self._interval_ms
        return records

    def _begin(self, topic_ids: Iterable[UUID]) -> None:
        self._topics = deque(topic_ids)
        self._displaced: deque[tuple[UUID, int, int]] = deque()
        """(topic id, partition id, preferred leader) of partitions led by another broker."""
        self._preferred: Counter[int] = Counter()
        self._elsewhere: Counter[int] = Counter()

    def _examine(self, image: MetadataImage) -> None:
        examined = 0
        while self._topics and examined < EXAMINED_MAX:
            topic = image.topics.by_id(self._topics.popleft())
            for partition_id, partition in () if topic is None else topic.items():
                examined += 1
                preferred = partition.replicas[0]
                self._preferred[preferred] += 1
                if partition.leader not in (preferred, NO_LEADER) and topic is not None:
                    self._elsewhere[preferred] += 1
                    self._displaced.append((topic.topic_id, partition_id, preferred))

    def _is_imbalanced(self, broker_id: int) -> bool:
        return self._elsewhere[broker_id] * 100 > self._preferred[broker_id] * self._percentage

    def _move(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        available = availability(image)
        records: list[PartitionChangeRecord] = []
        examined = 0
        while self._displaced and examined < EXAMINED_MAX and len(records) < ELECTIONS_MAX:
            topic_id, partition_id, preferred = self._displaced.popleft()
            examined += 1
            topic = image.topics.by_id(topic_id)
            if topic is None or not self._is_imbalanced(preferred):
                continue
            try:
                partition = topic.partitions[partition_id]
                active = available.replicas_of(partition)
                record = elect_preferred(topic, partition_id, partition, active)
            except KafkaError:
                continue  # It has become the leader since it was counted.
            records += [] if record is None else [record]
        return records
