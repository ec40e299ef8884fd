"""Breaks a cluster of Apache Kafka for the harness: `jepsen test --env external --control`.

`python -m tests.peers.control DIR up` makes one of three controllers and three brokers in a new
directory, starts it and prints its bootstrap servers; `down` ends it. All else is what
`jepsen.environments.external` asks for.
"""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from tests.bench.kafka.clusters import QUICK_JAVA, kafka_cluster, kafka_jars, start_kafka
from tests.peers.tools import CACHE, KAFKA_VERSION, installing

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.localcluster.layout import LocalNode

SPEC = ClusterSpec(controllers=3, brokers=3, overrides={"group.initial.rebalance.delay.ms": "0"})
STOP_S = 30.0


def jars() -> Path:
    """Of the server; installed if they are not."""
    with installing():
        return kafka_jars(KAFKA_VERSION, CACHE)


def up(directory: Path, spec: ClusterSpec = SPEC) -> str:
    """Makes and starts a cluster; its bootstrap servers, when clients see all brokers."""
    cluster = kafka_cluster(directory, jars(), spec, QUICK_JAVA)
    cluster.start()
    cluster.wait_usable()
    return cluster.bootstrap


def opened(directory: Path) -> LocalCluster:
    """A cluster that `up` has made."""
    return LocalCluster.load(directory, partial(start_kafka, jars(), QUICK_JAVA))


def nodes(cluster: LocalCluster) -> str:
    """A line for each node: its role, its name and its id."""
    return "\n".join(f"{node.role} {node.name} {node.node_id}" for node in cluster.layout.nodes)


def do(cluster: LocalCluster, what: str, name: str) -> None:
    """Kills, starts, stops, pauses or resumes a node."""
    node = next(one for one in cluster.layout.nodes if one.name == name)
    does: dict[str, Callable[[LocalNode], object]] = {
        "kill": cluster.kill,
        "stop": lambda node: cluster.stop(node, STOP_S),
        "start": partial(_start, cluster),
        "pause": partial(_signal, cluster, signal.SIGSTOP),
        "resume": partial(_signal, cluster, signal.SIGCONT),
    }
    does[what](node)


def _start(cluster: LocalCluster, node: LocalNode) -> None:
    if not cluster.is_running(node):
        cluster.start(node)


def _signal(cluster: LocalCluster, number: signal.Signals, node: LocalNode) -> None:
    process = cluster.process(node)
    if process is not None:
        process.send(number)


def main() -> None:
    """Does what the words say."""
    parser = argparse.ArgumentParser(prog="tests.peers.control", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("what")
    parser.add_argument("node", nargs="?")
    options = parser.parse_args()
    if options.what == "up":
        sys.stdout.write(f"{up(options.directory)}\n")
        return
    cluster = opened(options.directory)
    if options.what == "down":
        cluster.kill_all()
    elif options.what == "nodes":
        sys.stdout.write(f"{nodes(cluster)}\n")
    else:
        do(cluster, options.what, options.node)


if __name__ == "__main__":
    main()
