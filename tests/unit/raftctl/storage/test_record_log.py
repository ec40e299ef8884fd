"""The metadata log against a list, with crashes at any operation and damage at any bit."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftctl.errors import InvariantViolation, KafkaError
from raftctl.raft.batch import Batch, decode_batches, encode_batch
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch
from raftctl.storage.log import RecordLog
from raftctl.storage.log import _record_log as record_log
from tests.kit.disk import Crash, FakeDisk, StepWorker
from tests.unit.raftctl.storage.logs import DIRECTORY, batch, contents, open_log, written

if TYPE_CHECKING:
    from raftctl.runtime.api import File


@pytest.mark.req("Q3")
async def test_appended_is_readable_at_once_and_flushed_only_after_the_sync() -> None:
    disk, worker = FakeDisk(), StepWorker()
    log = open_log(disk)
    log.append(batch(0, count=3))
    assert log.batches(Offset(1), 999) == [batch(0, count=3)]
    flushed = log.flush(worker)
    log.append(batch(3))
    assert (log.end_offset, log.flushed_end_offset) == (4, 0)
    await worker.run_all()
    assert flushed.done()
    assert log.flushed_end_offset == 3
    assert log.dirty
    assert contents(open_log(disk.after_crash(Random(1)))) == [batch(0, count=3)]


async def test_what_is_appended_during_a_flush_shares_the_next_write() -> None:
    disk, worker = FakeDisk(), StepWorker()
    log = open_log(disk, segment_bytes=10_000)
    log.append(batch(0))
    log.flush(worker)
    await worker.run_all()
    for offset in range(1, 50):
        log.append(batch(offset))
    disk.operations_left = 3
    log.flush(worker)
    await worker.run_all()
    assert disk.operations_left == 0  # one append, one sync, one note of the durable end
    assert log.flushed_end_offset == 50


async def test_truncation_during_a_flush_lowers_what_counts_as_flushed() -> None:
    disk, worker = FakeDisk(), StepWorker()
    log = await written(disk, [batch(0), batch(1)])
    log.append(batch(2))
    log.append(batch(3))
    flushed = log.flush(worker)
    log.truncate(Offset(1))
    log.append(batch(1, epoch=2, size=77))
    await worker.run_all()
    assert flushed.done()
    assert log.flushed_end_offset == 1
    log.flush(worker)
    await worker.run_all()
    assert log.flushed_end_offset == 2
    assert log.epoch_starts == ((1, 0), (2, 1))
    reopened = open_log(disk)
    assert contents(reopened) == [batch(0), batch(1, epoch=2, size=77)]
    assert reopened.epoch_starts == log.epoch_starts


async def test_segments_roll_and_reads_cross_memory_and_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_log, "RECENT_BYTES_MAX", 2000)
    disk, worker = FakeDisk(), StepWorker()
    log = open_log(disk, segment_bytes=500)
    expected = [batch(2 * n, count=2, epoch=1 + n // 40, size=n % 90) for n in range(200)]
    for one in expected:
        log.append(one)
        log.flush(worker)
        await worker.run_all()
        assert log._recent_bytes <= 2000
    assert len(disk.names(DIRECTORY)) > 20
    assert disk.names(DIRECTORY)[0] == "00000000000000000000.log"
    for reader in (log, open_log(disk)):
        assert contents(reader) == expected
        for offset in range(400):
            data = reader.read(Offset(offset), 300)
            found = [one for _, one in decode_batches(data)]
            assert found == expected[offset // 2 : offset // 2 + len(found)]
            assert len(found) == 1 or len(data) <= 300
        assert reader.read(Offset(400), 99) == b""
    for end in range(398, -1, -14):
        log.truncate(Offset(end))
        log.flush(worker)
        await worker.run_all()
        assert contents(log) == expected[: end // 2]
        reopened = open_log(disk)
        assert contents(reopened) == expected[: end // 2]
        assert reopened.epoch_starts == log.epoch_starts


async def test_misuse_is_a_bug() -> None:
    log = await written(FakeDisk(), [batch(0, count=5), batch(5, epoch=3)])
    for wrong in (batch(7, epoch=3), batch(5, epoch=3), batch(6, epoch=2)):
        with pytest.raises(InvariantViolation):
            log.append(wrong)
    with pytest.raises(InvariantViolation, match="does not split"):
        log.truncate(Offset(3))
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        log.read(Offset(-1), 10)


async def test_an_error_of_the_disk_reaches_the_caller_and_ends_writing() -> None:
    disk, worker = FakeDisk(), StepWorker()
    log = open_log(disk)
    log.append(batch(0))
    disk.error = OSError(errno.ENOSPC, "no space left")
    flushed = log.flush(worker)
    await worker.run_all()
    with pytest.raises(OSError, match="no space left"):
        flushed.result()
    assert log.flushed_end_offset == 0
    with pytest.raises(InvariantViolation):
        log.flush(worker)


# --- against a list ---------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 400)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("work"), st.just(0), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 100), st.just(0)),
    ),
    max_size=60,
)


class Model:
    """A list of batches, all its earlier states, and what has been acknowledged."""

    def __init__(self, disk: FakeDisk) -> None:
        self.log = open_log(disk, segment_bytes=700)
        self.worker = StepWorker()
        self.flush: asyncio.Future[None] | None = None
        self.batches: list[Batch] = []
        self.states: list[list[Batch]] = [[]]
        self.epoch = 1

    async def step(self, kind: str, number: int, size: int) -> None:
        match kind:
            case "append":
                self.batches = [
                    *self.batches,
                    batch(self.log.end_offset, count=number, epoch=self.epoch, size=size),
                ]
                self.log.append(self.batches[-1])
                self.states.append(self.batches)
            case "truncate":
                self.batches = self.batches[: len(self.batches) * number // 100]
                self.log.truncate(self.batches[-1].end_offset if self.batches else Offset(0))
                self.states.append(self.batches)
                self.epoch += 1
            case "flush" if self.flush is None:
                self.flush = self.log.flush(self.worker)
            case "work":
                await self.worker.run_all()
                if self.flush is not None:
                    self.flush.result()
                    self.flush = None
        assert contents(self.log) == self.batches
        assert self.log.flushed_end_offset <= self.log.end_offset

    def check_recovered(self, found: list[Batch]) -> None:
        assert any(found == state[: len(found)] for state in self.states)
        safe = [one for one in self.batches if one.end_offset <= self.log.flushed_end_offset]
        assert found[: len(safe)] == safe


@pytest.mark.req("Q3", "Q12")
@settings(max_examples=250, deadline=None)
@given(steps, st.integers(0, 60), st.integers(0, 2**32))
def test_a_crash_loses_nothing_flushed_and_invents_nothing(
    script: list[tuple[str, int, int]], operations: int, seed: int
) -> None:
    async def run() -> None:
        disk = FakeDisk()
        model = Model(disk)
        disk.operations_left = operations
        try:
            for kind, number, size in script:
                await model.step(kind, number, size)
        except Crash:
            pass
        found = open_log(disk.after_crash(Random(seed)), segment_bytes=700)
        model.check_recovered(contents(found))
        again = open_log(disk.after_crash(Random(seed)), segment_bytes=700)
        assert again.end_offset == found.end_offset

    asyncio.run(run())


# --- snapshots ----------------------------------------------------------------------------------


def end_of(offset: int, epoch: int = 1) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), Epoch(epoch))


@pytest.mark.req("Q6")
async def test_a_deleted_prefix_is_gone_for_readers_and_whole_segments_from_disk() -> None:
    disk, worker = FakeDisk(), StepWorker()
    log = await written(disk, [batch(offset, epoch=1 + offset // 4) for offset in range(10)], 120)
    before = len(disk.names(DIRECTORY))
    log.delete_prefix(end_of(5, 2))
    assert (log.start, log.epoch_starts) == (end_of(5, 2), ((2, 5), (3, 8)))
    with pytest.raises(KafkaError):
        log.read(Offset(4), 100)
    log.append(batch(10, epoch=3))
    log.flush(worker)
    await worker.run_all()
    assert len(disk.names(DIRECTORY)) < before
    expected = [batch(offset, epoch=1 + offset // 4) for offset in range(5, 10)]
    again = RecordLog.open(disk, DIRECTORY, segment_bytes=120, start=end_of(5, 2))
    for one in (log, again):
        assert contents(one) == [*expected, batch(10, epoch=3)]
        assert one.epoch_starts == ((2, 5), (3, 8))
        assert one.contains(end_of(8, 2))
        assert not one.contains(end_of(8, 3))
        assert not one.contains(end_of(12, 3))


@pytest.mark.req("Q6")
async def test_a_reset_log_goes_on_from_the_snapshot_whenever_the_crash_comes() -> None:
    for operations in range(40):
        disk, worker = FakeDisk(), StepWorker()
        log = await written(disk, [batch(offset) for offset in range(10)], 120)
        log.reset(end_of(50, 3))
        assert (log.end_offset, log.flushed_end_offset, log.last_epoch) == (50, 50, 3)
        log.append(batch(50, epoch=3))
        disk.operations_left = operations
        flushed = log.flush(worker)
        await worker.run_all()
        done = flushed.exception() is None
        for seed in range(3):
            again = (
                RecordLog.open(
                    disk.after_crash(Random(seed)),
                    DIRECTORY,
                    segment_bytes=120,
                    start=end_of(50, 3),
                )
                if not _still_old(disk, seed)
                else None
            )
            if again is None:
                continue
            assert contents(again) in ([], [batch(50, epoch=3)])
            assert not done or contents(again) == [batch(50, epoch=3)]
            assert again.epoch_starts == (((3, 50),) if contents(again) else ())


@pytest.mark.req("Q6")
async def test_a_log_that_is_reset_to_a_lower_offset_tells_nothing_of_the_old() -> None:
    log = await written(FakeDisk(), [batch(offset) for offset in range(10)], 10_000)
    log.reset(end_of(5, 3))
    assert log.epoch_starts == ()
    new = [batch(offset, epoch=3, size=20) for offset in range(5, 12)]
    for one in new:
        log.append(one)
    assert contents(log) == new


async def test_the_log_contains_exactly_the_ends_of_its_records() -> None:
    epochs = [1 + offset // 3 for offset in range(9)]
    log = await written(FakeDisk(), [batch(at, epoch=one) for at, one in enumerate(epochs)], 120)
    for start in (0, 3, 5, 9):
        if start:
            log.delete_prefix(end_of(start, epochs[start - 1]))
        ends = [log.start, *(end_of(at + 1, epochs[at]) for at in range(start, 9))]
        asked = [end_of(at, epoch) for at in range(11) for epoch in range(5)]
        assert [end for end in asked if log.contains(end)] == ends


def _still_old(disk: FakeDisk, seed: int) -> bool:
    """Whether segments of the old log are left: then the log starts where it did."""
    names = disk.after_crash(Random(seed)).names(DIRECTORY)
    return any(name.startswith("0" * 20) for name in names)


async def test_bytes_from_counts_what_stands_above() -> None:
    log = await written(FakeDisk(), [batch(offset) for offset in range(10)], 120)
    assert log.bytes_from(Offset(0)) == sum(len(encode_batch(batch(n))) for n in range(10))
    assert log.bytes_from(Offset(10)) <= 120


async def test_what_waits_for_the_disk_is_counted_to_the_byte() -> None:
    """A leader whose disk hangs is held against it."""
    log, worker = open_log(FakeDisk()), StepWorker()
    assert (log.unwritten_bytes, log.dirty) == (0, False)
    sizes = [len(encode_batch(batch(number, size=10 + number))) for number in range(5)]
    for number in range(3):
        log.append(batch(number, size=10 + number))
    assert (log.unwritten_bytes, log.dirty) == (sum(sizes[:3]), True)
    log.flush(worker)
    log.append(batch(3, size=13))
    assert log.unwritten_bytes == sum(sizes[:4])
    await worker.run_all()
    assert (log.unwritten_bytes, log.fsyncs) == (sizes[3], 1)
    log.flush_now()
    assert (log.unwritten_bytes, log.dirty) == (0, False)


async def test_a_closed_log_has_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeDisk()
    log = await written(disk, [batch(offset) for offset in range(10)], 120)
    names = [segment.path for segment in log._segments]
    assert len(names) > 2
    files = [segment.file for segment in log._segments if segment.file is not None]
    closed: list[File] = []
    for file in files:
        monkeypatch.setattr(file, "close", partial(closed.append, file))
    log.close()
    assert set(map(id, closed)) == set(map(id, files))
