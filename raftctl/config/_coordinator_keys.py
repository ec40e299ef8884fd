"""Keys of consumer groups and transactions; see `raftctl.config.keys`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator

from raftctl.config.addresses import split_list
from raftctl.config.keys import INT_MAX, LONG_MAX, Section, key

if TYPE_CHECKING:
    from collections.abc import Iterator

_ASSIGNOR_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def _parse_assignors(given: object) -> object:
    if not isinstance(given, str):
        return given
    return tuple(_ASSIGNOR_CLASSES.get(name, name) for name in split_list(given))


def _parse_protocols(given: object) -> object:
    return split_list(given.lower()) if isinstance(given, str) else given


def _lower(given: object) -> object:
    return given.lower() if isinstance(given, str) else given


Assignors = Annotated[tuple[Literal["uniform", "range"], ...], BeforeValidator(_parse_assignors)]
RebalanceProtocols = Annotated[
    tuple[Literal["classic", "consumer"], ...], BeforeValidator(_parse_protocols)
]
MigrationPolicy = Annotated[
    Literal["disabled", "upgrade", "downgrade", "bidirectional"], BeforeValidator(_lower)
]


class GroupKeys(Section):
    """Consumer groups"""

    offsets_topic_num_partitions: int = key(
        50, "The partitions of `__consumer_offsets` when it is created.", at_least=1
    )
    offsets_topic_replication_factor: int = key(
        3,
        "The replicas of `__consumer_offsets` when it is created, or as many as there are brokers "
        "if these are fewer (Apache Kafka: then it is not created).",
        at_least=1,
        at_most=32_767,
    )
    offsets_topic_segment_bytes: int = key(
        104_857_600, "The segment size of `__consumer_offsets`.", at_least=14
    )
    offsets_load_buffer_size: int = key(
        5_242_880,
        "The bytes read at a time while a coordinator takes up its partition; a larger first "
        "batch passes.",
        at_least=1,
    )
    offsets_commit_timeout_ms: int = key(
        5_000, "How long a coordinator waits until what it wrote is committed.", at_least=1
    )
    offset_metadata_max_bytes: int = key(
        4_096, "The longest text that a client may store with an offset.", at_least=0
    )
    offsets_retention_minutes: int = key(
        10_080,
        "How long offsets are kept after their group has lost its last member, or after the commit "
        "if the group has none or does not read the topic any more.",
        at_least=1,
    )
    offsets_retention_check_interval_ms: int = key(
        600_000,
        "How often it is looked for offsets that are not to be kept.",
        at_least=1,
        at_most=LONG_MAX,
    )
    group_initial_rebalance_delay_ms: int = key(
        3_000, "How long the first member of a group waits for others.", at_least=0
    )
    group_min_session_timeout_ms: int = key(
        6_000, "The shortest `session.timeout.ms` that a member may ask for.", at_least=0
    )
    group_max_session_timeout_ms: int = key(
        1_800_000, "The longest `session.timeout.ms` that a member may ask for.", at_least=0
    )
    group_max_size: int = key(
        INT_MAX, "The members that a group of the classic protocol may have.", at_least=1
    )
    group_coordinator_append_linger_ms: int = key(
        -1,
        "How long commits of offsets wait for others to share a batch with; -1: only while others "
        "are on their way to the followers, and no more than 5 ms.",
        at_least=-1,
    )
    group_coordinator_rebalance_protocols: RebalanceProtocols = key(
        ("classic", "consumer"),
        "The protocols of groups: `classic`, which is always served, and `consumer` (KIP-848).",
    )
    group_consumer_session_timeout_ms: int = key(
        45_000,
        "How long a member of a group of the consumer protocol may be silent, unless "
        "`consumer.session.timeout.ms` of its group says otherwise.",
        at_least=1,
    )
    group_consumer_min_session_timeout_ms: int = key(
        45_000, "The least `group.consumer.session.timeout.ms`.", at_least=1
    )
    group_consumer_max_session_timeout_ms: int = key(
        60_000, "The greatest `group.consumer.session.timeout.ms`.", at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = key(
        5_000,
        "How often a member of a group of the consumer protocol reports, unless "
        "`consumer.heartbeat.interval.ms` of its group says otherwise.",
        at_least=1,
    )
    group_consumer_min_heartbeat_interval_ms: int = key(
        5_000, "The least `group.consumer.heartbeat.interval.ms`.", at_least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = key(
        15_000, "The greatest `group.consumer.heartbeat.interval.ms`.", at_least=1
    )
    group_consumer_max_size: int = key(
        INT_MAX, "The members that a group of the consumer protocol may have.", at_least=1
    )
    group_consumer_assignors: Assignors = key(
        ("uniform", "range"),
        "The assignors of groups of the consumer protocol; the first is taken when no member asks "
        "for one. Apache Kafka's names of their classes are understood too.",
    )
    group_consumer_migration_policy: MigrationPolicy = key(
        "bidirectional",
        "Which groups with members change their protocol: `upgrade`, those of consumers of the "
        "classic protocol that a member of the consumer protocol joins; `downgrade`, those that "
        "its last such member leaves; `bidirectional`, both; `disabled`, none. Groups without "
        "members always do.",
    )

    def _consumer_group_problems(self) -> Iterator[str]:
        """Return the contradictions between these keys."""
        for what in ("session.timeout", "heartbeat.interval"):
            low, value, high = (
                getattr(self, f"group_consumer_{bound}{what.replace('.', '_')}_ms")
                for bound in ("min_", "", "max_")
            )
            if not low <= value <= high:
                yield (
                    f"group.consumer.{what}.ms={value} is not between group.consumer.min.{what}.ms="
                    f"{low} and group.consumer.max.{what}.ms={high}: change one of the three"
                )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            yield (
                "group.consumer.heartbeat.interval.ms must be less than "
                "group.consumer.session.timeout.ms: make it smaller"
            )
        if "classic" not in self.group_coordinator_rebalance_protocols:
            yield "group.coordinator.rebalance.protocols lacks classic: add it"
        if not self.group_consumer_assignors:
            yield "group.consumer.assignors is empty: write uniform, range or both"


class TransactionKeys(Section):
    """Transactions"""

    transaction_state_log_num_partitions: int = key(
        50, "The partitions of `__transaction_state` when it is created.", at_least=1
    )
    transaction_state_log_replication_factor: int = key(
        3,
        "The replicas of `__transaction_state` when it is created, or as many as there are brokers "
        "if these are fewer (Apache Kafka: then it is not created).",
        at_least=1,
        at_most=32_767,
    )
    transaction_state_log_min_isr: int = key(
        2, "`min.insync.replicas` of `__transaction_state`.", at_least=1
    )
    transaction_state_log_segment_bytes: int = key(
        104_857_600, "The segment size of `__transaction_state`.", at_least=14
    )
    transaction_partition_verification_enable: bool = key(
        True,
        "Whether a partition's leader asks the coordinator if records belong to an open "
        "transaction before the first of them is written. For clients of transaction version 2 it "
        "always does.",
    )
    add_partitions_to_txn_retry_backoff_ms: int = key(
        20,
        "How long a leader waits before it adds a partition again to the transaction of a producer "
        "whose last one is just ending.",
        at_least=1,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = key(
        100,
        "How long it waits altogether; then the producer is told to send again. A coordinator that "
        "is asked by the producer itself waits as long, until the last transaction has ended.",
        at_least=0,
    )
    transaction_max_timeout_ms: int = key(
        900_000, "The longest `transaction.timeout.ms` that a producer may ask for.", at_least=1
    )
    transactional_id_expiration_ms: int = key(
        604_800_000,
        "How long a transactional id is remembered that nobody uses.",
        at_least=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        10_000,
        "How often it is looked for transactions that take longer than their timeout.",
        at_least=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        3_600_000, "How often it is looked for transactional ids that nobody uses.", at_least=1
    )
