"""The metadata log against a list, with crashes at any operation and damage at any bit."""

from __future__ import annotations

import asyncio
import errno
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftctl.errors import InvariantViolation, KafkaError
from raftctl.raft.batch import HEADER_BYTES, Batch, decode_batches, encode_batch
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch
from raftctl.storage import record_log
from raftctl.storage.record_log import RecordLog
from raftctl.storage.segment import CorruptLogError, scan
from tests.fakes.disk import Crash, FakeDisk, StepWorker

SIZE = HEADER_BYTES + 20
"""Of a batch in the tests of damage; segments of `SIZE * 2` bytes hold two."""
DIRECTORY = "/data/__cluster_metadata-0"


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
    assert flushed.result() == log.end_offset
    return log


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
    assert flushed.result() == log.flushed_end_offset == 3
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
    disk.operations_left = 2
    log.flush(worker)
    await worker.run_all()
    assert disk.operations_left == 0  # one append, one sync
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
    assert flushed.result() == log.flushed_end_offset == 1
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
    for wrong in (batch(7), batch(6, epoch=2)):
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
        self.flush: asyncio.Future[Offset] | None = None
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


# --- damage -----------------------------------------------------------------------------------


def damaged(disk: FakeDisk, path: str, content: bytes) -> FakeDisk:
    copy = disk.after_crash(Random(0))
    copy.files[path].current = bytearray(content)
    return copy


@pytest.mark.req("Q12")
async def test_a_tail_cut_at_any_byte_is_cut_to_the_last_whole_batch() -> None:
    disk = FakeDisk()
    batches = [batch(0, size=30), batch(1, size=50), batch(2, size=40)]
    await written(disk, batches, segment_bytes=1000)
    path = f"{DIRECTORY}/{0:020}.log"
    content = b"".join(map(encode_batch, batches))
    ends = [len(b"".join(map(encode_batch, batches[:count]))) for count in range(4)]
    for size in range(len(content)):
        for filler in (b"", bytes(len(content) - size), b"\xa5" * 60):
            log = open_log(damaged(disk, path, content[:size] + filler), 1000)
            whole = max(count for count in range(4) if ends[count] <= size)
            assert contents(log) == batches[:whole]
            assert log.torn_bytes == size + len(filler) - ends[whole]


@pytest.mark.req("Q12")
async def test_damage_before_a_whole_batch_stops_with_file_and_position() -> None:
    disk = FakeDisk()
    batches = [batch(offset, size=20) for offset in range(4)]
    await written(disk, batches, segment_bytes=2 * SIZE)  # two batches a segment
    first, second = disk.names(DIRECTORY)
    before = disk.files[f"{DIRECTORY}/{first}"].durable
    for bit in range(len(before) * 8):
        content = bytearray(before)
        content[bit // 8] ^= 1 << bit % 8
        position = 0 if bit // 8 < SIZE else SIZE
        with pytest.raises(CorruptLogError, match=f"{first}: corrupt at byte {position}: "):
            open_log(damaged(disk, f"{DIRECTORY}/{first}", bytes(content)), 2 * SIZE)
    content = bytearray(disk.files[f"{DIRECTORY}/{second}"].durable)
    for bit in range(SIZE * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptLogError, match=f"a whole batch follows at byte {SIZE}"):
            open_log(damaged(disk, f"{DIRECTORY}/{second}", bytes(flipped)), 2 * SIZE)


@pytest.mark.req("Q12")
async def test_a_missing_or_shortened_segment_stops() -> None:
    disk = FakeDisk()
    await written(disk, [batch(offset, size=20) for offset in range(6)], segment_bytes=2 * SIZE)
    first, second, third = disk.names(DIRECTORY)
    for missing, found in ((first, second), (second, third)):
        copy = disk.after_crash(Random(0))
        del copy.files[f"{DIRECTORY}/{missing}"]
        with pytest.raises(CorruptLogError, match=f"{found}.*begins with offset"):
            open_log(copy)
    content = disk.files[f"{DIRECTORY}/{second}"].durable
    with pytest.raises(CorruptLogError, match="not the last segment"):
        open_log(damaged(disk, f"{DIRECTORY}/{second}", content[:-1]))
    with pytest.raises(CorruptLogError, match="begins with offset 4, expected 3"):
        open_log(damaged(disk, f"{DIRECTORY}/{second}", content[:SIZE]))


@pytest.mark.req("Q12")
async def test_batches_out_of_order_stop() -> None:
    disk = FakeDisk()
    await written(disk, [batch(0, epoch=3)])
    path = f"{DIRECTORY}/{0:020}.log"
    for wrong, why in ((batch(2, epoch=3), "offset 2, expected 1"), (batch(1), "epoch 1 after")):
        content = disk.files[path].durable + encode_batch(wrong)
        with pytest.raises(CorruptLogError, match=why):
            open_log(damaged(disk, path, content))


@pytest.mark.req("Q12")
async def test_damage_under_a_running_log_is_seen_when_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_log, "RECENT_BYTES_MAX", 0)
    disk = FakeDisk()
    log = await written(disk, [batch(0), batch(1)])
    disk.files[f"{DIRECTORY}/{0:020}.log"].current[60] ^= 1
    assert log.batches(Offset(0), 1) == [batch(0)]
    with pytest.raises(CorruptLogError, match="corrupt at byte 44"):
        log.read(Offset(1), 99)


def test_scanning_in_small_chunks_finds_the_same() -> None:
    batches = [batch(offset, size=offset * 7 % 300) for offset in range(50)]
    file = FakeDisk().open("/f", create=True)
    file.append([encode_batch(one) for one in batches])
    for chunk_bytes in (1, 38, 100, 5000):
        assert [one for _, one in scan(file, 0, file.size(), chunk_bytes)] == batches


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


def _still_old(disk: FakeDisk, seed: int) -> bool:
    """Whether segments of the old log are left: then the log starts where it did."""
    names = disk.after_crash(Random(seed)).names(DIRECTORY)
    return any(name.startswith("0" * 20) for name in names)


async def test_bytes_from_counts_what_stands_above() -> None:
    log = await written(FakeDisk(), [batch(offset) for offset in range(10)], 120)
    assert log.bytes_from(Offset(0)) == sum(len(encode_batch(batch(n))) for n in range(10))
    assert log.bytes_from(Offset(10)) <= 120
