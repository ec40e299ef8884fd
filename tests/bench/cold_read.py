"""How long a read of pages that are not in memory holds up a broker's event loop.

One process: a log of 128 MiB, its pages evicted, read through the `ReplicaManager` in pieces as a
consumer that catches up does. "With" is the product; "without" reads on the event loop at once.
"""

from __future__ import annotations

import asyncio
import io
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.log import LogManager
from broker.replication import ReplicaManager
from broker.replication.reads import Reads
from broker.replication.reads.cold_reads import ColdReads
from broker.types import FetchParams, FetchPartition, FetchResult, TopicPartition
from raftctl.metadata.configs.topic import topic_defaults
from raftctl.plugins import BrokerContext
from raftctl.runtime.real import RealRuntime
from tests.bench.figures import figure
from tests.kit.pieces import as_bytes
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import FakeController, World, config

if TYPE_CHECKING:
    from collections.abc import Sequence

MEBIBYTE = 1 << 20
LOG_BYTES = 128 * MEBIBYTE
BLOCK_BYTES = 512
BATCH_BYTES = 512 << 10
PARTITION = TopicPartition("t", 0)


class _Measured(Reads):
    """Notes how long each step of a fetch holds the event loop."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.held_ms: list[float] = []
        self.disk_bytes = 0
        """Asked of the disk by the event loop's thread, which need not have waited for them."""
        self.waits = 0
        """How often the thread gave its core up because it had to wait."""

    def _read(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> list[FetchResult]:
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_THREAD)
        found = super()._read(params, partitions)
        for result in found:
            # In place of sending them from the file, which would wait for the disk as well.
            as_bytes(result.records)
        after = resource.getrusage(resource.RUSAGE_THREAD)
        self.disk_bytes += (after.ru_inblock - before.ru_inblock) * BLOCK_BYTES
        self.waits += after.ru_nvcsw - before.ru_nvcsw
        self.held_ms.append((time.perf_counter() - began) * 1000)
        return found


class _Blind(ColdReads):
    """Takes everything for being in memory."""

    def is_cold(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> bool:
        return False

    def read_ahead(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> None:
        """Nothing."""


def run(turns: int) -> dict[str, Any]:
    """The longest hold of each turn, how often the loop waited for the disk, and the rate."""
    longest: dict[bool, list[float]] = {True: [], False: []}
    rates: dict[bool, list[float]] = {True: [], False: []}
    disk: dict[bool, list[float]] = {True: [], False: []}
    waits: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(turns):
            for warms in (True, False):
                reads, took_s = asyncio.run(_turn(directory, warms=warms))
                longest[warms].append(max(reads.held_ms))
                disk[warms].append(reads.disk_bytes / MEBIBYTE)
                waits[warms].append(reads.waits)
                rates[warms].append(LOG_BYTES / MEBIBYTE / took_s)
    return {
        "cold_read_longest_hold_with": figure(longest[True], "ms", "below a heartbeat"),
        "cold_read_longest_hold_without": figure(longest[False], "ms", "for comparison"),
        "cold_read_waits_with": figure(waits[True], "", "0"),
        "cold_read_waits_without": figure(waits[False], "", "for comparison"),
        "cold_read_from_disk_with": figure(disk[True], "MiB", "read ahead by the kernel"),
        "cold_read_from_disk_without": figure(disk[False], "MiB", "for comparison"),
        "cold_read_rate_with": figure(rates[True], "MiB/s", "as without"),
        "cold_read_rate_without": figure(rates[False], "MiB/s", "for comparison"),
    }


def _measured(replicas: ReplicaManager, *, warms: bool) -> _Measured:
    """The reads of this broker from now on."""
    reads = replicas._reads = _Measured(
        replicas._config,
        replicas.partitions,
        replicas._absence,
        replicas._cold_reads if warms else _Blind([], replicas.partitions),
        replicas._throttles.sending,
        replicas._brokers,
        replicas._fetches,
    )
    return reads


async def _turn(directory: str, *, warms: bool) -> tuple[_Measured, float]:
    runtime = RealRuntime(io.StringIO())
    keys = {"log_dirs": directory, "message_max_bytes": str(2 * BATCH_BYTES)}
    settings = config(1, **keys)
    context = BrokerContext(
        settings, runtime, "cluster", FakeController(), lambda: 1, lambda: -1, _raise
    )
    logs = LogManager(runtime, settings.log_dirs, topic_defaults(settings), _raise)
    replicas = ReplicaManager(context, logs)
    reads = _measured(replicas, warms=warms)
    await replicas.start()
    world = World(1)
    world.controller.publish = replicas.apply_delta
    world.create_topic()
    _fill(replicas)
    _evict(Path(directory))
    began = time.perf_counter()
    await _read_all(replicas)
    took_s = time.perf_counter() - began
    await replicas.stop()
    runtime.close()
    return reads, took_s


def _raise(error: BaseException) -> None:
    raise error


def _fill(replicas: ReplicaManager) -> None:
    log = replicas.partitions[PARTITION].log
    batch = make_batch([os.urandom(BATCH_BYTES)])
    while log.size < LOG_BYTES:
        replicas.append(1, 0, [(PARTITION, batch)])


def _evict(directory: Path) -> None:
    for path in directory.rglob("*.log"):
        descriptor = os.open(path, os.O_RDWR)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


async def _read_all(replicas: ReplicaManager) -> None:
    offset, end = 0, replicas.partitions[PARTITION].log.log_end_offset
    params = FetchParams(-1, -1, 0, 1, 1 << 20, read_committed=False)
    while offset < end:
        wanted = FetchPartition(PARTITION, None, -1, offset, -1, 0, 1 << 20)
        found = replicas.fetch(params, [wanted])
        result = (found if isinstance(found, list) else await found)[0]
        assert result.size, result
        offset += max(result.size // BATCH_BYTES, 1)
