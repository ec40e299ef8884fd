"""Local clusters of real processes for tests, and the proof that none of them stays behind."""

from __future__ import annotations

import atexit
import contextlib
import time
from functools import cache
from typing import TYPE_CHECKING

import psutil

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.config import write_properties
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.localcluster.fork_server import NodeLauncher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from raftctl.localcluster.cluster import Launcher
    from raftctl.localcluster.layout import LocalNode

POLL_S = 0.02

ANY_TIMESTAMP = {
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
}
"""Keeps records of any time, so that tests can compare times that they chose."""


@cache
def launcher() -> NodeLauncher:
    """Starts the nodes of all tests in this process, so that these import them once."""
    made = NodeLauncher()
    atexit.register(made.close)
    return made


@contextlib.contextmanager
def running_cluster(
    directory: Path,
    controllers: int = 3,
    brokers: int = 3,
    overrides: Mapping[str, str] | None = None,
    launch: Launcher | None = None,
    prepare: Callable[[LocalCluster], object] = lambda _: None,
) -> Iterator[LocalCluster]:
    """A ready cluster; afterwards its processes are gone, whatever happened.

    `prepare` may change the files of the nodes before they start.
    """
    launch = launch or launcher().launch
    spec = ClusterSpec(controllers, brokers, overrides=overrides)
    cluster = LocalCluster.open(directory, spec, random_uuid_text, format_storage, launch)
    try:
        prepare(cluster)
        cluster.start_all()
        cluster.wait_ready(60, lambda _: None)
        yield cluster
    finally:
        cluster.kill_all()
        left = processes_of(directory)
    assert left == []


def add_keys(cluster: LocalCluster, node: LocalNode, keys: Mapping[str, str]) -> None:
    """Append keys to the node's file; they are in force after its next start."""
    path = cluster.directory / node.name / "node.properties"
    path.write_text(path.read_text() + write_properties(keys))


def processes_of(directory: Path) -> list[str]:
    """The command lines of the processes that name the directory: nodes of a cluster in it."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        is_there = process.info["status"] != psutil.STATUS_ZOMBIE
        if is_there and any(str(directory) in word for word in words):
            found.append(" ".join(words))
    return found


def wait_until(
    is_so: Callable[[], object], what: str | Callable[[], str], timeout_s: float = 30
) -> None:
    """Polls until the condition holds; fails with `what` was expected."""
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline_s:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {timeout_s:g} s: {told}")
        time.sleep(POLL_S)


def wait_healthy(cluster: LocalCluster, timeout_s: float = 60) -> None:
    """Waits until every broker serves and is active, and every replica is in sync."""

    wait_until(
        cluster.is_healthy, lambda: f"a healthy cluster: {cluster.status().leader}", timeout_s
    )


def active_controller(cluster: LocalCluster) -> LocalNode:
    """The node that leads the quorum now."""
    leader = cluster.status().leader
    assert leader is not None, "no controller leads"
    return cluster.layout.node(leader["node_id"])
