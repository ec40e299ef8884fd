"""Clients in a process of their own against one cluster, and what its brokers use meanwhile."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.kafka.clusters import Cluster

MEGABYTE = 10**6
MEBIBYTE = 1 << 20
TIMEOUT_S = 3600
SAMPLE_S = 0.2
CLIENT = {"batch.size": "65536", "linger.ms": "5"}


@dataclass(frozen=True, slots=True)
class Load:
    """What a run of clients came to."""

    report: dict[str, Any]
    """Of `raftctl bench`."""
    cpu_ms_per_megabyte: float
    """Of all brokers; a megabyte is counted once, whatever its replicas."""
    client_cpu_ms_per_megabyte: float
    """Of the client, from its start to its end."""
    resident_mebibytes: float
    """The greatest of any broker while the clients ran."""


def produce(cluster: Cluster, topic: str, size: int, megabytes: int, acks: str) -> Load:
    """Writes so many megabytes of records of this size."""
    count = max(1, megabytes * MEGABYTE // size)
    settings = {**CLIENT, "acks": acks}
    properties = [f"--producer-props={key}={value}" for key, value in settings.items()]
    shape = [f"--num-records={count}", f"--record-size={size}"]
    return run(cluster, "produce", topic, *shape, *properties)


def consume(cluster: Cluster, topic: str, records: int) -> Load:
    """Reads so many records from the start."""
    return run(cluster, "consume", topic, f"--num-records={records}", "--timeout=60000")


def consume_together(cluster: Cluster, topic: str, records: int, consumers: int) -> Load:
    """So many consumers at once, each of which reads so many records from the start."""
    if consumers == 1:
        return consume(cluster, topic, records)
    before, client_before = cluster.broker_cpu_seconds(), _client_cpu_seconds()
    with ThreadPoolExecutor(consumers) as pool:
        loads = list(pool.map(lambda _: consume(cluster, topic, records), range(consumers)))
    used = cluster.broker_cpu_seconds() - before
    client_used = _client_cpu_seconds() - client_before
    size = sum(one.report["bytes"] for one in loads)
    seconds = max(one.report["seconds"] for one in loads)
    rate = {"bytes": size, "seconds": seconds, "megabytes_per_s": size / seconds / MEGABYTE}
    of_megabyte = 1000 / (size / MEGABYTE)
    resident = max(one.resident_mebibytes for one in loads)
    return Load(rate, used * of_megabyte, client_used * of_megabyte, resident)


def run(cluster: Cluster, command: str, topic: str, *arguments: str) -> Load:
    """Runs `raftctl bench`."""
    client = [sys.executable, "-m", "raftctl", "bench", command, "--output=json"]
    where = [f"--bootstrap-server={cluster.bootstrap}", f"--topic={topic}"]
    if cluster.entrance.command_config is not None:
        where.append(f"--command-config={cluster.entrance.command_config}")
    before, client_before = cluster.broker_cpu_seconds(), _client_cpu_seconds()
    with _Memory(cluster) as memory:
        done = subprocess.run(
            [*client, *where, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S
        )
    if done.returncode:
        raise RuntimeError(f"{cluster.name}: bench {command}: {done.stderr}")
    used = cluster.broker_cpu_seconds() - before
    client_used = _client_cpu_seconds() - client_before
    report = json.loads(done.stdout)
    of_megabyte = 1000 / (report["bytes"] / MEGABYTE)
    return Load(report, used * of_megabyte, client_used * of_megabyte, memory.greatest)


def _client_cpu_seconds() -> float:
    """Used by the processes that were started here and have ended; brokers have not."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class _Memory:
    """Looks at the resident memory of the brokers again and again."""

    def __init__(self, cluster: Cluster) -> None:
        self._processes = cluster.broker_processes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.greatest = 0.0

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            sizes = [process.memory_info().rss / MEBIBYTE for process in self._processes]
            self.greatest = max(self.greatest, *sizes)
            if self._over.wait(SAMPLE_S):
                return
