"""The panels of the dashboard: rows, and in each what is drawn of which metrics.

`$cluster` and `$instance` are variables of the dashboard: the chosen cluster, and its chosen nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLUSTER = 'cluster="$cluster"'
_NODES = f'{_CLUSTER},instance=~"$instance"'
ALL, SOME = f"{{{_CLUSTER}}}", f"{{{_NODES}}}"
"""Conditions of series: of the cluster, and of the chosen nodes of it."""
WIDTH = 24
"""Columns of a dashboard."""
RANGE = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression, and how its series are named."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: a graph, a number, or a timeline of states."""

    title: str
    kind: str
    """Grafana's name: `timeseries`, `stat` or `state-timeline`."""
    unit: str
    """Grafana's name of the unit of the values."""
    queries: tuple[Query, ...]
    says: str = ""
    """What is good and what is not; empty where the title says it."""
    bad_above: float | None = None
    """From here on a number is red."""
    width: int = 8
    height: int = 7


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below one heading."""

    title: str
    panels: tuple[Panel, ...]


def _number(title: str, expression: str, says: str, bad_above: float | None = None) -> Panel:
    return Panel(title, "stat", "short", (Query(expression),), says, bad_above, 3, 4)


def _graph(title: str, unit: str, *queries: tuple[str, str], says: str = "") -> Panel:
    return Panel(title, "timeseries", unit, tuple(Query(*one) for one in queries), says)


def _some(name: str, conditions: str) -> str:
    """A series of the chosen nodes, with further conditions."""
    return f"{name}{{{_NODES},{conditions}}}" if conditions else f"{name}{SOME}"


def _rate(name: str, by: str = "", conditions: str = "") -> str:
    """The growth a second of a counter, added up by labels."""
    grouping = f" by ({by}) " if by else ""
    return f"sum{grouping}(rate({_some(name, conditions)}[{RANGE}]))"


_TOPICS = "kafka_server_brokertopicmetrics"
_REPLICAS = "kafka_server_replicamanager"
_RAFT = "kafka_server_raftmetrics"
_CONTROLLER = "kafka_controller_kafkacontroller"
_REQUESTS = "kafka_network_requestmetrics"
_JOB = 'job="raftctl"'
_P99 = 'quantile="0.99"'
_TOTAL = 'topic=""'
"""What the broker counts; sums over topics would lack those without series of their own."""
_NAMED = 'topic!=""'
"""Not the sum over all topics."""
_STAGES = (
    "requestqueuetimems",
    "localtimems",
    "remotetimems",
    "responsequeuetimems",
    "responsesendtimems",
)

ROWS = (
    Row(
        "Health",
        (
            _number(
                "Nodes that answer",
                f"sum(up{{{_CLUSTER},{_JOB}}})",
                "Nodes of the cluster that Prometheus can scrape.",
            ),
            _number(
                "Active controllers",
                f"sum({_CONTROLLER}_activecontrollercount{ALL})",
                "One, but for moments during an election.",
                2,
            ),
            _number(
                "Offline partitions",
                f"max({_CONTROLLER}_offlinepartitionscount{ALL})",
                "Nobody can read or write them.",
                1,
            ),
            _number(
                "Under-replicated",
                f"sum({_REPLICAS}_underreplicatedpartitions{ALL})",
                "Partitions whose ISR lacks a replica.",
                1,
            ),
            _number(
                "Under min ISR",
                f"sum({_REPLICAS}_underminisrpartitioncount{ALL})",
                "Partitions that take no writes with acks=all.",
                1,
            ),
            _number(
                "Fenced brokers",
                f"max({_CONTROLLER}_fencedbrokercount{ALL})",
                "Brokers that are registered and send no heartbeats.",
                1,
            ),
            _number(
                "Offline log directories",
                f"sum(kafka_log_logmanager_offlinelogdirectorycount{ALL})",
                "Directories that failed.",
                1,
            ),
            _number(
                "Unclean elections, 1 h",
                "sum(increase(kafka_controller_controllerstats_uncleanleaderelections_total"
                f"{ALL}[1h]))",
                "Leaders that were not in sync; acknowledged records may be gone.",
                1,
            ),
        ),
    ),
    Row(
        "Traffic",
        (
            _graph(
                "Bytes",
                "Bps",
                (_rate(f"{_TOPICS}_bytesin_total", conditions=_TOTAL), "in"),
                (_rate(f"{_TOPICS}_bytesout_total", conditions=_TOTAL), "out"),
                says="Of clients; replication is not in it.",
            ),
            _graph(
                "Records in",
                "cps",
                (_rate(f"{_TOPICS}_messagesin_total", "instance", _TOTAL), "{{instance}}"),
            ),
            _graph(
                "Requests by API",
                "reqps",
                (f"topk(10, {_rate(f'{_REQUESTS}_requests_total', 'request')})", "{{request}}"),
            ),
            _graph(
                "Failed requests",
                "reqps",
                (_rate(f"{_TOPICS}_failedproducerequests_total", conditions=_TOTAL), "produce"),
                (_rate(f"{_TOPICS}_failedfetchrequests_total", conditions=_TOTAL), "fetch"),
            ),
            _graph(
                "Time of a request, 99th percentile",
                "ms",
                (
                    f"topk(10, max by (request) ({_some(f'{_REQUESTS}_totaltimems', _P99)}))",
                    "{{request}}",
                ),
                says="Fetches wait on purpose for records, and members that join for others.",
            ),
            _graph(
                "Where a request's time goes, mean",
                "ms",
                *(
                    (
                        f"sum(rate({_REQUESTS}_{stage}_sum{SOME}[{RANGE}]))"
                        f" / sum(rate({_REQUESTS}_{stage}_count{SOME}[{RANGE}]))",
                        stage.removesuffix("timems"),
                    )
                    for stage in _STAGES
                ),
                says="Remote: waiting for replicas, records or members.",
            ),
            _graph(
                "Idle",
                "percentunit",
                (
                    "min by (instance)"
                    f" (kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{SOME})",
                    "{{instance}}",
                ),
                says="The part of its time in which the event loop has nothing to do.",
            ),
            _graph(
                "Connections",
                "short",
                (
                    "sum by (instance, listener)"
                    f" (kafka_server_socket_server_metrics_connection_count{SOME})",
                    "{{instance}} {{listener}}",
                ),
            ),
            _graph(
                "Busiest topics",
                "Bps",
                (
                    f"topk(10, {_rate(f'{_TOPICS}_bytesin_total', 'topic', _NAMED)})",
                    "{{topic}}",
                ),
            ),
        ),
    ),
    Row(
        "Replication",
        (
            _graph(
                "Leaders",
                "short",
                (f"sum by (instance) ({_REPLICAS}_leadercount{SOME})", "{{instance}}"),
                says="About as many on each broker.",
            ),
            _graph(
                "Under-replicated partitions",
                "short",
                (
                    f"sum by (instance) ({_REPLICAS}_underreplicatedpartitions{SOME})",
                    "{{instance}}",
                ),
            ),
            _graph(
                "Changes of the ISR",
                "cps",
                (_rate(f"{_REPLICAS}_isrshrinks_total"), "shrinks"),
                (_rate(f"{_REPLICAS}_isrexpands_total"), "expands"),
            ),
            _graph(
                "Lag of followers",
                "short",
                (
                    f"max by (instance) (kafka_server_replicafetchermanager_maxlag{SOME})",
                    "{{instance}}",
                ),
                says="Records of the replica that lags most.",
            ),
            _graph(
                "Partitions that move",
                "short",
                (f"sum by (instance) ({_REPLICAS}_reassigningpartitions{SOME})", "{{instance}}"),
            ),
            _graph(
                "Largest topics",
                "bytes",
                (
                    f"topk(10, sum by (topic) ({_some('kafka_log_log_size', _NAMED)}))",
                    "{{topic}}",
                ),
                says="All replicas added up.",
            ),
        ),
    ),
    Row(
        "Quorum",
        (
            Panel(
                "Roles",
                "state-timeline",
                "short",
                (
                    Query(
                        f"max by (instance, current_state) ({_RAFT}_current_state{SOME})",
                        "{{instance}} {{current_state}}",
                    ),
                ),
                "A node has one role at a time.",
            ),
            _graph(
                "Epoch",
                "short",
                (f"max by (instance) ({_RAFT}_current_epoch{SOME})", "{{instance}}"),
                says="Each step is an election.",
            ),
            Panel(
                "Leader",
                "state-timeline",
                "none",
                (
                    Query(
                        f"max by (instance) ({_RAFT}_current_leader{SOME})",
                        "{{instance}}",
                    ),
                ),
                "Its node id, as each node knows it; -1 for none.",
            ),
            _graph(
                "Lag of replicas of the metadata log",
                "short",
                (f"max by (replica) (raftctl_raft_replica_lag{ALL})", "node {{replica}}"),
            ),
            _graph(
                "Time to commit",
                "ms",
                (
                    f"max(raftctl_raft_commit_latency_ms{{{_CLUSTER},{_P99}}})",
                    "99th percentile",
                ),
                (f"max({_RAFT}_commit_latency_avg{ALL})", "mean"),
            ),
            _graph(
                "Records of metadata",
                "cps",
                (f"sum({_RAFT}_append_records_rate{ALL})", "appended"),
            ),
        ),
    ),
    Row(
        "Groups",
        (
            _graph(
                "Lag",
                "short",
                (
                    f"topk(10, max by (consumergroup, topic) (kafka_consumergroup_lag_sum{ALL}))",
                    "{{consumergroup}} {{topic}}",
                ),
                says="Records that the group has not read yet.",
            ),
            _graph(
                "Members",
                "short",
                (
                    f"topk(10, max by (consumergroup) (kafka_consumergroup_members{ALL}))",
                    "{{consumergroup}}",
                ),
            ),
            _graph(
                "Records that groups read",
                "cps",
                (
                    "topk(10, sum by (consumergroup)"
                    f" (rate(kafka_consumergroup_current_offset_sum{ALL}[{RANGE}])))",
                    "{{consumergroup}}",
                ),
            ),
        ),
    ),
    Row(
        "Nodes",
        (
            _graph(
                "Processor",
                "percentunit",
                (_rate("process_cpu_seconds_total", "instance"), "{{instance}}"),
                says="1 is one core, and all that a node uses but for the disk and TLS.",
            ),
            _graph(
                "Memory",
                "bytes",
                (f"max by (instance) (process_resident_memory_bytes{SOME})", "{{instance}}"),
            ),
            _graph(
                "Event loop late by, 99th percentile",
                "ms",
                (
                    f"max by (instance) ({_some('raftctl_event_loop_lag_ms', _P99)})",
                    "{{instance}}",
                ),
            ),
            _graph(
                "Disk space left",
                "percentunit",
                (
                    "min by (instance, path)"
                    f" (raftctl_log_directory_available_bytes{SOME}"
                    f" / raftctl_log_directory_capacity_bytes{SOME})",
                    "{{instance}} {{path}}",
                ),
            ),
            _graph(
                "Open files and connections",
                "short",
                (f"max by (instance) (process_open_fds{SOME})", "{{instance}}"),
            ),
            _graph(
                "Scrapes",
                "s",
                (
                    f"max by (instance) ({_some('scrape_duration_seconds', _JOB)})",
                    "{{instance}}",
                ),
                says="How long Prometheus waited for the metrics.",
            ),
        ),
    ),
)


def panels() -> Iterator[Panel]:
    """All panels of all rows."""
    for row in ROWS:
        yield from row.panels
