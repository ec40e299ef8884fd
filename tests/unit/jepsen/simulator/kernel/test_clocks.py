"""Clocks of nodes: other rates, machines that are suspended, and event loops that are held up."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import TYPE_CHECKING

import pytest

from jepsen.nemesis.plan import Fault
from jepsen.simulator.faults import PlannedNemesis
from jepsen.simulator.kernel._loop import WorldStuck
from jepsen.simulator.kernel.process import NodeClock
from jepsen.simulator.world import World, stream
from jepsen.simulator.world._runtime import SimWorker
from raftctl.runtime.lease_clock import lease_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jepsen.simulator.world import SimRuntime

pytestmark = pytest.mark.req("J1")

SYNC_S = 0.5


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as made:
        yield made


class Ticker:
    """A program that notes, at each tick, the world's time and what its own clocks show."""

    def __init__(self, world: World, tick_s: float = 0.1) -> None:
        self.world = world
        self.tick_s = tick_s
        self.ticks: list[tuple[float, float, float]] = []

    async def main(self, runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self.ticks.append((self.world.loop.now_s, loop.time(), lease_time(loop)))
            await asyncio.sleep(self.tick_s)

    def lasted(self) -> tuple[float, float, float]:
        """From the first tick to the last, by the world and by both clocks."""
        first, last = self.ticks[0], self.ticks[-1]
        return last[0] - first[0], last[1] - first[1], last[2] - first[2]


@pytest.mark.parametrize("rate", [0.8, 1.0, 1.25])
def test_a_clock_goes_at_its_rate_and_timers_by_it(world: World, rate: float) -> None:
    ticker, other = Ticker(world), Ticker(world)
    world.start("node", ticker.main)
    world.start("other", other.main)
    world.set_clock_rate("node", rate)
    world.run(10.05)
    by_world, by_clock, for_leases = ticker.lasted()
    assert by_clock == pytest.approx(rate * by_world)
    assert for_leases == pytest.approx(by_clock)
    assert len(ticker.ticks) == pytest.approx(100 * rate, abs=2)
    assert other.lasted()[:2] == pytest.approx((10.0, 10.0), abs=0.2)


def test_a_rate_that_changes_moves_the_timers_that_are_set(world: World) -> None:
    woken: list[float] = []

    async def sleeper(runtime: SimRuntime) -> None:
        await asyncio.sleep(10)
        woken.append(world.elapsed_s)

    world.start("node", sleeper)
    world.run(5.0)
    world.set_clock_rate("node", 1.25)
    world.run(10.0)
    assert woken == [pytest.approx(9.0)]


def test_no_timer_comes_before_its_time_whatever_the_rate() -> None:
    source = stream(1, "rates")
    for _ in range(2_000):
        clock = NodeClock()
        now_s = 1_000.0
        for _ in range(3):
            now_s += source.uniform(0, 10)
            clock.set_rate(now_s, source.uniform(0.5, 2))
        when_s = clock.monotonic_s(now_s) + source.uniform(0, 1e-9)
        assert clock.monotonic_s(clock.world_s(when_s)) >= when_s
        assert clock.world_s(when_s) == pytest.approx(now_s)


def test_a_suspended_machine_does_nothing_and_only_the_clock_of_leases_leaps(world: World) -> None:
    ticker = Ticker(world)
    world.start("node", ticker.main)
    world.run(1.05)
    ticks = len(ticker.ticks)
    world.suspend("node")
    world.run(30.0)
    assert len(ticker.ticks) == ticks
    world.wake("node")
    world.run(1.0)
    by_world, by_clock, for_leases = ticker.lasted()
    assert by_clock == pytest.approx(2.0, abs=0.1)
    assert for_leases == pytest.approx(by_world) == pytest.approx(by_clock + 30)
    # No tick is made up for, unlike after a pause.
    assert len(ticker.ticks) == pytest.approx(ticks + 10, abs=1)


def test_a_clock_whose_rate_changes_in_suspension_goes_on_from_where_it_stood() -> None:
    clock = NodeClock()
    clock.suspend(100.0)
    clock.set_rate(110.0, 2.0)
    assert (clock.monotonic_s(115.0), clock.boottime_s(115.0)) == (100.0, 120.0)
    assert math.isinf(clock.world_s(100.0))
    clock.wake(115.0)
    assert (clock.monotonic_s(120.0), clock.boottime_s(120.0)) == (110.0, 130.0)


def test_what_is_sent_to_a_suspended_machine_arrives_when_it_wakes(world: World) -> None:
    received: list[tuple[float, bytes]] = []

    async def serve(runtime: SimRuntime) -> None:
        async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            data = await reader.read(100)
            received.append((world.elapsed_s, data))

        await asyncio.start_server(read, "server", 80)
        await asyncio.sleep(100)

    async def send(runtime: SimRuntime) -> None:
        _, writer = await asyncio.open_connection("server", 80)
        await asyncio.sleep(2)
        writer.write(b"late")
        await asyncio.sleep(100)

    world.start("server", serve)
    world.start("client", send)
    world.run(1.0)
    world.suspend("server")
    world.run(9.0)
    assert not received
    world.wake("server")
    world.run(1.0)
    ((at_s, data),) = received
    assert data == b"late"
    assert 10.0 <= at_s < 10.5


def test_a_suspended_machine_that_is_restarted_has_clocks_that_go(world: World) -> None:
    ticker = Ticker(world)
    process = world.start("node", ticker.main)
    world.run(1.0)
    world.suspend("node")
    world.resume("node")
    assert not process.running
    world.kill("node")
    ticker.ticks.clear()
    world.start("node", ticker.main)
    world.run(1.0)
    assert len(ticker.ticks) == pytest.approx(10, abs=1)


def test_a_world_in_which_everything_is_suspended_is_stuck(world: World) -> None:
    world.start("node", Ticker(world).main)
    world.run(1.0)

    async def scenario() -> None:
        world.suspend("node")
        await world.loop.create_future()

    with pytest.raises(WorldStuck, match="suspended"):
        world.run(scenario())


class Reading(asyncio.Protocol):
    """Tells when it reads something."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def data_received(self, data: bytes) -> None:
        self._note("network")


class Worked:
    """A program with a timer, a connection and a worker's call, all due while it is held up."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: list[str] = []
        self.called_s: list[float] = []
        self.seen_s: list[float] = []

    def note(self, what: str) -> None:
        self.seen.append(what)
        self.seen_s.append(self.world.elapsed_s)

    async def main(self, runtime: SimRuntime) -> None:
        loop = self.world.loop
        worker = SimWorker(loop, self.world.node("node").disk, stream(1, "worker"))

        def call() -> None:
            self.called_s.append(self.world.elapsed_s)

        await loop.create_server(lambda: Reading(self.note), "node", 80)
        await asyncio.sleep(1.0)
        loop.call_later(0.5, self.note, "timer")
        for _ in range(3):
            worker.submit(call).add_done_callback(lambda _: self.note("thread"))
        await asyncio.sleep(100)

    async def send(self, runtime: SimRuntime) -> None:
        _, writer = await asyncio.open_connection("node", 80)
        await asyncio.sleep(1.7)
        writer.write(b"x")
        await asyncio.sleep(100)


def test_a_stalled_loop_handles_all_at_once_and_timers_last(world: World) -> None:
    worked = Worked(world)
    world.start("node", worked.main)
    world.start("client", worked.send)
    world.run(1.0)
    world.stall("node", 2.0)
    world.run(1.9)
    assert not worked.seen
    assert len(worked.called_s) == 3
    assert max(worked.called_s) < 1.1
    world.run(1.0)
    # What waits for a thread's result runs in the turn after it is handed over.
    assert worked.seen == ["network", "timer", "thread", "thread", "thread"]
    assert worked.seen_s == pytest.approx([3.0] * 5)


def test_a_paused_process_has_no_thread_that_goes_on(world: World) -> None:
    worked = Worked(world)
    world.start("node", worked.main)
    world.run(1.0)
    world.pause("node")
    world.run(1.0)
    assert not worked.called_s
    world.resume("node")
    world.run(1.0)
    assert min(worked.called_s) == pytest.approx(2.0)


def test_a_stall_ends_early_with_its_fault_and_a_later_one_is_not_cut_short(world: World) -> None:
    ticker = Ticker(world)
    process = world.start("node", ticker.main)
    world.run(1.0)
    world.stall("node", 2.0)
    world.run(0.5)
    world.unstall("node")
    assert process.running
    world.stall("node", 2.0)
    world.run(1.7)
    assert not process.running
    world.run(0.5)
    assert process.running


def test_who_is_killed_in_a_stall_stays_dead(world: World) -> None:
    ticker = Ticker(world)
    world.start("node", ticker.main)
    world.run(1.0)
    world.stall("node", 1.0)
    world.kill("node")
    ticks = len(ticker.ticks)
    world.run(3.0)
    assert len(ticker.ticks) == ticks


def test_the_nemesis_stalls_again_and_again_and_wakes_whom_it_suspended(world: World) -> None:
    ticker = Ticker(world, 0.01)

    async def story() -> None:
        world.start("node", ticker.main)
        nemesis = PlannedNemesis(
            world,
            ["node"],
            start=lambda name: None,
            power_off=world.power_off,
            guard=lambda fault: True,
        )
        faults = (
            Fault("stall", 1_000, 1_000, ("node",), 100.0),
            Fault("suspend", 3_000, 1_000, ("node",)),
            Fault("clock_rate", 5_000, 1_000, ("node",), 1.05),
        )
        await nemesis.run(faults)

    world.run(story())
    times = [tick[0] - 1_000 for tick in ticker.ticks]
    gaps = [b - a for a, b in itertools.pairwise(times) if b - a > 0.05]
    assert gaps == [pytest.approx(0.1, abs=0.02)] * 5 + [pytest.approx(1.0, abs=0.02)]
    assert ticker.lasted()[1] == pytest.approx(6.0 - 1.0 + 0.05, abs=0.02)
