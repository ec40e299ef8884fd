"""What clients in a process of their own come to: rebalances, commits, transactions."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.bench.kafka.turns import Quantity, in_turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.kafka.clusters import Cluster

TIMEOUT_S = 600
"""Of one process: one that hangs does not cost the figures after it."""
PARTITIONS = 6
RECORDS = 100
"""Of one transaction."""
_US = 1_000_000
_MS = 1_000


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    turns: int
    seconds: float
    """Of one turn of commits or transactions."""
    warmup_seconds: float
    """Of commits, and of transactions, before anything is measured of a cluster."""
    members: int
    partitions: int
    """Of the topic that a group's members share."""
    delay_ms: int
    """`group.initial.rebalance.delay.ms` of both."""
    outstanding: int
    """Commits under way, one a group."""
    offsets: int
    """In the partition that a coordinator loads."""


def warm_up(cluster: Cluster, options: Options) -> None:
    """Makes the brokers' own topics, and lets caches and just-in-time compilers settle."""
    cluster.create_topic(cluster.admin(), "warm-up", PARTITIONS)
    _commits(cluster, "warm-up", options, 0, options.warmup_seconds)
    _transactions(cluster, "warm-up", 1, 0, options.warmup_seconds)


def rebalances(clusters: Sequence[Cluster], options: Options, protocol: str) -> dict[str, Any]:
    """From joining to all assigned."""
    name = f"rebalance_{protocol}"
    shape = f"{options.members} members, {options.partitions} partitions"
    goal = f"{shape}, group.initial.rebalance.delay.ms={options.delay_ms}; goal: at most 1"
    for cluster in clusters:
        cluster.create_topic(cluster.admin(), name, options.partitions)

    def measure(cluster: Cluster, turn: int) -> Mapping[str, float]:
        shape = options.partitions, f"{name}-{turn}", protocol, options.members
        return {name: _load(cluster, "members", name, *shape)["seconds"]}

    return in_turns(clusters, options.turns, measure, {name: Quantity("s", goal)})


def commits(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """OffsetCommits of one offset each, to the groups of one broker."""
    goal = f"one coordinator, {options.outstanding} under way; goal: at least 1"
    quantities = {
        "commits": Quantity("commits/s", goal, 0),
        "commits_cpu": Quantity("us/commit", "processor time of all brokers", 1),
    }
    for cluster in clusters:
        cluster.create_topic(cluster.admin(), "commits", PARTITIONS)

    def measure(cluster: Cluster, _: int) -> Mapping[str, float]:
        before = cluster.broker_cpu_seconds()
        found = _commits(cluster, "commits", options, 1, options.seconds)
        used = (cluster.broker_cpu_seconds() - before) * _US / found["commits"]
        return {"commits": found["commits_per_s"], "commits_cpu": used}

    return in_turns(clusters, options.turns, measure, quantities)


def transactions(clusters: Sequence[Cluster], options: Options, producers: int) -> dict[str, Any]:
    """Transactions of 100 records of 1 KiB, one after the other by each producer."""
    name = f"transactions_{producers}"
    goal = f"{RECORDS} records of 1 KiB a transaction, producers: {producers}; goal: at least 0.8"
    quantities = {
        f"{name}_rate": Quantity("transactions/s", goal, 1),
        name: Quantity("MB/s", goal),
        f"{name}_cpu": Quantity("ms/transaction", "processor time of all brokers"),
    }
    for cluster in clusters:
        cluster.create_topic(cluster.admin(), name, PARTITIONS)

    def measure(cluster: Cluster, _: int) -> Mapping[str, float]:
        before = cluster.broker_cpu_seconds()
        found = _transactions(cluster, name, producers, 1, options.seconds)
        used = (cluster.broker_cpu_seconds() - before) * _MS / found["transactions"]
        rates = found["transactions_per_s"], found["megabytes_per_s"]
        return dict(zip(quantities, (*rates, used), strict=True))

    return in_turns(clusters, options.turns, measure, quantities)


def _commits(
    cluster: Cluster, topic: str, options: Options, warm_s: float, seconds: float
) -> dict[str, Any]:
    return _load(cluster, "commits", topic, options.outstanding, warm_s, seconds)


def _transactions(
    cluster: Cluster, topic: str, producers: int, warm_s: float, seconds: float
) -> dict[str, Any]:
    return _load(cluster, "transactions", topic, producers, RECORDS, warm_s, seconds)


def _load(cluster: Cluster, module: str, topic: str, *arguments: object) -> dict[str, Any]:
    """Runs one of the modules beside this one in a process of its own; what it tells."""
    program = [sys.executable, "-m", f"{__package__}.{module}", cluster.bootstrap, topic]
    words = [str(argument) for argument in arguments]
    done = subprocess.run([*program, *words], capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{cluster.name}: {module}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
