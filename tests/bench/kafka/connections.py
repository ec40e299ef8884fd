"""Many connections on one broker: what each takes, and what others notice.

A process of its own opens them (`idle_connections`): each asks for ApiVersions, gets its answer,
and stays. Meanwhile other clients send records at a steady pace. The memory of one is what the
broker has grown by since before the first turn of that number: what it frees later it keeps for
itself.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.kafka import paced
from tests.bench.kafka.turns import Options, Quantity, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.kafka.clusters import Cluster

RATE = 500
KIBIBYTE = 1024
OTHERS = [paced.Quantity("p99", "p99_ms", "ms", "end to end of other clients meanwhile, p99")]
OTHER_FILES = 500
"""That a process has open beside the connections."""


class Opened(NamedTuple):
    """Connections that are held."""

    refused: int
    seconds: float
    """From the first connection to the last answer."""


def allow_many() -> None:
    """Lets this process, and those that it starts, open as many files as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def connections(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """Each number of connections in turn, on the first broker of each cluster."""
    options.warmth.reach(clusters, "paced", paced.warm)
    found = _without(clusters, options)
    for count in options.connections:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most < count + OTHER_FILES:
            raise RuntimeError(f"ulimit -n is {most}, less than {count + OTHER_FILES}")
        turns = options.turns if count == max(options.connections) else 1
        found |= _with(clusters, replace(options, turns=turns), count)
    return found


def _without(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    turns: dict[str, list[paced.Turn]] = {cluster.name: [] for cluster in clusters}
    for _ in range(options.turns):
        for cluster in clusters:
            turns[cluster.name].append(paced.turn_of(cluster, RATE, options.paced_seconds))
    return paced.compared("connections_0", RATE, turns, OTHERS)


def _with(clusters: Sequence[Cluster], options: Options, count: int) -> dict[str, Any]:
    name = f"connections_{count}"
    before = {cluster.name: _resident(cluster) for cluster in clusters}
    others: dict[str, list[paced.Turn]] = {cluster.name: [] for cluster in clusters}

    def measure(cluster: Cluster, _: int) -> Mapping[str, float]:
        with holding(cluster, count) as opened:
            grown = (_resident(cluster) - before[cluster.name]) / KIBIBYTE / count
            others[cluster.name].append(paced.turn_of(cluster, RATE, options.paced_seconds))
        return {
            f"{name}_memory": grown,
            f"{name}_refused": opened.refused,
            f"{name}_opened": (count - opened.refused) / opened.seconds,
        }

    quantities = {
        f"{name}_memory": Quantity("KiB", "of a broker for each connection"),
        f"{name}_refused": Quantity("", "goal: none", 0),
        f"{name}_opened": Quantity("1/s", "connections, each with an ApiVersions", 0),
    }
    found = in_turns(clusters, options.turns, measure, quantities)
    return found | paced.compared(name, RATE, others, OTHERS)


@contextlib.contextmanager
def holding(cluster: Cluster, count: int) -> Iterator[Opened]:
    """So many connections on the first broker, for as long as the block lasts."""
    where = cluster.bootstrap.split(",")[0]
    program = [sys.executable, "-m", "tests.bench.kafka.idle_connections", where, str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{cluster.name}: the connections were not opened")
        yield Opened(**json.loads(line))
        process.stdin.close()


def _resident(cluster: Cluster) -> int:
    """Of the first broker."""
    return int(cluster.broker_processes()[0].memory_info().rss)
