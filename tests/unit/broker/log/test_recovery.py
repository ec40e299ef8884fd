"""What a log is after a restart, clean or not, and what damage does."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.batches.record_batch import BatchHeader, parse_header, placed
from broker.log.partition_log._partition_log import Recovered
from broker.log.segments import DAMAGED
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.fake_files import FakeFiles
from tests.unit.broker.log.logs import DIRECTORY, fill, headers, new_log, read, reopen

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog


def close_cleanly(log: PartitionLog) -> None:
    plan = log.flush_plan(rolled_only=False, closing=True)
    if plan is not None:
        plan.run()
        log.flushed(plan)
    log.close()


@pytest.mark.req("L4")
def test_a_clean_log_is_not_checked_again() -> None:
    files = FakeFiles()
    log = new_log(files)
    fill(log, 30)
    close_cleanly(log)
    reopened = reopen(files, log.recovery_point, clean=True)
    assert reopened.recovered == Recovered()
    assert read(reopened, 0) == list(range(0, 60, 2))
    fill(reopened, 5)
    assert read(reopened, 50) == [50, 52, 54, 56, 58, 60, 62, 64, 66, 68]


def sent(producer: int, sequence: int, epoch: int = 0) -> bytes:
    return make_batch([b"v"], producer_id=producer, producer_epoch=epoch, sequence=sequence)


@pytest.mark.req("L4", "T1")
def test_a_clean_start_reads_no_batches_and_knows_the_last_five_of_each_producer() -> None:
    files = FakeFiles()
    log = new_log(files)
    for number in range(40):
        log.append_as_leader(sent(number % 2, number // 2), number // 20, 0)
    close_cleanly(log)
    newest = max(name for name in files.names(DIRECTORY) if name.endswith(".snapshot"))
    assert newest == f"{40:020d}.snapshot"
    reopened = reopen(files, log.recovery_point, clean=True)
    assert reopened.recovered == Recovered()
    assert reopened.epochs.entries == [(0, 0), (1, 20)]
    assert [reopened.producers.get(p) for p in (0, 1)] == [log.producers.get(p) for p in (0, 1)]
    assert reopened.append_as_leader(sent(0, 15), 1, 0).duplicate
    assert not reopened.append_as_leader(sent(0, 20), 1, 0).duplicate


@pytest.mark.req("L4")
def test_after_a_crash_only_batches_above_the_last_snapshot_are_read() -> None:
    files = FakeFiles()
    log = new_log(files)
    for number in range(40):
        log.append_as_leader(sent(1, number), 0, 0)
    plan = log.flush_plan(rolled_only=True)
    assert plan is not None
    plan.run()
    log.flushed(plan)
    point = log.recovery_point
    assert 0 < point < 40
    reopened = reopen(files, point)
    assert reopened.recovered.batches_noted == 40 - point
    assert reopened.recovered.segments_checked == 1
    assert reopened.producers.get(1) == log.producers.get(1)


@pytest.mark.req("L4")
@pytest.mark.parametrize("damage", ["gone", "flipped", "short", "version"])
def test_a_damaged_snapshot_or_epoch_file_is_made_up_for_from_the_batches(damage: str) -> None:
    files = FakeFiles()
    log = new_log(files)
    for number in range(40):
        log.append_as_leader(sent(1, number), number // 15, 0)
    close_cleanly(log)
    doomed = [n for n in files.names(DIRECTORY) if n.endswith((".snapshot", "-checkpoint"))]
    for name in doomed:
        path = f"{DIRECTORY}/{name}"
        if damage == "gone":
            files.remove(path)
        elif damage == "flipped":
            files.file(path).seen[-2] ^= 0x80
        elif damage == "short":
            del files.file(path).seen[3:]
        else:
            files.file(path).seen[1] += 1
    reopened = reopen(files, log.recovery_point, clean=True)
    assert reopened.epochs.entries == [(0, 0), (1, 15), (2, 30)]
    assert reopened.producers.get(1) == log.producers.get(1)
    assert reopened.recovered.batches_noted == 40


@pytest.mark.req("L4")
def test_no_snapshot_outlives_a_truncation() -> None:
    files = FakeFiles()
    log = new_log(files)
    for number in range(40):
        log.append_as_leader(sent(1, number), 0, 0)
    close_cleanly(log)
    log = reopen(files, 40, clean=True)
    log.truncate_to(20)
    for number in range(20):
        log.append_as_leader(sent(2, number), 1, 0)
    close_cleanly(log)
    reopened = reopen(files, log.recovery_point, clean=True)
    assert [reopened.producers.get(p) for p in (1, 2)] == [log.producers.get(p) for p in (1, 2)]
    assert reopened.recovered.batches_noted == 0


@pytest.mark.req("L4")
@pytest.mark.parametrize("at", [0, 3, 8, 16, 23, 60, 75])
@pytest.mark.parametrize("point", [6, 20])
def test_damage_within_the_segment_of_the_recovery_point_is_cut(at: int, point: int) -> None:
    files = FakeFiles()
    log = new_log(files, TopicConfig())
    fill(log, 20)
    path = f"{DIRECTORY}/{0:020d}.log"
    position = sum(header.size for header in headers(log)[:5])
    files.file(path).seen[position + at] ^= 0x41
    damaged = bytes(files.file(path).seen)
    reopened = reopen(files, recovery_point=point, config=TopicConfig())
    assert reopened.log_end_offset == 10
    assert read(reopened, 0) == [0, 2, 4, 6, 8]
    if point == 6:
        assert reopened.recovered.lost_from is None, "a torn tail"
        assert not files.exists(path + DAMAGED)
    else:
        assert reopened.recovered.lost_from == 10
        assert bytes(files.file(path + DAMAGED).seen) == damaged, "nothing is lost for good"
    fill(reopened, 1)
    assert read(reopened, 8) == [8, 10]


@pytest.mark.req("L4")
@pytest.mark.parametrize("clean", [True, False])
def test_damage_in_what_was_trusted_has_the_whole_log_checked(clean: bool) -> None:
    files = FakeFiles()
    log = new_log(files)
    fill(log, 30)
    close_cleanly(log)
    bases = log._segments.bases
    path = f"{DIRECTORY}/{bases[1]:020d}"
    files.file(path + ".log").seen[16] = 9
    files.remove(path + ".index")
    later = bytes(files.file(f"{DIRECTORY}/{bases[2]:020d}.log").seen)
    reopened = reopen(files, log.recovery_point, clean=clean)
    assert reopened.log_end_offset == reopened.recovered.lost_from == bases[1]
    assert read(reopened, 0) == list(range(0, bases[1], 2))
    assert bytes(files.file(f"{DIRECTORY}/{bases[2]:020d}.log{DAMAGED}").seen) == later
    fill(reopened, 3)
    reopened.close()
    again = reopen(files, 0)
    assert again.recovered.lost_from is None
    assert again.log_end_offset == bases[1] + 6


@pytest.mark.req("L4")
@pytest.mark.parametrize("clean", [True, False])
def test_a_flushed_file_that_became_shorter_is_told(clean: bool) -> None:
    files = FakeFiles()
    log = new_log(files, TopicConfig())
    fill(log, 20)
    sizes = [header.size for header in headers(log)]
    close_cleanly(log)
    del files.file(f"{DIRECTORY}/{0:020d}.log").seen[sum(sizes[:10]) :]
    reopened = reopen(files, 40, clean=clean, config=TopicConfig())
    assert (reopened.log_end_offset, reopened.recovered.lost_from) == (20, 20)


@pytest.mark.req("L4")
@pytest.mark.parametrize("damage", ["missing", "short", "order", "past the end"])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_missing_or_damaged_index_is_rebuilt(suffix: str, damage: str) -> None:
    files = FakeFiles()
    log = new_log(files)
    fill(log, 30)
    close_cleanly(log)
    path = f"{DIRECTORY}/{0:020d}.{suffix}"
    good = bytes(files.file(path).seen)
    if damage == "missing":
        files.remove(path)
    elif damage == "short":
        files.file(path).seen.pop()
    elif damage == "order":
        files.file(path).seen[:4] = b"\x7f\xff\xff\xff"
    elif suffix == "index":
        files.file(path).seen += struct.pack(">II", 999, 99_999)
    else:
        files.file(path).seen += struct.pack(">qI", 1, 0)
    reopened = reopen(files, log.recovery_point, clean=True)
    assert reopened.recovered.indexes_rebuilt == 1
    assert bytes(files.file(path).seen) == good
    assert read(reopened, 0) == list(range(0, 60, 2))
    # Made again is not yet made durable, although the segment was.
    plan = reopened.flush_plan(rolled_only=True)
    assert plan is not None
    assert [segment.base_offset for segment in plan.whole] == [0]


@pytest.mark.req("L4")
def test_a_torn_tail_is_cut() -> None:
    files = FakeFiles()
    log = new_log(files, TopicConfig())
    fill(log, 5)
    files.file(f"{DIRECTORY}/{0:020d}.log").seen += make_batch([b"torn"], base_offset=10)[:-3]
    reopened = reopen(files, config=TopicConfig())
    assert reopened.recovered.bytes_cut > 0
    assert reopened.log_end_offset == 10
    fill(reopened, 1)
    assert read(reopened, 0) == [0, 2, 4, 6, 8, 10]


@pytest.mark.req("L4")
def test_from_a_corrupt_batch_on_everything_unflushed_is_cut() -> None:
    files = FakeFiles()
    log = new_log(files)
    fill(log, 30)
    base = log._segments.bases[1]
    files.file(f"{DIRECTORY}/{base:020d}.log").seen[200] ^= 1
    reopened = reopen(files, recovery_point=base)
    assert base <= reopened.log_end_offset < log._segments.bases[2]
    assert reopened._segments.bases == log._segments.bases[:2]


@pytest.mark.req("L4", "T1")
@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(
        st.sampled_from(["append", "append", "append", "flush", "truncate"]), max_size=40
    ),
)
@settings(deadline=None)
def test_a_crash_at_any_time_keeps_what_was_flushed_and_a_prefix_of_the_rest(
    seed: int, steps: list[str]
) -> None:
    chance = random.Random(seed)
    files = FakeFiles()
    log = new_log(files)
    files.sync_directory(DIRECTORY)
    written: list[BatchHeader] = []
    sequences = [0, 0]
    durable = 0
    for number, step in enumerate(steps):
        if step == "append":
            producer = chance.randrange(2)
            batch = make_batch(
                [b"v" * chance.randrange(1, 300)],
                timestamps=[chance.randrange(1_000)],
                producer_id=producer,
                producer_epoch=number // 10,
                sequence=sequences[producer],
            )
            sequences[producer] += 1
            header = parse_header(batch)
            place, _ = placed(batch, header, log.log_end_offset, number // 9)
            log.append_as_follower(b"".join(place))
            written.append(headers(log)[-1])
        elif step == "flush":
            plan = log.flush_plan(rolled_only=chance.random() < 0.5)
            if plan is not None:
                plan.run()
                log.flushed(plan)
                durable = log.recovery_point
        elif log.log_end_offset:
            end = chance.randrange(durable, log.log_end_offset + 1)
            log.truncate_to(end)
            # A cut that is not durable yet may be undone: replication tells that apart.
            for file in files.files.values():
                file.sync()
            files.sync_directory(DIRECTORY)
            del written[end:]
    files.crash_by(chance)
    recovered = reopen(files, durable)
    found = headers(recovered)
    assert found == written[: len(found)]
    assert recovered.log_end_offset >= durable
    model = new_log(FakeFiles())
    for header in found:
        model.epochs.assign(header.leader_epoch, header.base_offset)
        model.producers.note(header)
    assert recovered.epochs.entries == model.epochs.entries
    assert [recovered.producers.get(p) for p in (0, 1)] == [model.producers.get(p) for p in (0, 1)]
    for header in found:
        (data,) = recovered.read(header.base_offset, max_bytes=1, up_to_offset=10**9, min_one=True)
        assert parse_header(data) == header
