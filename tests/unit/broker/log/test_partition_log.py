"""A partition's log: offsets, segments, indexes, reads and truncation."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.batches.record_batch import parse_header
from broker.log.segments import Limits
from broker.types import EpochEndOffset
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.fake_files import FakeFiles
from tests.unit.broker.log.logs import DIRECTORY, SMALL, fill, headers, new_log, read, reopen

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog

# --- appending and reading ------------------------------------------------------------------------


@pytest.mark.req("L2")
def test_a_leader_gives_offsets_and_stores_the_batch_as_it_came() -> None:
    log = new_log(FakeFiles())
    batch = make_batch([b"a", b"b", b"c"], attributes=1)
    assert log.append_as_leader(batch, 4, 0) == (0, 3, -1, False, len(batch))
    assert log.append_as_leader(batch, 4, 0) == (3, 6, -1, False, len(batch))
    (data,) = log.read(3, max_bytes=1_000, up_to_offset=6, min_one=True)
    assert bytes(data)[16:] == batch[16:]
    assert parse_header(data).leader_epoch == 4
    assert log.log_end_offset == 6


def test_the_brokers_time_is_reported() -> None:
    log = new_log(FakeFiles(), TopicConfig(message_timestamp_type="LogAppendTime"))
    batch = make_batch([b"a"], producer_id=1, producer_epoch=0, sequence=0)
    assert log.append_as_leader(batch, 0, 5_555).log_append_time_ms == 5_555
    assert log.append_as_leader(batch, 0, 6_666) == (0, 1, 5_555, True, 0)


@pytest.mark.req("T1")
def test_a_repetition_is_not_appended_again() -> None:
    log = new_log(FakeFiles())
    batch = make_batch([b"a", b"b"], producer_id=9, producer_epoch=0, sequence=0)
    log.append_as_leader(make_batch([b"z"]), 0, 0)
    first = log.append_as_leader(batch, 0, 0)
    again = log.append_as_leader(batch, 0, 0)
    assert (again.base_offset, again.next_offset, again.duplicate) == (1, 3, True)
    assert first.base_offset == 1
    assert log.log_end_offset == 3


@pytest.mark.req("L3")
def test_the_newest_batches_are_found_without_their_index_also_after_a_truncation() -> None:
    files = FakeFiles()
    log = new_log(files, TopicConfig(index_interval_bytes=100))

    def reads_for(offset: int) -> int:
        before = files.reads
        limits = Limits(max_bytes=1_000, up_to_offset=log.log_end_offset, min_one=True)
        (data,) = log.read(offset, **limits)
        assert parse_header(data).base_offset == offset
        return files.reads - before

    fill(log, 40)
    log.seal()
    # The batch's header, then its bytes.
    assert [reads_for(offset) for offset in (78, 70, 60)] == [2, 2, 2]
    assert reads_for(20) > 4
    log.truncate_to(72)
    fill(log, 3, size=90)
    assert [reads_for(offset) for offset in (76, 74, 72)] == [2, 2, 2]
    assert all(reads_for(offset) for offset in range(0, 78, 2))


@pytest.mark.req("L3")
def test_segments_roll_by_size_and_are_named_by_their_base_offset() -> None:
    files = FakeFiles()
    log = new_log(files)
    fill(log, 30)
    logs = [n for n in files.names(DIRECTORY) if n.endswith(".log")]
    assert len(logs) > 3
    assert logs[0] == "00000000000000000000.log"
    for name in logs:
        data = bytes(files.file(f"{DIRECTORY}/{name}").seen)
        assert parse_header(data).base_offset == int(name.removesuffix(".log"))
        assert len(data) <= SMALL.segment_bytes
        assert name.replace(".log", ".index") in files.names(DIRECTORY)
        assert name.replace(".log", ".timeindex") in files.names(DIRECTORY)


@pytest.mark.req("L3")
def test_segments_roll_by_time_and_by_a_full_index() -> None:
    log = new_log(FakeFiles(), TopicConfig(segment_ms=1_000))
    for timestamp in (0, 1_000, 1_001, 1_500):
        log.append_as_leader(make_batch([b"a"], timestamps=[timestamp]), 0, 0)
    assert log._segments.bases == [0, 2]
    log = new_log(FakeFiles(), TopicConfig(index_interval_bytes=0, segment_index_bytes=24))
    fill(log, 7)
    assert len(log._segments.bases) > 1


@pytest.mark.req("L3", "Q12")
def test_a_bit_that_flipped_in_an_index_hides_no_record() -> None:
    """A reader would go on behind what is hidden, and a follower would not cut it off."""
    files = FakeFiles()
    log = new_log(files)
    fill(log, 30)
    closed = log.segment_facts()[0]
    index = files.open(f"{DIRECTORY}/{0:020}.index")
    sound = index.read_at(0, index.size())
    assert len(sound) >= 3 * 8
    for bit in range(len(sound) * 8):
        index.write_at(bit // 8, bytes([sound[bit // 8] ^ 1 << bit % 8]))
        for offset in range(closed.next_offset):
            limits = Limits(max_bytes=1, up_to_offset=log.log_end_offset, min_one=True)
            (data,) = log.read(offset, **limits)
            found = parse_header(data)
            assert found.base_offset <= offset <= found.last_offset, f"bit {bit}, offset {offset}"
        index.write_at(bit // 8, sound[bit // 8 : bit // 8 + 1])


@pytest.mark.req("L3")
def test_index_files_are_apache_kafkas_byte_for_byte() -> None:
    files = FakeFiles()
    log = new_log(files, TopicConfig(index_interval_bytes=0))
    log.append_as_follower(make_batch([b"a", b"b"], timestamps=[5, 6]))
    log.append_as_follower(make_batch([b"c"], timestamps=[4], base_offset=2))
    log.append_as_follower(make_batch([b"d"], timestamps=[9], base_offset=3))
    log.seal()
    size = [h.size for h in headers(log)]
    base = f"{DIRECTORY}/{0:020d}"
    # The entry names the last offset of the batch that begins at the position.
    expected = struct.pack(">IIII", 2, size[0], 3, size[0] + size[1])
    assert bytes(files.file(base + ".index").seen) == expected
    assert bytes(files.file(base + ".timeindex").seen) == struct.pack(">qIqI", 6, 1, 9, 3)


@pytest.mark.req("L3")
def test_every_offset_is_found_through_the_index() -> None:
    log = new_log(FakeFiles())
    fill(log, 60)
    for offset in range(log.log_end_offset):
        (data,) = log.read(offset, max_bytes=1, up_to_offset=log.log_end_offset, min_one=True)
        header = parse_header(data)
        assert header.base_offset <= offset <= header.last_offset


def test_finding_an_offset_does_not_read_the_whole_segment() -> None:
    files = FakeFiles()
    log = new_log(files, TopicConfig(index_interval_bytes=4096))
    fill(log, 4_000, size=100)
    before = files.reads
    log.read(5_000, max_bytes=1, up_to_offset=log.log_end_offset, min_one=True)
    assert files.reads - before < 20


@pytest.mark.req("R10")
def test_reads_keep_to_their_limits() -> None:
    log = new_log(FakeFiles())
    fill(log, 30)
    end = log.log_end_offset
    first = headers(log)[0].size
    assert log.read(0, max_bytes=10, up_to_offset=end, min_one=False)[0][:4] == bytes(4)
    assert len(log.read(0, max_bytes=10, up_to_offset=end, min_one=False)[0]) == 10
    assert len(log.read(0, max_bytes=10, up_to_offset=end, min_one=True)[0]) == first
    assert log.read(0, max_bytes=0, up_to_offset=end, min_one=False) == []
    assert read(log, 0, up_to=16) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert log.read(16, max_bytes=10, up_to_offset=16, min_one=True) == []
    assert read(log, 0) == list(range(0, 60, 2))


def test_offsets_outside_the_log_are_refused() -> None:
    log = new_log(FakeFiles())
    fill(log, 5)
    log.advance_log_start(4)
    for offset in (3, 11):
        with pytest.raises(KafkaError) as raised:
            log.read(offset, max_bytes=10, up_to_offset=10, min_one=True)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(10, max_bytes=10, up_to_offset=10, min_one=True) == []


def test_bytes_between_offsets() -> None:
    log = new_log(FakeFiles())
    fill(log, 30)
    sizes = [h.size for h in headers(log)]
    assert log.bytes_between(0, 4) == sum(sizes[:2])
    assert log.bytes_between(4, 4) == 0
    assert 0 < log.bytes_between(2, log.log_end_offset) <= SMALL.segment_bytes


@pytest.mark.req("L7")
def test_offsets_are_found_by_time() -> None:
    log = new_log(FakeFiles())
    fill(log, 40)
    for timestamp in range(80):
        found = log.first_at_or_after(timestamp)
        assert found is not None
        assert (found.timestamp, found.offset) == (timestamp, timestamp)
    assert log.first_at_or_after(80) is None
    newest = log.newest()
    assert newest is not None
    assert newest.offset == 79
    log.advance_log_start(10)
    found = log.first_at_or_after(0)
    assert found is not None
    assert found.offset == 10
    assert new_log(FakeFiles()).newest() is None


@pytest.mark.req("L3", "Q12")
def test_no_time_is_told_of_a_batch_whose_bytes_have_changed_on_disk() -> None:
    files = FakeFiles()
    log = new_log(files)
    log.append_as_leader(make_batch([b"a", b"b"], timestamps=[1_000, 1_000]), 0, 0)
    assert log.newest() == log.first_at_or_after(1) == (1_000, 0)
    file = files.open(f"{DIRECTORY}/{0:020}.log")
    at = file.size() - 5
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 4]))
    with pytest.raises(KafkaError, match="CRC32C does not match") as caught:
        log.newest()
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError, match="CRC32C does not match"):
        log.first_at_or_after(1)


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    files = FakeFiles()
    log = new_log(files)
    fill(log, 3)
    files.full = True
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            fill(log, 1)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 6
    files.full = False
    fill(log, 2)
    assert read(log, 0) == [0, 2, 4, 6, 8]
    assert read(reopen(files), 0) == [0, 2, 4, 6, 8]


# --- following ------------------------------------------------------------------------------------


def test_a_follower_keeps_offsets_and_epochs() -> None:
    leader, follower = new_log(FakeFiles()), new_log(FakeFiles())
    fill(leader, 10, epoch=1)
    fill(leader, 10, epoch=3)
    while follower.log_end_offset < leader.log_end_offset:
        (data,) = leader.read(
            follower.log_end_offset, max_bytes=300, up_to_offset=10**6, min_one=True
        )
        assert follower.append_as_follower(data) > 0
    assert headers(leader) == headers(follower)
    assert follower.epochs.entries == [(1, 0), (3, 20)]


def test_a_follower_refuses_what_does_not_continue_its_log() -> None:
    log = new_log(FakeFiles())
    fill(log, 2)
    with pytest.raises(KafkaError) as raised:
        log.append_as_follower(make_batch([b"a"], base_offset=2))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 4


def test_a_follower_may_start_within_a_batch() -> None:
    log = new_log(FakeFiles())
    log.restart_at(11)
    log.append_as_follower(make_batch([b"a", b"b", b"c"], base_offset=10))
    assert (log.log_start_offset, log.log_end_offset) == (11, 13)
    assert read(log, 11) == [10]


@pytest.mark.req("L4", "L6")
def test_a_follower_of_a_compacted_log_leaves_no_gap_between_segments() -> None:
    files = FakeFiles()
    log = new_log(files)
    for offset in range(0, 400, 20):
        log.append_as_follower(make_batch([b"x" * 100], base_offset=offset))
    facts = log.segment_facts()
    assert len(facts) > 1
    assert [one.next_offset for one in facts[:-1]] == [one.base_offset for one in facts[1:]]
    assert read(log, 5) == list(range(20, 400, 20))
    reopened = reopen(files)
    assert (reopened.log_end_offset, reopened.recovered.bytes_cut) == (381, 0)


@pytest.mark.req("L4", "L6")
def test_only_a_hole_that_no_segment_spans_is_between_two() -> None:
    files = FakeFiles()
    log = new_log(files)
    far = 2**31 + 5
    for offset in (0, far):
        log.append_as_follower(make_batch([b"x"], base_offset=offset))
    assert [one.base_offset for one in log.segment_facts()] == [0, far]
    assert read(reopen(files), 0) == [0, far]


# --- truncation -----------------------------------------------------------------------------------


@pytest.mark.req("R4")
@given(cut=st.integers(0, 60), settled=st.integers(0, 60), extra=st.integers(0, 10))
@settings(deadline=None)
def test_after_truncation_the_log_is_as_if_the_rest_never_came(
    cut: int, settled: int, extra: int
) -> None:
    def build(batches: int) -> PartitionLog:
        log = new_log(FakeFiles())
        for number in range(batches):
            sent = make_batch(
                [b"x" * 40, b"y"],
                timestamps=[number, number],
                producer_id=number % 3,
                producer_epoch=0,
                sequence=number // 3 * 2,
            )
            log.append_as_leader(sent, number // 7, 0)
        return log

    log, model = build(30), build(cut // 2)
    log.producers.prune_undo(settled)
    assert log.truncate_to(cut) == (cut < 60)
    for both in (log, model):
        fill(both, extra, epoch=90)
    assert headers(log) == headers(model)
    assert log.epochs.entries == model.epochs.entries
    assert [log.producers.get(p) for p in range(3)] == [model.producers.get(p) for p in range(3)]
    assert read(log, 0) == read(model, 0)
    assert log.first_at_or_after(12) == model.first_at_or_after(12)


@pytest.mark.req("R4", "L7")
@pytest.mark.parametrize(("cut", "start"), [(13, 12), (11, 11)])
def test_a_log_that_is_cut_within_its_first_batch_begins_no_later_than_before(
    cut: int, start: int
) -> None:
    log = new_log(FakeFiles())
    log.restart_at(12)
    log.append_as_follower(make_batch([b"a", b"b", b"c", b"d"], base_offset=10))
    assert log.truncate_to(cut)
    bounds = log.log_start_offset, log.high_watermark, log.log_end_offset
    assert bounds == (start, start, start)


def test_truncation_forgets_an_epoch_that_wrote_nothing() -> None:
    log = new_log(FakeFiles())
    fill(log, 2, epoch=1)
    log.epochs.assign(2, log.log_end_offset)
    assert log.epochs.latest == 2
    assert not log.truncate_to(4)
    assert log.epochs.latest == 1


def test_truncated_segments_are_renamed_at_once_and_removed_later() -> None:
    files = FakeFiles()
    log = new_log(files)
    fill(log, 30)
    log.truncate_to(2)
    assert any(name.endswith(".deleted") for name in files.names(DIRECTORY))
    for finish in log.take_retired():
        finish()
    assert len(files.names(DIRECTORY)) == 3


def test_advancing_the_start_removes_whole_segments() -> None:
    log = new_log(FakeFiles())
    fill(log, 30)
    log.advance_log_start(31)
    assert log.log_start_offset == 31
    assert log._segments.bases[0] <= 31
    assert read(log, 31)[0] == 30
    assert log.epochs.entries == [(0, 31)]


def test_a_flush_does_not_count_after_a_truncation() -> None:
    log = new_log(FakeFiles())
    fill(log, 10)
    plan = log.flush_plan(rolled_only=False)
    assert plan is not None
    log.truncate_to(4)
    fill(log, 10, epoch=1)
    plan.run()
    log.flushed(plan)
    assert log.recovery_point == 0


# --- leader epochs --------------------------------------------------------------------------------


def test_end_offsets_of_epochs() -> None:
    log = new_log(FakeFiles())
    fill(log, 2, epoch=2)
    fill(log, 1, epoch=5)
    assert log.end_offset_for_epoch(1) == EpochEndOffset(1, 0)
    assert log.end_offset_for_epoch(2) == EpochEndOffset(2, 4)
    assert log.end_offset_for_epoch(4) == EpochEndOffset(2, 4)
    assert log.end_offset_for_epoch(5) == EpochEndOffset(5, 6)
    assert log.end_offset_for_epoch(6) == EpochEndOffset(-1, -1)
    assert log.end_offset_for_epoch(-1) == EpochEndOffset(-1, -1)
