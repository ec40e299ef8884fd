"""Power goes in the middle of a call: what was done stays at risk, and nothing runs any further."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.nemesis.plan import Fault
from jepsen.simulator.faults import PlannedNemesis, plan_power_cuts
from jepsen.simulator.world import World, stream
from jepsen.simulator.world._runtime import SimWorker
from raftctl.runtime.api import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.simulator.disk import SimDisk
    from jepsen.simulator.world import SimRuntime

pytestmark = pytest.mark.req("J1", "Q12")

OPERATIONS = 6
"""Of one `_call`: a file is opened, then written and synced twice, and its name synced."""
PARTS = (b"one", b"two")
CUTS = range(OPERATIONS)


def _call(disk: SimDisk) -> str:
    file = disk.open("/file", create=True)
    for part in PARTS:
        file.append([part])
        file.sync()
    disk.sync_directory("/")
    return "done"


class Program:
    """A node that makes one call of its disk, and notes how far it comes."""

    def __init__(self, world: World, where: str) -> None:
        self.world = world
        self.where = where
        self.steps: list[str] = []

    def start(self) -> None:
        self.world.start("node", self._main)

    async def _main(self, runtime: SimRuntime) -> None:
        disk = self.world.node("node").disk
        try:
            if self.where == "loop":
                self.steps.append(_call(disk))
            else:
                loop, source = self.world.loop, stream(1, "worker")
                worker = SimWorker(loop, disk, source, short_calls=self.where == "at once")
                for _ in range(20 if self.where == "at once" else 0):
                    await worker.submit(lambda: None)
                self.steps.append(await worker.submit(lambda: _call(disk)))
        finally:
            await asyncio.sleep(0)
            self.steps.append("cleaned up")


@pytest.mark.parametrize("where", ["worker", "at once", "loop"])
@pytest.mark.parametrize("operations", CUTS)
def test_nothing_runs_after_the_cut(where: str, operations: int) -> None:
    with World(operations) as world:
        program = Program(world, where)
        world.cut_power_within("node", operations)
        program.start()
        world.run(1.0)
        node = world.node("node")
        assert (node.process, node.reachable, node.disk.crashes) == (None, False, 1)
        assert program.steps == []
        assert not node.disk.off
        # Only what was synced and named is sure; nothing that was not written is there.
        durable = node.disk.durable("/")
        content = bytes(durable["file"].durable) if durable else b""
        whole = b"".join(PARTS)
        assert whole.startswith(content)
        if durable:
            assert len(content) >= 3 * (max(operations - 1, 0) // 2)


def test_a_call_that_is_over_before_is_left_alone() -> None:
    with World(1) as world:
        program = Program(world, "worker")
        world.cut_power_within("node", OPERATIONS)
        program.start()
        world.run(1.0)
        assert program.steps == ["done", "cleaned up"]
        assert world.node("node").disk.crashes == 0


def test_power_stays_where_it_may_not_go_or_is_spared() -> None:
    with World(1) as world:
        program = Program(world, "worker")
        world.cut_power_within("node", 0, may=lambda: False)
        program.start()
        world.run(1.0)
        world.cut_power_within("node", 0)
        world.node("node").disk.spare()
        program.start()
        world.run(1.0)
        assert program.steps == ["done", "cleaned up"] * 2


def test_what_others_do_to_the_disk_cuts_nothing() -> None:
    with World(1) as world:
        world.cut_power_within("node", 0)
        assert _call(world.node("node").disk) == "done"
        assert world.node("node").disk.crashes == 0


def test_a_resumed_node_without_power_does_not_run() -> None:
    with World(1) as world:
        program = Program(world, "worker")

        def may() -> bool:
            world.loop.call_soon(world.resume, "node")
            return True

        world.cut_power_within("node", 2, may=may)
        program.start()
        world.run(1.0)
        assert program.steps == []


@pytest.mark.parametrize("operations", range(5))
def test_a_file_that_is_replaced_is_the_old_or_the_new_one(operations: int) -> None:
    found = set()
    for seed in range(20):
        with World(seed) as world:
            disk = world.node("node").disk
            replace_file(disk, "/file", b"old")

            async def main(runtime: SimRuntime) -> None:
                await runtime.worker("disk").submit(_replacing(runtime))

            world.cut_power_within("node", operations)
            world.start("node", main)
            world.run(1.0)
            file = disk.open("/file")
            found.add(file.read_at(0, 100))
    assert found <= {b"old", b"new"}
    assert b"old" in found or operations > 3


def _replacing(runtime: SimRuntime) -> Callable[[], None]:
    return lambda: replace_file(runtime.files, "/file", b"new")


@pytest.mark.parametrize("slowness", [1.0, 400.0])
def test_a_short_call_runs_at_once_only_on_a_quick_disk(slowness: float) -> None:
    with World(1) as world:
        disk = world.node("node").disk
        at_once: list[bool] = []

        async def main(runtime: SimRuntime) -> None:
            worker = SimWorker(world.loop, disk, runtime.random, short_calls=True)
            for _ in range(60):
                before = disk.size("/file")
                done = worker.submit(lambda: _call(disk))
                at_once.append(disk.size("/file") > before)
                await done

        disk.slowness = slowness
        world.start("node", main)
        world.run(120.0)
        assert len(at_once) == 60
        assert not at_once[0]
        assert at_once[-1] == (slowness == 1.0)


def test_half_of_the_nodes_have_quick_disks_drawn_by_the_seed() -> None:
    quick = []
    for seed in range(40):
        with World(seed) as world:

            async def main(runtime: SimRuntime) -> None:
                worker = runtime.worker("disk", short_calls=True)
                for _ in range(20):
                    await worker.submit(lambda: None)
                ran: list[int] = []
                worker.submit(lambda: ran.append(1))
                quick.append(bool(ran))

            world.start("node", main)
            world.run(1.0)
    assert 10 <= sum(quick) <= 30


def test_the_nemesis_cuts_power_starts_the_node_again_and_asks_the_guard_when_it_is_time() -> None:
    with World(1) as world:
        asked: list[float] = []
        program = Program(world, "worker")

        def guard(fault: Fault) -> bool:
            asked.append(world.elapsed_s)
            return True

        nemesis = PlannedNemesis(
            world,
            ("node",),
            start=lambda _: program.start(),
            power_off=world.power_off,
            guard=guard,
        )
        world.node("node")

        async def scenario() -> None:
            asyncio.get_running_loop().call_later(0.1, program.start)
            await nemesis.run([Fault("power_cut", 10, 500, ("node",), 2)])

        world.run(scenario())
        world.run(1.0)
        assert len(asked) == 1
        assert asked[0] > 0.1
        assert world.node("node").incarnations == 2
        assert program.steps == ["done", "cleaned up"]


def test_some_plans_have_power_cuts() -> None:
    plans = [plan_power_cuts(stream(seed, "cuts"), ("a", "b"), 9_000) for seed in range(60)]
    assert 15 <= sum(1 for plan in plans if plan) <= 45
    faults = [one for plan in plans for one in plan]
    assert {one.kind for one in faults} == {"power_cut"}
    assert {one.nodes for one in faults} == {("a",), ("b",)}
    assert min(one.amount for one in faults) == 0
