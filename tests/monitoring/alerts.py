"""The alerts: for each when it fires, how grave it is, what it means and what to do.

They make docs/operate/alerts.yml, rules for Prometheus, and docs/operate/runbook.md. A node is a
target of the job `raftctl`; targets of one cluster share the label `cluster`, as the how-to shows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CRITICAL, WARNING = "critical", "warning"
RUNBOOK = "docs/operate/runbook.md"
_JOB = 'job="raftctl"'


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule."""

    name: str
    expression: str
    lasts: str
    """How long the expression holds before the alert fires, such as `5m`."""
    severity: str
    summary: str
    """One line, a template of Prometheus."""
    means: str
    """What is so, and what it costs."""
    do: tuple[str, ...]
    """Steps, in their order."""

    @property
    def anchor(self) -> str:
        """Of its section in the runbook."""
        return f"{RUNBOOK}#{self.name.lower()}"


ALERTS = (
    Alert(
        "OfflinePartitions",
        "max by (cluster) (kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
        "30s",
        CRITICAL,
        "{{ $value }} partitions have no leader",
        "Nobody can read or write these partitions. Each replica that may lead is on a broker that"
        " is down or fenced.",
        (
            "`raftctl partitions list --unavailable` names them, with their replicas.",
            "Start the brokers that hold the replicas; the log of a broker says why it ended.",
            "If no replica in sync will ever come back, `raftctl elect-leaders` with"
            " `--election-type unclean` has another one lead. Records that it lacks are lost.",
        ),
    ),
    Alert(
        "UnderMinIsrPartitions",
        "max by (cluster, instance) (kafka_server_replicamanager_underminisrpartitioncount) > 0",
        "1m",
        CRITICAL,
        "{{ $value }} partitions that {{ $labels.instance }} leads take no writes with acks=all",
        "Fewer replicas are in sync than `min.insync.replicas` asks for. Producers with `acks=all`"
        " get NOT_ENOUGH_REPLICAS. What was acknowledged is safe.",
        (
            "`raftctl partitions list --under-min-isr` names them.",
            "Start the missing brokers, or wait until they have caught up.",
            "Do not lower `min.insync.replicas` but to end an outage: it is what keeps"
            " acknowledged records when another disk fails.",
        ),
    ),
    Alert(
        "UnderReplicatedPartitions",
        "max by (cluster, instance) (kafka_server_replicamanager_underreplicatedpartitions) > 0",
        "5m",
        WARNING,
        "{{ $value }} partitions that {{ $labels.instance }} leads lack a replica in sync",
        "One more failure may leave them without a leader, or below their minimum in sync.",
        (
            "`raftctl partitions list --under-replicated` names them; a broker that is in all"
            " lists of replicas and in no ISR is the one to look at.",
            "If it is down, start it. If it runs, see whether its disk or its network is slow:"
            " `kafka_server_replicafetchermanager_maxlag` falls as it catches up.",
        ),
    ),
    Alert(
        "NoActiveController",
        "sum by (cluster) (kafka_controller_kafkacontroller_activecontrollercount) < 1",
        "30s",
        CRITICAL,
        "No controller is active",
        "Clients go on with the leaders that there are. But no leader is elected, no topic made"
        " and no config changed, until a controller is active.",
        (
            "`raftctl quorum describe` says which voters answer.",
            "Start voters until a majority runs. If a majority is lost for good, read"
            " [when the majority is lost](../how-to/change-voters.md#when-the-majority-is-lost).",
        ),
    ),
    Alert(
        "SeveralActiveControllers",
        "sum by (cluster) (kafka_controller_kafkacontroller_activecontrollercount) > 1",
        "1m",
        CRITICAL,
        "{{ $value }} controllers say that they are active",
        "A controller that lost its place has not noticed. It can commit nothing, since voters"
        " refuse its epoch, but it may answer reads with what is old.",
        (
            "`raftctl quorum describe` names the leader and its epoch.",
            "Look whether the other one can reach the voters, and restart it.",
            "Look whether the targets of two clusters have the same label `cluster`.",
        ),
    ),
    Alert(
        "QuorumWithoutLeader",
        "max by (cluster) (kafka_server_raftmetrics_current_leader) < 0",
        "30s",
        CRITICAL,
        "No node of the quorum knows a leader",
        "Elections fail: fewer than half of the voters reach each other, or their disks are too"
        " slow to vote in time.",
        (
            "See NoActiveController.",
            "If all voters run, look at `kafka_server_raftmetrics_current_epoch`. If it grows,"
            " elections begin and fail; the voters' logs say who refuses whom, and why.",
        ),
    ),
    Alert(
        "ReplicaOfMetadataLags",
        "max by (cluster, replica) (raftctl_raft_replica_lag) > 1000",
        "1m",
        WARNING,
        "Node {{ $labels.replica }} lacks {{ $value }} records of the metadata log",
        "A voter that lags cannot help to commit, so the quorum has less to spare. A broker that"
        " lags serves with old metadata and may be fenced.",
        (
            "`raftctl quorum describe --replication` shows when it fetched last.",
            "If it is down, start it. If it runs, look at its disk and at EventLoopLags.",
        ),
    ),
    Alert(
        "OfflineLogDirectories",
        "max by (cluster, instance) (kafka_log_logmanager_offlinelogdirectorycount) > 0",
        "10s",
        CRITICAL,
        "{{ $value }} log directories of {{ $labels.instance }} failed",
        "Reads or writes there failed, so the broker has given it up until it is restarted."
        " Replicas there are out of sync.",
        (
            "The broker's log names the directory and the error.",
            "Replace the disk, mount an empty one in its place, and restart the broker: it copies"
            " its replicas from the others.",
        ),
    ),
    Alert(
        "UncleanLeaderElections",
        "sum by (cluster)"
        " (increase(kafka_controller_controllerstats_uncleanleaderelections_total[10m])) > 0",
        "0s",
        CRITICAL,
        "A replica became leader that was not in sync",
        "Records that were acknowledged may be gone. Consumers may see offsets go back.",
        (
            "The log of the active controller names the partitions.",
            "Compare what producers sent with what is there, and repeat what is missing.",
            "If nobody asked for the election, set `unclean.leader.election.enable=false`.",
        ),
    ),
    Alert(
        "FencedBrokers",
        "max by (cluster) (kafka_controller_kafkacontroller_fencedbrokercount) > 0",
        "2m",
        WARNING,
        "{{ $value }} brokers are registered and fenced",
        "A broker that sends no heartbeats leads nothing and serves nobody. One that will never"
        " come back stays in this number until it is unregistered.",
        (
            "`raftctl brokers list` names it.",
            "Start it, or look why its heartbeats fail: network, disk, EventLoopLags.",
            "If it is gone for good, move its replicas, then `raftctl brokers unregister`.",
        ),
    ),
    Alert(
        "ConsumerGroupLagGrows",
        "max by (cluster, consumergroup, topic) (kafka_consumergroup_lag_sum) > 1000"
        " and max by (cluster, consumergroup, topic)"
        " (deriv(kafka_consumergroup_lag_sum[10m])) > 0",
        "10m",
        WARNING,
        "{{ $labels.consumergroup }} is {{ $value }} records behind in {{ $labels.topic }},"
        " and falls further behind",
        "The members read more slowly than producers write. Records that retention deletes"
        " before they are read are lost to the group.",
        (
            "`raftctl groups describe GROUP` shows the lag by partition and member.",
            "One partition alone: a slow member, or a key with most of the records.",
            "All partitions: add members, up to one a partition, or make each faster.",
        ),
    ),
    Alert(
        "EventLoopLags",
        'max by (cluster, instance) (raftctl_event_loop_lag_ms{quantile="0.99"}) > 250',
        "5m",
        WARNING,
        "The event loop of {{ $labels.instance }} is {{ $value | humanize }} ms late",
        "All requests of the node wait that long. Beyond the session timeouts it is fenced, or"
        " loses an election.",
        (
            "If `process_cpu_seconds_total` grows by almost 1 a second, the node has too much to"
            " do: move leaders elsewhere, or send larger batches.",
            "Else the machine takes its time: swapping, a neighbour, a disk that stalls.",
        ),
    ),
    Alert(
        "RequestHandlersBusy",
        "min by (cluster, instance)"
        " (kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent) < 0.1",
        "5m",
        WARNING,
        "{{ $labels.instance }} is idle for {{ $value | humanizePercentage }} of its time only",
        "The broker is near what it can do. Requests queue, and times of all APIs grow.",
        (
            "The dashboard's requests by API show what it does.",
            "Move leaders to other brokers, add brokers, or set quotas.",
        ),
    ),
    Alert(
        "DiskAlmostFull",
        "min by (cluster, instance, path)"
        " (raftctl_log_directory_available_bytes / raftctl_log_directory_capacity_bytes) < 0.15",
        "1m",
        WARNING,
        "{{ $labels.path }} of {{ $labels.instance }} has {{ $value | humanizePercentage }} left",
        "When nothing is left, writes fail and the directory goes offline.",
        (
            "`raftctl brokers log-dirs` shows which replicas are large.",
            "Shorten `retention.ms` or set `retention.bytes` of the largest topics, or move"
            " replicas to other brokers.",
        ),
    ),
    Alert(
        "DiskFillsWithinADay",
        "min by (cluster, instance, path)"
        " (predict_linear(raftctl_log_directory_available_bytes[6h], 86400)) < 0",
        "1h",
        WARNING,
        "{{ $labels.path }} of {{ $labels.instance }} will be full within a day",
        "It is filled faster than retention deletes, going by the last six hours.",
        ("See DiskAlmostFull.",),
    ),
    Alert(
        "NodeDown",
        f"up{{{_JOB}}} == 0",
        "1m",
        CRITICAL,
        "{{ $labels.instance }} cannot be scraped",
        "The node is down, or does not answer, or refuses Prometheus.",
        (
            "The targets of Prometheus show the error. 401 and 403: see"
            " [who may scrape](../how-to/monitor.md#listeners-that-are-protected).",
            "If the process is gone, its log ends with the cause. Start it.",
        ),
    ),
    Alert(
        "ScrapeSlow",
        f"scrape_duration_seconds{{{_JOB}}} > 1",
        "5m",
        WARNING,
        "A scrape of {{ $labels.instance }} takes {{ $value | humanizeDuration }}",
        "The node has many series, or its event loop lags.",
        (
            "`raftctl_metrics_series` is how many there are; `metrics.*` settings bound them.",
            "If they are few, see EventLoopLags.",
        ),
    ),
)


