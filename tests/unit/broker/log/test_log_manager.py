"""All logs of a broker: directories, checkpoints, restarts."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import pytest

from broker.log import LogManager, checkpoints
from broker.log.directories import CLEAN_SHUTDOWN
from broker.log.partition_log import fsync_marker
from broker.log.settings import LogSettings
from broker.types import TopicPartition
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.runtime.api import replace_file
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.fake_files import FakeFiles, FakeRuntime, FakeWorker

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

TOPIC_ID = UUID(int=7)
A, B, C = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b.c-d", 10))


class CountingWorker(FakeWorker):
    """Counts what it is given."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        self.calls += 1
        return super().submit(call)


class Counting(FakeRuntime):
    """Knows its workers by name."""

    def __init__(self, files: FakeFiles) -> None:
        super().__init__(files)
        self.made: dict[str, CountingWorker] = {}

    def worker(self, name: str, *, short_calls: bool = False) -> CountingWorker:
        self.made[name] = CountingWorker()
        return self.made[name]


def never(error: BaseException) -> None:
    raise AssertionError(error)


async def started(files: FakeFiles, *directories: str) -> LogManager:
    manager = LogManager(FakeRuntime(files), directories or ("/d1",), TopicConfig(), never)
    await manager.start()
    return manager


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def flush_all(manager: LogManager) -> None:
    for directory in manager._directories:
        for log in list(directory.logs.values()):
            await directory.flush(log, rolled_only=False)


def append(manager: LogManager, partition: TopicPartition, times: int = 1) -> None:
    log = manager.get(partition)
    assert log is not None
    for _ in range(times):
        log.append_as_leader(make_batch([b"v"]), 0, 0)


@pytest.mark.req("L1")
async def test_a_new_log_goes_where_the_fewest_are_and_has_kafkas_files() -> None:
    files = FakeFiles()
    manager = await started(files, "/d1", "/d2")
    for partition in (A, B, C):
        manager.create(partition, TOPIC_ID, TopicConfig())
    await settle()
    assert files.names("/d1") == [fsync_marker.NAME, "a-0", "b.c-d-10"]
    assert files.names("/d2") == [fsync_marker.NAME, "a-1"]
    assert files.names("/d1/a-0") == ["partition.metadata"]
    append(manager, A, 1)
    assert files.names("/d1/a-0") == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "partition.metadata",
    ]
    text = bytes(files.file("/d1/a-0/partition.metadata").seen)
    assert text == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n"
    await manager.stop()


@pytest.mark.req("L1", "L4")
async def test_a_clean_restart_forgets_neither_high_watermark_nor_log_start() -> None:
    files = FakeFiles()
    manager = await started(files)
    log = manager.create(A, TOPIC_ID, TopicConfig())
    append(manager, A, 5)
    log.high_watermark = 4
    log.advance_log_start(2)
    log.epochs.assign(3, log.log_end_offset)
    await manager.stop()
    assert CLEAN_SHUTDOWN in files.names("/d1")
    assert bytes(files.file("/d1/replication-offset-checkpoint").seen) == b"0\n1\na 0 4\n"
    assert bytes(files.file("/d1/recovery-point-offset-checkpoint").seen) == b"0\n1\na 0 4\n"
    assert bytes(files.file("/d1/log-start-offset-checkpoint").seen) == b"0\n1\na 0 2\n"
    assert bytes(files.file("/d1/a-0/leader-epoch-checkpoint").seen) == b"0\n2\n0 2\n3 5\n"
    files.crash_by(random.Random(1))
    again = await started(files)
    found = again.get(A)
    assert found is not None
    assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (2, 4, 5)
    assert (found.topic_id, found.recovered.segments_checked) == (TOPIC_ID, 0)
    assert CLEAN_SHUTDOWN not in files.names("/d1")
    await again.stop()


@pytest.mark.req("C2", "L1")
async def test_the_epoch_of_a_clean_shutdown_is_told_once_and_by_all_directories() -> None:
    files = FakeFiles()
    manager = await started(files, "/d1", "/d2")
    assert manager.clean_epoch == -1
    await manager.stop(broker_epoch=7)
    manager = await started(files, "/d1", "/d2")
    assert manager.clean_epoch == 7
    manager = await started(files, "/d1", "/d2")
    assert manager.clean_epoch == -1, "that life has not ended cleanly"
    await manager.stop(broker_epoch=8)
    files.remove("/d2/.kafka_cleanshutdown")
    manager = await started(files, "/d1", "/d2")
    assert manager.clean_epoch == -1, "one of the directories was replaced"


