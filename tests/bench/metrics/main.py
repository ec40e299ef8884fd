"""What metrics cost: `python -m tests.bench.metrics.main --output FILE [--only PART ...]`.

`scrape` is one broker that gets more and more partitions: how long a scrape takes, how much of the
event loop's time, and its longest turn meanwhile. `counting` is a cluster that is loaded with
produced records and with puts, while its nodes count (B) or do not (A): A B B A and so on, a
quarter second each. What scrapes cost is measured beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaException, NewTopic

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.localcluster.processes import ProcessRef, start_program
from tests.bench.cluster import create_topic, wait_in_sync
from tests.bench.figures import figure, report
from tests.bench.scale.loading import processor_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from raftctl.localcluster.layout import LocalNode

SCRAPE, COUNTING = "scrape", "counting"
SIZES = (100, 10_000)
PARTITIONS = 10
"""Of a topic."""
TOPICS_AT_ONCE = 20
SCRAPES = 10
BETWEEN_S = 0.3
"""Scrapes; a line of the record is written thrice meanwhile."""
SCRAPE_EVERY_S = 5.0
RECORD = "turns.jsonl"
PUT_S = 4
WARM_S = 0.6
SLICE_S = 0.25
OFF, ON = "off", "on"
SIGNALS = {OFF: signal.SIGUSR1, ON: signal.SIGUSR2}


def launch(properties: Path, log: Path) -> ProcessRef:
    """Starts the node of a properties file; see `node`."""
    record = properties.with_name(RECORD)
    module = "tests.bench.metrics.node"
    return start_program([sys.executable, "-m", module, str(properties), str(record)], log)


@contextlib.contextmanager
def cluster_of(controllers: int, brokers: int) -> Iterator[LocalCluster]:
    """A ready cluster of nodes whose counting can be switched."""
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
        spec = ClusterSpec(controllers, brokers)
        cluster = LocalCluster.open(
            Path(directory) / "cluster", spec, random_uuid_text, format_storage, launch
        )
        try:
            cluster.start_all()
            cluster.wait_ready(60, lambda _: None)
            yield cluster
        finally:
            cluster.kill_all()


class Scraped:
    """One broker's metrics over HTTP, and the turns of its event loop."""

    def __init__(self, cluster: LocalCluster, node: LocalNode) -> None:
        self._record = cluster.directory / node.name / RECORD
        port = int(self._record.with_name(f"{RECORD}.port").read_text())
        self._url = f"http://127.0.0.1:{port}/metrics"

    def scrape(self) -> str:
        """The text of a scrape."""
        with urllib.request.urlopen(self._url) as response:
            text: bytes = response.read()
        return text.decode()

    def _lines(self) -> list[dict[str, float]]:
        whole, _, _ = self._record.read_bytes().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()]

    def measure(self) -> dict[str, float]:
        """One scrape: its time, the loop's own time and longest turn (ms), and its series."""
        time.sleep(BETWEEN_S)
        began = perf_counter()
        text = self.scrape()
        ended = perf_counter()
        time.sleep(BETWEEN_S)
        lines = self._lines()
        before = max(number for number, line in enumerate(lines) if line["at"] < began)
        after = min(number for number, line in enumerate(lines) if line["at"] > ended)
        # As much of the loop's time as it takes without a scrape is not the scrape's.
        idle = lines[before - 2], lines[before]
        rate = (idle[1]["thread_s"] - idle[0]["thread_s"]) / (idle[1]["at"] - idle[0]["at"])
        took = lines[after]["at"] - lines[before]["at"]
        own = lines[after]["thread_s"] - lines[before]["thread_s"] - rate * took
        during = lines[before + 1 : after + 1]
        return {
            "ms": (ended - began) * 1e3,
            "loop_ms": own * 1e3,
            "stall_own_ms": max(line["own_ms"] for line in during),
            "stall_ms": max(line["ms"] for line in during),
            "series": sum(not line.startswith("#") for line in text.splitlines()),
        }


