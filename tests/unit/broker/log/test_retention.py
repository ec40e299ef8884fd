"""What is deleted by age, by size and on request, and what happens to the files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.log import LogManager
from broker.log.settings import LogSettings
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.fake_files import FakeFiles, FakeRuntime
from tests.unit.broker.log.logs import fill, new_log, read, reopen

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog

KEEP_ALL = TopicConfig(segment_bytes=1_000, retention_ms=-1)


def kept(log: PartitionLog) -> list[int]:
    return [one.base_offset for one in log.segment_facts()]


def committed(config: TopicConfig, batches: int = 60) -> PartitionLog:
    """Timestamps are the offsets."""
    log = new_log(FakeFiles(), config)
    fill(log, batches)
    log.high_watermark = log.log_end_offset
    return log


@pytest.mark.req("L5")
def test_segments_go_when_their_newest_record_is_too_old() -> None:
    log = committed(TopicConfig(segment_bytes=1_000, retention_ms=50))
    bases = kept(log)
    newest = [one.newest_timestamp for one in log.segment_facts()]
    assert log.expire(newest[1] + 50) == 1
    assert log.expire(newest[1] + 51) == 1
    assert kept(log) == bases[2:]
    assert log.log_start_offset == bases[2]
    assert read(log, bases[2])[0] == bases[2]


NO_TIME = make_batch([b"v" * 40], timestamps=[-1])


def timeless(config: TopicConfig, times: list[int]) -> tuple[FakeFiles, PartitionLog]:
    """A log of batches without timestamps that were written at these times."""
    files = FakeFiles()
    log = new_log(files, config)
    log.wall_ms = lambda: files.now_ms
    for files.now_ms in times:
        log.append_as_leader(NO_TIME, 0, files.now_ms)
    log.high_watermark = log.log_end_offset
    return files, log


@pytest.mark.req("L5")
def test_records_without_timestamps_are_as_old_as_their_file() -> None:
    config = TopicConfig(segment_bytes=250, retention_ms=50)
    files, log = timeless(config, [10, 20, 30, 40])
    assert kept(log) == [0, 2]
    assert [one.newest_timestamp for one in log.segment_facts()] == [20, 40]
    assert log.expire(70) == 0
    assert log.expire(71) == 1
    log.close()
    again = reopen(files, log.recovery_point, config=config)
    again.high_watermark = again.log_end_offset
    assert again.expire(90) == 0
    assert again.expire(91) == 1


@pytest.mark.req("L3")
def test_a_segment_without_timestamps_rolls_after_its_time() -> None:
    config = TopicConfig(segment_ms=100)
    files, log = timeless(config, [1_000, 1_050, 1_100, 1_101, 1_150])
    assert kept(log) == [0, 3]
    # The record of a later producer has one, but the segment's age is still told by the clock.
    log.append_as_leader(make_batch([b"v"], timestamps=[10**12]), 0, 10**12)
    assert kept(log) == [0, 3]
    # A follower does the same.
    files.now_ms = 1_202
    log.append_as_follower(make_batch([b"v"], timestamps=[-1], base_offset=log.log_end_offset))
    assert kept(log) == [0, 3, 6]
    log.close()
    again = reopen(files, log.recovery_point, config=config)
    again.wall_ms = log.wall_ms
    for files.now_ms in (2_000, 2_100, 2_101):
        again.append_as_leader(NO_TIME, 0, files.now_ms)
    assert kept(again) == [0, 3, 6, 9]


@pytest.mark.req("L5")
def test_a_disk_that_does_not_tell_a_files_time_takes_its_directory_offline() -> None:
    files, log = timeless(TopicConfig(retention_ms=50), [10])
    failures: list[OSError] = []
    log.failed = failures.append
    files.broken_under = log.directory
    with pytest.raises(KafkaError) as refused:
        log.expire(1_000)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(failures) == 1


@pytest.mark.req("L5")
def test_segments_go_when_the_rest_is_large_enough() -> None:
    log = committed(TopicConfig(segment_bytes=1_000, retention_ms=-1, retention_bytes=2_500))
    sizes = [one.size for one in log.segment_facts()]
    log.expire(0)
    assert 2_500 <= log.size < 2_500 + max(sizes)
    assert log.expire(0) == 0


@pytest.mark.req("L5")
def test_whichever_comes_first_counts() -> None:
    log = committed(TopicConfig(segment_bytes=1_000, retention_ms=100, retention_bytes=2_500))
    by_size = log.segment_facts()
    log.expire(0)
    assert 0 < len(kept(log)) < len(by_size)
    newest = log.segment_facts()[0].newest_timestamp
    assert log.expire(newest + 101) == 1


@pytest.mark.req("L5")
def test_an_expired_active_segment_is_rolled_and_deleted_and_the_end_stays() -> None:
    log = committed(TopicConfig(retention_ms=10))
    assert log.expire(10**6) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (120, 120, 0)
    assert log.expire(10**6) == 0
    fill(log, 1)
    assert read(log, 120) == [120]


@pytest.mark.req("L5")
def test_nothing_above_the_high_watermark_goes() -> None:
    log = committed(TopicConfig(segment_bytes=1_000, retention_ms=1))
    bases = kept(log)
    log.high_watermark = bases[2] - 1
    assert log.expire(10**6) == 1
    log.high_watermark = bases[2]
    assert log.expire(10**6) == 1


@pytest.mark.req("L5")
def test_a_topic_that_is_only_compacted_keeps_everything() -> None:
    log = committed(KEEP_ALL)
    log.config = TopicConfig(retention_ms=1, retention_bytes=1, cleanup_policy=("compact",))
    assert log.expire(10**6) == 0


@pytest.mark.req("L5")
def test_after_a_restart_the_log_starts_where_it_did() -> None:
    files = FakeFiles()
    log = new_log(files, TopicConfig(segment_bytes=1_000, retention_ms=50))
    fill(log, 60)
    log.high_watermark = 120
    log.expire(130)
    start = log.log_start_offset
    assert start > 0
    assert reopen(files).log_start_offset == start


@pytest.mark.req("L7")
def test_records_are_deleted_up_to_an_offset_or_to_the_high_watermark() -> None:
    log = committed(KEEP_ALL)
    log.high_watermark = 90
    assert log.delete_records(31) == 31
    assert log.delete_records(10) == 31
    for offset in (91, -2):
        with pytest.raises(KafkaError) as raised:
            log.delete_records(offset)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(-1) == 90
    assert kept(log)[0] <= 90


@pytest.mark.req("L7")
def test_a_segment_that_was_active_when_it_was_hidden_goes_once_it_is_full() -> None:
    log = committed(TopicConfig())
    assert log.delete_records(-1) == 120
    log.config = TopicConfig(segment_bytes=1_000)
    fill(log, 20)
    hidden, *others = log.segment_facts()
    assert hidden.next_offset == log.log_start_offset == 120
    assert log.expire(0) == 1
    assert log.segment_facts() == others


async def managed(config: TopicConfig) -> tuple[FakeFiles, LogManager, PartitionLog]:
    def never(error: BaseException) -> None:
        raise AssertionError(error)

    files = FakeFiles()
    manager = LogManager(FakeRuntime(files), ["/d"], TopicConfig(), never, LogSettings())
    await manager.start()
    log = manager.create(TopicPartition("t", 0), UUID(int=1), config)
    return files, manager, log


async def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


@pytest.mark.req("L5")
async def test_files_of_deleted_segments_stay_for_their_delay_under_another_name() -> None:
    config = TopicConfig(segment_bytes=1_000, retention_ms=50, file_delete_delay_ms=60_000)
    files, manager, log = await managed(config)
    fill(log, 60)
    log.high_watermark = 120
    await manager.housekeeping.retain()
    await manager.housekeeping.checkpoint()
    deleted = [name for name in files.names("/d/t-0") if name.endswith(".log.deleted")]
    assert deleted[0] == "00000000000000000000.log.deleted"
    await manager.stop()
    assert not any(name.endswith(".deleted") for name in files.names("/d/t-0"))


@pytest.mark.req("L5")
async def test_files_of_deleted_segments_are_removed_after_their_delay() -> None:
    config = TopicConfig(segment_bytes=1_000, retention_ms=50, file_delete_delay_ms=1)
    files, manager, log = await managed(config)
    fill(log, 60)
    log.high_watermark = 120
    await manager.housekeeping.retain()
    await manager.housekeeping.checkpoint()
    await until(lambda: not any(n.endswith(".deleted") for n in files.names("/d/t-0")))
    await manager.stop()


async def test_silent_producers_are_forgotten_unless_they_may_be_taken_back() -> None:
    _, manager, log = await managed(TopicConfig())
    for producer in (1, 2):
        batch = make_batch([b"v"], producer_id=producer, producer_epoch=0, sequence=0)
        log.append_as_leader(batch, 0, 0)
    log.producers.prune_undo(1)
    expiring = log.producers.expire(2_000)
    assert (expiring, log.producers.get(1) is None, log.producers.get(2) is None) == (
        1,
        True,
        False,
    )
    await manager.stop()
