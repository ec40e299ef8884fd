"""The brokers' own topics: how they are made, who is whose coordinator."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from broker.types import TRANSACTION_STATE
from raftctl.metadata.requests.cluster import NewTopic

if TYPE_CHECKING:
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage

OPEN = -1
"""The number of partitions or replicas of a new topic that the cluster decides."""
_INT_MIN = -(2**31)
_IDS_MAX = 1_024
"""Ids of which the partition is remembered: a member names its group in each request."""


@lru_cache(_IDS_MAX)
def partition_of(key: str, count: int) -> int:
    """Return the partition that holds a group or transactional id, as every Kafka client computes
    it.

    Java's hash code of the id, its absolute value, modulo the number of partitions.
    """
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    if value >= 2**31:
        value -= 2**32
    return (0 if value == _INT_MIN else abs(value)) % count


def new_topic(name: str, config: NodeConfig, image: MetadataImage) -> NewTopic:
    """Return the request that creates one of `INTERNAL_TOPICS`, replicated as far as there are
    brokers.
    """
    return filled(NewTopic(name, OPEN, OPEN), config, image)


def filled(topic: NewTopic, config: NodeConfig, image: MetadataImage) -> NewTopic:
    """One of `INTERNAL_TOPICS` that somebody else creates: what is left open is as the brokers
    would have it, not as the cluster's ordinary topics are.
    """
    partitions = config.offsets_topic_num_partitions
    wanted = config.offsets_topic_replication_factor
    configs: dict[str, str | None] = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    if topic.name == TRANSACTION_STATE:
        partitions = config.transaction_state_log_num_partitions
        wanted = config.transaction_state_log_replication_factor
        configs |= {
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "unclean.leader.election.enable": "false",
        }
    live = sum(not broker.fenced for broker in image.brokers.values())
    replicas = max(1, min(wanted, live))
    if topic.assignments:
        partitions, replicas = topic.partitions, topic.replication_factor
    return replace(
        topic,
        partitions=partitions if topic.partitions == OPEN else topic.partitions,
        replication_factor=replicas
        if topic.replication_factor == OPEN
        else topic.replication_factor,
        configs=tuple((configs | dict(topic.configs)).items()),
    )