@pytest.mark.req("L1")
@pytest.mark.parametrize("marker", [b"", b"[]", b"{}", b'{"brokerEpoch": "x"}'])
async def test_a_marker_that_tells_no_epoch_still_tells_of_a_clean_shutdown(marker: bytes) -> None:
    files = FakeFiles()
    manager = await started(files)
    await manager.stop()
    replace_file(files, f"/d1/{CLEAN_SHUTDOWN}", marker)
    manager = await started(files)
    assert manager.clean_epoch == -1
    assert not files.exists(f"/d1/{CLEAN_SHUTDOWN}")


@pytest.mark.req("L4")
async def test_a_start_that_finds_damage_is_no_clean_shutdown() -> None:
    files = FakeFiles()
    manager = await started(files)
    log = manager.create(A, TOPIC_ID, TopicConfig())
    append(manager, A, 5)
    log.high_watermark = 5
    await flush_all(manager)
    await manager.housekeeping.checkpoint()
    files.file("/d1/a-0/00000000000000000000.log").seen[70] ^= 1
    manager = await started(files)
    found = manager.get(A)
    assert found is not None
    assert (found.log_end_offset, found.recovered.lost_from, found.high_watermark) == (1, 1, 1)
    assert manager.clean_epoch == -1
    await manager.stop(broker_epoch=7)


@pytest.mark.req("L4")
async def test_a_log_that_was_closed_cleanly_and_then_damaged_costs_the_clean_shutdown() -> None:
    files = FakeFiles()
    manager = await started(files, "/d1", "/d2")
    for partition in (A, B):
        log = manager.create(partition, TOPIC_ID, TopicConfig())
        append(manager, partition, 5)
        log.high_watermark = 5
    await manager.stop(broker_epoch=7)
    files.file("/d1/a-0/00000000000000000000.log").seen[16] = 9
    manager = await started(files, "/d1", "/d2")
    assert manager.clean_epoch == -1, "the controller must not think that all is there"
    assert [log.log_end_offset for log in map(manager.get, (A, B)) if log] == [0, 5]
    await manager.stop(broker_epoch=8)
    assert (await started(files, "/d1", "/d2")).clean_epoch == 8


@pytest.mark.req("L4")
async def test_a_log_whose_topic_id_cannot_be_read_is_set_aside_and_told() -> None:
    files = FakeFiles()
    manager = await started(files)
    for partition in (A, B):
        manager.create(partition, TOPIC_ID, TopicConfig())
        append(manager, partition, 3)
    await manager.stop(broker_epoch=7)
    files.file("/d1/a-0/partition.metadata").seen[:] = b""
    manager = await started(files)
    assert manager.partitions == [B]
    assert manager.clean_epoch == -1
    (aside,) = [name for name in files.names("/d1") if name.endswith("-stray")]
    assert "00000000000000000000.log" in files.names(f"/d1/{aside}")
    manager.create(A, TOPIC_ID, TopicConfig())
    await manager.stop()


