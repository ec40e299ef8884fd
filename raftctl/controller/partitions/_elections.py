"""ElectLeaders: an administrator wants preferred leaders back, or any leader at all (row C5).

Source: KIP-460.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller._result import ControllerResult
from raftctl.controller.partitions._availability import availability
from raftctl.controller.partitions._partition_change import (
    ElectionRules,
    TopicRules,
    change_record,
    settled,
)
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import NO_LEADER
from raftctl.metadata.requests.admin import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    ElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

if TYPE_CHECKING:
    from raftctl.controller.partitions._availability import Availability
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage, PartitionImage, TopicImage
    from raftctl.metadata.records import PartitionChangeRecord


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, defaults: TopicConfig
) -> ControllerResult:
    """Elects a leader for each partition on its own.

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
    # Named twice, the second election would start from a state that is gone.
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
    """Makes the first replica lead; None if it may not.

    KafkaError(ELECTION_NOT_NEEDED) if it does already.
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
    after = settled(partition, active, rules._replace(unclean=True))
    record = change_record(topic.topic_id, partition_id, partition, after)
    if record is None or after.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica is active")
    return record
