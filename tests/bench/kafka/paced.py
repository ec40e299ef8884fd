"""Records at a steady pace: how late they arrive, and what each costs the brokers.

A client in a process of its own gives records to a producer (acks=all, no linger) as they are due,
however late the earlier ones are, and receives them. What is measured begins when both have run for
a while. Who cannot keep the pace has no latency, only a queue: its figure says so.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.figures import figure, overloaded
from tests.bench.kafka.throughput import KIBIBYTE, WholeTopic
from tests.bench.kafka.warmth import Moved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.kafka.clusters import Cluster
    from tests.bench.kafka.turns import Options

KEPT = 0.97
"""The part of the pace at which records must arrive."""
SETTLE_S = 1.0
WARM_RATE, WARM_S = 1000, 20.0
TIMEOUT_S = 120.0
MEGABYTE = 10**6


class Turn(NamedTuple):
    """One turn of one cluster at one rate."""

    sent_per_s: float
    arrived_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Processor time of all brokers for each record."""


class Quantity(NamedTuple):
    """A figure of a turn."""

    name: str
    field: str
    unit: str
    goal: str


QUANTITIES = (
    Quantity("p50", "p50_ms", "ms", "end to end, median; goal: at most 0.9"),
    Quantity("p99", "p99_ms", "ms", "end to end, 99th percentile; goal: at most 0.3"),
    Quantity("cpu", "cpu_us", "us", "processor time of all brokers a record; goal: at most 0.6"),
)


def paced(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """Latency and processor time of a record of 1 KiB, at each rate; the clusters take turns."""
    options.warmth.reach(clusters, "paced", warm)
    found: dict[str, Any] = {}
    for rate in options.rates:
        turns: dict[str, list[Turn]] = {cluster.name: [] for cluster in clusters}
        for _ in range(options.turns):
            for cluster in clusters:
                turns[cluster.name].append(turn_of(cluster, rate, options.paced_seconds))
        found |= compared(f"paced_{rate}", rate, turns)
    return found


def compared(
    prefix: str,
    rate: int,
    turns: Mapping[str, Sequence[Turn]],
    quantities: Sequence[Quantity] = QUANTITIES,
) -> dict[str, Any]:
    """The figures of a rate; no number and no ratio of a cluster that did not keep the pace."""
    late = {name: kept for name, of in turns.items() if (kept := _late(name, rate, of))}
    found: dict[str, Any] = {}
    for one in quantities:
        name, goal = f"{prefix}_{one.name}", f"{rate:,} records/s; {one.goal}"
        medians = []
        for cluster, of in turns.items():
            if cluster in late:
                found[f"{name}_{cluster}"] = overloaded(late[cluster], one.unit, goal)
                continue
            values = [float(getattr(turn, one.field)) for turn in of]
            found[f"{name}_{cluster}"] = figure(values, one.unit, goal)
            medians.append(statistics.median(values))
        if len(turns) == 2:
            ratio = f"{name}_ratio"
            if late:
                found[ratio] = overloaded("; ".join(late.values()), "x", goal)
            else:
                found[ratio] = figure([medians[0] / medians[1]], "x", goal, 2)
    return found


def _late(cluster: str, rate: int, turns: Sequence[Turn]) -> str:
    """What a cluster kept of the pace; empty if all of it."""
    kept = statistics.median(turn.arrived_per_s for turn in turns)
    if kept >= KEPT * rate:
        return ""
    sent = statistics.median(turn.sent_per_s for turn in turns)
    return f"{cluster} kept {kept:,.0f} of {rate:,} records/s ({sent:,.0f} were sent)"


def warm(cluster: Cluster) -> Moved:
    """Runs the load for a while, for `Warmth.reach`."""
    turn = turn_of(cluster, WARM_RATE, WARM_S)
    return Moved(turn.arrived_per_s * WARM_S * KIBIBYTE / MEGABYTE, WARM_S + SETTLE_S)


def turn_of(cluster: Cluster, rate: int, seconds: float) -> Turn:
    """One turn, on a topic of its own."""
    program = [sys.executable, "-m", "tests.bench.kafka.paced_client"]
    brokers = [str(process.pid) for process in cluster.broker_processes()]
    with WholeTopic(cluster, f"paced-{rate}") as topic:
        shape = [cluster.bootstrap, topic, str(rate), str(KIBIBYTE), str(SETTLE_S), str(seconds)]
        done = subprocess.run(
            [*program, *shape, *brokers], capture_output=True, text=True, timeout=TIMEOUT_S
        )
    if done.returncode:
        raise RuntimeError(f"{cluster.name}: paced: {done.stderr}")
    return Turn(**json.loads(done.stdout))
