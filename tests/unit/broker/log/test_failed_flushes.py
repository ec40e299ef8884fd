"""A flush fails, the broker is started again, and then power is lost (row L8).

The disk is the simulator's: pages that a failed sync did not write are read as before, count as
clean, and are gone after a loss of power.
"""

from __future__ import annotations

import asyncio
import errno
import random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.log import LogManager
from broker.log.partition_log import fsync_marker
from broker.types import TopicPartition
from jepsen.simulator._errno import os_error
from jepsen.simulator.disk import SimDisk, no_fault
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.fake_files import FakeRuntime
from tests.unit.broker.log.logs import fill, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.log.partition_log import PartitionLog

PARTITION = TopicPartition("t", 0)
CONFIG = TopicConfig(segment_bytes=1_000)


class Broker:
    """The logs of one broker on a disk that outlives it."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = SimDisk(random.Random(seed), lambda _: None)
        self.disk.make_directories("/d")
        self.disk.sync_directory("/")
        self.manager: LogManager | None = None

    async def start(self) -> PartitionLog:
        """Starts it, for the first time or after the last one was killed; returns its log."""
        if self.manager is not None:
            await self.manager.housekeeping.stop()
        self.runtime = runtime = FakeRuntime()
        runtime.files = self.disk
        self.manager = manager = LogManager(runtime, ["/d"], CONFIG, lambda _: None)
        await manager.start()
        log = manager.get(PARTITION) or manager.create(PARTITION, UUID(int=1), CONFIG)
        await settle()
        return log

    async def checkpoint(self) -> None:
        """What housekeeping does every few seconds."""
        assert self.manager is not None
        await self.manager.housekeeping.checkpoint()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def refuses(operation: str, suffix: str = "") -> Callable[[str, str], None]:
    """A disk on which one operation fails for the files that end so."""

    def fault(asked: str, path: str) -> None:
        if asked == operation and path.endswith(suffix):
            raise os_error(errno.EIO, path)

    return fault


async def refused(log: PartitionLog) -> None:
    with pytest.raises(KafkaError) as raised:
        await log.flush_through(log.log_end_offset)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def flushed(log: PartitionLog, batches: int) -> int:
    fill(log, batches)
    log.high_watermark = log.log_end_offset
    await log.flush_through(log.log_end_offset)
    return log.log_end_offset


@pytest.mark.req("L8", "L4")
@pytest.mark.parametrize("vouched", [False, True], ids=["", "checkpointed"])
@pytest.mark.parametrize("seed", range(4))
async def test_what_a_failed_flush_left_in_memory_is_written_again(
    seed: int, *, vouched: bool
) -> None:
    broker = Broker(seed)
    log = await broker.start()
    await flushed(log, 3)
    await broker.checkpoint()
    fill(log, 20)
    broker.disk.fault = refuses("sync", ".log")
    await refused(log)
    broker.disk.fault = no_fault
    log = await broker.start()
    assert log.log_end_offset == 46, "the page cache has it all"
    end = await flushed(log, 1)
    if vouched:
        await broker.checkpoint()
    broker.disk.crash()
    log = await broker.start()
    assert log.log_end_offset == end == 48
    assert read(log, 0) == list(range(0, end, 2))


@pytest.mark.req("L8")
async def test_only_what_a_flush_may_have_lost_is_written_again() -> None:
    broker = Broker()
    log = await broker.start()
    await flushed(log, 3)
    await broker.checkpoint()
    fill(log, 3)
    written = list[str]()
    broker.disk.fault = lambda operation, path: (
        written.append(path) if operation == "write" and path.endswith(".log") else None
    )
    await broker.start()
    assert written == [], "a broker that was only killed"
    assert broker.runtime.events == []
    assert fsync_marker.exists(broker.disk, "/d")
    fsync_marker.remove(broker.disk, "/d")
    await broker.start()
    assert len(written) == 3 + 1, "the batches above the recovery point, and the length"
    said = {"logger": "broker.log", "directory": "/d", "logs": 1}
    assert broker.runtime.events == [("unflushed_written_again", said)]
    assert fsync_marker.exists(broker.disk, "/d")


@pytest.mark.req("L8")
async def test_a_failure_that_cannot_be_noted_is_told_all_the_same() -> None:
    broker = Broker()
    log = await broker.start()
    fill(log, 3)

    def fault(operation: str, path: str) -> None:
        if operation in ("sync", "name"):
            raise os_error(errno.EIO, path)

    broker.disk.fault = fault
    await refused(log)
    assert fsync_marker.exists(broker.disk, "/d")


@pytest.mark.req("L8")
async def test_a_flush_behind_one_that_failed_vouches_for_nothing() -> None:
    broker = Broker()
    log = await broker.start()
    fill(log, 20)
    assert broker.manager is not None
    failures = iter([True])

    def fault(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log") and next(failures, False):
            raise os_error(errno.EIO, path)

    broker.disk.fault = fault
    first = asyncio.ensure_future(broker.checkpoint())
    await asyncio.sleep(0)
    with pytest.raises(KafkaError, match="offline"):
        await log.flush_through(log.log_end_offset)
    await first
    assert log.recovery_point == 0
    assert broker.manager.offline_directories == ["/d"]


@pytest.mark.req("L8", "L4")
@pytest.mark.parametrize("seed", range(4))
async def test_segments_that_a_killed_broker_began_stay_after_a_loss_of_power(seed: int) -> None:
    broker = Broker(seed)
    log = await broker.start()
    await flushed(log, 1)
    fill(log, 20)
    log = await broker.start()
    end = await flushed(log, 1)
    broker.disk.crash()
    log = await broker.start()
    assert log.log_end_offset == end
    assert read(log, 0) == list(range(0, end, 2))
