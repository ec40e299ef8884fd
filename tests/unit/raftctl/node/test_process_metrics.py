"""What a node's metrics say of its process and event loop changes with the facts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from raftctl.metrics import Metrics, Summary
from raftctl.node._process_metrics import (
    CPU,
    FILES,
    GC,
    GC_COLLECTIONS,
    HANDLERS_IDLE,
    LAG,
    MEMORY,
    NETWORK_IDLE,
    READ,
    RESIDENT,
    ProcessMetrics,
)
from raftctl.runtime.api import Collections, ProcessUsage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metrics import Metric

pytestmark = pytest.mark.req("O1", "N4")


Series = dict[str, dict[tuple[str, ...], float | Summary]]


class Clocked(asyncio.SelectorEventLoop):
    """An event loop whose time a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0

    def time(self) -> float:
        return self.now_s


class Node:
    """A node whose process says what a test has set."""

    def __init__(self, loop: Clocked, idle_s: float | None = 0.0) -> None:
        self.used = ProcessUsage()
        self.idle_s = idle_s
        self.metrics = Metrics()
        self.loop = loop
        self.measured = loop.run_until_complete(self._make())

    async def _make(self) -> ProcessMetrics:
        return ProcessMetrics(lambda: self.used, lambda: self.idle_s, self.metrics)

    def scraped(self) -> Series:
        return {
            family.metric.name: {sample.labels: sample.value for sample in family.samples}
            for family in self.metrics.families()
        }

    def value(self, metric: Metric) -> float | Summary:
        return self.scraped()[metric.name][()]


@pytest.fixture
def loop() -> Iterator[Clocked]:
    made = Clocked()
    yield made
    made.close()


def test_what_the_process_uses_is_scraped_as_it_is_now(loop: Clocked) -> None:
    node = Node(loop)
    assert node.value(RESIDENT) == 0
    node.used = ProcessUsage(
        cpu_s=1.5,
        resident_bytes=7_000,
        open_files=12,
        read_bytes=4_096,
        collections=(Collections(9, 0.25), Collections(1, 0.5)),
    )
    assert [node.value(one) for one in (CPU, RESIDENT, FILES, READ)] == [1.5, 7_000, 12, 4_096]
    series = node.scraped()
    assert series[MEMORY.name] == {("heap",): 7_000}
    assert series[GC.name] == {
        ("generation 0",): Summary(9, 0.25, ()),
        ("generation 1",): Summary(1, 0.5, ()),
    }
    assert series[GC_COLLECTIONS.name] == {("0",): 9, ("1",): 1}


def test_idle_is_the_share_of_time_in_which_the_loop_had_nothing_to_do(loop: Clocked) -> None:
    node = Node(loop)
    assert node.value(NETWORK_IDLE) == 1.0, "no time has passed"
    for _ in range(24):
        node.idle_s = (node.idle_s or 0) + 4
        loop.now_s += 5
        node.metrics.tick()
    assert node.value(NETWORK_IDLE) == node.value(HANDLERS_IDLE) == pytest.approx(0.8)
    for _ in range(6):  # half a minute of work
        loop.now_s += 5
        node.metrics.tick()
    assert node.value(NETWORK_IDLE) == 0.0
    assert node.value(HANDLERS_IDLE) == pytest.approx(0.4)


def test_a_loop_that_nobody_measures_has_no_idle_share(loop: Clocked) -> None:
    series = Node(loop, idle_s=None).scraped()
    assert not {NETWORK_IDLE.name, HANDLERS_IDLE.name} & series.keys()


def test_lag_is_how_late_a_timer_fires(loop: Clocked) -> None:
    node = Node(loop)

    async def late_by(seconds: float) -> None:
        node.measured.start()
        loop.now_s += 1.0 + seconds  # a call that takes long
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        node.measured.stop()

    loop.run_until_complete(late_by(0.2))
    lag = node.value(LAG)
    assert isinstance(lag, Summary)
    assert lag.count == 1
    assert lag.total == pytest.approx(200, rel=0.01)
    assert dict(lag.quantiles)[0.99] == pytest.approx(200, rel=0.125)


def test_what_a_worker_has_read_before_the_scrape_is_not_read_in_it(loop: Clocked) -> None:
    node = Node(loop)
    node.used = ProcessUsage(open_files=3)
    node.measured.look()
    node.used = ProcessUsage(open_files=4)
    assert node.value(FILES) == 3
    node.measured.look()
    assert node.value(FILES) == 4
