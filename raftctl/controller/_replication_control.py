"""AlterPartition: what a leader may make of its ISR (row C6).

The leader proposes from the state it has seen. A proposal made in an older leader or partition
epoch is refused, so that a deposed leader, or one that has not seen an earlier change, changes
nothing; a member must be alive in the incarnation that the leader has seen catch up, since a newer
one may have lost what it had.
Sources: KIP-497; KIP-841 and KIP-903 for brokers that are fenced or were restarted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller._result import ControllerResult
from raftctl.controller.cluster import check_broker_epoch
from raftctl.controller.partitions import (
    TopicRules,
    availability,
    change_record,
    completed,
    eligible_leaders,
)
from raftctl.errors import ErrorCode
from raftctl.metadata.records import LEADER_UNCHANGED
from raftctl.metadata.requests.cluster import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
)

if TYPE_CHECKING:
    from raftctl.controller.partitions import Availability
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage, PartitionImage
    from raftctl.metadata.records import PartitionChangeRecord

ANY_BROKER_EPOCH = -1


def alter_partitions(
    image: MetadataImage, request: AlterPartitionRequest, defaults: TopicConfig
) -> ControllerResult:
    """Changes the ISRs that a leader asks for, each on its own.

    Errors for the whole request: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; INVALID_REQUEST if
    it names a partition twice. Errors for one partition: see `_refusal`;
    NEW_LEADER_ELECTED says that the change is made and the sender leads no more.
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
    """Why the change cannot be made, or NONE; the order of the checks is Apache Kafka's.

    A sender ahead of this controller has seen another one that was elected since: NOT_CONTROLLER.
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
