"""Transactions in a partition's log: what is stable, what was aborted, and that it survives."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.log import _cleaner as compaction
from broker.log import dump
from broker.log._cleaner import Cleaning
from broker.log.batches import markers, records
from broker.log.batches.markers import Marker, MarkerKind
from broker.log.batches.record_batch import TRANSACTIONAL, parse_header
from broker.log.segments import aborted_index
from broker.log.segments.aborted_index import AbortedIndex, AbortedTransaction
from broker.types import EndMarker
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import keyed_batch, make_batch
from tests.unit.broker.log.fake_files import FakeFiles
from tests.unit.broker.log.logs import DIRECTORY, headers, new_log, reopen

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog

ABORT, COMMIT = False, True
COMPACTED = TopicConfig(
    segment_bytes=500,
    cleanup_policy=("compact",),
    delete_retention_ms=1_000,
    index_interval_bytes=90,
)


def send(
    log: PartitionLog,
    producer: int,
    sequence: int = 0,
    *,
    epoch: int = 0,
    transactional: bool = True,
) -> int:
    """Appends a batch of a transaction; returns its offset."""
    batch = make_batch(
        [b"x" * 30],
        producer_id=producer,
        producer_epoch=epoch,
        sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )
    return log.append_as_leader(batch, 0, 0).base_offset


def mark(log: PartitionLog, producer: int, outcome: bool, *, epoch: int = 0, by: int = 3) -> int:
    """Appends a marker; returns its offset."""
    return log.append_marker(EndMarker(producer, epoch, outcome, by), 0, 1_000).base_offset


def end(log: PartitionLog, producer: int, outcome: bool, *, epoch: int = 0) -> int:
    """Appends a marker and commits all; returns the marker's offset."""
    offset = mark(log, producer, outcome, epoch=epoch)
    commit(log)
    return offset


def commit(log: PartitionLog) -> None:
    log.high_watermark = log.log_end_offset
    log.producers.prune_undo(log.high_watermark)


def aborted(log: PartitionLog) -> list[tuple[int, int, int]]:
    found = log.aborted_between(0, log.log_end_offset)
    return [(one.producer_id, one.first_offset, one.last_offset) for one in found]


@pytest.mark.req("T4")
def test_a_marker_is_apache_kafkas_control_batch() -> None:
    batch, header = markers.encoded(EndMarker(7, 2, COMMIT, 3), 1_234)
    assert parse_header(batch) == header
    assert (header.attributes, header.base_sequence, header.record_count) == (0x30, -1, 1)
    (record,) = records.opened(batch, header)
    assert record.key == struct.pack(">hh", 0, 1)
    assert records.value_of(record) == struct.pack(">hi", 0, 3)
    assert record.timestamp == 1_234
    assert markers.parse(batch, header) == Marker(MarkerKind.COMMIT, 3)


@pytest.mark.req("T4")
def test_nothing_is_stable_from_the_first_open_transaction_on() -> None:
    log = new_log(FakeFiles())
    send(log, 1)
    send(log, 2)
    send(log, 1, 1)
    commit(log)
    assert log.last_stable_offset == 0
    end(log, 1, COMMIT)
    assert log.last_stable_offset == 1
    end(log, 2, ABORT)
    assert log.last_stable_offset == log.log_end_offset == 5
    assert aborted(log) == [(2, 1, 4)]


@pytest.mark.req("T4")
def test_a_transaction_is_open_until_its_marker_is_committed() -> None:
    log = new_log(FakeFiles())
    send(log, 1)
    send(log, 9, transactional=False)
    commit(log)
    mark(log, 1, COMMIT)
    assert log.last_stable_offset == 0
    commit(log)
    assert log.last_stable_offset == 3


@pytest.mark.req("T4")
def test_a_marker_that_is_cut_off_leaves_the_transaction_open() -> None:
    log = new_log(FakeFiles())
    send(log, 1)
    commit(log)
    marker = mark(log, 1, ABORT)
    later = send(log, 1, 1)
    log.truncate_to(marker)
    assert aborted(log) == []
    assert log.last_stable_offset == 0
    end(log, 1, COMMIT)
    assert log.last_stable_offset == log.log_end_offset == later


def refused(log: PartitionLog, epoch: int, *, by: int = 3) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        mark(log, 1, COMMIT, epoch=epoch, by=by)
    return raised.value.code