@pytest.mark.req("L4", "P1")
async def test_a_stop_before_all_is_recovered_leaves_the_disk_as_it_is() -> None:
    files = FakeFiles()
    await (await started(files)).stop(broker_epoch=7)
    manager = LogManager(FakeRuntime(files), ["/d1"], TopicConfig(), never)
    await manager.stop(broker_epoch=8)
    manager = LogManager(FakeRuntime(files), ["/d1"], TopicConfig(), never)
    starting = asyncio.ensure_future(manager.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await manager.stop(broker_epoch=9)
    assert (await started(files)).clean_epoch == 7


@pytest.mark.req("L4")
async def test_after_a_crash_logs_are_checked_and_the_operator_is_told_of_a_cut() -> None:
    files = FakeFiles()
    manager = await started(files)
    log = manager.create(A, TOPIC_ID, TopicConfig())
    append(manager, A, 3)
    await flush_all(manager)
    log.high_watermark = 2
    await manager.housekeeping.checkpoint()
    append(manager, A, 1)
    files.file("/d1/a-0/00000000000000000000.log").seen += b"torn"
    runtime = FakeRuntime(files)
    again = LogManager(runtime, ["/d1"], TopicConfig(), never)
    await again.start()
    found = again.get(A)
    assert found is not None
    assert (found.high_watermark, found.log_end_offset) == (2, 4)
    assert found.recovered.segments_checked == 1
    assert runtime.events[0][0] == "log_recovered"
    assert runtime.events[0][1]["bytes_cut"] == 4
    await again.stop()


@pytest.mark.req("L4")
async def test_logs_are_recovered_by_as_many_threads_as_are_configured() -> None:
    files = FakeFiles()
    partitions = [TopicPartition("a", number) for number in range(5)]
    manager = await started(files)
    for partition in partitions:
        manager.create(partition, TOPIC_ID, TopicConfig())
        append(manager, partition, times=2)
    await settle()
    runtime = Counting(files)
    again = LogManager(runtime, ["/d1"], TopicConfig(), never, LogSettings(recovery_threads=3))
    await again.start()
    assert [runtime.made[f"recovery-{number}"].calls for number in (1, 2)] == [1, 1]
    assert again.partitions == partitions
    for partition in partitions:
        log = again.get(partition)
        assert log is not None
        assert log.log_end_offset == 2
        assert log.recovered.segments_checked == 1
    await again.stop()


@pytest.mark.req("L8")
async def test_a_stop_makes_logs_durable_by_as_many_threads_as_open_them() -> None:
    """One after the other a broker of 540 partitions took 8 s to stop."""
    files = FakeFiles()
    runtime = Counting(files)
    manager = LogManager(runtime, ["/d1"], TopicConfig(), never, LogSettings(recovery_threads=3))
    await manager.start()
    partitions = [TopicPartition("a", number) for number in range(6)]
    for partition in partitions:
        manager.create(partition, TOPIC_ID, TopicConfig())
        append(manager, partition, times=2)
    await manager.stop(broker_epoch=7)
    assert [runtime.made[f"closing-{number}"].calls for number in (1, 2)] == [2, 2]
    files.crash_by(random.Random(1))
    again = await started(files)
    assert again.clean_epoch == 7
    for partition in partitions:
        log = again.get(partition)
        assert log is not None
        assert (log.log_end_offset, log.recovered.segments_checked) == (2, 0)
    await again.stop()


async def test_a_stop_flushes_no_log_that_a_flush_is_under_way_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plans must be run in the order in which they were made, and two workers keep none."""
    files = FakeFiles()
    runtime = Counting(files)
    manager = LogManager(runtime, ["/d1"], TopicConfig(), never, LogSettings(recovery_threads=2))
    await manager.start()
    logs = [manager.create(one, TOPIC_ID, TopicConfig()) for one in (A, B)]
    append(manager, A)
    append(manager, B)
    (directory,) = manager._directories
    waiting = [directory.flusher.through(log, 1) for log in logs]
    append(manager, B)
    waiting.append(directory.flusher.through(logs[1], 2))
    was_busy = []
    submit = CountingWorker.submit

    def watched(worker: CountingWorker, call: Callable[[], T]) -> asyncio.Future[T]:
        if worker is runtime.made.get("closing-1"):
            was_busy.append(directory.flusher.is_busy)
        return submit(worker, call)

    monkeypatch.setattr(CountingWorker, "submit", watched)
    await manager.stop()
    assert all(one.done() and one.exception() is None for one in waiting)
    assert was_busy == [False]
    assert [log.recovery_point for log in logs] == [1, 2]


async def test_rolled_segments_are_flushed_in_the_background() -> None:
    files = FakeFiles()
    manager = await started(files)
    log = manager.create(A, TOPIC_ID, TopicConfig(segment_bytes=200))
    append(manager, A, 10)
    await manager.housekeeping.checkpoint()
    assert 0 < log.recovery_point < log.log_end_offset
    syncs = files.syncs
    await manager.housekeeping.checkpoint()
    assert files.syncs == syncs
    await manager.stop()
    assert log.recovery_point == 10


async def test_a_deleted_log_is_gone_at_once_and_its_name_is_free() -> None:
    files = FakeFiles()
    manager = await started(files)
    log = manager.create(A, TOPIC_ID, TopicConfig())
    append(manager, A)
    plan = log.flush_plan(rolled_only=False)
    assert plan is not None
    flushing = asyncio.ensure_future(flush_all(manager))
    await asyncio.sleep(0)
    manager.delete(A)
    assert manager.get(A) is None
    manager.create(A, UUID(int=8), TopicConfig())
    await flushing
    await settle()
    assert files.names("/d1") == [fsync_marker.NAME, "a-0"]
    created = manager.get(A)
    assert created is not None
    assert created.log_end_offset == 0
    await manager.stop()


@pytest.mark.parametrize("aside", [False, True])
async def test_a_log_with_the_longest_name_is_removed_and_its_directory_lives(
    aside: bool,
) -> None:
    files = FakeFiles()
    manager = await started(files)
    longest = TopicPartition("t" * 249, 99_999)
    manager.create(longest, TOPIC_ID, TopicConfig())
    manager.delete(longest, aside=aside)
    await settle()
    assert manager.offline_directories == []
    left = [name for name in files.names("/d1") if name.startswith("t")]
    assert [(len(name), name[-6:]) for name in left] == ([(255, "-stray")] if aside else [])
    manager.create(longest, TOPIC_ID, TopicConfig())
    await manager.stop()
    again = await started(files)
    assert again.partitions == [longest]
    await again.stop()


def whole(files: FakeFiles) -> list[str]:
    """The directories of logs that are not on their way out."""
    return [name for name in files.names("/d1") if name.startswith("a-") and "delete" not in name]


AT_ONCE = 20


@pytest.mark.req("C3")
async def test_thousands_of_logs_are_removed_over_many_turns_of_the_loop(
    slice_steps: Callable[[int], None],
) -> None:
    slice_steps(AT_ONCE)
    files = FakeFiles()
    manager = await started(files)
    many = [TopicPartition("a", number) for number in range(5 * AT_ONCE)]
    for one in many:
        manager.create(one, TOPIC_ID, TopicConfig())
    await settle()
    for one in many:
        manager.delete(one)
    assert manager.partitions == []
    assert len(whole(files)) == len(many), "no work is done by who only says what is gone"
    manager.create(many[-1], UUID(int=8), TopicConfig())
    left = [len(whole(files))]
    while left[-1] > 1:
        await asyncio.sleep(0)
        left.append(len(whole(files)))
    assert max(before - after for before, after in itertools.pairwise(left)) == AT_ONCE
    await settle()
    assert files.names("/d1") == [fsync_marker.NAME, f"a-{len(many) - 1}"]
    await manager.stop()


async def test_a_stop_leaves_no_log_that_is_gone() -> None:
    files = FakeFiles()
    manager = await started(files)
    manager.create(A, TOPIC_ID, TopicConfig())
    await settle()
    manager.delete(A)
    await manager.stop()
    assert whole(files) == []


async def test_new_logs_share_their_syncs_and_one_that_is_gone_harms_none() -> None:
    files = FakeFiles()
    runtime = Counting(files)
    manager = LogManager(runtime, ["/d1"], TopicConfig(), never)
    await manager.start()
    before = runtime.made["log-0"].calls
    for number in range(30):
        manager.create(TopicPartition("a", number), UUID(int=number + 1), TopicConfig())
    assert runtime.made["log-0"].calls == before + 1
    manager.delete(A)
    await settle()
    for number in range(1, 30):
        assert checkpoints.read_topic_id(files, f"/d1/a-{number}") == UUID(int=number + 1)
    assert manager.offline_directories == []
    await manager.stop()


async def test_what_a_crash_left_of_a_deletion_is_removed() -> None:
    files = FakeFiles()
    files.make_directories("/d1/a-0.0123456789abcdef0123456789abcdef-delete")
    files.make_directories("/d1/__cluster_metadata-0")
    manager = await started(files)
    assert manager.partitions == []
    assert files.names("/d1") == [fsync_marker.NAME, "__cluster_metadata-0"]
    await manager.stop()


async def test_a_truncation_is_made_durable() -> None:
    files = FakeFiles()
    manager = await started(files)
    log = manager.create(A, TOPIC_ID, TopicConfig(segment_bytes=200))
    append(manager, A, 10)
    await flush_all(manager)
    log.high_watermark = 10
    await manager.housekeeping.checkpoint()
    log.high_watermark = 2
    log.truncate_to(3)
    manager.truncated(log)
    await settle()
    assert checkpoints.read_offsets(files, "/d1/recovery-point-offset-checkpoint") == {A: 2}
    assert not any(name.endswith(".deleted") for name in files.names("/d1/a-0"))
    await manager.stop()


@pytest.mark.req("L4")
@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start", "cleaner"])
@pytest.mark.parametrize(
    "damage", [b"", b"1\n0\n", b"0\n2\na 0 4\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff"]
)
async def test_a_damaged_checkpoint_counts_as_none(name: str, damage: bytes) -> None:
    files = FakeFiles()
    manager = await started(files)
    log = manager.create(A, TOPIC_ID, TopicConfig())
    append(manager, A, 4)
    log.high_watermark = 4
    await flush_all(manager)
    await manager.housekeeping.checkpoint()
    replace_file(files, f"/d1/{name}-offset-checkpoint", damage)
    runtime = FakeRuntime(files)
    manager = LogManager(runtime, ["/d1"], TopicConfig(), never)
    await manager.start()
    found = manager.get(A)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (0, 4)
    assert found.high_watermark == (0 if name == "replication" else 4)
    assert found.recovered.lost_from is None
    told = [event for event in runtime.events if "checkpoint_damaged" in str(event)]
    assert len(told) == (damage != b"")
    await manager.stop()


async def test_a_disk_that_fails_ends_the_node() -> None:
    files, failures = FakeFiles(), list[BaseException]()
    manager = LogManager(FakeRuntime(files), ["/d1"], TopicConfig(), failures.append)
    await manager.start()
    manager.create(A, TOPIC_ID, TopicConfig())
    files.full = True
    await settle()
    assert isinstance(failures[0], OSError)
