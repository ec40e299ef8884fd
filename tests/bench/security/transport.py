"""What TLS and SASL_SSL cost: both systems, each by PLAINTEXT, SSL and SASL_SSL, in turns.

The figures of `tests.bench.kafka`, of four clusters that run at the same time. A protocol is
compared with the same system's PLAINTEXT, and ours with Apache Kafka's of the same protocol.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.figures import figure
from tests.bench.kafka import throughput
from tests.bench.kafka.session import running
from tests.bench.security.clusters import PLAINTEXT, PROTOCOLS, Secrets, all_makers, entrances
from tests.bench.security.connections import connections

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.bench.kafka.clusters import Cluster
    from tests.bench.kafka.session import Report
    from tests.bench.kafka.turns import Options, Quantity

    Part = Callable[[Sequence[Cluster], Options], dict[str, Any]]


def consume_cached(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """As much as from the disk: reading what is produced in a turn takes but a moment."""
    more = replace(options, megabytes=options.cold_megabytes)
    return throughput.consume_cached(clusters, more)


PARTS: dict[str, Part] = {
    "produce_acks_all": throughput.produce_acks_all,
    "consume_cached": consume_cached,
    "consume_cold": throughput.consume_cold,
    "latency": throughput.latency,
    "connections": connections,
}
OURS, THEIRS = "raftctl", "kafka"


def measure(parts: Sequence[str], jars: Path | None, options: Options, report: Report) -> None:
    """Measure the parts named and report each at once. Without jars, ours alone."""
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
        made = Secrets.make(Path(directory))
        with running(all_makers(jars, made), lambda _: None) as clusters:
            entered = [one for cluster in clusters for one in entrances(cluster, made)]
            for one in entered:
                throughput.warm_up(one, options.warmup_megabytes)
            for name in parts:
                report.attempt(name, partial(PARTS[name], entered, options))


FASTER = ("goal: at least 0.8", "goal: at least 1")
SLOWER = ("goal: at most 1.25", "goal: at most 1")
GOALS: Mapping[str, tuple[str, str]] = {
    "produce_acks_all": FASTER,
    "consume_cached": FASTER,
    "consume_cold": FASTER,
    "latency_p50": SLOWER,
    "latency_p99": SLOWER,
    # A handshake is more than a connection without one.
    "connections": ("no goal", "goal: at least 1"),
}
"""Beside the same system's PLAINTEXT, and ours beside Apache Kafka's of the same protocol."""
NO_GOAL = ("no goal", "no goal")
NOT_COMPARED = ("_memory", "_from_disk")


def compare(name: str, values: Mapping[str, Sequence[float]], quantity: Quantity) -> dict[str, Any]:
    """Ratios of medians: to the same system's PLAINTEXT, and to Apache Kafka's same protocol."""
    del quantity
    medians = {peer: statistics.median(of) for peer, of in values.items()}
    beside_plaintext, beside_kafka = GOALS.get(name, NO_GOAL)
    found: dict[str, Any] = {}

    def relate(peer: str, other: str, key: str, goal: str) -> None:
        if peer in medians and medians.get(other):
            found[f"{name}_{key}"] = figure([medians[peer] / medians[other]], "x", goal, 2)

    if name.endswith(NOT_COMPARED):
        return {}
    for protocol in PROTOCOLS:
        ours, theirs = f"{OURS}_{protocol}", f"{THEIRS}_{protocol}"
        relate(ours, theirs, f"{protocol}_to_kafka", beside_kafka)
        if protocol != PLAINTEXT:
            relate(ours, f"{OURS}_{PLAINTEXT}", f"{ours}_to_plaintext", beside_plaintext)
            relate(theirs, f"{THEIRS}_{PLAINTEXT}", f"{theirs}_to_plaintext", "no goal")
    return found
