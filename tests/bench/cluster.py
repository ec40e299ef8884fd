"""A local cluster of real processes for one measurement, gone without a trace afterwards."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.cimpl import NewTopic

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AdminClient


@contextlib.contextmanager
def local_cluster(controllers: int = 3, brokers: int = 3) -> Iterator[LocalCluster]:
    """A ready cluster with the timeouts of `raftctl up`."""
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
        spec = ClusterSpec(controllers, brokers)
        cluster = LocalCluster.open(
            Path(directory) / "cluster", spec, random_uuid_text, format_storage
        )
        try:
            cluster.start_all()
            cluster.wait_ready(60, lambda _: None)
            yield cluster
        finally:
            cluster.kill_all()


def create_topic(admin: AdminClient, name: str, partitions: int, min_insync: int = 2) -> None:
    """Creates a topic of three replicas; returns when the controller has committed it."""
    topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": str(min_insync)})
    for result in admin.create_topics([topic], request_timeout=30).values():
        result.result()


def wait_in_sync(cluster: LocalCluster, timeout_s: float = 60) -> None:
    """Waits until every broker is active and every replica in sync."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        status = cluster.status()
        wanted = len(cluster.layout.brokers)
        leader = status.leader
        in_sync = leader is not None and leader["under_replicated_partitions"] == 0
        if in_sync and len(status.active_brokers) == wanted:
            return
        time.sleep(0.05)
    raise TimeoutError("the cluster did not become healthy")
