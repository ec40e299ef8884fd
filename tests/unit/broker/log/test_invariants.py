"""A log keeps its invariants through every kind of event; nothing else is asserted here.

The fixture in `conftest.py` checks them after each event. `tests.mutants.invariant_edits` plants
bugs that only this finds at once: no answer of the log is wrong yet.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.log import LogManager
from broker.log import _cleaner as compaction
from broker.log._cleaner import Cleaning
from broker.log.partition_log import retention
from broker.types import EndMarker, TopicPartition
from raftctl.errors import KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import keyed_batch, make_batch
from tests.unit.broker.log.fake_files import FakeFiles, FakeRuntime
from tests.unit.broker.log.logs import DIRECTORY, fill, headers, new_log, reopen

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog

COMPACTED = TopicConfig(
    segment_bytes=800, index_interval_bytes=100, cleanup_policy=("compact", "delete")
)


def grow(log: PartitionLog, batches: int = 12) -> None:
    """Small batches of growing timestamps, an index entry for nearly each."""
    for _ in range(batches):
        end = log.log_end_offset
        log.append_as_leader(make_batch([b"x" * 90], timestamps=[end]), log.epochs.latest + 1, 0)


def commit(log: PartitionLog) -> None:
    log.high_watermark = log.log_end_offset
    log.producers.prune_undo(log.high_watermark)


def flush(log: PartitionLog) -> None:
    plan = log.flush_plan(rolled_only=False)
    assert plan is not None
    plan.run()
    log.flushed(plan)


def produce(log: PartitionLog, producer_id: int, sequence: int) -> None:
    """A batch of a transaction."""
    batch = make_batch(
        [b"t"], attributes=0x10, producer_id=producer_id, producer_epoch=0, sequence=sequence
    )
    log.append_as_leader(batch, 0, 0)


def test_truncation_leaves_indexes_bounds_and_epochs_within_the_log() -> None:
    log = new_log(FakeFiles())
    grow(log)
    commit(log)
    flush(log)
    for cut in (10, 9, 7, 4, 0):
        log.truncate_to(cut)
        grow(log, 1)
    commit(log)
    log.invariants()


def test_a_log_start_that_moves_takes_old_segments_and_bounds_with_it() -> None:
    log = new_log(FakeFiles())
    grow(log, 30)
    bases = [one.base_offset for one in log.segment_facts()]
    for offset in (1, bases[1], bases[2] + 1, log.log_end_offset):
        log.advance_log_start(offset)
    log.advance_log_start(log.log_end_offset)
    log.invariants()


def test_leader_epochs_that_write_nothing_make_room() -> None:
    log = new_log(FakeFiles())
    grow(log, 2)
    for epoch in (7, 8, 9):
        log.epochs.assign(epoch, log.log_end_offset)
        log.invariants()
    grow(log, 1)
    log.epochs.assign(5, log.log_end_offset)
    log.invariants()


def test_a_follower_meets_holes_and_starts_within_a_batch() -> None:
    log = new_log(FakeFiles())
    log.restart_at(12)
    log.append_as_follower(make_batch([b"a", b"b", b"c", b"d"], base_offset=10))
    for offset in range(20, 400, 20):
        log.append_as_follower(make_batch([b"x" * 100], base_offset=offset))
    log.truncate_to(13)
    log.invariants()


def test_transactions_that_end_and_are_cut_off() -> None:
    log = new_log(FakeFiles())
    for producer_id in (1, 2, 3):
        produce(log, producer_id, 0)
    log.append_marker(EndMarker(1, 0, commit=True, coordinator_epoch=0), 0, 0)
    log.append_marker(EndMarker(2, 0, commit=False, coordinator_epoch=0), 0, 0)
    for sequence in range(1, 9):
        produce(log, 3, sequence)
    log.truncate_to(5)
    log.truncate_to(4)
    log.truncate_to(2)
    log.producers.expire(1)
    log.invariants()


def test_a_log_that_is_opened_after_its_files_were_cut() -> None:
    files = FakeFiles()
    log = new_log(files, TopicConfig())
    fill(log, 20)
    plan = log.flush_plan(rolled_only=False, closing=True)
    assert plan is not None
    plan.run()
    size = sum(header.size for header in headers(log)[:-1])
    log.close()
    del files.file(f"{DIRECTORY}/{0:020d}.log").seen[size:]
    reopen(files, clean=True).invariants()


def test_compaction_keeps_the_span_of_what_it_rewrites() -> None:
    files = FakeFiles()
    log = new_log(files, COMPACTED)
    for number in range(40):
        log.append_as_leader(keyed_batch([(b"%d" % (number % 3), b"v" * 50)]), 0, 0)
    commit(log)
    dirt = compaction.dirt(
        log.segment_facts(), COMPACTED, cleaned_to=0, stable_offset=log.high_watermark, now_ms=0
    )
    cleaning = Cleaning(files, log, dirt, now_ms=0, buffer_bytes=1 << 20)
    for step in cleaning.steps():
        if step is not None:
            log.replace_segments(step.replaced, step.segment)
    log.invariants()


def test_segments_expire_and_are_compacted_up_to_what_is_committed() -> None:
    files = FakeFiles()
    log = new_log(files, COMPACTED)
    for number in range(30):
        log.append_as_leader(keyed_batch([(b"%d" % (number % 3), b"v" * 50)]), 0, 0)
    log.high_watermark = 7
    log.producers.prune_undo(7)
    facts = log.segment_facts()
    config = replace(COMPACTED, retention_bytes=0)
    assert 0 < retention.expired(facts, config, 7, 0) < len(facts)
    compaction.dirt(facts, COMPACTED, cleaned_to=0, stable_offset=7, now_ms=0)
    sizes = [(one.base_offset, one.next_offset, one.size) for one in facts]
    assert len(compaction.grouped(sizes, TopicConfig())) == 1
    dirt = compaction.dirt(facts, COMPACTED, cleaned_to=0, stable_offset=30, now_ms=0)
    list(Cleaning(files, log, dirt, now_ms=0, buffer_bytes=1 << 20).steps())


def test_a_batch_is_repacked_and_tombstones_remain() -> None:
    files = FakeFiles()
    log = new_log(files, replace(COMPACTED, compression_type="gzip"))
    for number in range(20):
        values: list[tuple[bytes, bytes | None]] = [(b"k", None), (b"%d" % number, b"v" * 50)]
        log.append_as_leader(keyed_batch(values, timestamp=number), 0, 0)
    commit(log)
    facts = log.segment_facts()
    dirt = compaction.dirt(
        facts, log.config, cleaned_to=0, stable_offset=log.high_watermark, now_ms=0
    )
    for step in Cleaning(files, log, dirt, now_ms=9, buffer_bytes=1 << 20).steps():
        assert step is None or step.segment.size


def test_reads_end_within_their_segment() -> None:
    log = new_log(FakeFiles())
    grow(log)
    for offset in range(log.log_end_offset):
        log.read(offset, max_bytes=1 << 20, up_to_offset=offset + 1, min_one=True)
        log.read(offset, max_bytes=1 << 20, up_to_offset=log.log_end_offset, min_one=False)


async def test_logs_are_created_moved_and_deleted_and_a_directory_fails() -> None:
    files = FakeFiles()
    manager = LogManager(FakeRuntime(files), ["/d1", "/d2"], TopicConfig(), lambda _error: None)
    await manager.start()
    first, second = (TopicPartition("t", number) for number in range(2))
    for partition in (first, second):
        grow(manager.create(partition, UUID(int=1), TopicConfig()))
    home = manager.directory_of(first)
    other = "/d2" if home == "/d1" else "/d1"
    await asyncio.sleep(0.01)
    manager.move(first, other)
    for _ in range(2_000):
        await asyncio.sleep(0.001)
        if manager.directory_of(first) == other:
            break
    third = TopicPartition("t", 2)
    with pytest.raises(KafkaError, match="has no log here"):
        manager.move(third, other)
    manager.create(third, UUID(int=1), TopicConfig())
    manager.delete(second)
    manager.create(second, UUID(int=2), TopicConfig())
    log = manager.get(first)
    assert log is not None
    log.failed(OSError("broken"))
    await manager.stop()
