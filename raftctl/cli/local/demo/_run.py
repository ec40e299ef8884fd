"""One run of the demo, from an empty directory to the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from raftctl.cli._output import table
from raftctl.cli.kafka.topics import admin_client, create_topic
from raftctl.cli.local.demo._clients import LineWriter, read_with_aiokafka, read_with_confluent
from raftctl.cli.local.demo._faults import FaultPlan, FaultTimes
from raftctl.cli.local.demo._ledger import Ledger, Verdict, compare
from raftctl.localcluster.layout import LOCAL_TIMEOUTS, node_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.cli.local.demo._ledger import ReadBack
    from raftctl.cli.local.demo._progress import Progress
    from raftctl.cli.local.demo._source import Source
    from raftctl.localcluster.cluster import LocalCluster


TOPIC = "demo"
PARTITIONS = 6
REPLICAS = 3
MIN_INSYNC_REPLICAS = 2
_READY_TIMEOUT_S = 60.0
_TOPIC_TIMEOUT_S = 30.0
# While nodes are killed the rest is spread over this time, so that writes go on throughout.
_FAULT_WINDOW_S = 15.0
_GROUP_S = 0.05
_TICK_S = 0.1


class DemoRun:
    """Writes, breaks, reads, compares."""

    def __init__(
        self, cluster: LocalCluster, source: Source, progress: Progress, begun_s: float
    ) -> None:
        """The nodes of `cluster` were started at `begun_s` of the monotonic clock."""
        self._cluster = cluster
        self._begun_s = begun_s
        self._bootstrap = cluster.layout.bootstrap
        self._source = source
        self._progress = progress
        self._ledger = Ledger()
        self._faults = FaultPlan(cluster, progress.tell)
        self._ticked_s = 0.0

    def run(self) -> DemoResult:
        """The result. KafkaError or ConfigError if the cluster does not start or recover."""
        self._prepare_cluster()
        writer = LineWriter(self._bootstrap, TOPIC, self._ledger)
        try:
            records_per_s = self._write(writer)
        except BaseException:
            self._faults.cancel()
            writer.abandon()
            raise
        verdicts = self._read_back()
        return DemoResult(
            source=self._source.name,
            records=len(self._ledger),
            acknowledged=self._ledger.acknowledged,
            verdicts=verdicts,
            records_per_s=records_per_s,
            longest_interruption_s=writer.longest_interruption_s,
            faults=self._faults.result(),
            total_s=time.monotonic() - self._begun_s,
            timeouts=self._timeouts(),
        )

    def _prepare_cluster(self) -> None:
        layout = self._cluster.layout
        self._progress.tell(
            f"started {len(layout.controllers)} controllers and {len(layout.brokers)} brokers in "
            f"{self._cluster.directory}"
        )
        self._cluster.wait_ready(_READY_TIMEOUT_S, self._progress.tell)
        ready_s = time.monotonic() - self._begun_s
        self._progress.tell(f"ready after {ready_s:.1f} s: bootstrap.servers={self._bootstrap}")
        configs = {"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
        client = admin_client(self._bootstrap)
        create_topic(client, TOPIC, PARTITIONS, REPLICAS, configs, _TOPIC_TIMEOUT_S)
        self._progress.tell(
            f"created topic {TOPIC}: {PARTITIONS} partitions, {REPLICAS} replicas, "
            f"min.insync.replicas={MIN_INSYNC_REPLICAS}"
        )

    def _write(self, writer: LineWriter) -> float:
        """Writes everything; records acknowledged per second in the quiet first half."""
        records = self._source.records()
        half = self._source.lines // 2
        self._progress.phase("write, confluent-kafka", self._source.lines)
        begun_s = time.monotonic()
        writer.write(islice(records, half), self._tick)
        records_per_s = self._ledger.acknowledged / (time.monotonic() - begun_s)
        self._faults.start()
        self._write_while_broken(writer, records, self._source.lines - half)
        writer.write(records, self._tick)
        writer.finish(self._tick)
        self._faults.result()
        self._progress.update(self._ledger.settled)
        return records_per_s

    def _write_while_broken(
        self, writer: LineWriter, records: Iterator[tuple[bytes, bytes]], left: int
    ) -> None:
        group_lines = max(1, int(left * _GROUP_S / _FAULT_WINDOW_S))
        while not self._faults.is_done:
            due_s = time.monotonic() + group_lines * _FAULT_WINDOW_S / max(1, left)
            group = list(islice(records, group_lines))
            if not group:
                return
            writer.write(group, self._tick)
            writer.serve_until(due_s, self._tick)

    def _read_back(self) -> dict[str, Verdict]:
        def aiokafka(update: Callable[[int], None]) -> ReadBack:
            return asyncio.run(read_with_aiokafka(self._bootstrap, TOPIC, PARTITIONS, update))

        def confluent(update: Callable[[int], None]) -> ReadBack:
            return read_with_confluent(self._bootstrap, TOPIC, PARTITIONS, update)

        verdicts = {}
        for name, read in (("aiokafka", aiokafka), ("confluent-kafka", confluent)):
            self._progress.phase(f"read, {name}", len(self._ledger))
            found = read(self._progress.update)
            self._progress.update(found.count)
            verdicts[name] = compare(self._ledger, found)
        return verdicts

    def _tick(self) -> None:
        now_s = time.monotonic()
        if now_s - self._ticked_s >= _TICK_S:
            self._ticked_s = now_s
            self._progress.update(self._ledger.settled)

    def _timeouts(self) -> dict[str, str]:
        layout = self._cluster.layout
        in_force = node_values(layout, layout.brokers[0], "")
        return {key: in_force[key] for key in LOCAL_TIMEOUTS}


@dataclass(frozen=True, slots=True)
class DemoResult:
    """All that the demo measured."""

    source: str
    records: int
    acknowledged: int
    verdicts: Mapping[str, Verdict]
    """By reader."""
    records_per_s: float
    """Before anything was killed."""
    longest_interruption_s: float
    faults: FaultTimes
    total_s: float
    timeouts: Mapping[str, str]
    """The keys in force that decide how long a failover takes."""

    @property
    def verdict(self) -> Verdict:
        """The worst that a reader saw."""
        worst = Verdict()
        for verdict in self.verdicts.values():
            worst = worst.worse(verdict)
        return worst

    @property
    def is_good(self) -> bool:
        """Whether every line was acknowledged, and each reader found each once and in order."""
        return self.verdict.is_clean and self.acknowledged == self.records


def result_text(result: DemoResult) -> str:
    """A table, and the verdict as the last line."""
    faults = result.faults
    rows = [
        ("source", result.source),
        ("records", f"{result.records:,}"),
        ("acknowledged", f"{result.acknowledged:,}"),
        *_verdict_rows(result),
        ("throughput before the kills", f"{result.records_per_s:,.0f} records/s"),
        ("longest interruption of writes", _seconds(result.longest_interruption_s)),
        (f"new controller after kill of {faults.controller}", _seconds(faults.new_controller_s)),
        (f"new leaders after kill of {faults.broker}", _seconds(faults.new_leader_s)),
        ("all in sync after restart of both", _seconds(faults.healed_s)),
        ("whole run", _seconds(result.total_s)),
        *((f"timeout {key}", f"{value} ms") for key, value in result.timeouts.items()),
    ]
    return table(("RESULT", ""), rows) + "\n" + _last_line(result)


def result_document(result: DemoResult) -> dict[str, Any]:
    """The JSON form; seconds, null for what did not happen."""
    verdict, faults = result.verdict, result.faults
    return {
        "source": result.source,
        "records": result.records,
        "acknowledged": result.acknowledged,
        "lost": verdict.lost,
        "duplicated": verdict.duplicated,
        "out_of_order": verdict.out_of_order,
        "records_per_s": round(result.records_per_s),
        "longest_interruption_s": round(result.longest_interruption_s, 3),
        "killed_controller": faults.controller,
        "new_controller_s": faults.new_controller_s,
        "killed_broker": faults.broker,
        "new_leader_s": faults.new_leader_s,
        "healed_s": faults.healed_s,
        "total_s": round(result.total_s, 3),
        "timeouts_ms": {key: int(value) for key, value in result.timeouts.items()},
    }


def _verdict_rows(result: DemoResult) -> list[tuple[str, str]]:
    """lost, duplicated, out of order, each with what every reader saw."""
    readers = result.verdicts.items()
    return [
        (label, ", ".join(f"{getattr(verdict, name)} ({reader})" for reader, verdict in readers))
        for name, label in (
            ("lost", "lost"),
            ("duplicated", "duplicated"),
            ("out_of_order", "out of order"),
        )
    ]


def _last_line(result: DemoResult) -> str:
    missing = result.records - result.acknowledged
    return f"{result.verdict}, not acknowledged {missing}" if missing else str(result.verdict)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
