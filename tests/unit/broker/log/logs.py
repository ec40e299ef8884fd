"""Logs on a file system in memory, and ways to fill and read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log.batches.record_batch import BatchHeader, split_fetched
from broker.log.partition_log import _opening as opening
from broker.types import TopicPartition
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import make_batch

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog
    from raftctl.runtime.api import Buffer
    from tests.unit.broker.log.fake_files import FakeFiles

PARTITION = TopicPartition("t", 0)
DIRECTORY = "/logs/t-0"
SMALL = TopicConfig(segment_bytes=1_000, index_interval_bytes=150)


def new_log(files: FakeFiles, config: TopicConfig = SMALL) -> PartitionLog:
    return opening.create_log(files, DIRECTORY, PARTITION, config)


def reopen(
    files: FakeFiles, recovery_point: int = 0, *, clean: bool = False, config: TopicConfig = SMALL
) -> PartitionLog:
    return opening.open_log(
        files, DIRECTORY, PARTITION, config, recovery_point=recovery_point, clean=clean
    )


def fill(log: PartitionLog, batches: int, *, epoch: int = 0, size: int = 40) -> None:
    for _ in range(batches):
        number = log.log_end_offset
        log.append_as_leader(
            make_batch([b"x" * size, b"y" * (number % 7)], timestamps=[number, number + 1]),
            epoch,
            0,
        )


def batches_in(data: list[Buffer]) -> list[BatchHeader]:
    """The header of each whole batch."""
    return [header for header, _ in split_fetched(b"".join(data))]


def read(log: PartitionLog, offset: int, up_to: int | None = None) -> list[int]:
    """Base offsets of everything from `offset` on, read as a client would."""
    found: list[int] = []
    end = log.log_end_offset if up_to is None else up_to
    while True:
        data = log.read(offset, max_bytes=10_000, up_to_offset=end, min_one=True)
        if not data:
            return found
        batches = batches_in(data)
        found += [header.base_offset for header in batches]
        offset = batches[-1].next_offset


def headers(log: PartitionLog) -> list[BatchHeader]:
    return [at.header for at, _ in log._segments.batches(0)]
