"""Disks whose calls are slow, or hang until the disk is well, in threads and on the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.nemesis.plan import Fault
from jepsen.simulator.faults import PlannedNemesis
from jepsen.simulator.world import World, stream
from jepsen.simulator.world._runtime import SimWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.simulator.world import SimRuntime

pytestmark = pytest.mark.req("J1", "Q12")

PATH = "/file"
PACE_S = 0.05


class Program:
    """A node that writes a byte at its pace, and whose event loop has a timer of its own."""

    def __init__(self, world: World, where: str, operation: str = "write") -> None:
        self.world = world
        self.where = where
        self.operation = operation
        self.calls: list[float] = []
        """When each call had its result."""
        self.ticks: list[float] = []

    def start(self) -> None:
        self.world.start("node", self._main)

    @property
    def content(self) -> int:
        return self.world.node("node").disk.size(PATH)

    def longest(self, times: list[float]) -> float:
        ends = [*times, self.world.elapsed_s]
        return max(b - a for a, b in zip([0.0, *times], ends, strict=True))

    async def _main(self, runtime: SimRuntime) -> None:
        ticking = asyncio.ensure_future(self._tick())
        disk = self.world.node("node").disk
        source = stream(self.world.seed, "worker")
        worker = SimWorker(self.world.loop, disk, source, short_calls=self.where == "at once")
        file = runtime.files.open(PATH, create=True)
        calls: dict[str, Callable[[], object]] = {
            "write": lambda: file.append([b"x"]),
            "read": lambda: file.read_at(0, 1),
            "nothing": lambda: None,
        }
        call = calls[self.operation]
        file.append([b"x"])
        for _ in range(40):
            if self.where == "loop":
                call()
            else:
                await worker.submit(call)
            await asyncio.sleep(0)
            self.calls.append(self.world.elapsed_s)
            await asyncio.sleep(PACE_S)
        await ticking

    async def _tick(self) -> None:
        while True:
            self.ticks.append(self.world.elapsed_s)
            await asyncio.sleep(PACE_S)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("where", "operation", "kind", "call_hangs", "loop_hangs"),
    [
        ("worker", "write", "hung_writes", True, False),
        ("worker", "write", "hung_disk", True, False),
        ("worker", "read", "hung_disk", True, False),
        ("worker", "read", "hung_writes", False, False),
        ("worker", "nothing", "hung_disk", False, False),
        ("at once", "write", "hung_writes", True, True),
        ("loop", "write", "hung_writes", True, True),
        ("loop", "read", "hung_disk", True, True),
        ("loop", "read", "hung_writes", False, False),
    ],
)
def test_what_hangs_goes_on_when_the_disk_is_well(
    seed: int, where: str, operation: str, kind: str, call_hangs: bool, loop_hangs: bool
) -> None:
    with World(seed) as world:
        program = Program(world, where, operation)
        program.start()
        # A short call runs at once when others have been short.
        world.run(1.5)
        before = program.content
        world.node("node").disk.hang(kind)
        world.run(3.0)
        assert (program.longest(program.calls) > 2.9) == call_hangs
        assert (program.longest(program.ticks) > 2.9) == loop_hangs
        assert program.content - before <= (operation == "write")
        assert not world.node("node").disk.sound
        world.node("node").disk.heal()
        world.run(5.0)
        assert len(program.calls) == 40
        assert world.node("node").disk.sound


def test_a_call_that_hangs_is_done_or_not_when_its_process_is_killed() -> None:
    done = set()
    for seed in range(20):
        with World(seed) as world:
            program = Program(world, "worker")
            program.start()
            world.run(1.0)
            before = program.content
            world.node("node").disk.hang("hung_writes")
            world.run(1.0)
            world.kill("node")
            done.add(program.content - before)
            world.node("node").disk.heal()
            calls = len(program.calls)
            world.run(1.0)
            assert program.content - before <= 1
            assert len(program.calls) == calls
    assert done == {0, 1}


@pytest.mark.parametrize("where", ["worker", "loop"])
def test_slow_calls_take_their_time_and_hold_up_who_makes_them(where: str) -> None:
    with World(3) as world:
        program = Program(world, where)
        world.node("node").disk.slow_call_s = 2.0
        program.start()
        world.run(120.0)
        assert len(program.calls) == 40
        assert program.calls[-1] > 40 * PACE_S + 1.0
        assert (program.longest(program.ticks) > 0.5) == (where == "loop")
        process = world.node("node").process
        assert process is not None
        assert (process.stalls > 0) == (where == "loop")


@pytest.mark.parametrize("kind", ["slow_io", "hung_writes", "hung_disk"])
def test_the_nemesis_does_it_and_undoes_it(kind: str) -> None:
    with World(1) as world:
        program = Program(world, "worker")

        async def story() -> None:
            program.start()
            await asyncio.sleep(0.5)
            nemesis = PlannedNemesis(
                world,
                ["node"],
                start=lambda name: None,
                power_off=world.power_off,
                guard=lambda fault: True,
            )
            running = asyncio.ensure_future(nemesis.run((Fault(kind, 0, 5_000, ("node",), 100.0),)))
            await asyncio.sleep(0.1)
            assert not world.node("node").disk.sound
            await running

        world.run(story())
        assert world.node("node").disk.sound
        assert (program.longest(program.calls) > 4) == (kind != "slow_io")
        world.run(5.0)
        assert len(program.calls) == 40
