"""Requests of brokers about their replicas: ISR changes and log directories (rows C6, C14).

AlterPartition: a leader proposes an ISR, on the basis of the epochs it knows. A proposal made in an
older leader or partition epoch is refused, so a deposed leader changes nothing, nor does one that
has not seen an earlier change. A member must be alive in the incarnation that the leader has seen
catch up, since a newer one may have lost records.

AssignReplicasToDirs: a broker reports the log directories of its replicas. A replica that appears
in another directory than its assigned one, while that one is offline, has lost its log. It may
return as a follower. If it was the last replica with all committed records, it must not count as
in sync, unless the topic allows unclean elections: records would be lost without a trace.

Sources: KIP-497; KIP-841 and KIP-903 for brokers that are fenced or were restarted; KIP-858.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller._result import ControllerResult, check_broker_epoch
from raftctl.controller.partitions._availability import availability
from raftctl.controller.partitions._partition_change import (
    TopicRules,
    change_record,
    completed,
    eligible_leaders,
    reconciled,
)
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import directories_enabled
from raftctl.metadata.records import LEADER_UNCHANGED
from raftctl.metadata.requests.cluster import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from raftctl.controller.partitions._availability import Availability
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage, PartitionImage
    from raftctl.metadata.records import PartitionChangeRecord
    from raftctl.metadata.requests.cluster import AssignReplicasToDirsRequest, DirectoryAssignment

ANY_BROKER_EPOCH = -1
"""Epoch of an ISR member as leaders send it that do not know the epochs of brokers (KIP-903)."""


def alter_partitions(
    image: MetadataImage, request: AlterPartitionRequest, defaults: TopicConfig
) -> ControllerResult:
    """Change the ISRs that a leader proposes, each on its own.

    Errors for the whole request: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; INVALID_REQUEST if
    it names a partition twice. Errors for one partition: see `_refusal`;
    NEW_LEADER_ELECTED means that the change is made and the sender no longer leads.
    """
    error = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    named = {(item.topic_id, item.partition_id) for item in request.partitions}
    if error == ErrorCode.NONE and len(named) < len(request.partitions):
        error = ErrorCode.INVALID_REQUEST
    if error != ErrorCode.NONE:
        return ControllerResult((), AlterPartitionResponse(error, ()))
    records, results = [], []
    rules, available = TopicRules(image, defaults), availability(image)
    for item in request.partitions:
        record, result = _alter_partition(image, request.broker_id, item, rules, available)
        results.append(result)
        if record is not None:
            records.append(record)
    response = AlterPartitionResponse(ErrorCode.NONE, tuple(results))
    return ControllerResult(tuple(records), response)


def _alter_partition(
    image: MetadataImage,
    sender: int,
    item: AlterPartitionItem,
    rules: TopicRules,
    available: Availability,
) -> tuple[PartitionChangeRecord | None, AlterPartitionResult]:
    topic = image.topics.by_id(item.topic_id)
    if topic is None:
        return None, _refused(item, ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(item.partition_id)
    if partition is None:
        return None, _refused(item, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    online = available.replicas_of(partition)
    error = _refusal(image, sender, item, partition)
    if error == ErrorCode.NONE and not online.issuperset(one for one, _ in item.new_isr):
        error = ErrorCode.INELIGIBLE_REPLICA
    if error != ErrorCode.NONE:
        return None, _refused(item, error)
    isr = tuple(broker_id for broker_id, _epoch in item.new_isr)
    taken = partition._replace(
        isr=isr,
        elr=eligible_leaders(partition, isr, rules.of(topic.name).min_isr),
        leader_recovering=partition.leader_recovering and item.leader_recovering,
    )
    after = completed(taken, online, rules.of(topic.name))
    record = change_record(item.topic_id, item.partition_id, partition, after)
    if after.leader != partition.leader:
        # The sender's proposal ends a reassignment that moves its leadership away.
        return record, _refused(item, ErrorCode.NEW_LEADER_ELECTED)
    moved = record is not None and record.leader != LEADER_UNCHANGED
    return record, AlterPartitionResult(
        item.topic_id,
        item.partition_id,
        ErrorCode.NONE,
        partition.leader,
        partition.leader_epoch + moved,
        partition.partition_epoch + (record is not None),
        after.isr,
    )


def _refused(item: AlterPartitionItem, error: ErrorCode) -> AlterPartitionResult:
    return AlterPartitionResult(item.topic_id, item.partition_id, error)


def _refusal(
    image: MetadataImage, sender: int, item: AlterPartitionItem, partition: PartitionImage
) -> ErrorCode:
    """Return why the change cannot be made, or NONE; the order of the checks is Kafka's.

    A sender with newer epochs has seen changes of a later controller. This one is deposed and does
    not know it yet: NOT_CONTROLLER.
    """
    ahead = item.partition_epoch > partition.partition_epoch
    if ahead or item.leader_epoch > partition.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if item.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if item.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [broker_id for broker_id, _epoch in item.new_isr]
    if len(set(members)) < len(members) or not set(members) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if sender not in members:
        return ErrorCode.INVALID_REQUEST
    if item.leader_recovering and (len(members) > 1 or not partition.leader_recovering):
        return ErrorCode.INVALID_REQUEST
    eligible = all(_is_eligible(image, *member) for member in item.new_isr)
    return ErrorCode.NONE if eligible else ErrorCode.INELIGIBLE_REPLICA


def _is_eligible(image: MetadataImage, broker_id: int, broker_epoch: int) -> bool:
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.active:
        return False
    return broker_epoch in (ANY_BROKER_EPOCH, broker.broker_epoch)


# --- log directories -----------------------------------------------------------------------------


def assign_replicas(
    image: MetadataImage, request: AssignReplicasToDirsRequest, defaults: TopicConfig
) -> ControllerResult:
    """Record the log directories of a broker's replicas, each on its own.

    Errors for the whole request: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH,
    UNSUPPORTED_VERSION below the `metadata.version` that knows directories, INVALID_REQUEST if it
    names a partition twice. Errors for one: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER if the broker has no replica of it, or none any more: a replica without
    its log leaves the ISR, and that may complete a reassignment. KAFKA_STORAGE_ERROR if only the
    lost log has all committed records.
    """
    error = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    named = {(item.topic_id, item.partition_id) for item in request.assignments}
    if error == ErrorCode.NONE and len(named) < len(request.assignments):
        error = ErrorCode.INVALID_REQUEST
    if error == ErrorCode.NONE and not directories_enabled(image):
        error = ErrorCode.UNSUPPORTED_VERSION
    if error != ErrorCode.NONE:
        return ControllerResult((), AssignReplicasToDirsResponse(error, ()))
    available, rules = availability(image), TopicRules(image, defaults)
    records, results = [], []
    for assignment in request.assignments:
        try:
            record, error = _assign(image, request.broker_id, assignment, available, rules)
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
    moved = before.in_directory(broker_id, assignment.directory_id)
    if not available.has(broker_id, before.directory_of(broker_id)) and not rule.unclean:
        moved = _without_log(moved, broker_id)
    after = reconciled(moved, available.replicas_of(moved), rule)
    record = change_record(topic.topic_id, assignment.partition_id, before, after)
    gone = broker_id not in after.replicas
    return record, ErrorCode.NOT_LEADER_OR_FOLLOWER if gone else ErrorCode.NONE


def _without_log(partition: PartitionImage, broker_id: int) -> PartitionImage:
    """Take the broker out of ISR and eligible leaders: without its log it lacks records.

    Raises KafkaError(KAFKA_STORAGE_ERROR) if no other replica has all committed records.
    """
    isr = tuple(replica for replica in partition.isr if replica != broker_id)
    elr = tuple(replica for replica in partition.elr if replica != broker_id)
    if not isr and not elr:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    return partition._replace(isr=isr, elr=elr)
