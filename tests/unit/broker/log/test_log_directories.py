"""One of several log directories fails: its logs stop, the others go on (row C14's broker side)."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.log import LogListener, LogManager
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.fake_files import FakeFile, FakeFiles, FakeRuntime
from tests.unit.broker.log.logs import fill, read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from broker.log.partition_log import PartitionLog
    from raftctl.runtime.api import Buffer

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))
CONFIG = TopicConfig(segment_bytes=1_000, retention_ms=1)


class Failures(LogListener):
    """The directories that failed, and the partitions in each."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, Sequence[TopicPartition]]] = []

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.reported]

    def directory_failed(self, path: str, partitions: Sequence[TopicPartition]) -> None:
        self.reported.append((path, partitions))


class World:
    """Two directories, a log in each, and what the manager reports."""

    def __init__(self) -> None:
        self.files = FakeFiles()
        self.failures: list[BaseException] = []
        self.listener = Failures()
        runtime = FakeRuntime(self.files)
        self.manager = LogManager(runtime, ["/d1", "/d2"], CONFIG, self.failures.append)

    async def start(self) -> tuple[PartitionLog, PartitionLog]:
        await self.manager.start(self.listener)
        logs = [self.manager.create(key, UUID(int=1), CONFIG) for key in (FIRST, SECOND)]
        for log in logs:
            fill(log, 30)
            log.high_watermark = log.log_end_offset
        await self.settle()
        return logs[0], logs[1]

    @staticmethod
    async def settle() -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def refused(use: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as raised:
        use()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def appends(world: World, log: PartitionLog) -> None:
    refused(lambda: fill(log, 1))


async def reads(world: World, log: PartitionLog) -> None:
    refused(lambda: read(log, 0))


async def searches(world: World, log: PartitionLog) -> None:
    refused(lambda: log.first_at_or_after(5))


async def truncates(world: World, log: PartitionLog) -> None:
    refused(lambda: log.truncate_to(3))


async def restarts(world: World, log: PartitionLog) -> None:
    refused(lambda: log.restart_at(1_000))


async def flushes(world: World, log: PartitionLog) -> None:
    with pytest.raises(KafkaError):
        await log.flush_through(log.log_end_offset)


async def checkpoints(world: World, log: PartitionLog) -> None:
    await world.manager.housekeeping.checkpoint()


async def retains(world: World, log: PartitionLog) -> None:
    await world.manager.housekeeping.retain()


async def deletes(world: World, log: PartitionLog) -> None:
    world.manager.delete(log.partition)
    for _ in range(5):
        await asyncio.sleep(0)


USES = [appends, reads, searches, truncates, restarts, flushes, checkpoints, retains, deletes]


@pytest.mark.req("C14", "L1")
@pytest.mark.parametrize("use", USES, ids=[use.__name__ for use in USES])
async def test_whoever_finds_out_the_directory_goes_offline_alone(
    use: Callable[[World, PartitionLog], Awaitable[object]],
) -> None:
    world = World()
    broken, whole = await world.start()
    world.files.broken_under = "/d1"
    await use(world, broken)
    assert world.manager.offline_directories == ["/d1"]
    gone = [] if use is deletes else [FIRST]
    assert world.listener.reported == [("/d1", gone)]
    assert world.failures == []
    if use is not deletes:
        for again in (lambda: fill(broken, 1), lambda: read(broken, 0), broken.newest):
            refused(again)
        # It is still known: nothing may be made anew in its place.
        assert world.manager.get(FIRST) is broken
    fill(whole, 1)
    assert read(whole, 60)[-1] == 60
    await whole.flush_through(whole.log_end_offset)
    created = world.manager.create(THIRD, UUID(int=1), CONFIG)
    assert created.directory == "/d2/t-2"
    await world.manager.housekeeping.checkpoint()
    await world.manager.stop()
    assert ".kafka_cleanshutdown" in world.files.names("/d2")
    assert ".kafka_cleanshutdown" not in world.files.names("/d1")
    assert len(world.listener.reported) == 1


@pytest.mark.req("C14")
async def test_a_new_log_goes_where_it_is_taken() -> None:
    world = World()
    await world.start()
    world.files.broken_under = "/d1"
    created = world.manager.create(THIRD, UUID(int=1), CONFIG)
    assert created.directory == "/d2/t-2"
    assert world.listener.reported == [("/d1", [FIRST])]
    await world.manager.stop()


@pytest.mark.req("C14")
async def test_without_any_directory_the_node_ends() -> None:
    world = World()
    first, second = await world.start()
    world.files.broken_under = "/"
    for log in (first, second):
        with pytest.raises(KafkaError):
            fill(log, 1)
    assert isinstance(world.failures[0], OSError)
    refused(lambda: world.manager.create(THIRD, UUID(int=1), CONFIG))
    await world.manager.stop()


@pytest.mark.req("C14")
async def test_a_directory_that_cannot_be_read_at_the_start_is_offline_alone() -> None:
    world = World()
    first, _ = await world.start()
    home = first.directory.rpartition("/")[0]
    await world.manager.stop(broker_epoch=7)
    failures, listener = list[BaseException](), Failures()
    world.files.broken_under = f"{home}/t-0"
    manager = LogManager(FakeRuntime(world.files), ["/d1", "/d2"], CONFIG, failures.append)
    await manager.start(listener)
    assert (manager.offline_directories, listener.paths, failures) == ([home], [home], [])
    assert manager.partitions == [SECOND], "the others are served"
    assert manager.clean_epoch == -1, "what the directory held is not here"
    await manager.stop(broker_epoch=8)
    world.files.broken_under = "/d"
    manager = LogManager(FakeRuntime(world.files), ["/d1", "/d2"], CONFIG, failures.append)
    with pytest.raises(OSError, match="/d"):
        await manager.start()


async def test_a_directory_that_is_full_at_the_start_is_offline_alone() -> None:
    world = World()
    await world.start()
    failures, listener = list[BaseException](), Failures()
    manager = LogManager(FakeRuntime(world.files), ["/d1", "/d2"], CONFIG, failures.append)
    write = FakeFile.append

    def refuse(file: FakeFile, buffers: Sequence[Buffer]) -> None:
        if file.path.startswith("/d1/"):
            raise OSError(errno.ENOSPC, "No space left on device", file.path)
        write(file, buffers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeFile, "append", refuse)
        world.files.remove("/d1/t-0/00000000000000000000.timeindex")
        await manager.start(listener)
    assert (manager.offline_directories, listener.paths, failures) == (["/d1"], ["/d1"], [])
    await manager.stop()


@pytest.mark.parametrize("topic", ["__cluster_metadata", "t"])
async def test_no_log_is_made_in_a_directory_that_is_not_its_own(topic: str) -> None:
    files = FakeFiles()
    manager = LogManager(FakeRuntime(files), ["/d1"], CONFIG, lambda _error: None)
    await manager.start()
    foreign = TopicPartition(topic, 0)
    if topic == "t":
        files.make_directories("/d1/t-0")
        files.open("/d1/t-0/00000000000000000000.log", create=True).append([b"not a log of ours"])
    with pytest.raises(KafkaError, match=f"/d1/{topic}-0 is no directory of this broker's logs"):
        manager.create(foreign, UUID(int=1), CONFIG)
    assert manager.offline_directories == []
    if topic == "t":
        kept = files.file("/d1/t-0/00000000000000000000.log").seen
        assert bytes(kept) == b"not a log of ours"
    manager.delete(foreign)
    await manager.stop()
    assert files.is_directory("/d1/t-0") is (topic == "t")


async def written(
    files: FakeFiles, directory: str, topic_id: int, epoch: int, records: int
) -> None:
    """A log of FIRST in this directory, as a life left it in which the other one was offline."""
    manager = LogManager(FakeRuntime(files), [directory], CONFIG, raise_it)
    await manager.start()
    log = manager.create(FIRST, UUID(int=topic_id), CONFIG)
    fill(log, records, epoch=epoch)
    await manager.stop()


def raise_it(error: BaseException) -> None:
    raise error


@pytest.mark.req("C14", "L1")
@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ((1, 3, 5), (1, 4, 2), "/d2"),
        ((1, 4, 5), (1, 4, 2), "/d1"),
        ((1, 4, 2), (1, 4, 5), "/d2"),
        ((1, 4, 2), (1, 3, 5), "/d1"),
        ((9, 4, 5), (1, 3, 2), "/d2"),
        ((1, 0, 0), (9, 3, 2), "/d1"),
    ],
    ids=["later epoch", "longer", "longer second", "earlier epoch", "old topic", "empty"],
)
async def test_of_two_logs_the_one_with_all_that_was_committed_is_kept(
    first: tuple[int, int, int], second: tuple[int, int, int], kept: str
) -> None:
    """A replica went and came back while a directory was offline, and made itself a new log."""
    files = FakeFiles()
    await written(files, "/d1", *first)
    await written(files, "/d2", *second)
    manager = LogManager(FakeRuntime(files), ["/d1", "/d2"], CONFIG, raise_it)
    await manager.start()
    (gone,) = manager.keep_one(lambda _: UUID(int=1))
    assert {gone, f"{kept}/{FIRST}"} == {f"/d1/{FIRST}", f"/d2/{FIRST}"}
    assert manager.directory_of(FIRST) == kept
    log = manager.get(FIRST)
    assert log is not None
    assert log.directory == f"{kept}/{FIRST}"
    assert log.log_end_offset == 2 * (first if kept == "/d1" else second)[2]
    assert manager.keep_one(lambda _: UUID(int=1)) == []
    fill(log, 1, epoch=5)
    await manager.stop()
    names = files.names(gone.rpartition("/")[0])
    assert any(name.startswith(f"{FIRST}.") and name.endswith("-stray") for name in names)
    again = LogManager(FakeRuntime(files), ["/d1", "/d2"], CONFIG, raise_it)
    await again.start()
    assert again.directory_of(FIRST) == kept
    assert again.keep_one(lambda _: None) == []
    await again.stop()
