"""Damage of the metadata log: what a crash leaves is cut, all else stops with file and position."""

from __future__ import annotations

import errno
from random import Random

import pytest

from jepsen.simulator.disk import SimDisk, no_fault
from raftctl.raft.batch import HEADER_BYTES, encode_batch
from raftctl.raft.messages import Offset
from raftctl.storage.log import CorruptLogError, RecordLog, read_recovery_point, scan
from raftctl.storage.log import _record_log as record_log
from raftctl.storage.log._recovery_point import FILE_NAME
from tests.kit.disk import FakeDisk, StepWorker
from tests.unit.raftctl.storage.logs import (
    DIRECTORY,
    SECTOR_BYTES,
    batch,
    contents,
    open_log,
    written,
)

SIZE = HEADER_BYTES + 20
"""Of a batch in the tests of damage; segments of `SIZE * 2` bytes hold two."""


def damaged(disk: FakeDisk, path: str, content: bytes | bytearray) -> FakeDisk:
    copy = disk.after_kill()
    copy.file(path).seen = bytearray(content)
    return copy


def segments(disk: FakeDisk) -> list[str]:
    return [name for name in disk.names(DIRECTORY) if name.endswith(".log")]


def without_note(disk: FakeDisk) -> FakeDisk:
    """As a loss of power may leave it: the note was never synced."""
    disk.forget(f"{DIRECTORY}/{FILE_NAME}")
    return disk


@pytest.mark.req("Q12")
async def test_a_tail_cut_at_any_byte_is_cut_to_the_last_whole_batch() -> None:
    disk = FakeDisk()
    batches = [batch(0, size=30), batch(1, size=50), batch(2, size=40)]
    await written(disk, batches, segment_bytes=1000)
    path = f"{DIRECTORY}/{0:020}.log"
    content = b"".join(map(encode_batch, batches))
    ends = [len(b"".join(map(encode_batch, batches[:count]))) for count in range(4)]
    for size in range(len(content)):
        whole = max(count for count in range(4) if ends[count] <= size)
        zeros = bytes(len(content) - size if size % SECTOR_BYTES == 0 else 0)
        left = content[:size] + zeros
        log = open_log(without_note(damaged(disk, path, left)), 1000)
        assert contents(log) == batches[:whole]
        assert log.torn_bytes == len(left) - ends[whole]
        with pytest.raises(CorruptLogError, match=r"below (offset )?3 was durable"):
            open_log(damaged(disk, path, left), 1000)


