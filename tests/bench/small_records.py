"""`python -m tests.bench.small_records`: what a small record costs the brokers, and how late it is.

Three controllers and three brokers; a topic of six partitions with three replicas; one producer at
a steady rate (acks=all, no linger) and one consumer. Processor time and system calls are those of
all brokers together, for one record. A turn of an event loop is one `epoll_wait`. System calls are
counted apart (`--trace`, with strace), since counting slows the brokers.

On a busy machine records of a steady rate gather before they are served, and then cost less. With
`--rate 0` a record is sent when the one before has arrived, so that its cost can be compared.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
from confluent_kafka.admin import AdminClient

from tests.bench.cluster import create_topic, local_cluster, wait_in_sync
from tests.bench.figures import figure, report
from tests.bench.kafka.paced_client import SETTINGS, Clients

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "small-records"
PARTITIONS = 6
GOALS = {
    "cpu_user": "half of what it was",
    "cpu_system": "half of what it was",
    "end_to_end_p50": "0.6 of what it was",
}
_TURN = "epoll_wait"


class _Spent(NamedTuple):
    """Seconds of processor time of all brokers."""

    user: float
    system: float


def _spent(brokers: Sequence[psutil.Process]) -> _Spent:
    times = [broker.cpu_times() for broker in brokers]
    return _Spent(sum(one.user for one in times), sum(one.system for one in times))


def _turn(clients: Clients, brokers: Sequence[psutil.Process], seconds: float) -> dict[str, float]:
    before, first = _spent(brokers), len(clients.latencies_ns)
    time.sleep(seconds)
    after, latencies = _spent(brokers), clients.latencies_ns[first:]
    count = len(latencies)
    hundredths = statistics.quantiles(latencies, n=100)
    return {
        "rate": count / seconds,
        "cpu_user": (after.user - before.user) * 1e6 / count,
        "cpu_system": (after.system - before.system) * 1e6 / count,
        "end_to_end_p50": hundredths[49] / 1e6,
        "end_to_end_p99": hundredths[98] / 1e6,
    }


def _traced(
    clients: Clients, brokers: Sequence[psutil.Process], seconds: float
) -> dict[str, float]:
    """Count the system calls of all brokers for a record, by name."""
    calls: Counter[str] = Counter()
    with TemporaryDirectory() as directory:
        paths = [Path(directory) / str(broker.pid) for broker in brokers]
        with ExitStack() as stack:
            count_calls = ["strace", "-c", "-f", "-U", "calls,name"]
            tracers = [
                stack.enter_context(
                    subprocess.Popen(
                        [*count_calls, "-p", str(broker.pid), "-o", str(path)],
                        stderr=subprocess.DEVNULL,
                    )
                )
                for broker, path in zip(brokers, paths, strict=True)
            ]
            first = len(clients.latencies_ns)
            time.sleep(seconds)
            count = len(clients.latencies_ns) - first
            for tracer in tracers:
                tracer.send_signal(signal.SIGINT)
        for path in paths:
            for line in path.read_text().splitlines():
                number, _, name = line.strip().partition(" ")
                if number.isdigit() and name.strip() != "total":
                    calls[name.strip()] += int(number)
    return {name: number / count for name, number in calls.most_common()}


def run(rate: int, seconds: float, size: int, turns: int, *, trace: bool) -> dict[str, Any]:
    """Measure a cluster of its own; the figures by name, `calls` by name of the system call."""
    with local_cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap, **SETTINGS})
        create_topic(admin, TOPIC, PARTITIONS)
        wait_in_sync(cluster)
        nodes = [cluster.process(broker) for broker in cluster.layout.brokers]
        brokers = [psutil.Process(node.pid) for node in nodes if node is not None]
        with Clients(cluster.layout.bootstrap, TOPIC, rate, size) as clients:
            time.sleep(max(3.0, seconds / 4))
            measured = [_turn(clients, brokers, seconds) for _ in range(turns)]
            calls = _traced(clients, brokers, min(seconds, 5.0)) if trace else {}
    units = {"rate": "1/s", "cpu_user": "us", "cpu_system": "us"}
    figures: dict[str, Any] = {
        name: figure([one[name] for one in measured], units.get(name, "ms"), GOALS.get(name, ""))
        for name in measured[0]
    }
    if calls:
        figures["loop_turns"] = figure([calls.get(_TURN, 0.0)], "", "")
        figures["calls"] = {name: round(number, 2) for name, number in calls.items()}
    return figures


def main() -> None:
    """Measure, print a line a figure, and write them all."""
    parser = argparse.ArgumentParser(prog="tests.bench.small_records", description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="records a second; 0: one at a time")
    parser.add_argument("--seconds", type=float, default=20.0, help="of one turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--record-size", type=int, default=1024)
    parser.add_argument("--trace", action="store_true", help="count system calls, with strace")
    parser.add_argument("--output", type=Path, default=Path("out/bench-small-records.json"))
    options = parser.parse_args()
    shape = options.rate, options.seconds, options.record_size, options.turns
    figures = run(*shape, trace=options.trace)
    for name, value in figures.items():
        text = value if name == "calls" else f"{value['median']} {value['unit']}"
        sys.stdout.write(f"{name}: {text}\n")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report(figures), indent=2))


if __name__ == "__main__":
    main()
