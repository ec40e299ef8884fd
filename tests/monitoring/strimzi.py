"""What the dashboards and rules of Strimzi ask of a cluster, and what they ask of Kubernetes.

`NEEDS` says which series they read, with which labels and functions; the files themselves are no
part of the project. They are read from a checkout where there is one (`tests.monitoring.boards`).

Some of their panels read what the kubelet says of containers and volumes. Outside of Kubernetes,
`RECORDED` makes those series of what nodes say of themselves: docs/operate/strimzi.yml.
Source: strimzi-kafka-operator, packaging/examples/metrics, of 2026.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

POD = "kubernetes_pod_name"
OF_TARGET = frozenset(
    {"namespace", "strimzi_io_cluster", "strimzi_io_name", POD, "pod", "container"}
)
"""Labels that the scrape configuration of Strimzi gives; ours are in the how-to."""


class Need(NamedTuple):
    """A series that is read."""

    series: str
    form: str
    """The function that it is in, with `{}` in its place."""
    labels: str = ""
    """Those that conditions or groupings name, beside those of the target; separated by spaces."""

    @property
    def expression(self) -> str:
        """An expression like that of the panel or the rule."""
        conditions = ",".join(f'{label}!=""' for label in self.labels.split())
        return self.form.format(f"{self.series}{{{conditions}}}" if conditions else self.series)


_SUM, _COUNT, _RATE = "sum({})", "count({})", "sum(irate({}[5m]))"
_BY_POD, _RATE_BY_POD = f"sum({{}}) by ({POD})", f"sum(irate({{}}[5m])) by ({POD})"
_PART = "topic partition"

KAFKA = (
    Need("kafka_server_replicamanager_leadercount", _COUNT),
    Need("kafka_controller_kafkacontroller_activecontrollercount", _SUM),
    Need("kafka_controller_controllerstats_uncleanleaderelections_total", _RATE),
    Need("kafka_server_replicamanager_partitioncount", _SUM),
    Need("kafka_server_replicamanager_underreplicatedpartitions", _SUM),
    Need("kafka_cluster_partition_atminisr", _SUM),
    Need("kafka_cluster_partition_underminisr", _SUM),
    Need("kafka_controller_kafkacontroller_offlinepartitionscount", _SUM),
    Need("kafka_cluster_partition_replicascount", _COUNT, "topic"),
    Need("kafka_server_brokertopicmetrics_bytesin_total", _RATE, "topic"),
    Need("kafka_server_brokertopicmetrics_bytesout_total", _RATE, "topic"),
    Need("kafka_server_brokertopicmetrics_messagesin_total", _RATE, "topic"),
    Need("kafka_server_brokertopicmetrics_totalproducerequests_total", _RATE, "topic"),
    Need("kafka_server_brokertopicmetrics_failedproducerequests_total", _RATE, "topic"),
    Need("kafka_server_brokertopicmetrics_totalfetchrequests_total", _RATE, "topic"),
    Need("kafka_server_brokertopicmetrics_failedfetchrequests_total", _RATE, "topic"),
    Need(
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        f"sum({{}} * 100) by ({POD})",
    ),
    Need(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        f"sum({{}} * 100) by ({POD})",
    ),
    Need("kafka_server_kafkaserver_linux_disk_write_bytes", _RATE_BY_POD),
    Need("kafka_server_kafkaserver_linux_disk_read_bytes", _RATE_BY_POD),
    Need(
        "kafka_server_socket_server_metrics_connection_count",
        f"sum({{}}) by ({POD}, listener)",
        "listener",
    ),
    Need("kafka_log_log_size", "{}", _PART),
)
KRAFT = (
    Need("kafka_server_raftmetrics_append_records_rate", _BY_POD),
    Need("kafka_server_raftmetrics_fetch_records_rate", _BY_POD),
    Need("kafka_server_raftmetrics_commit_latency_avg", _BY_POD),
    Need(
        "kafka_server_raftmetrics_current_state",
        f"max({{}}) by ({POD}, current_state)",
        "current_state",
    ),
    Need("kafka_server_raftmetrics_current_leader", _BY_POD),
    Need("kafka_server_raftmetrics_current_vote", _BY_POD),
    Need("kafka_server_raftmetrics_current_epoch", _BY_POD),
    Need("kafka_server_raftchannelmetrics_incoming_byte_total", _RATE_BY_POD),
    Need("kafka_server_raftchannelmetrics_outgoing_byte_total", _RATE_BY_POD),
    Need("kafka_server_raftchannelmetrics_request_total", _RATE_BY_POD),
    Need("kafka_server_raftchannelmetrics_response_total", _RATE_BY_POD),
    Need("kafka_server_raftmetrics_high_watermark", _BY_POD),
    Need("kafka_server_raftmetrics_log_end_offset", _BY_POD),
)
OF_BOTH = (
    Need("container_memory_usage_bytes", "sum({}) by (pod)", "pod container"),
    Need("container_cpu_usage_seconds_total", "sum(rate({}[5m])) by (pod)", "pod container"),
    Need(
        "kubelet_volume_stats_available_bytes",
        "sum({}) by (persistentvolumeclaim)",
        "persistentvolumeclaim",
    ),
    Need("process_open_fds", _BY_POD, "container"),
    Need("jvm_memory_used_bytes", _BY_POD),
    Need("jvm_gc_collection_seconds_sum", f"sum(rate({{}}[5m])) by ({POD})"),
    Need("jvm_gc_collection_seconds_count", f"sum(rate({{}}[5m])) by ({POD})"),
    Need("jvm_threads_current", _BY_POD),
)
KAFKA_EXPORTER = (
    Need("kafka_broker_info", _COUNT),
    Need("kafka_topic_partitions", _SUM, "topic"),
    Need("kafka_topic_partition_replicas", _SUM, "topic"),
    Need("kafka_topic_partition_in_sync_replica", _SUM, "topic"),
    Need("kafka_topic_partition_under_replicated_partition", _SUM, _PART),
    Need("kafka_cluster_partition_atminisr", _SUM, "topic"),
    Need("kafka_cluster_partition_underminisr", _SUM, "topic"),
    Need("kafka_topic_partition_leader_is_preferred", "sum({} < bool 1)", "topic"),
    Need("kafka_topic_partition_current_offset", "sum(rate({}[5m])) by (topic)", _PART),
    Need("kafka_topic_partition_oldest_offset", "sum({}) by (partition, topic)", _PART),
    Need(
        "kafka_consumergroup_current_offset",
        "sum(delta({}[5m]) / 300) by (consumergroup, topic)",
        "consumergroup topic",
    ),
    Need(
        "kafka_consumergroup_lag",
        "sum({}) by (consumergroup, partition, topic)",
        f"consumergroup {_PART}",
    ),
)
OF_RULES = (
    Need("kubelet_volume_stats_capacity_bytes", "{}", "persistentvolumeclaim"),
    Need("kafka_server_replicamanager_underminisrpartitioncount", "{}"),
    Need("kafka_log_logmanager_offlinelogdirectorycount", "{}"),
    Need("container_last_seen", "count(count_over_time({}[5m]))", "pod container"),
)
NEEDS = {
    "strimzi-kafka": KAFKA + OF_BOTH,
    "strimzi-kraft": KRAFT + OF_BOTH,
    "strimzi-kafka-exporter": KAFKA_EXPORTER,
    "rules": OF_RULES,
}
"""By the name of the dashboard."""


class Recorded(NamedTuple):
    """A series of the kubelet, made of what nodes say."""

    series: str
    expression: str


_POD = "by (namespace, pod, container)"


def _claim(metric: str) -> str:
    """A metric of directories, under the name that a volume would have in Kubernetes."""
    return (
        f"label_replace(max by (namespace, pod, path) ({metric}),"
        ' "persistentvolumeclaim", "data-$1", "pod", "(.+)")'
    )


RECORDED = (
    Recorded("container_memory_usage_bytes", f"max {_POD} (process_resident_memory_bytes)"),
    Recorded("container_cpu_usage_seconds_total", f"max {_POD} (process_cpu_seconds_total)"),
    # A process that was started again is another container.
    Recorded(
        "container_last_seen", f'time() * count_values {_POD} ("id", process_start_time_seconds)'
    ),
    Recorded(
        "kubelet_volume_stats_available_bytes", _claim("raftctl_log_directory_available_bytes")
    ),
    Recorded("kubelet_volume_stats_capacity_bytes", _claim("raftctl_log_directory_capacity_bytes")),
)


def recording_rules() -> str:
    """The text of docs/operate/strimzi.yml."""
    return "\n".join(_recording_rules()) + "\n"


def _recording_rules() -> Iterator[str]:
    yield "# Generated by `python -m tests.monitoring`: change the code, not this file."
    yield "# For Strimzi's dashboards outside of Kubernetes, where no kubelet has these series."
    yield from ("groups:", "  - name: strimzi", "    rules:")
    for one in RECORDED:
        yield f"      - record: {one.series}"
        yield f"        expr: {json.dumps(one.expression)}"
