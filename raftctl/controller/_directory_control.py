"""Brokers' log directories: where replicas are, and what follows when one fails (row C14, KIP-858).

A replica that turns up in another directory than the one it was assigned to, while that one is not
there, has lost its log: it may come back as a follower, but as the last one that has all committed
records it must not pass for in sync, unless the topic allows unclean elections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller._result import ControllerResult
from raftctl.controller.cluster import check_broker_epoch
from raftctl.controller.partitions import TopicRules, availability, change_record, settled
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import directories_enabled
from raftctl.metadata.image import known_directories
from raftctl.metadata.requests.cluster import AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from uuid import UUID

    from raftctl.controller.partitions import Availability
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage, PartitionImage
    from raftctl.metadata.records import PartitionChangeRecord
    from raftctl.metadata.requests.cluster import AssignReplicasToDirsRequest, DirectoryAssignment


def assign_replicas(
    image: MetadataImage, request: AssignReplicasToDirsRequest, defaults: TopicConfig
) -> ControllerResult:
    """Takes note of where a broker has its replicas, each on its own.

    Errors for the whole request: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH,
    UNSUPPORTED_VERSION below the `metadata.version` that knows directories, INVALID_REQUEST if it
    names a partition twice. Errors for one: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER if the broker has no replica of it, or none any more: in a directory that
    is not there, the replica may be all that a reassignment has waited for. KAFKA_STORAGE_ERROR if
    only the log that is gone has all committed records.
    """
    error = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    named = {(one.topic_id, one.partition_id) for one in request.assignments}
    if error == ErrorCode.NONE and len(named) < len(request.assignments):
        error = ErrorCode.INVALID_REQUEST
    if error == ErrorCode.NONE and not directories_enabled(image):
        error = ErrorCode.UNSUPPORTED_VERSION
    if error != ErrorCode.NONE:
        return ControllerResult((), AssignReplicasToDirsResponse(error, ()))
    available, rules = availability(image), TopicRules(image, defaults)
    records, results = [], []
    for one in request.assignments:
        try:
            record, error = _assign(image, request.broker_id, one, available, rules)
        except KafkaError as refusal:
            results.append(refusal.code)
            continue
        records += [] if record is None else [record]
        results.append(error)
    response = AssignReplicasToDirsResponse(ErrorCode.NONE, tuple(results))
    return ControllerResult(tuple(records), response)


def _assign(
    image: MetadataImage,
    broker_id: int,
    assignment: DirectoryAssignment,
    available: Availability,
    rules: TopicRules,
) -> tuple[PartitionChangeRecord | None, ErrorCode]:
    topic = image.topics.by_id(assignment.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    before = topic.partitions.get(assignment.partition_id)
    if before is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in before.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rule = rules.of(topic.name)
    moved = _moved(before, broker_id, assignment.directory_id)
    if not available.has(broker_id, before.directory_of(broker_id)) and not rule.unclean:
        moved = _without_log(moved, broker_id)
    after = settled(moved, available.replicas_of(moved), rule)
    record = change_record(topic.topic_id, assignment.partition_id, before, after)
    gone = broker_id not in after.replicas
    return record, ErrorCode.NOT_LEADER_OR_FOLLOWER if gone else ErrorCode.NONE


def _without_log(partition: PartitionImage, broker_id: int) -> PartitionImage:
    """The broker's log is gone, so it is not known to have what is committed."""
    isr = tuple(one for one in partition.isr if one != broker_id)
    elr = tuple(one for one in partition.elr if one != broker_id)
    if not isr and not elr:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    return partition._replace(isr=isr, elr=elr)


def _moved(partition: PartitionImage, broker_id: int, directory_id: UUID) -> PartitionImage:
    directories = [
        directory_id if replica == broker_id else partition.directory_of(replica)
        for replica in partition.replicas
    ]
    return partition._replace(directories=known_directories(directories))
