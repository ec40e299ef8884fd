"""One flush over several segments: each is durable before the next is written, whenever it ends."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch
from raftctl.storage.log import RecordLog
from tests.kit.disk import Crash, FakeDisk, StepWorker
from tests.unit.raftctl.storage.logs import DIRECTORY, batch, contents, open_log, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.raft.batch import Batch
    from raftctl.runtime import MemoryFile
    from raftctl.runtime.api import Buffer

BEFORE = [batch(n, size=60) for n in range(2)]
FLUSHED = [batch(n, size=60) for n in range(2, 14)]
SEGMENT_BYTES = 300
CRASHES = range(6)


class Recorded(FakeDisk):
    """Notes in which order files of the log are written and synced."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, str]] = []

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        if path.endswith(".log"):
            append, sync = type(file).append, type(file).sync

            def noted_append(buffers: Sequence[Buffer]) -> None:
                self.steps.append(("write", path))
                append(file, buffers)

            def noted_sync() -> None:
                sync(file)
                self.steps.append(("sync", path))

            vars(file).update(append=noted_append, sync=noted_sync)
        return file


async def flush(disk: FakeDisk, batches: list[Batch]) -> bool:
    """Appends to the log that is there; whether the flush came to its end."""
    log, worker = open_log(disk, SEGMENT_BYTES), StepWorker()
    for one in batches:
        log.append(one)
    flushed = log.flush(worker)
    await worker.run_all()
    return flushed.exception() is None


@pytest.mark.req("Q3", "Q12")
async def test_a_segment_is_synced_before_the_next_is_written() -> None:
    disk = Recorded()
    assert await flush(disk, [*BEFORE, *FLUSHED])
    written_to = [path for what, path in disk.steps if what == "write"]
    assert len(set(written_to)) >= 4, "the flush is to span segments"
    assert written_to == sorted(written_to)
    unsynced: set[str] = set()
    for what, path in disk.steps:
        if what == "write":
            assert unsynced <= {path}, f"{path} is written before {unsynced} is durable"
            unsynced.add(path)
        else:
            unsynced.discard(path)
    assert unsynced == set()


@pytest.mark.req("Q3", "Q12")
async def test_power_may_go_between_any_two_steps_of_a_flush() -> None:
    """Each cut leaves a log that opens, with all from before and none but what was appended."""
    expected = [*BEFORE, *FLUSHED]
    operations = 0
    while True:
        disk = FakeDisk()
        (await written(disk, BEFORE, SEGMENT_BYTES)).close()
        disk.operations_left = 1 << 30
        log, worker = open_log(disk, SEGMENT_BYTES), StepWorker()
        disk.operations_left = operations
        for one in FLUSHED:
            log.append(one)
        flushed = log.flush(worker)
        await worker.run_all()
        for seed in CRASHES:
            found = contents(open_log(disk.after_crash(Random(seed)), SEGMENT_BYTES))
            assert len(BEFORE) <= len(found)
            assert found == expected[: len(found)], f"after {operations} operations, seed {seed}"
        if flushed.exception() is None:
            assert operations > 2 * 4, f"the flush of {DIRECTORY} took steps to cut"
            return
        assert isinstance(flushed.exception(), Crash)
        operations += 1


CUT_AT = 5
APPENDED = [batch(n, epoch=2, size=60) for n in range(CUT_AT, CUT_AT + 6)]
WHOLE = [*BEFORE, *FLUSHED]


def cut_and_append(log: RecordLog, appended: Sequence[Batch]) -> None:
    log.truncate(Offset(CUT_AT))
    for one in appended:
        log.append(one)


@pytest.mark.req("Q2", "Q12")
@pytest.mark.parametrize("appended", [[], APPENDED], ids=["cut", "cut and append"])
async def test_power_may_go_between_any_two_steps_of_a_truncation(appended: list[Batch]) -> None:
    """What is left is a prefix of the log before or after, and nothing below the cut is lost."""
    operations = 0
    while True:
        disk = FakeDisk()
        (await written(disk, WHOLE, SEGMENT_BYTES)).close()
        log, worker = open_log(disk, SEGMENT_BYTES), StepWorker()
        disk.operations_left = operations
        cut_and_append(log, appended)
        flushed = log.flush(worker)
        await worker.run_all()
        for seed in CRASHES:
            found = contents(open_log(disk.after_crash(Random(seed)), SEGMENT_BYTES))
            assert len(found) >= CUT_AT
            after = [*WHOLE[:CUT_AT], *appended]
            assert found in (WHOLE[: len(found)], after[: len(found)]), f"{operations}, {seed}"
        if flushed.exception() is None:
            assert operations > 2 * 3, "the cut took segments away"
            return
        assert isinstance(flushed.exception(), Crash)
        operations += 1


@pytest.mark.req("Q2", "Q12")
@pytest.mark.parametrize("appended", [[], APPENDED], ids=["cut", "cut and append"])
@pytest.mark.parametrize("seed", range(20))
async def test_a_truncation_that_was_flushed_is_not_undone(
    appended: list[Batch], seed: int
) -> None:
    disk = FakeDisk()
    (await written(disk, WHOLE, SEGMENT_BYTES)).close()
    log, worker = open_log(disk, SEGMENT_BYTES), StepWorker()
    cut_and_append(log, appended)
    flushed = log.flush(worker)
    await worker.run_all()
    assert flushed.exception() is None
    found = contents(open_log(disk.after_crash(Random(seed)), SEGMENT_BYTES))
    assert found == [*WHOLE[:CUT_AT], *appended]


@pytest.mark.req("Q6", "Q12")
async def test_power_may_go_between_any_two_steps_of_the_removal_of_a_prefix() -> None:
    """What is left opens from the snapshot on, and never with a gap below it."""
    start = OffsetAndEpoch(Offset(10), Epoch(1))
    operations = 0
    while True:
        disk = FakeDisk()
        (await written(disk, WHOLE, SEGMENT_BYTES)).close()
        log, worker = open_log(disk, SEGMENT_BYTES), StepWorker()
        bases = [int(name.partition(".")[0]) for name in sorted(disk.names(DIRECTORY))[:-1]]
        disk.operations_left = operations
        log.delete_prefix(start)
        flushed = log.flush(worker)
        await worker.run_all()
        for seed in CRASHES:
            left = disk.after_crash(Random(seed))
            segments = [name for name in sorted(left.names(DIRECTORY)) if name.endswith(".log")]
            kept = [int(name.partition(".")[0]) for name in segments]
            assert kept == bases[-len(kept) :], f"a gap after {operations} operations"
            again = RecordLog.open(left, DIRECTORY, segment_bytes=SEGMENT_BYTES, start=start)
            assert contents(again) == WHOLE[start.offset :]
        if flushed.exception() is None:
            assert operations > 2 * 2, "the prefix has segments"
            return
        assert isinstance(flushed.exception(), Crash)
        operations += 1
