"""Every key once: Apache Kafka's name, our type, default, bounds and description.

A section is a model whose fields are keys: the attribute is the key with dots as underscores. Times
are milliseconds where the name ends in `ms`, sizes are bytes. Where a default differs from Apache
Kafka's the description says so. `raftctl.config._model` joins the sections and checks across keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from raftctl.config._definition import Flag, Section
from raftctl.config._definition import key as _key
from raftctl.config._definition import parsed_by as _parsed_by
from raftctl.config.addresses import (
    Listener,
    Server,
    Voter,
    parse_listener,
    parse_listeners,
    parse_protocols,
    parse_servers,
    parse_voters,
    split_list,
)
from raftctl.config.security import SECURITY_PROTOCOLS, SecurityProtocol
from raftctl.integers import INT_MAX, LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator


LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

Role = Literal["controller", "broker"]


def _parse_name(text: str) -> str | None:
    return text.strip().upper() or None


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(name.upper() for name in split_list(text))


def _parse_selector(text: str) -> str:
    name = text.strip()
    if name not in (LEADER_SELECTOR, RACK_AWARE_SELECTOR):
        raise ValueError(f"{name!r} is unknown: write {LEADER_SELECTOR} or {RACK_AWARE_SELECTOR}")
    return name


def _parse_collector(text: str) -> str | None:
    url = text.strip()
    parts = urlsplit(url)
    if url and not (parts.scheme in ("http", "https") and parts.hostname):
        raise ValueError(f"{url!r}: write http://host:4318/v1/traces")
    if "@" in parts.netloc:
        # The text of the key is shown; a header of OTEL_EXPORTER_OTLP_HEADERS is not.
        raise ValueError("no password in the address: set OTEL_EXPORTER_OTLP_HEADERS")
    return url or None


CollectorUrl = Annotated[str | None, _parsed_by(_parse_collector)]
SelectorClass = Annotated[str, _parsed_by(_parse_selector)]
Names = Annotated[tuple[str, ...], _parsed_by(_parse_names)]
Directories = Annotated[tuple[str, ...], _parsed_by(split_list)]
Policies = Annotated[tuple[Literal["delete", "compact"], ...], _parsed_by(split_list)]
Ratio = Annotated[float, Field(ge=0, le=1)]
Roles = Annotated[tuple[Role, ...], _parsed_by(split_list)]
Voters = Annotated[tuple[Voter, ...], _parsed_by(parse_voters)]
Servers = Annotated[tuple[Server, ...], _parsed_by(parse_servers)]
Listeners = Annotated[tuple[Listener, ...], _parsed_by(parse_listeners)]
Protocols = Annotated[dict[str, SecurityProtocol], _parsed_by(parse_protocols)]
OneListener = Annotated[Listener | None, _parsed_by(parse_listener)]
ListenerName = Annotated[str | None, _parsed_by(_parse_name)]
InterBrokerProtocol = Annotated[SecurityProtocol | None, _parsed_by(_parse_name)]


class NodeKeys(Section):
    """Node"""

    process_roles: Roles = _key(
        ..., "What the node is: `controller`, `broker`, or both.", example="controller,broker"
    )
    node_id: int = _key(
        ...,
        "The number of this node, unique in the cluster, controllers and brokers together.",
        at_least=0,
        example="1",
    )
    broker_rack: str | None = _key(
        None, "The rack of this broker; replicas of a partition are spread over racks."
    )
    broker_plugin: str = _key(
        "kafka", "Which broker runs here: a name of the entry points `raftctl.brokers`. Ours."
    )
    broker_memory_max_bytes: int = _key(
        1 << 30,
        "What the files of the broker `memory` may come to; beyond it the broker ends, as with a "
        "full disk. Ours.",
        at_least=1 << 20,
        at_most=LONG_MAX,
    )
    log_dirs: Directories = _key(
        ...,
        "The directories that hold the partitions' logs, separated by commas. No default here.",
        example="/var/lib/raftctl",
    )
    metadata_log_dir: str | None = _key(
        None, "The directory of the metadata log. Default: the first of `log.dirs`."
    )


class ListenerKeys(Section):
    """Listeners and connections"""

    listeners: Listeners = _key(
        (Listener("PLAINTEXT", "127.0.0.1", 9092),),
        "Where the node listens, `NAME://host:port,...`. Without a host it is 127.0.0.1 (Apache "
        "Kafka: every interface).",
    )
    http_listener: OneListener = _key(
        None,
        "Where a node that is only a broker serves HTTP, `NAME://host:port`: signs of life, "
        "metrics and the console. Controllers serve it on their own listener. Default: nowhere.",
        example="HTTP://127.0.0.1:9095",
    )
    advertised_listeners: Listeners = _key(
        (), "The addresses that clients and brokers get. Default: the broker's `listeners`."
    )
    listener_security_protocol_map: Protocols = _key(
        {protocol: protocol for protocol in SECURITY_PROTOCOLS},
        "The protocol of each listener, `NAME:PROTOCOL,...`. Listeners of controllers and of HTTP "
        "need no entry while all listeners are PLAINTEXT.",
    )
    inter_broker_listener_name: ListenerName = _key(
        None,
        "The listener over which brokers replicate. Default: `security.inter.broker.protocol`, "
        "else PLAINTEXT if there is one, else the first.",
    )
    security_inter_broker_protocol: InterBrokerProtocol = _key(
        None, "The same for a listener that has the name of its protocol; not both."
    )
    queued_max_requests: int = _key(
        500,
        "Produce requests of all connections started behind an unanswered one; beyond it sockets "
        "wait.",
        at_least=1,
    )
    max_connections: int = _key(
        INT_MAX,
        "Connections open at once; beyond it new ones wait. Where brokers have a listener of their "
        "own they still connect, and the quietest client goes.",
        at_least=0,
    )
    connections_max_idle_ms: int = _key(
        600_000, "An idle connection is closed after this long.", at_least=1, at_most=LONG_MAX
    )
    slow_request_ms: int = _key(
        1_000,
        "A request that took longer has a line in the log: the time of each of its stages, and "
        "what it waited for. At most ten lines a second. What Fetch and JoinGroup wait for does "
        "not count: they are meant to wait. Ours.",
        at_least=0,
    )
    socket_request_max_bytes: int = _key(
        104_857_600, "The largest request; a larger one closes its connection.", at_least=1
    )


class MetricsKeys(Section):
    """Metrics"""

    metrics_partitions: Literal["none", "problem", "all"] = _key(
        "problem",
        "Which partitions of a broker have series of their own at `/metrics`. `problem`: all while "
        "they fit into `metrics.series.max`, else those that are offline, under-replicated or out "
        "of sync. `all`: those first, then others while they fit. `none`: no partition. What has "
        "no series is in sums, with the topic `(other)`. Ours.",
    )
    metrics_series_max: int = _key(
        1_500,
        "Beyond this number of series at `/metrics`, no topic and no partition gets some of its "
        "own. Topics get at most half of what other metrics leave. Ours.",
        at_least=0,
        at_most=1_000_000,
    )
    metrics_group_lag_interval_ms: int = _key(
        10_000,
        "How often a broker works out the lag of the groups that it coordinates, for `/metrics`. "
        "0: never. Ours.",
        at_least=0,
    )


class TracingKeys(Section):
    """Traces"""

    tracing_otlp_endpoint: CollectorUrl = _key(
        None,
        "Where spans of requests go, by OpenTelemetry's protocol over HTTP. It needs "
        "`raftctl[tracing]`. Default: nowhere, no request is traced. Ours.",
        example="http://127.0.0.1:4318/v1/traces",
    )
    tracing_sampling_ratio: Ratio = _key(
        0.01,
        "The share of requests that begin a trace. A request over HTTP whose `traceparent` says "
        "that its client records it is traced besides. Ours.",
    )


class QuorumKeys(Section):
    """Quorum"""

    controller_quorum_voters: Voters = _key(
        (),
        "The voters of a static quorum: `id@host:port,...`. A log that names voters overrules it.",
        example="1@127.0.0.1:9093",
    )
    controller_quorum_bootstrap_servers: Servers = _key(
        (),
        "Controllers to ask for the leader while it is not known: `host:port,...`. Needed where "
        "voters may change; `raftctl storage format` then says who votes first.",
        example="127.0.0.1:9093",
    )
    controller_listener_names: Names = _key(
        ("CONTROLLER",),
        "The listeners that controllers use; the first is how others reach them. Apache Kafka has "
        "no default.",
    )
    controller_quorum_election_timeout_ms: int = _key(
        1_000, "A vote without majority ends after this long, up to doubled at random.", at_least=1
    )
    controller_quorum_fetch_timeout_ms: int = _key(
        2_000,
        "A follower that cannot fetch from the leader for so long asks for an election; a leader "
        "without a fetching majority for 1.5 times as long resigns.",
        at_least=1,
    )
    controller_quorum_election_backoff_max_ms: int = _key(
        1_000, "The longest wait of a candidate before it tries again.", at_least=0
    )
    controller_quorum_request_timeout_ms: int = _key(
        2_000, "A request to another node fails after this long without an answer.", at_least=1
    )
    controller_quorum_retry_backoff_ms: int = _key(
        20, "The wait before a failed request is sent again.", at_least=0
    )
    metadata_log_segment_bytes: int = _key(
        1 << 30, "The size at which the metadata log starts a new segment.", at_least=12
    )
    metadata_log_max_record_bytes_between_snapshots: int = _key(
        20 * 1024 * 1024,
        "A snapshot of the metadata is taken when the log has grown by so much since the last.",
        at_least=1,
        at_most=LONG_MAX,
    )
    metadata_log_max_snapshot_interval_ms: int = _key(
        3_600_000,
        "A snapshot of the metadata is taken this long after the last if anything changed; 0: only "
        "by size.",
        at_least=0,
        at_most=LONG_MAX,
    )
    metadata_max_retention_bytes: int = _key(
        100 * 1024 * 1024,
        "The size of metadata log and snapshots above which the oldest snapshots, and what stands "
        "before the next, are deleted, -1: no limit. The newest snapshot always stays.",
        at_least=-1,
        at_most=LONG_MAX,
    )
    metadata_max_retention_ms: int = _key(
        604_800_000,
        "The age at which a snapshot that has a newer one is deleted, -1: never.",
        at_least=-1,
        at_most=LONG_MAX,
    )
    kv_max_bytes: int = _key(
        256 * 1024 * 1024,
        "How much keys, locks and their values may take together; every node keeps all of it in "
        "memory. "
        "The same on all controllers.",
        at_least=1,
        at_most=LONG_MAX,
    )
    metadata_max_idle_interval_ms: int = _key(
        500,
        "An idle active controller writes a no-op record this often, so that lag shows in time; 0: "
        "never.",
        at_least=0,
    )


class ClusterKeys(Section):
    """Brokers in the cluster"""

    broker_heartbeat_interval_ms: int = _key(
        2_000, "How often a broker reports to the active controller.", at_least=1
    )
    broker_session_timeout_ms: int = _key(
        9_000, "A broker silent for this long is fenced and loses its leaders.", at_least=1
    )
    initial_broker_registration_timeout_ms: int = _key(
        60_000, "A broker that cannot register for this long stops.", at_least=1
    )
    controlled_shutdown_enable: Flag = _key(
        True, "Whether a stopping broker first hands its leaders over."
    )
    auto_leader_rebalance_enable: Flag = _key(
        True, "Whether preferred replicas get their leadership back from time to time."
    )
    leader_imbalance_check_interval_seconds: int = _key(
        300, "How often the active controller looks whether leaders are balanced.", at_least=1
    )
    leader_imbalance_per_broker_percentage: int = _key(
        10,
        "A broker gets its leaders back when it lacks more than this share of those it is "
        "preferred for.",
        at_least=0,
        at_most=100,
    )
    unclean_leader_election_enable: Flag = _key(
        False, "Whether a replica outside the in-sync set may lead: available, but loses records."
    )


class TopicKeys(Section):
    """Topics"""

    num_partitions: int = _key(1, "The partitions of a topic created without a count.", at_least=1)
    default_replication_factor: int = _key(
        1, "The replicas of a topic created without a count.", at_least=1, at_most=32_767
    )
    min_insync_replicas: int = _key(
        1, "A produce with acks=all is refused while fewer replicas are in sync.", at_least=1
    )
    auto_create_topics_enable: Flag = _key(
        True, "Whether a topic is created when a client that may ask for it names it."
    )
    delete_topic_enable: Flag = _key(True, "Whether topics can be deleted.")
    message_max_bytes: int = _key(
        1_048_588, "The largest record batch, as compressed by the client.", at_least=0
    )
    compression_type: Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"] = _key(
        "producer", "How batches are stored; `producer` keeps what the producer chose."
    )
    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = _key(
        "CreateTime", "Whether a record keeps its client's time or gets the broker's."
    )
    log_message_timestamp_after_max_ms: int = _key(
        3_600_000,
        "How far a record's time may be ahead of the broker's.",
        at_least=0,
        at_most=LONG_MAX,
    )
    log_message_timestamp_before_max_ms: int = _key(
        LONG_MAX,
        "How far a record's time may be behind the broker's.",
        at_least=0,
        at_most=LONG_MAX,
    )


class LogKeys(Section):
    """Partition logs"""

    log_segment_bytes: int = _key(
        1 << 30, "The size at which a log starts a new segment.", at_least=14
    )
    log_roll_ms: int | None = _key(
        None,
        "The age at which a log starts a new segment. Default: `log.roll.hours`.",
        at_least=1,
        at_most=LONG_MAX,
    )
    log_roll_hours: int = _key(168, "The same in hours.", at_least=1)
    log_index_interval_bytes: int = _key(
        4_096, "About one entry of the offset index per so many bytes of log.", at_least=0
    )
    log_index_size_max_bytes: int = _key(
        10 << 20, "The largest index; a full one starts a new segment.", at_least=12
    )
    log_retention_ms: int | None = _key(
        None,
        "The age at which a segment is deleted, -1: never. Default: `log.retention.minutes`.",
        at_least=-1,
        at_most=LONG_MAX,
    )
    log_retention_minutes: int | None = _key(
        None, "The same in minutes. Default: `log.retention.hours`.", at_least=-1
    )
    log_retention_hours: int = _key(168, "The same in hours.", at_least=-1)
    log_retention_bytes: int = _key(
        -1,
        "The size of a partition above which its oldest segments are deleted, -1: no limit.",
        at_least=-1,
        at_most=LONG_MAX,
    )
    log_flush_interval_messages: int = _key(
        LONG_MAX,
        "Records after which a log is flushed to disk. Default: left to replication.",
        at_least=1,
        at_most=LONG_MAX,
    )
    log_flush_interval_ms: int | None = _key(
        None,
        "Time after which a log is flushed to disk. Default: left to replication.",
        at_least=0,
        at_most=LONG_MAX,
    )
    log_flush_scheduler_interval_ms: int | None = _key(
        None,
        "How often logs are looked at for a flush by time. Default: each second.",
        at_least=1,
        at_most=LONG_MAX,
    )
    log_flush_offset_checkpoint_interval_ms: int = _key(
        5_000, "How often recovery points, log starts and high watermarks are written.", at_least=1
    )
    flush_on_ack: Flag = _key(
        False,
        "Whether acks=all means that every in-sync replica has flushed the records to its disk.",
    )
    log_retention_check_interval_ms: int = _key(
        300_000, "How often logs are looked at for segments to delete.", at_least=1
    )
    log_segment_delete_delay_ms: int = _key(
        60_000,
        "How long the files of a deleted segment stay on disk.",
        at_least=0,
        at_most=LONG_MAX,
    )
    log_roll_jitter_ms: int | None = _key(
        None,
        "At most so much is taken from `log.roll.ms`, so that not all logs roll at once. "
        "Default: `log.roll.jitter.hours`.",
        at_least=0,
        at_most=LONG_MAX,
    )
    log_roll_jitter_hours: int = _key(0, "The same in hours.", at_least=0)
    log_cleanup_policy: Policies = _key(
        ("delete",), "What happens to old segments: `delete`, `compact`, or both."
    )
    num_recovery_threads_per_data_dir: int = _key(
        2,
        "How many logs of a directory are opened, and at a stop made durable, at the same time.",
        at_least=1,
        at_most=64,
    )
    producer_id_expiration_ms: int = _key(
        86_400_000, "An idempotent producer silent for this long is forgotten.", at_least=1
    )


class CleanerKeys(Section):
    """Compaction"""

    log_cleaner_enable: Flag = _key(True, "Whether topics with `compact` are compacted.")
    log_cleaner_backoff_ms: int = _key(
        15_000, "How often it is asked whether a log is dirty enough.", at_least=1
    )
    log_cleaner_dedupe_buffer_size: int = _key(
        128 << 20,
        "The memory, in bytes, for the keys of one compaction; 24 for a key.",
        at_least=1 << 20,
        at_most=LONG_MAX,
    )
    log_cleaner_delete_retention_ms: int = _key(
        86_400_000, "How long a compacted topic keeps a tombstone.", at_least=0, at_most=LONG_MAX
    )
    log_cleaner_min_compaction_lag_ms: int = _key(
        0, "The shortest time that a record stays uncompacted.", at_least=0, at_most=LONG_MAX
    )
    log_cleaner_max_compaction_lag_ms: int = _key(
        LONG_MAX,
        "The longest time that a record may stay uncompacted.",
        at_least=1,
        at_most=LONG_MAX,
    )
    log_cleaner_min_cleanable_ratio: Ratio = _key(
        0.5, "The share of uncompacted log at which compaction begins."
    )


class ReplicationKeys(Section):
    """Replication and fetching"""

    replica_lag_time_max_ms: int = _key(
        30_000,
        "A follower that has not caught up for this long leaves the in-sync set.",
        at_least=1,
        at_most=LONG_MAX,
    )
    num_replica_fetchers: int = _key(
        1,
        "Connections of a follower to each leading broker; they share its partitions.",
        at_least=1,
    )
    replica_fetch_wait_max_ms: int = _key(
        500, "The longest wait of a follower's fetch for new records.", at_least=0
    )
    replica_fetch_min_bytes: int = _key(
        1, "What a follower's fetch waits for, at most `replica.fetch.wait.max.ms`.", at_least=0
    )
    replica_fetch_max_bytes: int = _key(
        1_048_576, "The bytes fetched of one partition; a larger first batch passes.", at_least=0
    )
    replica_fetch_response_max_bytes: int = _key(
        10_485_760,
        "The bytes of one answer to a follower; a larger first batch passes.",
        at_least=0,
    )
    replica_fetch_backoff_ms: int = _key(
        1_000, "The wait of a follower after a failed fetch.", at_least=0
    )
    replica_socket_timeout_ms: int = _key(
        30_000, "A follower's request fails after this long without an answer.", at_least=1
    )
    fetch_max_bytes: int = _key(
        57_671_680,
        "The bytes of one answer to a consumer; a larger first batch passes.",
        at_least=1_024,
    )
    replica_selector_class: SelectorClass = _key(
        LEADER_SELECTOR,
        "Where consumers read: from the leader, or with "
        f"`{RACK_AWARE_SELECTOR}` from an in-sync replica in the rack of their `client.rack`.",
    )
    max_incremental_fetch_session_cache_slots: int = _key(
        1_000,
        "Fetch sessions that are kept; without one a client sends all its partitions each time.",
        at_least=0,
    )


# --- groups and transactions ----------------------------------------------------------------------

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

    offsets_topic_num_partitions: int = _key(
        50, "The partitions of `__consumer_offsets` when it is created.", at_least=1
    )
    offsets_topic_replication_factor: int = _key(
        3,
        "The replicas of `__consumer_offsets` when it is created, or as many as there are brokers "
        "if these are fewer (Apache Kafka: then it is not created).",
        at_least=1,
        at_most=32_767,
    )
    offsets_topic_segment_bytes: int = _key(
        104_857_600, "The segment size of `__consumer_offsets`.", at_least=14
    )
    offsets_load_buffer_size: int = _key(
        5_242_880,
        "The bytes read at a time while a coordinator takes up its partition; a larger first "
        "batch passes.",
        at_least=1,
    )
    offsets_commit_timeout_ms: int = _key(
        5_000, "How long a coordinator waits until what it wrote is committed.", at_least=1
    )
    offset_metadata_max_bytes: int = _key(
        4_096, "The longest text that a client may store with an offset.", at_least=0
    )
    offsets_retention_minutes: int = _key(
        10_080,
        "How long offsets are kept after their group has lost its last member, or after the commit "
        "if the group has none or does not read the topic any more.",
        at_least=1,
    )
    offsets_retention_check_interval_ms: int = _key(
        600_000,
        "How often it is looked for offsets that are not to be kept.",
        at_least=1,
        at_most=LONG_MAX,
    )
    group_initial_rebalance_delay_ms: int = _key(
        3_000, "How long the first member of a group waits for others.", at_least=0
    )
    group_min_session_timeout_ms: int = _key(
        6_000, "The shortest `session.timeout.ms` that a member may ask for.", at_least=0
    )
    group_max_session_timeout_ms: int = _key(
        1_800_000, "The longest `session.timeout.ms` that a member may ask for.", at_least=0
    )
    group_max_size: int = _key(
        INT_MAX, "The members that a group of the classic protocol may have.", at_least=1
    )
    group_coordinator_append_linger_ms: int = _key(
        -1,
        "How long commits of offsets wait for others to share a batch with; -1: only while others "
        "are on their way to the followers, and no more than 5 ms.",
        at_least=-1,
    )
    group_coordinator_rebalance_protocols: RebalanceProtocols = _key(
        ("classic", "consumer"),
        "The protocols of groups: `classic`, which is always served, and `consumer` (KIP-848).",
    )
    group_consumer_session_timeout_ms: int = _key(
        45_000,
        "How long a member of a group of the consumer protocol may be silent, unless "
        "`consumer.session.timeout.ms` of its group says otherwise.",
        at_least=1,
    )
    group_consumer_min_session_timeout_ms: int = _key(
        45_000, "The least `group.consumer.session.timeout.ms`.", at_least=1
    )
    group_consumer_max_session_timeout_ms: int = _key(
        60_000, "The greatest `group.consumer.session.timeout.ms`.", at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = _key(
        5_000,
        "How often a member of a group of the consumer protocol reports, unless "
        "`consumer.heartbeat.interval.ms` of its group says otherwise.",
        at_least=1,
    )
    group_consumer_min_heartbeat_interval_ms: int = _key(
        5_000, "The least `group.consumer.heartbeat.interval.ms`.", at_least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = _key(
        15_000, "The greatest `group.consumer.heartbeat.interval.ms`.", at_least=1
    )
    group_consumer_max_size: int = _key(
        INT_MAX, "The members that a group of the consumer protocol may have.", at_least=1
    )
    group_consumer_regex_refresh_interval_ms: int = _key(
        600_000,
        "How often the regular expressions that members subscribe to are matched again, so that "
        "changed rules of access have effect; new topics are found earlier.",
        at_least=10_000,
    )
    group_consumer_assignors: Assignors = _key(
        ("uniform", "range"),
        "The assignors of groups of the consumer protocol; the first is taken when no member asks "
        "for one. Apache Kafka's names of their classes are understood too.",
    )
    group_consumer_migration_policy: MigrationPolicy = _key(
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


class TelemetryKeys(Section):
    """Telemetry of clients"""

    telemetry_max_bytes: int = _key(
        1_048_576,
        "The most bytes that clients may push at once, packed and unpacked (KIP-714). Clients push "
        "only where the extra `telemetry` is installed.",
        at_least=1,
    )
    telemetry_series_max: int = _key(
        300,
        "The most series at `/metrics` of what clients push; points beyond are dropped. Ours.",
        at_least=0,
        at_most=1_000_000,
    )
    telemetry_instances_max: int = _key(
        0,
        "How many client instances have series of their own at `/metrics`. Those of all others are "
        "added and averaged by software and version. Ours.",
        at_least=0,
        at_most=10_000,
    )


class TransactionKeys(Section):
    """Transactions"""

    transaction_state_log_num_partitions: int = _key(
        50, "The partitions of `__transaction_state` when it is created.", at_least=1
    )
    transaction_state_log_replication_factor: int = _key(
        3,
        "The replicas of `__transaction_state` when it is created, or as many as there are brokers "
        "if these are fewer (Apache Kafka: then it is not created).",
        at_least=1,
        at_most=32_767,
    )
    transaction_state_log_min_isr: int = _key(
        2, "`min.insync.replicas` of `__transaction_state`.", at_least=1
    )
    transaction_state_log_segment_bytes: int = _key(
        104_857_600, "The segment size of `__transaction_state`.", at_least=14
    )
    transaction_partition_verification_enable: bool = _key(
        True,
        "Whether a partition's leader asks the coordinator if records belong to an open "
        "transaction before the first of them is written. For clients of transaction version 2 it "
        "always does.",
    )
    add_partitions_to_txn_retry_backoff_ms: int = _key(
        20,
        "How long a leader waits before it adds a partition again to the transaction of a producer "
        "whose last one is just ending.",
        at_least=1,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = _key(
        100,
        "How long it waits altogether; then the producer has to send again. A coordinator that "
        "is asked by the producer itself waits as long, until the last transaction has ended.",
        at_least=0,
    )
    transaction_max_timeout_ms: int = _key(
        900_000, "The longest `transaction.timeout.ms` that a producer may ask for.", at_least=1
    )
    transactional_id_expiration_ms: int = _key(
        604_800_000,
        "How long a transactional id is remembered that nobody uses.",
        at_least=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _key(
        10_000,
        "How often it is looked for transactions that take longer than their timeout.",
        at_least=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _key(
        3_600_000, "How often it is looked for transactional ids that nobody uses.", at_least=1
    )