def scrape(sizes: Sequence[int], scrapes: int) -> dict[str, Any]:
    """Figures of a scrape at each number of partitions."""
    found: dict[str, Any] = {}
    with cluster_of(1, 1) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap, "log_level": 2})
        scraped = Scraped(cluster, cluster.layout.brokers[0])
        topics = 0
        for size in sizes:
            while topics * PARTITIONS < size:
                count = min(TOPICS_AT_ONCE, size // PARTITIONS - topics)
                names = [f"topic-{topics + number:05}" for number in range(count)]
                wanted = [NewTopic(name, PARTITIONS, 1) for name in names]
                for made in admin.create_topics(wanted, request_timeout=120).values():
                    # One that timed out on a busy machine is there, too: they are counted below.
                    with contextlib.suppress(KafkaException):
                        made.result()
                topics += count
            wait_for_replicas(scraped, size)
            turns = [scraped.measure() for _ in range(scrapes)]
            goals = {
                "ms": "a scrape, as its client sees it",
                "loop_ms": "time of the event loop; goal: at most 50",
                "stall_own_ms": "longest turn of the loop, processor time; goal: at most 10",
                "stall_ms": "longest turn of the loop, by the clock",
                "series": "goal: at most 1,500",
            }
            for name, goal in goals.items():
                unit = "series" if name == "series" else "ms"
                values = [turn[name] for turn in turns]
                found[f"scrape_{name}_at_{size}"] = figure(values, unit, goal, 1)
    return found


def wait_for_replicas(scraped: Scraped, count: int) -> None:
    """Waits until the broker has so many replicas."""
    wanted = f"kafka_server_replicamanager_leadercount {float(count)}"
    for _ in range(600):
        if wanted in scraped.scrape():
            time.sleep(2)
            return
        time.sleep(0.2)
    raise TimeoutError(f"no {count} partitions after two minutes")


class Slices:
    """A loaded cluster that counts in every second slice of time, or nearly so: off, on, on, off.

    A machine's speed changes from second to second by more than is looked for, so neighbours are
    compared, and of all the ratios the median counts. What was done in a slice is what the logs
    have grown by.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._brokers = [Scraped(cluster, node) for node in cluster.layout.brokers]
        found = (cluster.process(node) for node in cluster.layout.nodes)
        self._pids = [process.pid for process in found if process is not None]
        self._sizes: dict[Path, int] = {}
        """The largest that each file was: a log may lose old segments."""

    def during(self, command: Sequence[str], logs: str) -> Iterator[dict[str, list[float]]]:
        """Yields, for each four slices of a load, off's and on's (bytes a second, seconds a byte).

        `logs` are the files that grow, below the cluster's directory.
        """
        self._sizes.clear()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
            time.sleep(WARM_S)
            while load.poll() is None:
                found: dict[str, list[tuple[float, float, float]]] = {OFF: [], ON: []}
                for which in (OFF, ON, ON, OFF):
                    found[which].append(self._slice(which, logs))
                # The last ones of a load are perhaps not loaded.
                if all(grown for slices in found.values() for _, _, grown in slices):
                    yield {which: _sums(slices) for which, slices in found.items()}
            if load.wait():
                raise RuntimeError(f"{command} has failed")

    def _slice(self, which: str, logs: str) -> tuple[float, float, float]:
        """Seconds, processor seconds of all nodes, and bytes."""
        for pid in self._pids:
            os.kill(pid, SIGNALS[which])
        before = perf_counter(), self._processor_s(), self._bytes(logs)
        time.sleep(SLICE_S)
        after = perf_counter(), self._processor_s(), self._bytes(logs)
        seconds, used, grown = (late - early for early, late in zip(before, after, strict=True))
        return seconds, used, grown

    def scrape_s(self) -> float:
        """Processor seconds that a scrape of each broker costs a second, by the usual interval."""
        before = self._processor_s()
        for _ in range(SCRAPES):
            for broker in self._brokers:
                broker.scrape()
        return (self._processor_s() - before) / SCRAPES / SCRAPE_EVERY_S

    def _processor_s(self) -> float:
        return sum(map(processor_s, self._pids))

    def _bytes(self, logs: str) -> int:
        for path in self._cluster.directory.glob(logs):
            with contextlib.suppress(FileNotFoundError):
                self._sizes[path] = max(self._sizes.get(path, 0), path.stat().st_size)
        return sum(self._sizes.values())


def _sums(slices: Sequence[tuple[float, float, float]]) -> list[float]:
    seconds, used, grown = map(sum, zip(*slices, strict=True))
    return [grown / seconds, used / grown]


def counting(turns: int) -> dict[str, Any]:
    """Produce and put while counting is switched off and on, and what it costs."""
    found: dict[str, list[dict[str, list[float]]]] = {"produce": [], "put": []}
    with cluster_of(3, 3) as cluster:
        slices = Slices(cluster)
        wait_in_sync(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap, "log_level": 2})
        for turn in range(turns):
            topic = f"produce-{turn}"
            create_topic(admin, topic, 6)
            produce = [sys.executable, "-m", "tests.bench.produce", cluster.layout.bootstrap, topic]
            found["produce"] += slices.during(produce, f"**/{topic}-*/*.log")
            admin.delete_topics([topic])[topic].result()
        found["put"] += slices.during(_put(cluster, turns), "**/__cluster_metadata-0/*.log")
        scrape_s = slices.scrape_s()
    return _compared(found, scrape_s)


def _put(cluster: LocalCluster, turns: int) -> list[str]:
    leader = cluster.status().leader
    if leader is None:
        raise RuntimeError("no controller leads")
    (address,) = (
        node.address for node in cluster.layout.controllers if node.node_id == leader["node_id"]
    )
    where = ["--leader", address, "--cluster-id", cluster.layout.cluster_id]
    seconds = ["--seconds", str(turns * PUT_S), "--outstanding", "256"]
    return [sys.executable, "-m", "tests.bench.quorum.load", *where, *seconds]


def _compared(
    found: dict[str, list[dict[str, list[float]]]], scrape_s: float
) -> dict[str, dict[str, Any]]:
    figures = {}
    for load, fours in found.items():
        speed = [100 * (1 - four[ON][0] / four[OFF][0]) for four in fours]
        used = [100 * (four[ON][1] / four[OFF][1] - 1) for four in fours]
        goal = f"what counting costs, {len(fours)} times off, on, on, off; goal: at most 2"
        figures[f"{load}_speed_cost"] = figure(speed, "%", f"speed: {goal}", 2)
        figures[f"{load}_cpu_cost"] = figure(used, "%", f"processor time of all nodes: {goal}", 2)
    goal = f"of one core, for scrapes of three brokers each {SCRAPE_EVERY_S:.0f} s"
    return figures | {"scrape_cpu": figure([100 * scrape_s], "%", goal, 2)}


def main(words: Sequence[str] | None = None) -> None:
    """Measures the parts named, or both, and writes the figures."""
    parser = argparse.ArgumentParser(prog="tests.bench.metrics", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[SCRAPE, COUNTING])
    parser.add_argument("--output", type=Path, default=Path("out/bench-metrics.json"))
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument(
        "--turns", type=int, default=20, help="of 256 MiB produced, and four seconds of puts"
    )
    given = parser.parse_args(words)
    figures: dict[str, Any] = {}
    if SCRAPE in (given.only or [SCRAPE]):
        figures |= scrape(given.sizes, SCRAPES)
    if COUNTING in (given.only or [COUNTING]):
        figures |= counting(given.turns)
    for name, one in figures.items():
        sys.stdout.write(f"{name}: {one['median']} {one['unit']} ({one['goal']})\n")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report(figures), indent=2))


if __name__ == "__main__":
    main()
