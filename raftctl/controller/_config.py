"""Part of a node's configuration that the controller depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raftctl.metadata.configs.dynamic import GROUP_KEYS, group_keys
from raftctl.metadata.configs.topic import TopicConfig, TopicKey, topic_defaults
from raftctl.security.delegation_tokens import TokenSecret

if TYPE_CHECKING:
    from raftctl.config import NodeConfig


SESSION_TIMEOUT_KEY = "broker.session.timeout.ms"
KV_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Fixed for the life of a controller; the same on all controllers of a cluster."""

    cluster_id: str = ""
    session_timeout_ms: int = 9_000
    """A broker silent for this long is fenced."""
    default_partitions: int = 1
    default_replication_factor: int = 1
    topic_deletion: bool = True
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    """Configs of a topic without overrides."""
    group_keys: Mapping[str, TopicKey] = field(default_factory=lambda: GROUP_KEYS)
    """Keys that may be set for a group, with their bounds."""
    producer_id_block: int = 1_000
    """Producer ids allocated at a time."""
    request_partitions_max: int = 10_000
    """Partitions of one CreateTopics request; they become one batch of records."""
    slice_examined_max: int = 10_000
    """Partitions examined between two messages of the quorum, in a pass over many."""
    slice_changes_max: int = 1_000
    """Partitions changed between two messages of the quorum."""
    kv_bytes_max: int = KV_BYTES_MAX
    """Bytes of all keys and their values."""
    authorizer: str = ""
    """The name of who decides on requests; empty: nobody does."""
    token_secret: TokenSecret | None = None
    """Makes delegation tokens; None: there are none."""
    token_max_lifetime_ms: int = 604_800_000
    token_expiry_time_ms: int = 86_400_000
    """How long a delegation token that is not renewed is valid."""
    token_check_interval_ms: int = 3_600_000
    """How often delegation tokens that have expired are removed."""
    leader_rebalance: bool = True
    leader_imbalance_check_ms: int = 300_000
    leader_imbalance_percentage: int = 10
    """Share of its preferred partitions that a broker may not lead, before the balancer acts."""

    @classmethod
    def of(cls, config: NodeConfig, cluster_id: str) -> ControllerConfig:
        """Return the controller's part of a node's configuration."""
        return cls(
            cluster_id=cluster_id,
            session_timeout_ms=config.broker_session_timeout_ms,
            default_partitions=config.num_partitions,
            default_replication_factor=config.default_replication_factor,
            topic_deletion=config.delete_topic_enable,
            topic_defaults=topic_defaults(config),
            group_keys=group_keys(
                {
                    "consumer.session.timeout.ms": (
                        config.group_consumer_min_session_timeout_ms,
                        config.group_consumer_max_session_timeout_ms,
                    ),
                    "consumer.heartbeat.interval.ms": (
                        config.group_consumer_min_heartbeat_interval_ms,
                        config.group_consumer_max_heartbeat_interval_ms,
                    ),
                }
            ),
            kv_bytes_max=config.kv_max_bytes,
            authorizer=config.authorizer_class_name,
            token_secret=TokenSecret.of(config),
            token_max_lifetime_ms=config.delegation_token_max_lifetime_ms,
            token_expiry_time_ms=config.delegation_token_expiry_time_ms,
            token_check_interval_ms=config.delegation_token_expiry_check_interval_ms,
            leader_rebalance=config.auto_leader_rebalance_enable,
            leader_imbalance_check_ms=config.leader_imbalance_check_interval_seconds * 1000,
            leader_imbalance_percentage=config.leader_imbalance_per_broker_percentage,
        )

    def settings(self) -> tuple[str, ...]:
        """Return `key=value` of each setting that decides while this controller is active.

        Controllers register with these, so that a warning can name settings that differ.
        """
        shared: dict[str, int | bool | str] = {
            SESSION_TIMEOUT_KEY: self.session_timeout_ms,
            "num.partitions": self.default_partitions,
            "default.replication.factor": self.default_replication_factor,
            "delete.topic.enable": self.topic_deletion,
            "kv.max.bytes": self.kv_bytes_max,
            "auto.leader.rebalance.enable": self.leader_rebalance,
            "authorizer.class.name": self.authorizer,
            "delegation.token.max.lifetime.ms": self.token_max_lifetime_ms,
            "delegation.token.expiry.time.ms": self.token_expiry_time_ms,
        }
        return tuple(f"{key}={str(value).lower()}" for key, value in shared.items())
