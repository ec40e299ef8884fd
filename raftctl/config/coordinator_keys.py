"""The keys of consumer groups and transactions; see `raftctl.config.keys`."""

from __future__ import annotations

from raftctl.config.keys import INT_MAX, LONG_MAX, Section, key


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
    group_max_size: int = key(INT_MAX, "The members that a group may have.", at_least=1)


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
        "How long it waits altogether; then the producer is told to send again.",
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
