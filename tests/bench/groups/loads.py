"""What clients in a process of their own come to: rebalances, commits, transactions."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.bench.kafka import throughput
from tests.bench.kafka.turns import Quantity, in_turns
from tests.bench.kafka.warmth import Moved, Warmth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.kafka.clusters import Cluster

TIMEOUT_S = 600
"""Of one process: one that hangs does not cost the figures after it."""
PARTITIONS = 6
GROUPS = (1, 4, 16, 64, 256)
BULK_MEGABYTES = 128
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
    warmth: Warmth = field(default_factory=Warmth)


def warm_up(cluster: Cluster, options: Options) -> None:
    """Makes the brokers' own topics, and lets caches and just-in-time compilers settle."""
    cluster.create_topic(cluster.admin(), "warm-up", PARTITIONS)
    seconds = options.warmup_seconds

    def commit(one: Cluster) -> Moved:
        _commits(one, "warm-up", "one", options.outstanding, 0, seconds)
        return Moved(0, seconds)

    def transact(one: Cluster) -> Moved:
        return Moved(
            _transactions(one, "warm-up", 1, 0, seconds)["megabytes_per_s"] * seconds, seconds
        )

    if options.warmth.lacks_bulk(cluster.name):
        throughput.warm_up(cluster, BULK_MEGABYTES, options.warmth)
    for load, run in (("commits", commit), ("transactions", transact)):
        options.warmth.note(cluster.name, load, run(cluster))
        options.warmth.reach([cluster], load, run)


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


def commits(clusters: Sequence[Cluster], options: Options, coordinators: str) -> dict[str, Any]:
    """OffsetCommits of one offset each, to the groups of one broker, or of all (`all`)."""
    name = "commits" if coordinators == "one" else f"commits_{coordinators}"
    return _measured(clusters, options, name, coordinators, options.outstanding)


def commits_by_groups(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """The same to one broker, by the number of its groups, each with a commit under way."""
    figures: dict[str, Any] = {}
    for groups in sorted({*GROUPS, options.outstanding}):
        if groups <= options.outstanding:
            figures |= _measured(clusters, options, f"commits_by_{groups}", "one", groups)
    return figures


def _measured(
    clusters: Sequence[Cluster], options: Options, name: str, coordinators: str, groups: int
) -> dict[str, Any]:
    goal = f"coordinators: {coordinators}, {groups} under way; goal: at least 1"
    quantities = {
        name: Quantity("commits/s", goal, 0),
        f"{name}_cpu": Quantity("us/commit", "processor time of all brokers", 1),
    }
    for cluster in clusters:
        cluster.create_topic(cluster.admin(), "commits", PARTITIONS)

    def measure(cluster: Cluster, _: int) -> Mapping[str, float]:
        before = cluster.broker_cpu_seconds()
        found = _commits(cluster, "commits", coordinators, groups, 1, options.seconds)
        used = (cluster.broker_cpu_seconds() - before) * _US / found["commits"]
        return {name: found["commits_per_s"], f"{name}_cpu": used}

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
    cluster: Cluster, topic: str, coordinators: str, groups: int, warm_s: float, seconds: float
) -> dict[str, Any]:
    return _load(cluster, "commits", topic, coordinators, groups, warm_s, seconds)


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
