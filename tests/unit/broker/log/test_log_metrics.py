"""Metrics of log directories: each changes when its fact does (row O1)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.log import LogManager, LogMetrics
from broker.log import _log_metrics as names
from broker.types import TopicPartition
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.metrics import Metrics
from raftctl.metrics._definition import Summary
from tests.unit.broker.log.batches import keyed_batch, make_batch
from tests.unit.broker.log.fake_files import FakeFiles, FakeRuntime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from raftctl.metrics import Metric

pytestmark = pytest.mark.req("O1")
ONE = TopicPartition("t", 0)
COMPACTED = TopicConfig(
    cleanup_policy=("compact",), segment_bytes=14 << 10, min_cleanable_dirty_ratio=0.01
)


class Scraped:
    """A broker's log directories, and their metrics."""

    def __init__(self) -> None:
        self.files = FakeFiles()
        self.runtime = FakeRuntime(self.files)
        self.logs = LogManager(self.runtime, ["/d1", "/d2"], TopicConfig(), lambda _error: None)
        self.metrics = Metrics()
        LogMetrics(self.logs, self.files, self.metrics)

    def series(self, metric: Metric) -> dict[tuple[str, ...], float | Summary]:
        """Labels to value."""
        (found,) = (family for family in self.metrics.families() if family.metric is metric)
        return dict(found.samples)


@pytest.fixture
async def scraped() -> AsyncIterator[Scraped]:
    world = Scraped()
    await world.logs.start()
    yield world
    await world.logs.stop()


@pytest.mark.req("N4")
async def test_each_flush_is_counted_with_its_time(scraped: Scraped) -> None:
    log = scraped.logs.create(ONE, UUID(int=1), TopicConfig())
    before = scraped.series(names.FLUSH_TIMES)[()]
    assert isinstance(before, Summary)
    log.append_as_leader(make_batch([b"v"]), 0, 0)
    await log.flush_through(1)
    await log.flush_through(1)
    after = scraped.series(names.FLUSH_TIMES)[()]
    assert isinstance(after, Summary)
    assert after.count == before.count + 1
    assert after.total > before.total
    scraped.metrics.tick()
    assert scraped.series(names.FLUSH_RATES)[("1",)] == after.count / 5
    log.append_as_leader(make_batch([b"v"]), 0, 0)
    await scraped.logs.directories[0].flush(log, rolled_only=False)
    last = scraped.series(names.FLUSH_TIMES)[()]
    assert isinstance(last, Summary)
    assert last.count == after.count + 1


async def test_a_directory_that_fails_is_offline(scraped: Scraped) -> None:
    assert scraped.series(names.OFFLINE_DIRECTORIES) == {(): 0}
    assert scraped.series(names.OFFLINE) == {("/d1",): 0, ("/d2",): 0}
    scraped.logs.directories[1].fail(OSError("gone"))
    assert scraped.series(names.OFFLINE_DIRECTORIES) == {(): 1}
    assert scraped.series(names.OFFLINE) == {("/d1",): 0, ("/d2",): 1}


async def test_space_is_what_the_disk_said_last(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scraped.series(names.AVAILABLE) == {}
    space = {"/d1": (100, 40), "/d2": (200, 50)}
    monkeypatch.setattr(scraped.files, "space", lambda path: space[path])
    scraped.metrics.tick()
    await asyncio.sleep(0.01)
    assert scraped.series(names.AVAILABLE) == {("/d1",): 40, ("/d2",): 50}
    assert scraped.series(names.CAPACITY) == {("/d1",): 100, ("/d2",): 200}
    space.pop("/d1")

    def refuse(path: str) -> tuple[int, int]:
        raise OSError(path)

    monkeypatch.setattr(scraped.files, "space", refuse)
    scraped.logs.directories[1].fail(OSError("gone"))
    scraped.metrics.tick()
    await asyncio.sleep(0.01)
    # A disk that does not answer keeps its last answer, one that has failed has none.
    assert scraped.series(names.AVAILABLE) == {("/d1",): 40}
    assert scraped.logs.offline_directories == ["/d2"]


async def test_a_compaction_says_how_long_it_took_and_what_it_left(scraped: Scraped) -> None:
    assert scraped.series(names.SINCE_LAST_CLEANING) == {(): 0}
    log = scraped.logs.create(ONE, UUID(int=1), COMPACTED)
    for _ in range(100):
        log.append_as_leader(keyed_batch([(b"k", b"v" * 500)]), 0, 0)
    log.high_watermark = log.log_end_offset
    before = log.size
    await scraped.logs.housekeeping.cleaner.clean()
    assert log.size < before
    assert scraped.series(names.RECOPIED) == {(): pytest.approx(100 * log.size / before)}
    taken = scraped.series(names.CLEAN_TIME)[()]
    assert isinstance(taken, float)
    assert taken > 0
    await asyncio.sleep(0.01)
    since = scraped.series(names.SINCE_LAST_CLEANING)[()]
    assert isinstance(since, float)
    assert since >= 10
    assert scraped.series(names.DIRTIEST) == {(): 0}


async def test_a_log_that_cannot_be_compacted_is_counted_and_stays_dirty(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = scraped.logs.create(ONE, UUID(int=1), COMPACTED)
    for _ in range(100):
        log.append_as_leader(keyed_batch([(b"k", b"v" * 500)]), 0, 0)
    log.high_watermark = log.log_end_offset
    cleaner = scraped.logs.housekeeping.cleaner
    cleaner._refused[log] = log.segment_facts()[-1].base_offset
    await cleaner.clean()
    (home,) = (d.path for d in scraped.logs.directories if ONE in d.logs)
    assert scraped.series(names.UNCLEANABLE)[(home,)] == 1
    assert scraped.series(names.DIRTIEST) == {(): 100}
    scraped.logs.delete(ONE)
    assert scraped.series(names.UNCLEANABLE)[(home,)] == 0
