"""What metrics cost: `python -m tests.bench.metrics.main --output FILE [--only PART ...]`.

`scrape` is one broker that gets more and more partitions: how long a scrape takes, how much of the
event loop's time, and its longest turn meanwhile. `counting` is a cluster that is loaded with
produced records and with puts, while its nodes count (B) or do not (A): A B B A in one run. A
scrape every five seconds belongs to B.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
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
from tests.bench.produce import RECORD_BYTES, TURN_BYTES
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
PUTS = {"outstanding": 256, "seconds": 5, "warmup": 1}
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


class Switched:
    """A cluster that counts or does not; while it counts, its brokers are scraped."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._brokers = [Scraped(cluster, node) for node in cluster.layout.brokers]
        self._ended = threading.Event()

    def pids(self) -> list[int]:
        """Of all nodes."""
        found = (self._cluster.process(node) for node in self._cluster.layout.nodes)
        return [process.pid for process in found if process is not None]

    @contextlib.contextmanager
    def turn(self, which: str) -> Iterator[None]:
        """Counts or does not, inside."""
        for pid in self.pids():
            os.kill(pid, SIGNALS[which])
        self._ended.clear()
        scraping = threading.Thread(target=self._scrape)
        if which == ON:
            scraping.start()
        try:
            yield
        finally:
            self._ended.set()
            if which == ON:
                scraping.join()

    def _scrape(self) -> None:
        while not self._ended.wait(SCRAPE_EVERY_S):
            for broker in self._brokers:
                broker.scrape()

    def processor_s(self) -> float:
        """Of all nodes together."""
        return sum(map(processor_s, self.pids()))


def counting(turns: int) -> dict[str, Any]:
    """Produce and put with and without counting, in turns, and the ratios of their medians."""
    speeds: dict[str, dict[str, list[float]]] = {
        name: {OFF: [], ON: []} for name in ("produce", "produce_cpu", "puts", "put_cpu")
    }
    with cluster_of(3, 3) as cluster:
        switched = Switched(cluster)
        wait_in_sync(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap, "log_level": 2})
        # The first turn warms up and is not kept.
        order = [ON] + [one for _ in range(turns) for one in (OFF, ON, ON, OFF)]
        for number, which in enumerate(order):
            with switched.turn(which):
                found = _produced(cluster, admin, switched, f"produce-{number}")
                found |= _put(cluster, switched)
            if number:
                for name, value in found.items():
                    speeds[name][which].append(value)
                sys.stdout.write(f"{which} {found}\n")
                sys.stdout.flush()
    return _compared(speeds)


def _produced(
    cluster: LocalCluster, admin: AdminClient, switched: Switched, topic: str
) -> dict[str, float]:
    create_topic(admin, topic, 6)
    before = switched.processor_s()
    command = [sys.executable, "-m", "tests.bench.produce", cluster.layout.bootstrap, topic]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = switched.processor_s() - before
    admin.delete_topics([topic])[topic].result()
    megabytes = TURN_BYTES // RECORD_BYTES * RECORD_BYTES / 1e6
    speed = json.loads(output)["megabytes_per_s"]
    return {"produce": speed, "produce_cpu": used / megabytes * 1e3}


def _put(cluster: LocalCluster, switched: Switched) -> dict[str, float]:
    leader = cluster.status().leader
    if leader is None:
        raise RuntimeError("no controller leads")
    (address,) = (
        node.address for node in cluster.layout.controllers if node.node_id == leader["node_id"]
    )
    before = switched.processor_s()
    named = [text for name, value in PUTS.items() for text in (f"--{name}", str(value))]
    where = ["--leader", address, "--cluster-id", cluster.layout.cluster_id]
    command = [sys.executable, "-m", "tests.bench.quorum.load", *where, *named]
    output = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    used = switched.processor_s() - before
    puts = output["puts"] / output["seconds"]
    return {"puts": puts, "put_cpu": used / output["all_puts"] * 1e6}


def _compared(speeds: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    says = {
        "produce": ("MB/s", "1 KiB records, acks=all, three replicas"),
        "produce_cpu": ("ms/MB", "processor time of all nodes"),
        "puts": ("/s", "256 puts under way"),
        "put_cpu": ("us", "processor time of all nodes for a put"),
    }
    found: dict[str, Any] = {}
    for name, of in speeds.items():
        unit, goal = says[name]
        for which, values in of.items():
            found[f"{name}_{which}"] = figure(values, unit, goal, 2)
        medians = {which: statistics.median(values) for which, values in of.items()}
        more = medians[ON] / medians[OFF] - 1
        cost = more if name.endswith("cpu") else -more
        found[f"{name}_cost"] = figure([100 * cost], "%", "what counting costs; goal: at most 2")
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Measures the parts named, or both, and writes the figures."""
    parser = argparse.ArgumentParser(prog="tests.bench.metrics", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[SCRAPE, COUNTING])
    parser.add_argument("--output", type=Path, default=Path("out/bench-metrics.json"))
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--turns", type=int, default=4, help="of four loads each")
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
