"""A log moves to another directory while it is served, and a crash at any step loses nothing."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.log import LogManager
from broker.log.directories import _future_log, recover_moves
from broker.log.directories._future_log import COMPLETE
from broker.log.segments import Segment
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.fake_files import FakeFiles, FakeRuntime
from tests.unit.broker.log.logs import fill, headers, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.log.partition_log import PartitionLog

pytestmark = pytest.mark.req("C14")

P0, P1 = (TopicPartition("t", number) for number in range(2))
CONFIG = TopicConfig(segment_bytes=1_000, index_interval_bytes=150)


class World:
    """Two directories; partition 0 has a log in the first."""

    def __init__(self, files: FakeFiles | None = None) -> None:
        self.files = files or FakeFiles()
        self.failures: list[BaseException] = []
        runtime = FakeRuntime(self.files)
        self.manager = LogManager(runtime, ["/d1", "/d2"], CONFIG, self.failures.append)

    async def start(self, batches: int = 30) -> PartitionLog:
        await self.manager.start()
        log = self.manager.create(P0, UUID(int=1), CONFIG)
        fill(log, batches)
        log.high_watermark = log.log_end_offset
        for _ in range(10):
            await asyncio.sleep(0)
        await self.manager.housekeeping.flush_due()
        return log

    @property
    def log(self) -> PartitionLog:
        found = self.manager.get(P0)
        assert found is not None
        return found

    def copies(self) -> list[str]:
        return [
            name for path in ("/d1", "/d2") for name in self.files.names(path) if "t-0." in name
        ]

    async def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(2_000):
            if is_so():
                return
            await asyncio.sleep(0.0005)
        pytest.fail("it does not become so")

    async def move(self) -> None:
        """To the second directory, and until nothing of it is left to do."""
        self.manager.move(P0, "/d2")
        await self.until(lambda: self.manager.directory_of(P0) == "/d2")
        await self.until(lambda: not self.files.exists(f"/d2/t-0/{COMPLETE}"))


async def test_it_moves_with_all_that_it_has() -> None:
    world = World()
    old = await world.start()
    old.advance_log_start(7)
    old.epochs.assign(9, old.log_end_offset)
    expected = read(old, 7)
    await world.move()
    log = world.log
    assert log is not old
    assert read(log, 7) == expected
    assert (log.log_start_offset, log.high_watermark) == (7, old.high_watermark)
    assert log.epochs.latest == 9
    assert log.topic_id == UUID(int=1)
    assert world.files.names("/d1").count("t-0") == 0
    fill(log, 40, epoch=9)
    await world.manager.stop()
    again = World(world.files)
    await again.manager.start()
    assert again.manager.directory_of(P0) == "/d2"
    assert read(again.log, 7)[: len(expected)] == expected
    assert again.log.log_end_offset == log.log_end_offset
    assert again.log.recovered.bytes_cut == 0
    assert not any(name.endswith((".deleted", "-future")) for name in world.files.files)
    await again.manager.stop()


async def test_what_is_written_meanwhile_is_there() -> None:
    world = World()
    old = await world.start(300)
    world.manager.move(P0, "/d2")
    while world.log is old:
        fill(old, 1)
        await asyncio.sleep(0.0005)
    fill(world.log, 1)
    assert read(world.log, 0) == sorted(read(world.log, 0))
    assert world.log.log_end_offset == read(world.log, 0)[-1] + 2
    assert world.log.size > old.size
    await world.manager.stop()


async def test_a_copy_is_told_and_ends_when_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_future_log, "LAST_BYTES", -1)
    world = World()
    await world.start()
    world.manager.move(P0, "/d2")
    first, second = await world.manager.describe()
    assert [one.is_future for one in first.logs] == [False]
    (grown,) = second.logs
    assert (grown.partition, grown.is_future) == (P0, True)
    assert grown.offset_lag <= world.log.log_end_offset
    world.manager.move(P0, "/d2")
    world.manager.move(P0, "/d1")
    await world.until(lambda: not world.copies())
    assert world.manager.directory_of(P0) == "/d1"
    world.manager.move(P0, "/d2")
    world.manager.delete(P0)
    await world.until(lambda: not world.copies())
    assert world.failures == []
    await world.manager.stop()


async def test_a_truncation_has_the_copy_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_future_log, "_PIECE_BYTES", 200)
    monkeypatch.setattr(_future_log, "LAST_BYTES", 200)
    world = World()
    old = await world.start(200)
    world.manager.move(P0, "/d2")
    await asyncio.sleep(0.002)
    assert world.log is old
    old.truncate_to(10)
    world.manager.truncated(old)
    fill(old, 30, epoch=3, size=60)
    await world.until(lambda: world.log is not old)
    assert read(world.log, 0) == [n * 2 for n in range(len(read(world.log, 0)))]
    assert world.log.end_offset_for_epoch(0).end_offset == 10
    assert [one.leader_epoch for one in headers(world.log)].count(3) == 30
    await world.manager.stop()


@pytest.mark.parametrize(
    ("partition", "path", "code"),
    [
        (P0, "/elsewhere", ErrorCode.LOG_DIR_NOT_FOUND),
        (P1, "/d2", ErrorCode.REPLICA_NOT_AVAILABLE),
    ],
)
async def test_what_cannot_be(partition: TopicPartition, path: str, code: ErrorCode) -> None:
    world = World()
    await world.start()
    with pytest.raises(KafkaError) as raised:
        world.manager.move(partition, path)
    assert raised.value.code is code
    await world.manager.stop()


async def test_a_name_that_leaves_a_copy_none_harms_no_directory() -> None:
    world = World()
    await world.start()
    longest = TopicPartition("t" * 249, 0)
    log = world.manager.create(longest, UUID(int=2), CONFIG)
    here = world.manager.directory_of(longest)
    with pytest.raises(KafkaError) as raised:
        world.manager.move(longest, "/d2" if here == "/d1" else "/d1")
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (world.manager.get(longest), world.manager.offline_directories) == (log, [])
    await world.manager.stop()


async def test_a_log_that_is_not_here_yet_is_made_where_it_is_wanted() -> None:
    world = World()
    await world.manager.start()
    for path in ("/d1", "/d2"):
        with pytest.raises(KafkaError):
            world.manager.move(P0, path)
    world.manager.create(P0, UUID(int=1), CONFIG)
    assert world.manager.directory_of(P0) == "/d2"
    await world.manager.stop()


async def test_a_directory_that_fails_ends_the_move() -> None:
    world = World()
    old = await world.start(100)
    world.manager.move(P0, "/d2")
    world.files.broken_under = "/d2"
    await world.until(lambda: world.manager.offline_directories == ["/d2"])
    assert world.log is old
    fill(old, 1)
    with pytest.raises(KafkaError) as raised:
        world.manager.move(P0, "/d2")
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await world.manager.stop()


async def test_a_log_that_is_deleted_while_it_is_read_harms_no_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_future_log, "LAST_BYTES", -1)
    world = World()
    await world.start()

    def deleted() -> None:
        world.manager.delete(P0)
        raise FileNotFoundError("/d1/t-0")

    monkeypatch.setattr(Segment, "warm", lambda _segment, _offset, _size: deleted)
    world.manager.move(P0, "/d2")
    await world.until(lambda: world.manager.get(P0) is None and not world.copies())
    assert world.manager.offline_directories == []
    await world.manager.stop()


class WatchedFiles(FakeFiles):
    """Keeps what is on the disks before each change of names."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[FakeFiles] | None = None

    def keep(self) -> None:
        if self.kept is not None:
            self.kept.append(self.copy_to(FakeFiles()))

    def rename(self, source: str, target: str) -> None:
        self.keep()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.keep()
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.keep()
        super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self.keep()
        super().sync_directory(path)


