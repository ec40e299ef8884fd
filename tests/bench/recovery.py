"""How long until large logs are served again when their broker was killed.

One controller, one broker, a topic of several partitions with four to five segments each (of at
most 1 GiB), filled by a producer; all but the last are on disk, and the recovery points say so,
before anything is ended. The broker is ended and started again: from the start of the process to
the first acknowledged record in every partition. "killed" is kill -9, which leaves pages in memory;
"cold" is that with the pages evicted, as after a loss of power; "without recovery points" also has
the checkpoint removed, so that every batch is checked; for comparison "stopped" is a clean
shutdown, cold as well.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.log.checkpoints import RECOVERY_POINTS, read_offsets
from broker.protocol.codec import decode_response, encode_request
from broker.protocol.versions import ApiKey
from broker.types import TopicPartition
from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.runtime.real import RealFileSystem
from tests.bench.figures import figure, report
from tests.unit.broker.log.batches import make_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC = "recovery"
GIGABYTE = 10**9
RECORD_BYTES = 32 << 10
SEGMENTS = 4
WAIT_S = 300.0
RETRY_S = 0.005
PRODUCE_VERSION = 9


def main(arguments: Sequence[str]) -> None:
    """Runs as told on the command line."""
    parser = argparse.ArgumentParser(prog="tests.bench recovery", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--flush-ms", type=int, help="flush.ms of the topic; never if left out")
    parser.add_argument("--output", type=Path, default=Path("out/recovery.json"))
    wanted = parser.parse_args(arguments)
    segment_bytes = min(1 << 30, int(wanted.gigabytes * GIGABYTE / wanted.partitions / SEGMENTS))
    configs = {"segment.bytes": str(segment_bytes)}
    if wanted.flush_ms is not None:
        configs["flush.ms"] = str(wanted.flush_ms)
    figures = measure(wanted.gigabytes, wanted.partitions, configs)
    for name, value in figures.items():
        sys.stdout.write(f"{name}: {value['median']} {value['unit']} ({value['goal']})\n")
    wanted.output.parent.mkdir(parents=True, exist_ok=True)
    wanted.output.write_text(json.dumps(report(figures), indent=2))


def measure(gigabytes: float, partitions: int, configs: dict[str, str]) -> dict[str, Any]:
    """Seconds until all partitions are served again, after each way to end."""
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
        path = Path(directory) / "cluster"
        cluster = LocalCluster.open(path, ClusterSpec(1, 1), random_uuid_text, format_storage)
        try:
            cluster.start_all()
            cluster.wait_ready(60, lambda _: None)
            began = time.perf_counter()
            _create(cluster, partitions, configs)
            _fill(cluster, int(gigabytes * GIGABYTE), partitions)
            filled_s = time.perf_counter() - began
            _until(lambda: _vouched(path, partitions), "the complete segments are not flushed")
            killed = _restart(cluster, path, partitions, cold=False)
            cold = _restart(cluster, path, partitions)
            worst = _restart(cluster, path, partitions, without_points=True)
            stopped = _restart(cluster, path, partitions, clean=True)
        finally:
            cluster.kill_all()
    size = f"{gigabytes:g} GB in {partitions} partitions"
    return {
        "recovery_fill": figure([gigabytes * 1000 / filled_s], "MB/s", size, 1),
        "recovery_killed": figure([killed], "s", size),
        "recovery_killed_cold": figure([cold], "s", size),
        "recovery_cold_without_recovery_points": figure([worst], "s", f"{size}, all checked"),
        "recovery_stopped": figure([stopped], "s", "for comparison"),
    }


def _create(cluster: LocalCluster, partitions: int, configs: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap, "log_level": 2})
    topic = NewTopic(TOPIC, partitions, 1, config=configs)
    for created in admin.create_topics([topic], request_timeout=30).values():
        created.result()


def _fill(cluster: LocalCluster, size: int, partitions: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.layout.bootstrap,
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
    cold: bool = True,
    without_points: bool = False,
    clean: bool = False,
) -> float:
    (node,) = cluster.layout.brokers
    if clean:
        process = cluster.process(node)
        if process is not None:
            process.send(signal.SIGTERM)
        _until(lambda: not cluster.is_running(node), "the broker does not end")
    else:
        cluster.kill(node)
    _until(lambda: cluster.status().active_brokers == [], "the broker is not fenced")
    if without_points:
        for point in directory.rglob(RECOVERY_POINTS):
            point.unlink()
    if cold:
        _evict(directory)
    began = time.perf_counter()
    cluster.start(node)
    _write_to_all(cluster, partitions)
    return time.perf_counter() - began


def _vouched(directory: Path, partitions: int) -> bool:
    """Whether the recovery points have reached the last segment of every partition.

    A disk may need minutes to flush what was produced; until then they spare nothing.
    """
    (checkpoint,) = directory.rglob(RECOVERY_POINTS)
    points = read_offsets(RealFileSystem(), str(checkpoint))
    for number in range(partitions):
        segments = (checkpoint.parent / f"{TOPIC}-{number}").glob("*.log")
        newest = max(int(one.stem) for one in segments)
        if points.get(TopicPartition(TOPIC, number), 0) < newest:
            return False
    return True


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.02)


def _evict(directory: Path) -> None:
    """Takes the logs from the page cache, as a loss of power does, but for what it would lose."""
    for path in directory.rglob("*.log"):
        descriptor = os.open(path, os.O_RDWR)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _write_to_all(cluster: LocalCluster, partitions: int) -> None:
    """Asks anew every few milliseconds: a client library would wait for longer in between."""
    (node,) = cluster.layout.brokers
    left = list(range(partitions))
    deadline = time.monotonic() + WAIT_S
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError("the broker does not serve again")
        try:
            with socket.create_connection(("127.0.0.1", node.port), WAIT_S) as connection:
                while left:
                    left = _refused(connection, left)
                    time.sleep(RETRY_S)
        except OSError:
            time.sleep(RETRY_S)


def _refused(connection: socket.socket, partitions: Sequence[int]) -> list[int]:
    """Writes a record to each partition; returns those that did not take it."""
    data = [{"index": number, "records": make_batch([b"x"])} for number in partitions]
    message = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 1_000,
        "topic_data": [{"name": TOPIC, "partition_data": data}],
    }
    connection.sendall(encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "recovery", message))
    size = int.from_bytes(_received(connection, 4), "big")
    answer = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, _received(connection, size))[1]
    (topic,) = answer["responses"]
    return [one["index"] for one in topic["partition_responses"] if one["error_code"]]


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the broker closed the connection")
        data += piece
    return data
