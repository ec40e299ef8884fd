"""Reassignment: a partition's replicas move to other brokers while it is served (row C7).

While a partition moves, its replicas are the target and, after them, those to be removed. Replicas
to be added copy the log and join the ISR as any follower does. The change that lets the last of
them in also drops those to be removed, and elects another leader if the leader is among them.

A leader that stays begins a new epoch as well when a replica is dropped. Otherwise the dropped
replica would go on to fetch in the old epoch, and a leader that has not seen the change would count
it as in sync.

    stays ──alter──▶ replicas = target + removing ──ISR has all adding──▶ replicas = target
                            └──cancel──▶ replicas without adding

Source: KIP-455.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raftctl.controller._result import admin_result
from raftctl.controller.partitions._availability import availability
from raftctl.controller.partitions._partition_change import (
    ElectionRules,
    TopicRules,
    change_record,
    completed,
    reconciled,
)
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.placement import bad_assignment, check_replicas
from raftctl.metadata.requests.admin import ItemOutcome

if TYPE_CHECKING:
    from raftctl.controller._result import ControllerResult
    from raftctl.controller.partitions._availability import Availability
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage, PartitionImage
    from raftctl.metadata.records import PartitionChangeRecord
    from raftctl.metadata.requests.admin import AlterReassignmentsRequest, Reassignment


def alter_reassignments(
    image: MetadataImage, request: AlterReassignmentsRequest, defaults: TopicConfig
) -> ControllerResult:
    """Start, change or cancel the reassignment of each partition on its own.

    Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR if the number of replicas may not change,
    NO_REASSIGNMENT_IN_PROGRESS if there is nothing to cancel, INVALID_REQUEST if it is named twice.
    """
    named = Counter((moved.topic, moved.partition_id) for moved in request.partitions)
    rules = TopicRules(image, defaults)
    available = availability(image)
    records = []
    outcomes = []
    for wanted in request.partitions:
        try:
            if named[wanted.topic, wanted.partition_id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition is named twice")
            fixed = not request.allow_replication_factor_change
            record = _alter(image, wanted, rules.of(wanted.topic), available, fixed_factor=fixed)
        except KafkaError as error:
            outcomes.append(ItemOutcome(error.code, error.message))
            continue
        records += [] if record is None else [record]
        outcomes.append(ItemOutcome())
    return admin_result(records, outcomes)


def _alter(
    image: MetadataImage,
    wanted: Reassignment,
    rules: ElectionRules,
    available: Availability,
    *,
    fixed_factor: bool,
) -> PartitionChangeRecord | None:
    topic = image.topics.by_name(wanted.topic)
    before = None if topic is None else topic.partitions.get(wanted.partition_id)
    if topic is None or before is None:
        message = f"There is no {wanted.topic}-{wanted.partition_id}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if wanted.replicas is None:
        after = _cancelled(before, available, rules)
    else:
        check_replicas(image, wanted.partition_id, wanted.replicas)
        stays = before.stationary
        if fixed_factor and len(wanted.replicas) != len(stays):
            message = f"The partition has {len(stays)} replica(s), not {len(wanted.replicas)}"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        begun = _begun(before, stays, wanted.replicas)
        after = completed(begun, available.replicas_of(begun), rules)
    return change_record(topic.topic_id, wanted.partition_id, before, after)


def _begun(
    before: PartitionImage, stays: tuple[int, ...], target: tuple[int, ...]
) -> PartitionImage:
    removing = tuple(replica for replica in before.replicas if replica not in target)
    adding = tuple(replica for replica in target if replica not in stays)
    replicas = target + removing
    return before._replace(
        replicas=replicas,
        adding_replicas=adding,
        removing_replicas=removing,
        directories=before.directories_for(replicas),
    )


def _cancelled(
    partition: PartitionImage, available: Availability, rules: ElectionRules
) -> PartitionImage:
    adding = partition.adding_replicas
    if not adding and not partition.removing_replicas:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition does not move")
    back = partition._replace(
        replicas=partition.stationary,
        directories=partition.directories_for(partition.stationary),
        isr=tuple(replica for replica in partition.isr if replica not in adding),
        elr=tuple(replica for replica in partition.elr if replica not in adding),
        adding_replicas=(),
        removing_replicas=(),
    )
    if not back.isr and not back.elr:
        raise bad_assignment(
            f"Only replicas to be added are in sync: {partition.isr}; without them records are lost"
        )
    return reconciled(back, available.replicas_of(back), rules)