def rules(lasts: str | None = None) -> str:
    """The text of the file of rules; `lasts` replaces how long each alert waits."""
    return "\n".join(_rules(lasts)) + "\n"


def _rules(lasts: str | None) -> Iterator[str]:
    yield "# Generated by `python -m tests.monitoring`: change the code, not this file."
    yield from ("groups:", "  - name: raftctl", "    rules:")
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {json.dumps(alert.expression)}"
        yield f"        for: {lasts or alert.lasts}"
        yield from ("        labels:", f"          severity: {alert.severity}")
        yield from ("        annotations:", f"          summary: {json.dumps(alert.summary)}")
        yield f"          description: {json.dumps(alert.means)}"
        yield f"          runbook: {alert.anchor}"


def runbook() -> str:
    """The text of the page that says what to do about each alert."""
    return "\n".join(_runbook()) + "\n"


def _runbook() -> Iterator[str]:
    yield from ("# What to do about an alert", "")
    yield "<!-- Generated by `python -m tests.monitoring`: change the code, not this page. -->"
    yield from ("", "The alerts of [alerts.yml](alerts.yml), the graver ones first.")
    for alert in sorted(ALERTS, key=lambda one: one.severity != CRITICAL):
        yield from ("", f"## {alert.name}", "")
        yield from (f"*{alert.severity.capitalize()}, after {alert.lasts}.* {alert.means}", "")
        yield from (f"{number}. {step}" for number, step in enumerate(alert.do, 1))
        yield from ("", "```text", alert.expression, "```")
