"""A metadata log on a fake disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.raft.batch import Batch
from raftctl.raft.messages import Epoch, Offset
from raftctl.storage.log import RecordLog
from tests.kit.disk import StepWorker

if TYPE_CHECKING:
    from tests.kit.disk import FakeDisk

DIRECTORY = "/data/__cluster_metadata-0"
SECTOR_BYTES = 48
"""So that a batch takes several."""


def batch(base_offset: int, *, count: int = 1, epoch: int = 1, size: int = 10) -> Batch:
    payload = bytes([base_offset % 250 + 1]) * size
    return Batch(Offset(base_offset), Epoch(epoch), count, 1000 + base_offset, False, payload)


def open_log(disk: FakeDisk, segment_bytes: int = 300) -> RecordLog:
    return RecordLog.open(disk, DIRECTORY, segment_bytes=segment_bytes)


def contents(log: RecordLog) -> list[Batch]:
    found: list[Batch] = []
    offset = log.start_offset
    while offset < log.end_offset:
        found += log.batches(offset, 1)
        offset = found[-1].end_offset
    return found


async def written(disk: FakeDisk, batches: list[Batch], segment_bytes: int = 300) -> RecordLog:
    log, worker = open_log(disk, segment_bytes), StepWorker()
    for one in batches:
        log.append(one)
    flushed = log.flush(worker)
    await worker.run_all()
    assert flushed.done()
    assert log.flushed_end_offset == log.end_offset
    return log