@pytest.mark.req("T3")
def test_markers_of_older_producers_and_coordinators_are_refused() -> None:
    log = new_log(FakeFiles())
    send(log, 1, epoch=5)
    before = log.log_end_offset
    assert refused(log, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, 1, COMMIT, epoch=5)
    assert refused(log, 5, by=2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == before + 1


@pytest.mark.req("T3")
def test_a_batch_between_two_markers_lets_no_older_coordinator_in() -> None:
    log = new_log(FakeFiles())
    send(log, 1)
    end(log, 1, COMMIT)
    for sequence in (1, 2):
        send(log, 1, sequence)
        assert refused(log, 0, by=2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    send(log, 1, epoch=1)
    assert refused(log, 1, by=2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.req("T3")
def test_a_marker_of_a_later_epoch_fences_whoever_wrote_before_it() -> None:
    log = new_log(FakeFiles())
    send(log, 1)
    end(log, 1, ABORT, epoch=1)
    with pytest.raises(KafkaError) as raised:
        send(log, 1, 1)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as raised:
        send(log, 1, 4, epoch=1)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 1, 0, epoch=1)


@pytest.mark.req("T3")
def test_a_late_marker_of_version_2_cannot_end_the_next_transaction() -> None:
    log = new_log(FakeFiles())
    send(log, 1)
    marker = EndMarker(1, 1, COMMIT, 3, transaction_version=2)
    assert not log.append_marker(marker, 0, 0).duplicate
    send(log, 1, epoch=1)
    before = log.log_end_offset
    assert log.append_marker(marker, 0, 0) == (before, before, -1, True, 0)
    commit(log)
    assert log.last_stable_offset == 2


@pytest.mark.req("T2")
def test_within_a_transaction_plain_batches_are_refused() -> None:
    log = new_log(FakeFiles())
    send(log, 1)
    with pytest.raises(KafkaError) as raised:
        send(log, 1, 1, transactional=False)
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(make_batch([b"v"], attributes=TRANSACTIONAL), 0, 0)
    assert raised.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.req("T4")
def test_an_open_transaction_does_not_expire() -> None:
    log = new_log(FakeFiles())
    send(log, 1)
    send(log, 2, transactional=False)
    commit(log)
    assert log.producers.expire(10**12) == 1
    assert log.last_stable_offset == 0


@pytest.mark.req("T4")
def test_a_reader_is_told_of_what_was_aborted_in_what_it_reads_only() -> None:
    log = new_log(FakeFiles(), TopicConfig(segment_bytes=100_000, index_interval_bytes=90))
    for producer in range(1, 40):
        send(log, producer)
        end(log, producer, ABORT if producer % 2 else COMMIT)
    told = log.aborted_in(0, max_bytes=200, up_to_offset=log.log_end_offset, min_one=True)
    assert told[0] == AbortedTransaction(1, 0, 1, 2)
    assert len(told) < 5
    rest = log.aborted_in(70, max_bytes=10**6, up_to_offset=log.log_end_offset, min_one=True)
    assert [one.producer_id for one in rest] == [37, 39]


@pytest.mark.req("L1", "T4")
def test_the_index_of_aborted_transactions_is_apache_kafkas() -> None:
    files = FakeFiles()
    log = new_log(files)
    send(log, 7)
    send(log, 8)
    end(log, 8, ABORT)
    path = f"{DIRECTORY}/{0:020d}.{aborted_index.SUFFIX}"
    assert bytes(files.file(path).seen) == struct.pack(">hqqqq", 0, 8, 1, 2, 0)
    (document,) = dump.dump(files, path, with_records=False)
    assert isinstance(document, dict)
    assert document["producer_id"] == 8
    files.file(path).seen += b"?"
    assert [one.position for one in dump.verify(files, path)] == [34]


@pytest.mark.req("T4")
def test_a_damaged_index_is_made_anew() -> None:
    files = FakeFiles()
    log = new_log(files)
    for producer in range(1, 30):
        send(log, producer)
        end(log, producer, ABORT)
    flush(log, closing=True)
    log.close()
    expected = aborted(log)
    paths = [name for name in files.files if name.endswith(aborted_index.SUFFIX)]
    assert len(paths) > 2
    for path in paths[1:]:
        files.file(path).seen[0] ^= 0x40
        assert AbortedIndex(files, path, 0).is_damaged
    log = reopen(files, log.log_end_offset, clean=True)
    assert aborted(log) == expected


@pytest.mark.req("T4", "R4")
def test_an_index_that_recovery_made_anew_survives_the_next_loss_of_power() -> None:
    files = FakeFiles()
    log = new_log(files)
    for producer in range(1, 30):
        send(log, producer)
        end(log, producer, ABORT)
    log.high_watermark = log.log_end_offset
    flush(log)
    log.close()
    expected = aborted(log)
    for name in [name for name in files.files if name.endswith(".snapshot")]:
        files.remove(name)
    log = reopen(files, log.log_end_offset, clean=False)
    log.high_watermark = log.log_end_offset
    log.producers.prune_undo(log.high_watermark)
    flush(log, closing=True)
    log.close()
    for name in [name for name in files.files if name.endswith(aborted_index.SUFFIX)]:
        file = files.file(name)
        # The cut reached the disk, the entries after it did not.
        file.seen = file.durable[:0] if file.unsynced else file.durable
        file.unsynced.clear()
    log = reopen(files, log.log_end_offset, clean=False)
    assert aborted(log) == expected


def flush(log: PartitionLog, *, closing: bool = False, rolled_only: bool = False) -> None:
    plan = log.flush_plan(rolled_only=rolled_only, closing=closing)
    if plan is not None:
        plan.run()
        log.flushed(plan)


class Model:
    """A log of several producers' transactions, beside a plain list of what is in it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.files = FakeFiles()
        self.log = new_log(self.files)
        self.files.sync_directory(DIRECTORY)
        self.durable = 0

    def step(self) -> None:
        choices = [self.send] * 8 + [self.end] * 5 + [self.commit] * 4
        self.chance.choice([*choices, self.flush, self.truncate, self.crash, self.restart])()

    def send(self) -> None:
        producer = self.chance.randrange(4)
        known = self.log.producers.get(producer)
        sequence = 0 if known is None else known.last_sequence + 1
        send(self.log, producer, sequence)

    def end(self) -> None:
        mark(self.log, self.chance.randrange(4), self.chance.random() < 0.5)

    def commit(self) -> None:
        upper = self.log.log_end_offset
        self.log.high_watermark = self.chance.randint(self.log.high_watermark, upper)
        self.log.producers.prune_undo(self.log.high_watermark)

    def flush(self, *, closing: bool = False) -> None:
        flush(self.log, closing=closing, rolled_only=self.chance.random() < 0.5)
        self.durable = min(self.log.recovery_point, self.log.high_watermark)

    def truncate(self) -> None:
        self.log.truncate_to(self.chance.randint(self.log.high_watermark, self.log.log_end_offset))
        for file in self.files.files.values():
            file.sync()
        self.files.sync_directory(DIRECTORY)

    def crash(self) -> None:
        self.flush()
        self.files.crash_by(self.chance)
        self.reopen(clean=False)

    def restart(self) -> None:
        self.flush(closing=True)
        self.log.close()
        self.reopen(clean=True)

    def reopen(self, *, clean: bool) -> None:
        high_watermark = self.log.high_watermark
        self.log = reopen(self.files, self.durable, clean=clean)
        self.log.high_watermark = min(high_watermark, self.log.log_end_offset)
        self.log.producers.prune_undo(self.log.high_watermark)

    def check(self) -> None:
        """Everything follows from the batches alone."""
        opened: dict[int, int] = {}
        unstable = self.log.high_watermark
        expected = []
        for header in headers(self.log):
            if not header.is_control:
                opened.setdefault(header.producer_id, header.base_offset)
                continue
            first = opened.pop(header.producer_id, None)
            if first is None:
                continue
            if header.base_offset >= self.log.high_watermark:
                unstable = min(unstable, first)
            at = self.log.segment_at(header.base_offset).find(header.base_offset)
            assert at is not None
            batch = self.log.segment_at(header.base_offset).read(at.position, header.size)
            marker = markers.parse(batch, header)
            assert marker is not None
            if marker.kind is MarkerKind.ABORT:
                stable = min(opened.values(), default=header.base_offset + 1)
                expected.append((header.producer_id, first, header.base_offset, stable))
        found = self.log.aborted_between(0, self.log.log_end_offset)
        assert [tuple(one) for one in found] == expected
        assert self.log.last_stable_offset == min([unstable, *opened.values()])


@pytest.mark.req("T4")
@given(seed=st.integers(0, 2**32))
# The snapshot of producers that a truncation made void came back in a loss of power.
@example(seed=241875)
# So did zeros for entries of an index that had not been synced.
@example(seed=958199)
@example(seed=5543300)
# An index that recovery had made again was not synced, and a second loss of power emptied it.
@example(seed=999999999)
@settings(max_examples=60, deadline=None)
def test_what_is_stable_and_aborted_follows_from_the_batches(seed: int) -> None:
    model = Model(seed)
    for _ in range(60):
        model.step()
        model.check()


# --- compaction -----------------------------------------------------------------------------------


def put(log: PartitionLog, producer: int, key: bytes, sequence: int) -> None:
    batch = keyed_batch([(key, b"v" * 40)], codec=TRANSACTIONAL, producer=(producer, 0, sequence))
    log.append_as_leader(batch, 0, 0)


def compact(log: PartitionLog, files: FakeFiles, now_ms: int) -> None:
    dirt = compaction.dirt(
        log.segment_facts(), COMPACTED, cleaned_to=0, stable_offset=log.last_stable_offset, now_ms=0
    )
    for step in Cleaning(files, log, dirt, now_ms=now_ms, buffer_bytes=1 << 20).steps():
        if step is not None:
            assert log.replace_segments(step.replaced, step.segment)


def keys(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """(offset, key) of all records; a marker's key is None."""
    found: list[tuple[int, bytes | None]] = []
    for header in headers(log):
        segment = log.segment_at(header.base_offset)
        at = segment.find(header.base_offset)
        assert at is not None
        batch = segment.read(at.position, at.header.size)
        found += [
            (record.offset, None if header.is_control else record.key)
            for record in records.opened(batch, header)
        ]
    return found


def fill_up(log: PartitionLog, producer: int, count: int) -> None:
    """Records of other keys, so that what came before is in complete segments."""
    for number in range(count):
        put(log, producer, b"other%d" % number, number)
    end(log, producer, COMMIT)


@pytest.mark.req("L6")
def test_compaction_drops_what_was_aborted_and_keeps_what_it_would_have_replaced() -> None:
    files = FakeFiles()
    log = new_log(files, COMPACTED)
    put(log, 1, b"k", 0)
    end(log, 1, COMMIT)
    put(log, 2, b"k", 0)
    marker = end(log, 2, ABORT)
    fill_up(log, 3, 12)
    compact(log, files, now_ms=5_000)
    found = dict(keys(log))
    assert found[0] == b"k"
    assert 2 not in found
    assert marker in found
    # The producer's last batch stays, empty, until it has expired, and so long the marker does.
    compact(log, files, now_ms=6_000)
    assert marker in dict(keys(log))
    compact(log, files, now_ms=6_999)
    assert marker in dict(keys(log))
    log.producers.expire(10**12)
    compact(log, files, now_ms=7_000)
    compact(log, files, now_ms=8_000)
    compact(log, files, now_ms=8_999)
    assert marker in dict(keys(log))
    compact(log, files, now_ms=9_000)
    assert marker not in dict(keys(log))
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.req("L6")
def test_compaction_stops_below_an_open_transaction() -> None:
    files = FakeFiles()
    log = new_log(files, COMPACTED)
    put(log, 1, b"k", 0)
    fill_up(log, 2, 12)
    before = keys(log)
    compact(log, files, now_ms=5_000)
    assert keys(log) == before
    end(log, 1, COMMIT)
    put(log, 4, b"k", 0)
    end(log, 4, COMMIT)
    fill_up(log, 5, 12)
    compact(log, files, now_ms=5_000)
    assert 0 not in dict(keys(log))


@pytest.mark.req("L6")
def test_a_marker_stays_while_it_alone_tells_a_producers_epoch() -> None:
    files = FakeFiles()
    log = new_log(files, COMPACTED)
    put(log, 1, b"k", 0)
    marker = end(log, 1, ABORT, epoch=4)
    fill_up(log, 2, 12)
    for round_number in range(4):
        compact(log, files, now_ms=5_000 * (round_number + 1))
    assert marker in dict(keys(log))
    flush(log)
    log = reopen(files, 0, config=COMPACTED)
    known = log.producers.get(1)
    assert known is not None
    assert known.epoch == 4


@pytest.mark.req("L6", "T4")
@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_compaction_shows_readers_the_newest_committed_value_of_each_key(seed: int) -> None:
    chance = random.Random(seed)
    files = FakeFiles()
    log = new_log(files, COMPACTED)
    sequences = dict.fromkeys(range(3), 0)
    pending: dict[int, dict[bytes, int]] = {producer: {} for producer in sequences}
    committed: dict[bytes, int] = {}
    for step in range(120):
        producer = chance.randrange(3)
        if chance.random() < 0.7:
            key = b"%d" % chance.randrange(6)
            pending[producer][key] = log.log_end_offset
            put(log, producer, key, sequences[producer])
            sequences[producer] += 1
        else:
            is_commit = chance.random() < 0.5
            end(log, producer, COMMIT if is_commit else ABORT)
            for key, offset in pending[producer].items() if is_commit else ():
                committed[key] = max(offset, committed.get(key, -1))
            pending[producer] = {}
        if chance.random() < 0.15:
            compact(log, files, now_ms=step * 100)
        if chance.random() < 0.1:
            flush(log, closing=True)
            log.close()
            high_watermark = log.high_watermark
            log = reopen(files, log.log_end_offset, clean=True, config=COMPACTED)
            log.high_watermark = high_watermark
            log.producers.prune_undo(high_watermark)
    for producer in sequences:
        end(log, producer, ABORT)
    told = log.aborted_between(0, log.log_end_offset)
    visible: dict[bytes, int] = {}
    owner = {header.base_offset: header.producer_id for header in headers(log)}
    for offset, found in keys(log):
        skipped = any(
            one.producer_id == owner[offset] and one.first_offset <= offset <= one.last_offset
            for one in told
        )
        if found is not None and not skipped:
            visible[found] = offset
    assert visible == committed
