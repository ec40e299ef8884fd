"""The rule that says who leads a partition and who is in its ISR when brokers come and go.

One rule for every cause (a broker is fenced, unfenced, shutting down): given who is active,

* replicas that are not active leave the ISR, but an ISR never becomes empty: its last members stay,
  so that the partition waits for a replica that has all committed records;
* the leader stays if it is in the ISR and active; otherwise the first active replica of the ISR in
  the order of the assignment leads, and if there is none, nobody does;
* only if the topic allows unclean elections, an active replica outside the ISR may then lead, as
  the only member of the ISR and marked as recovering.

Sources: KIP-497, KIP-631; KIP-704 for recovering leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller.broker_partitions import partitions_of
from raftctl.metadata.image import TOPIC_RESOURCE
from raftctl.metadata.records import LEADER_UNCHANGED, NO_LEADER, PartitionChangeRecord
from raftctl.metadata.topic_config import effective

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from raftctl.metadata.image import MetadataImage, PartitionImage
    from raftctl.metadata.topic_config import TopicConfig


def elect(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionImage,
    active: frozenset[int],
    *,
    unclean: bool,
) -> PartitionChangeRecord | None:
    """The change that makes the partition right for the brokers that are active; None if it is."""
    if partition.leader in active and active.issuperset(partition.isr):
        return None
    isr = tuple(filter(active.__contains__, partition.isr))
    recovering = partition.leader_recovering
    if isr:
        keeps = partition.leader in isr
        leader = partition.leader if keeps else next(r for r in partition.replicas if r in isr)
    else:
        isr, leader = partition.isr, NO_LEADER
        fallback = next(filter(active.__contains__, partition.replicas), None) if unclean else None
        if fallback is not None:
            isr, leader, recovering = (fallback,), fallback, True
    if isr == partition.isr and leader == partition.leader:
        return None
    return PartitionChangeRecord(
        topic_id,
        partition_id,
        isr=None if isr == partition.isr else isr,
        leader=LEADER_UNCHANGED if leader == partition.leader else leader,
        leader_recovering=None if recovering == partition.leader_recovering else recovering,
    )


def broker_changes(
    image: MetadataImage, becoming_active: Mapping[int, bool], defaults: TopicConfig
) -> list[PartitionChangeRecord]:
    """What follows for all partitions when these brokers become active, or cease to be."""
    before = active_brokers(image)
    joining = [broker_id for broker_id in becoming_active if becoming_active[broker_id]]
    active = before.difference(becoming_active).union(joining)
    records = []
    unclean: dict[UUID, bool] = {}
    for topic, partition_id, partition in partitions_of(image.topics, becoming_active):
        if topic.topic_id not in unclean:
            overrides = image.config(TOPIC_RESOURCE, topic.name)
            config = effective(overrides, defaults)
            unclean[topic.topic_id] = config.unclean_leader_election_enable
        record = elect(
            topic.topic_id, partition_id, partition, active, unclean=unclean[topic.topic_id]
        )
        if record is not None:
            records.append(record)
    return records


def active_brokers(image: MetadataImage) -> frozenset[int]:
    """The brokers that are registered, not fenced and not shutting down."""
    return frozenset(broker.broker_id for broker in image.brokers.values() if broker.active)
