"""The brokers' own topics: how they are made, who is whose coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.types import TRANSACTION_STATE
from raftctl.metadata.requests import NewTopic

if TYPE_CHECKING:
    from raftctl.config import NodeConfig

_INT_MIN = -(2**31)


def partition_of(key: str, count: int) -> int:
    """The partition that holds a group or transactional id: as every Kafka client and tool says.

    Java's hash code of the id, its absolute value, modulo the number of partitions.
    """
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    if value >= 2**31:
        value -= 2**32
    return (0 if value == _INT_MIN else abs(value)) % count


def new_topic(name: str, config: NodeConfig, live_brokers: int) -> NewTopic:
    """How one of `INTERNAL_TOPICS` is created: replicated as far as there are brokers."""
    partitions = config.offsets_topic_num_partitions
    wanted = config.offsets_topic_replication_factor
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    if name == TRANSACTION_STATE:
        partitions = config.transaction_state_log_num_partitions
        wanted = config.transaction_state_log_replication_factor
        configs |= {
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "unclean.leader.election.enable": "false",
        }
    replicas = max(1, min(wanted, live_brokers))
    return NewTopic(name, partitions, replicas, (), tuple(configs.items()))