@pytest.mark.parametrize("power", [False, True])
async def test_a_crash_at_any_step_leaves_one_whole_log(power: bool) -> None:
    files = WatchedFiles()
    world = World(files)
    old = await world.start(30)
    await old.flush_through(old.log_end_offset)
    expected = read(old, 0)
    files.kept = []
    await world.move()
    states, files.kept = files.kept, None
    await world.manager.stop()
    homes = []
    for number, state in enumerate(states):
        if power:
            state.crash_by(random.Random(number))
        after = World(state)
        await after.manager.start()
        assert read(after.log, 0) == expected
        assert after.log.topic_id == UUID(int=1)
        homes.append(after.manager.directory_of(P0))
        if homes[-1] != homes[0]:
            assert "t-0" not in state.names("/d1")
        assert not any("-future" in name for name in after.copies())
        await after.manager.stop()
    # Which of the unsynced names a loss of power leaves is another draw for each state.
    assert power or homes == sorted(homes, key=str), "it does not go back"
    assert (homes[0], homes[-1]) == ("/d1", "/d2")


COPY = f"t-0.{UUID(int=3).hex}-future"


@pytest.mark.parametrize(
    ("found", "left"),
    [
        pytest.param({"/d1/t-0": False, f"/d2/{COPY}": True}, ["/d1/t-0"], id="log and copy"),
        pytest.param({f"/d2/{COPY}": True}, ["/d2/t-0"], id="only the copy has its name"),
        pytest.param({f"/d2/{COPY}": False}, [], id="a copy that was not complete"),
        pytest.param({"/d1/t-0": False, "/d2/t-0": True}, ["/d2/t-0"], id="the log's is left too"),
        pytest.param({"/d1/t-0": True, "/d2/t-0": False}, ["/d1/t-0"], id="moved back"),
        pytest.param({"/d1/t-0": False, "/d2/t-0": False}, ["/d1/t-0", "/d2/t-0"], id="not ours"),
    ],
)
def test_renames_that_did_not_reach_their_disks(found: dict[str, bool], left: list[str]) -> None:
    files = FakeFiles()
    for path, is_complete in found.items():
        files.make_directories(path)
        name = COMPLETE if is_complete else "other"
        files.open(f"{path}/{name}", create=True)
    recover_moves(files, ["/d1", "/d2", "/d3"])
    here = [f"{path}/{name}" for path in ("/d1", "/d2") for name in files.names(path)]
    assert here == left