@pytest.mark.req("Q12")
async def test_a_flipped_bit_in_the_last_batch_stops_whatever_is_known_of_the_end() -> None:
    disk = FakeDisk()
    await written(disk, [batch(offset, size=60) for offset in range(2)], segment_bytes=1000)
    path = f"{DIRECTORY}/{0:020}.log"
    content = disk.file(path).durable
    for bit in range(len(content) // 2 * 8, len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        where = f"{path}: corrupt at byte {len(content) // 2}: .*format the directory again"
        for copy in (damaged(disk, path, flipped), without_note(damaged(disk, path, flipped))):
            with pytest.raises(CorruptLogError, match=where):
                open_log(copy, 1000)
            assert copy.file(path).seen == flipped


@pytest.mark.req("Q12")
async def test_what_no_crash_leaves_behind_is_not_cut() -> None:
    disk = FakeDisk()
    await written(disk, [batch(0)])
    path = f"{DIRECTORY}/{0:020}.log"
    garbage = disk.file(path).durable + b"\xa5" * 60
    with pytest.raises(CorruptLogError, match="the tail does not look like an interrupted write"):
        open_log(without_note(damaged(disk, path, garbage)))


@pytest.mark.req("Q12")
async def test_whole_batches_that_are_missing_at_the_end_stop() -> None:
    disk = FakeDisk()
    await written(disk, [batch(0), batch(1)], segment_bytes=1000)
    path = f"{DIRECTORY}/{0:020}.log"
    content = disk.file(path).durable
    where = f"{path}: corrupt at byte {len(content) // 2}: ends with offset 1, though all below 2"
    with pytest.raises(CorruptLogError, match=where):
        open_log(damaged(disk, path, content[: len(content) // 2]))
    copy = disk.after_kill()
    copy.forget(path)
    with pytest.raises(CorruptLogError, match=f"{DIRECTORY}: .*ends with offset 0"):
        open_log(copy)


@pytest.mark.req("Q12")
async def test_a_note_that_cannot_be_read_is_no_note() -> None:
    disk = FakeDisk()
    await written(disk, [batch(0), batch(1)], segment_bytes=1000)
    assert read_recovery_point(disk, DIRECTORY) == 2
    note = f"{DIRECTORY}/{FILE_NAME}"
    content = disk.file(note).seen
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        copy = damaged(disk, note, flipped)
        assert read_recovery_point(copy, DIRECTORY) is None
        assert open_log(copy).end_offset == 2
        assert read_recovery_point(copy, DIRECTORY) == 2
    assert read_recovery_point(damaged(disk, note, content[:-1]), DIRECTORY) is None


@pytest.mark.req("Q12")
async def test_the_note_is_lowered_before_the_log_is_cut_and_synced_when_it_is_closed() -> None:
    disk, worker = FakeDisk(), StepWorker()
    log = await written(disk, [batch(0), batch(1), batch(2)])
    log.close()
    assert read_recovery_point(disk.after_crash(Random(0)), DIRECTORY) == 3
    log = open_log(disk)
    log.truncate(Offset(1))
    log.append(batch(1, epoch=2))
    log.flush(worker)
    disk.operations_left = 2  # the note and its sync; the cut fails
    await worker.run_all()
    for seed in range(4):
        left = disk.after_crash(Random(seed))
        assert read_recovery_point(left, DIRECTORY) == 1
        assert open_log(left).end_offset == 3


@pytest.mark.req("Q3", "Q12")
async def test_what_a_failed_sync_left_in_the_cache_is_written_again() -> None:
    disk = SimDisk(Random(1), lambda _: None)
    log, worker = RecordLog.open(disk, DIRECTORY, segment_bytes=1000), StepWorker()
    for number in range(2):
        log.append(batch(number))
        flushed = log.flush(worker)
        disk.fault = _no_sync if number else no_fault
        await worker.run_all()
    assert isinstance(flushed.exception(), OSError)
    disk.fault = no_fault
    again = RecordLog.open(disk, DIRECTORY, segment_bytes=1000)
    assert again.flushed_end_offset == 2  # the cache has it, and so may a voter promise it
    disk.crash()
    assert RecordLog.open(disk, DIRECTORY, segment_bytes=1000).end_offset == 2


def _no_sync(operation: str, path: str) -> None:
    if operation == "sync":
        raise OSError(errno.EIO, "Input/output error", path)


@pytest.mark.req("Q12")
async def test_damage_before_a_whole_batch_stops_with_file_and_position() -> None:
    disk = FakeDisk()
    batches = [batch(offset, size=20) for offset in range(4)]
    await written(disk, batches, segment_bytes=2 * SIZE)  # two batches a segment
    first, second = segments(disk)
    before = disk.file(f"{DIRECTORY}/{first}").durable
    for bit in range(len(before) * 8):
        content = bytearray(before)
        content[bit // 8] ^= 1 << bit % 8
        position = 0 if bit // 8 < SIZE else SIZE
        with pytest.raises(CorruptLogError, match=f"{first}: corrupt at byte {position}: "):
            open_log(damaged(disk, f"{DIRECTORY}/{first}", bytes(content)), 2 * SIZE)
    content = bytearray(disk.file(f"{DIRECTORY}/{second}").durable)
    for bit in range(SIZE * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptLogError, match=f"a whole batch follows at byte {SIZE}"):
            open_log(damaged(disk, f"{DIRECTORY}/{second}", bytes(flipped)), 2 * SIZE)


@pytest.mark.req("Q12")
async def test_a_missing_or_shortened_segment_stops() -> None:
    disk = FakeDisk()
    await written(disk, [batch(offset, size=20) for offset in range(6)], segment_bytes=2 * SIZE)
    first, second, third = segments(disk)
    for missing, found in ((first, second), (second, third)):
        copy = disk.after_kill()
        copy.forget(f"{DIRECTORY}/{missing}")
        with pytest.raises(CorruptLogError, match=f"{found}.*begins with offset"):
            open_log(copy)
    content = disk.file(f"{DIRECTORY}/{second}").durable
    with pytest.raises(CorruptLogError, match="not the last segment"):
        open_log(damaged(disk, f"{DIRECTORY}/{second}", content[:-1]))
    with pytest.raises(CorruptLogError, match="begins with offset 4, expected 3"):
        open_log(damaged(disk, f"{DIRECTORY}/{second}", content[:SIZE]))


@pytest.mark.req("Q12")
async def test_a_shortened_tail_that_was_durable_stops() -> None:
    """What was promised is not cut as if a write had ended early."""
    disk = FakeDisk()
    (await written(disk, [batch(offset, size=20) for offset in range(3)])).close()
    assert read_recovery_point(disk, DIRECTORY) == 3
    path = f"{DIRECTORY}/{0:020}.log"
    content = disk.file(path).durable
    for kept in range(2 * SIZE + 1, 3 * SIZE):
        copy = damaged(disk, path, content[:kept])
        with pytest.raises(CorruptLogError, match="all below offset 3 was durable"):
            open_log(copy)
        assert copy.open(path).size() == kept, "what is left may help whoever restores it"


@pytest.mark.req("Q12")
async def test_batches_out_of_order_stop() -> None:
    disk = FakeDisk()
    await written(disk, [batch(0, epoch=3)])
    path = f"{DIRECTORY}/{0:020}.log"
    for wrong, why in ((batch(2, epoch=3), "offset 2, expected 1"), (batch(1), "epoch 1 after")):
        content = disk.file(path).durable + encode_batch(wrong)
        with pytest.raises(CorruptLogError, match=why):
            open_log(damaged(disk, path, content))


@pytest.mark.req("Q12")
async def test_damage_under_a_running_log_is_seen_when_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_log, "RECENT_BYTES_MAX", 0)
    disk = FakeDisk()
    log = await written(disk, [batch(0), batch(1)])
    disk.file(f"{DIRECTORY}/{0:020}.log").seen[60] ^= 1
    assert log.batches(Offset(0), 1) == [batch(0)]
    with pytest.raises(CorruptLogError, match="corrupt at byte 44"):
        log.read(Offset(1), 99)


def test_scanning_in_small_chunks_finds_the_same() -> None:
    batches = [batch(offset, size=offset * 7 % 300) for offset in range(50)]
    file = FakeDisk().open("/f", create=True)
    file.append([encode_batch(one) for one in batches])
    for chunk_bytes in (1, 38, 100, 5000):
        assert [one for _, one in scan(file, 0, file.size(), chunk_bytes)] == batches
