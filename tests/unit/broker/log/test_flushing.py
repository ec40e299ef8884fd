"""When a log is flushed: by count, by time, and together for all who wait."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from broker.log import LogManager
from broker.log.settings import LogSettings
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.fake_files import FakeFiles, FakeRuntime
from tests.unit.broker.log.logs import fill

PARTITION = TopicPartition("t", 0)


class World:
    """A manager with one log."""

    def __init__(self, config: TopicConfig) -> None:
        self.files, self.failures = FakeFiles(), list[BaseException]()
        self.manager = LogManager(
            FakeRuntime(self.files),
            ["/d"],
            TopicConfig(),
            self.failures.append,
            LogSettings(),
        )
        self.config = config

    async def start(self) -> None:
        await self.manager.start()
        self.log = self.manager.create(PARTITION, UUID(int=1), self.config)
        # The topic id is written on the same worker.
        for _ in range(5):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.mark.req("L8")
async def test_who_waits_together_shares_a_flush() -> None:
    world = World(TopicConfig())
    await world.start()
    waiting = []
    for _ in range(10):
        fill(world.log, 1)
        waiting.append(world.log.flush_through(world.log.log_end_offset))
    syncs = world.files.syncs
    await asyncio.gather(*waiting)
    assert world.log.recovery_point == 20
    # The first flush began when there was one batch, the second took all the others.
    assert 0 < world.files.syncs - syncs <= 4
    again = world.log.flush_through(20)
    assert again.done()
    await world.manager.stop()


@pytest.mark.req("L8")
async def test_what_flush_through_answers_survives_a_crash() -> None:
    world = World(TopicConfig(segment_bytes=1_000))
    await world.start()
    fill(world.log, 30)
    await world.log.flush_through(world.log.log_end_offset)
    fill(world.log, 5)
    world.files.crash_by(FakeRuntime().random)
    after = World(TopicConfig())
    after.manager = LogManager(
        FakeRuntime(world.files), ["/d"], TopicConfig(), after.failures.append
    )
    await after.manager.start()
    found = after.manager.get(PARTITION)
    assert found is not None
    assert found.log_end_offset >= 60
    await after.manager.stop()


@pytest.mark.req("L8")
async def test_a_disk_that_refuses_tells_those_who_wait_and_goes_offline() -> None:
    world = World(TopicConfig())
    await world.start()
    fill(world.log, 1)
    world.files.broken = True
    waiting = [world.log.flush_through(2) for _ in range(3)]
    for future in waiting:
        with pytest.raises(KafkaError) as raised:
            await future
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.manager.offline_directories == ["/d"]
    assert isinstance(world.failures[0], OSError)
    await world.manager.stop()


@pytest.mark.req("L8")
async def test_a_truncation_answers_who_waited_for_what_is_gone() -> None:
    world = World(TopicConfig())
    await world.start()
    fill(world.log, 5)
    gone, kept = world.log.flush_through(10), world.log.flush_through(4)
    world.log.truncate_to(4)
    fill(world.log, 1)
    await asyncio.gather(gone, kept)
    assert world.log.recovery_point == world.log.log_end_offset == 6
    await world.manager.stop()


@pytest.mark.req("L8")
async def test_a_log_is_flushed_after_so_many_records() -> None:
    world = World(TopicConfig(flush_messages=6))
    await world.start()
    fill(world.log, 2)
    await world.settle()
    assert world.log.recovery_point == 0
    fill(world.log, 1)
    await world.settle()
    assert world.log.recovery_point == 6
    await world.manager.stop()


@pytest.mark.req("L8")
async def test_a_log_is_flushed_after_its_time() -> None:
    world = World(TopicConfig(flush_ms=0))
    await world.start()
    fill(world.log, 2)
    await world.manager.housekeeping.flush_due()
    assert world.log.recovery_point == 4
    world.log.config = TopicConfig(flush_ms=60_000)
    fill(world.log, 2)
    for _ in range(2):
        await world.manager.housekeeping.flush_due()
    assert world.log.recovery_point == 4
    world.log.config = TopicConfig()
    await world.manager.housekeeping.flush_due()
    assert world.log.recovery_point == 4
    await world.manager.stop()
