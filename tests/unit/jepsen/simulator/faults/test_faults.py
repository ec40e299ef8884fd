"""Faults are data that follows from a seed; the nemesis does them, and undoes all of it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jepsen.nemesis.plan import Fault, links_of
from jepsen.simulator.faults import PlannedNemesis, plan_directory_faults, plan_faults
from jepsen.simulator.faults._plan import DIRECTORY_KINDS, DISK_KINDS, KINDS
from jepsen.simulator.world import World

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime

pytestmark = pytest.mark.req("J1")

GROUPS = (("c1", "c2", "c3"), ("b1", "b2"))
MEMBERS = ("c1", "c2", "c3", "b1", "b2")


def plan(seed: int) -> tuple[Fault, ...]:
    return plan_faults(random.Random(seed), GROUPS, 20_000)


def test_a_plan_follows_from_its_seed_and_has_every_kind() -> None:
    assert plan(1) == plan(1) != plan(2)
    kinds = {fault.kind for seed in range(80) for fault in plan(seed)}
    assert kinds == {*KINDS, *DISK_KINDS}
    for fault in plan(3):
        assert 0 <= fault.at_ms < 20_000
        assert set(fault.nodes) <= set(MEMBERS)


def test_faults_of_log_directories_strike_brokers_in_every_way() -> None:
    source = random.Random(1)
    faults = [one for _ in range(40) for one in plan_directory_faults(source, GROUPS[1], 9_000)]
    assert {one.kind for one in faults} == set(DIRECTORY_KINDS)
    assert {one.nodes for one in faults} == {("b1",), ("b2",)}


@pytest.mark.parametrize(
    ("kind", "nodes", "blocked"),
    [
        ("one_way", ("c1", "b1"), [("c1", "b1")]),
        ("pair", ("c1", "c2"), [("c1", "c2"), ("c2", "c1")]),
        ("kill", ("c1",), []),
    ],
)
def test_links_that_are_blocked(
    kind: str, nodes: tuple[str, ...], blocked: list[tuple[str, str]]
) -> None:
    assert links_of(Fault(kind, 0, 1, nodes), MEMBERS) == blocked


def test_isolation_and_halves_cut_both_ways_between_two_sides() -> None:
    alone = links_of(Fault("isolate", 0, 1, ("c1",)), MEMBERS)
    assert len(alone) == 8
    halves = links_of(Fault("halves", 0, 1, ("c1", "b1")), MEMBERS)
    assert len(halves) == 12
    assert ("c1", "b1") not in halves
    assert ("c2", "b2") not in halves


class Field:
    """Members that do nothing, and a nemesis among them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.starts: list[str] = []
        self.refused: set[str] = set()
        self.nemesis = PlannedNemesis(
            world,
            MEMBERS,
            start=self.start,
            power_off=world.power_off,
            guard=lambda fault: fault.kind not in self.refused,
        )

    def start(self, name: str) -> None:
        self.starts.append(name)

        async def idle(runtime: SimRuntime) -> None:
            await asyncio.sleep(3600)

        self.world.start(name, idle)

    def start_all(self) -> None:
        for name in MEMBERS:
            self.start(name)
        self.starts.clear()

    def is_blocked(self, source: str, target: str) -> bool:
        return self.world.network.link(source, target).blocked


@pytest.mark.parametrize("seed", range(5, 10))
def test_every_fault_is_undone(seed: int) -> None:
    with World(1) as world:
        field = Field(world)
        field.start_all()
        faults = plan(seed)
        world.run(field.nemesis.run(faults))
        world.run(field.nemesis.heal())
        nodes = [world.node(name) for name in MEMBERS]
        assert all(node.process is not None and node.process.running for node in nodes)
        assert all(node.clock_offset_ms == 0 and node.clock.rate == 1.0 for node in nodes)
        assert not any(node.clock.suspended or not node.reachable for node in nodes)
        pairs = [(a, b) for a in MEMBERS for b in MEMBERS if a != b]
        assert not any(field.is_blocked(a, b) for a, b in pairs)
        assert all(node.disk.sound for node in nodes)
        links = [world.network.link(a, b) for a, b in pairs]
        assert len({link.latency_extra_mean_ms for link in links}) == 1
        assert all(link.bytes_per_s is link.reset_every_bytes is None for link in links)


@pytest.mark.parametrize("kind", sorted({*KINDS, *DISK_KINDS}))
def test_a_fault_that_begins_again_before_it_ends_is_undone(kind: str) -> None:
    """The same nodes are drawn again within a plan, as in seed 1977 of the cluster's chaos."""
    (drawn, *_) = (one for seed in range(80) for one in plan(seed) if one.kind == kind)

    async def story() -> None:
        field.start_all()
        again = (replace(drawn, at_ms=0, for_ms=200), replace(drawn, at_ms=100, for_ms=200))
        await field.nemesis.run(again)
        await field.nemesis.heal()

    with World(1) as world:
        field = Field(world)
        world.run(story())
        for name in MEMBERS:
            process = world.node(name).process
            assert process is not None
            assert process.running
        links = [world.network.link(a, b) for a in MEMBERS for b in MEMBERS if a != b]
        assert all(link.bytes_per_s is link.reset_every_bytes is None for link in links)


def test_a_link_resets_connections_until_the_last_fault_that_does_so_ends() -> None:
    async def story() -> None:
        field.start_all()
        faults = (Fault("reset", 0, 100, ("c1", "c2"), 7), Fault("reset", 50, 100, ("c1", "c2"), 9))
        running = asyncio.get_running_loop().create_task(field.nemesis.run(faults))
        await asyncio.sleep(0.12)
        assert world.network.link("c1", "c2").reset_every_bytes == 9
        await running
        assert world.network.link("c1", "c2").reset_every_bytes is None

    with World(1) as world:
        field = Field(world)
        world.run(story())


def test_a_link_opens_when_the_last_fault_that_blocks_it_ends() -> None:
    async def story() -> None:
        field.start_all()
        faults = (Fault("pair", 0, 100, ("c1", "c2")), Fault("isolate", 50, 100, ("c1",)))
        running = asyncio.get_running_loop().create_task(field.nemesis.run(faults))
        await asyncio.sleep(0.12)
        assert field.is_blocked("c1", "c2")
        await running
        assert not field.is_blocked("c1", "c2")

    with World(1) as world:
        field = Field(world)
        world.run(story())


def test_what_makes_no_sense_or_is_refused_is_skipped() -> None:
    with World(1) as world:
        field = Field(world)
        field.start_all()
        field.refused = {"pause"}
        faults = (
            Fault("kill", 0, 100, ("c1",)),
            Fault("power_off", 10, 20, ("c1",)),
            Fault("pause", 10, 20, ("c2",)),
        )
        world.run(field.nemesis.run(faults))
        assert field.starts == ["c1"]
        assert not any(node.disk.crashes for node in world.network.nodes.values())


def test_heal_ends_a_plan_in_the_middle() -> None:
    async def story() -> None:
        field.start_all()
        faults = (Fault("kill", 0, 9_000, ("c1",)), Fault("halves", 0, 9_000, ("b1", "c2")))
        running = asyncio.get_running_loop().create_task(field.nemesis.run(faults))
        await asyncio.sleep(1)
        running.cancel()
        await field.nemesis.heal()
        assert field.starts == ["c1"]
        assert not field.is_blocked("b1", "c1")

    with World(1) as world:
        field = Field(world)
        world.run(story())
