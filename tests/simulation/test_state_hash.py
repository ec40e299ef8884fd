"""Whole nodes compare their states: equal ones go on, one that has diverged ends for good."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.world import World
from raftctl.loader import StateDivergedError
from tests.simulation.cluster_scenarios import OFTEN_SNAPSHOTS, until

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from raftctl.node import Node

pytestmark = pytest.mark.req("Q13")

NEVER_DELETED = {**OFTEN_SNAPSHOTS, "metadata.max.retention.bytes": "-1"}
SETTLING_S = 3


class Rig:
    """A cluster without clients; its log grows by no-ops, snapshots are many."""

    def __init__(self, world: World, **overrides: str) -> None:
        self.world = world
        keys = {name.replace("_", "."): value for name, value in overrides.items()}
        self.cluster = SimCluster(
            world, brokers=2, overrides={**NEVER_DELETED, **keys}, watch=False
        )
        self.names = [*self.cluster.controller_names, *self.cluster.broker_names]

    def verdict(self, name: str) -> tuple[str, int, int]:
        """Verdict, newest offset found equal, number of hashes not compared."""
        verdict, equal, missed = self.cluster.nodes[name].hashes.status().values()
        return verdict, equal, missed

    def all_equal(self, after: int, names: list[str]) -> bool:
        nodes = self.cluster.nodes
        return all(name in nodes and self.verdict(name)[1] > after for name in names)

    async def begin(self) -> None:
        self.cluster.start_all()
        await until(lambda: self.all_equal(0, self.names))

    def leader(self) -> str:
        return next(
            name
            for name in self.cluster.controller_names
            if self.cluster.is_up(name) and _leads(self.cluster.nodes[name])
        )

    def follower(self) -> str:
        leader = self.leader()
        return next(name for name in self.cluster.controller_names if name != leader)


def _leads(node: Node) -> bool:
    return node.driver is not None and node.driver.is_leader


def corrupt(node: Node) -> None:
    """A change of the metadata in memory that the log knows nothing of."""
    loader: Any = node.loader
    loader.image = replace(loader.image, next_producer_id=loader.image.next_producer_id + 1)


def run(seed: int, scenario: Any) -> World:
    with World(seed, tolerated=(StateDivergedError,)) as world:
        story: Coroutine[Any, Any, None] = scenario(world)
        world.run(story)
        return world


@pytest.mark.parametrize("seed", [1, 2])
def test_all_replicas_compare_at_every_mark_whoever_leads(seed: int) -> None:
    async def scenario(world: World) -> None:
        rig = Rig(world)
        await rig.begin()
        for _ in range(2):
            leader = rig.leader()
            world.kill(leader)
            others = [name for name in rig.names if name != leader]
            newest = max(rig.verdict(name)[1] for name in others)
            await until(partial(rig.all_equal, newest, others))
            rig.cluster.start(leader)
            newest = max(rig.verdict(name)[1] for name in others)
            await until(partial(rig.all_equal, newest, rig.names))
        assert [rig.verdict(name)[0] for name in rig.names] == ["equal"] * 5
        offsets = {one for name in rig.names for one in snapshots_of(rig, name)}
        shared = [one for one in offsets if all(one in snapshots_of(rig, n) for n in rig.names)]
        assert len(shared) >= 2, "snapshots are taken at the same offsets"

    run(seed, scenario)


def snapshots_of(rig: Rig, name: str) -> list[str]:
    names = rig.world.node(name).disk.names("/data/__cluster_metadata-0")
    return [one for one in names if one.endswith(".checkpoint")]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("role", ["follower", "broker"])
def test_a_replica_that_has_diverged_ends_and_names_what_differs(role: str, seed: int) -> None:
    async def scenario(world: World) -> None:
        rig = Rig(world)
        await rig.begin()
        name = "broker-2" if role == "broker" else rig.follower()
        node = rig.cluster.nodes[name]
        corrupt(node)
        await until(lambda: not rig.cluster.is_up(name))
        error = node.ended.exception()
        assert isinstance(error, StateDivergedError)
        for part in (f"offset {error.offset} ", f"{error.offset + 1:020}-", "format the directory"):
            assert part in str(error)
        # Nor does it go on when it is started again: its snapshot is not what the log says.
        rig.cluster.start(name)
        await until(lambda: not rig.cluster.is_up(name))
        again = rig.cluster.nodes[name].ended.exception()
        assert isinstance(again, StateDivergedError)
        assert again.offset == error.offset
        others = [one for one in rig.names if one != name]
        newest = max(rig.verdict(one)[1] for one in others)
        await until(lambda: rig.all_equal(newest, others))

    run(seed, scenario)


def test_a_leader_that_has_diverged_stops_the_others_not_the_truth() -> None:
    """All who differ from it end; with them the quorum, so nothing more is acknowledged."""

    async def scenario(world: World) -> None:
        rig = Rig(world)
        await rig.begin()
        leader = rig.leader()
        service: Any = rig.cluster.nodes[leader]
        controller = controller_of(service)
        image = controller._committed_image
        controller._uncommitted.clear()
        controller._committed_image = replace(image, next_producer_id=image.next_producer_id + 1)
        await until(lambda: [n for n in rig.names if rig.cluster.is_up(n)] == [leader])
        await asyncio.sleep(SETTLING_S)
        assert not _leads(rig.cluster.nodes[leader])

    run(3, scenario)


def controller_of(node: Any) -> Any:
    return node.hashes._append.__self__._controller


def test_a_replica_that_comes_back_by_snapshot_compares_from_there_on() -> None:
    async def scenario(world: World) -> None:
        rig = Rig(world, metadata_max_retention_bytes="0")
        await rig.begin()
        away = rig.follower()
        before = rig.cluster.nodes[away]
        world.kill(away)
        newest = rig.verdict(rig.leader())[1]
        await until(lambda: rig.verdict(rig.leader())[1] > newest + 100)
        newest = rig.verdict(rig.leader())[1]
        rig.cluster.start(away)
        await until(lambda: rig.cluster.nodes[away] is not before)
        assert rig.verdict(away) == ("unknown", -1, 0) or rig.verdict(away)[1] >= newest
        await until(partial(rig.all_equal, newest, [away]))

    run(4, scenario)
