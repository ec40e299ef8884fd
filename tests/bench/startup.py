"""From `raftctl up` to the first acknowledged produce, and what an idle node weighs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from raftctl.localcluster.cluster import LocalCluster
from tests.bench.cluster import create_topic
from tests.bench.figures import figure

IDLE_S = 2.0
MEBIBYTE = 1 << 20


def run(turns: int) -> dict[str, Any]:
    """Start time in seconds, resident memory of the largest idle node in MiB."""
    seconds, memory = [], []
    for _ in range(turns):
        with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
            path = Path(directory) / "cluster"
            try:
                seconds.append(_start(path))
                time.sleep(IDLE_S)
                memory.append(max(_resident_bytes(LocalCluster.load(path))) / MEBIBYTE)
            finally:
                LocalCluster.load(path).kill_all()
    return {
        "up_to_first_produce": figure(seconds, "s", "goal: at most 3"),
        "idle_node_resident_memory": figure(memory, "MiB", "goal: at most 90", 1),
    }


def _start(path: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "raftctl", "up", "--dir", str(path)], check=True, capture_output=True
    )
    bootstrap = LocalCluster.load(path).layout.bootstrap
    create_topic(AdminClient({"bootstrap.servers": bootstrap, "log_level": 2}), "first", 1)
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 2})
    producer.produce("first", b"hello", callback=lambda error, _: errors.append(error))
    producer.flush(30)
    if errors != [None]:
        raise RuntimeError(f"the first produce came to {errors}")
    return time.perf_counter() - began


def _resident_bytes(cluster: LocalCluster) -> list[int]:
    references = [cluster.process(node) for node in cluster.layout.nodes]
    return [psutil.Process(one.pid).memory_info().rss for one in references if one is not None]
