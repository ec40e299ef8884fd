"""How long until large logs are served again when their broker was killed.

One controller, one broker, a topic of several partitions with segments of 1 GiB, filled by a
producer. The broker is ended three ways, its pages evicted from memory, and started again: from the
start of the process to the first acknowledged record in every partition. "killed" is kill -9;
"without recovery points" is that with the checkpoint removed, so that every batch is checked; for
comparison "stopped" is a clean shutdown.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.log.checkpoints import RECOVERY_POINTS
from raftctl.bench.figures import figure, report
from raftctl.cli.storage import format_storage, random_uuid_text
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC = "recovery"
GIGABYTE = 10**9
RECORD_BYTES = 32 << 10
CHECKPOINT_S = 6.0
"""A little more than `log.flush.offset.checkpoint.interval.ms`."""
WAIT_S = 300.0


def main(arguments: Sequence[str]) -> None:
    """Runs as told on the command line."""
    parser = argparse.ArgumentParser(prog="tests.bench recovery", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--output", type=Path, default=Path("out/recovery.json"))
    wanted = parser.parse_args(arguments)
    figures = measure(wanted.gigabytes, wanted.partitions)
    for name, value in figures.items():
        sys.stdout.write(f"{name}: {value['median']} {value['unit']} ({value['goal']})\n")
    wanted.output.parent.mkdir(parents=True, exist_ok=True)
    wanted.output.write_text(json.dumps(report(figures), indent=2))


def measure(gigabytes: float, partitions: int) -> dict[str, Any]:
    """Seconds until all partitions are served again, after each way to end."""
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
        path = Path(directory) / "cluster"
        cluster = LocalCluster.open(path, ClusterSpec(1, 1), random_uuid_text, format_storage)
        try:
            cluster.start_all()
            cluster.wait_ready(60, lambda _: None)
            began = time.perf_counter()
            _fill(cluster, int(gigabytes * GIGABYTE), partitions)
            filled_s = time.perf_counter() - began
            # By then what can be is on disk, and the checkpoints say so.
            time.sleep(CHECKPOINT_S)
            killed = _restart(cluster, path, partitions)
            worst = _restart(cluster, path, partitions, without_points=True)
            stopped = _restart(cluster, path, partitions, clean=True)
        finally:
            cluster.kill_all()
    size = f"{gigabytes:g} GB in {partitions} partitions"
    return {
        "recovery_fill": figure([gigabytes * 1000 / filled_s], "MB/s", size, 1),
        "recovery_killed": figure([killed], "s", size),
        "recovery_killed_without_recovery_points": figure([worst], "s", f"{size}, all checked"),
        "recovery_stopped": figure([stopped], "s", "for comparison"),
    }


def _fill(cluster: LocalCluster, size: int, partitions: int) -> None:
    bootstrap = cluster.layout.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topic = NewTopic(TOPIC, partitions, 1, config={"segment.bytes": str(1 << 30)})
    for created in admin.create_topics([topic], request_timeout=30).values():
        created.result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "batch.size": 900_000,
            "linger.ms": 20,
            "queue.buffering.max.kbytes": 128 << 10,
            "log_level": 2,
        }
    )
    # Bytes that do not compress to nothing anywhere below.
    value = os.urandom(RECORD_BYTES)
    for number in range(size // RECORD_BYTES):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(WAIT_S):
        raise RuntimeError("the logs could not be filled")


def _restart(
    cluster: LocalCluster,
    directory: Path,
    partitions: int,
    *,
    without_points: bool = False,
    clean: bool = False,
) -> float:
    (node,) = cluster.layout.brokers
    if clean:
        process = cluster.process(node)
        if process is not None:
            process.send(signal.SIGTERM)
        _until(lambda: not cluster.is_running(node))
    else:
        cluster.kill(node)
    _until(lambda: cluster.status().active_brokers == [])
    if without_points:
        for point in directory.rglob(RECOVERY_POINTS):
            point.unlink()
    _evict(directory)
    began = time.perf_counter()
    cluster.start(node)
    _write_to_all(cluster, partitions)
    return time.perf_counter() - began


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the broker does not end")
        time.sleep(0.02)


def _evict(directory: Path) -> None:
    """Takes the logs from the page cache, as a loss of power does, but for what it would lose."""
    for path in directory.rglob("*.log"):
        descriptor = os.open(path, os.O_RDWR)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _write_to_all(cluster: LocalCluster, partitions: int) -> None:
    errors: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.layout.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 20,
            "message.timeout.ms": int(WAIT_S * 1000),
            "log_level": 2,
        }
    )
    for partition in range(partitions):
        producer.produce(
            TOPIC, b"x", partition=partition, callback=lambda error, _: errors.append(error)
        )
    producer.flush(WAIT_S)
    if errors != [None] * partitions:
        raise RuntimeError(f"the broker does not serve again: {errors}")
