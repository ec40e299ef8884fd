"""A quorum is rebuilt from one disk, and voters that were believed lost come back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import DATA, SimCluster, node_id
from raftctl.quorum import Recovery
from tests.simulation.cluster_scenarios import until

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime, World
    from raftctl.quorum import RaftDriver

LOST_S = 10.0
ELECTIONS = 4


async def old_voters_come_back(world: World) -> None:
    """Alone or together, before or after they have elected a leader of their own.

    Properties are not watched: what the old majority commits by itself is not part of the cluster.
    """
    cluster = SimCluster(world, brokers=0, spares=1, watch=False)
    names = cluster.controller_names
    new = names[3]
    for name in names:
        cluster.start(name)
    await until(lambda: leader_of(cluster, names) is not None)
    await asyncio.sleep(world.random.uniform(0.5, 2))
    survivor = world.random.choice(names[:3])
    lost = [name for name in names[:3] if name != survivor]
    for name in names:
        world.kill(name)
    await world.start(survivor, lambda runtime: _rebuild(cluster, survivor, runtime)).done
    cluster.nodes.clear()
    for name in (survivor, new):
        cluster.start(name)
    await until(lambda: leader_of(cluster, [survivor]) is not None)

    apart = world.random.random() < 0.5
    back = lost if world.random.random() < 0.7 else lost[:1]
    if apart:
        for old in back:
            for other in (survivor, new):
                world.partition(old, other)
    for old in back:
        cluster.start(old)
    if apart and len(back) == 2:
        await _elect_often(world, cluster, back)
    led = driver_of(cluster, survivor)
    assert led is not None
    epoch = led.epoch
    await asyncio.sleep(world.random.uniform(0.5, LOST_S))
    world.heal()

    def all_follow() -> bool:
        drivers = [driver_of(cluster, name) for name in (survivor, new, *back)]
        views = [(one.epoch, one.leader_id) if one else None for one in drivers]
        return set(views) == {(epoch, node_id(survivor))}

    await until(all_follow)
    await asyncio.sleep(LOST_S)
    assert all_follow(), "nor does anybody disturb it later"
    leader = driver_of(cluster, survivor)
    assert leader is not None
    assert leader.is_leader
    assert leader.core.voters.ids == (node_id(survivor),)
    committed = leader.high_watermark
    await until(lambda: leader.high_watermark > committed)


async def _elect_often(world: World, cluster: SimCluster, names: list[str]) -> None:
    """The old majority has one leader after the other, each in an epoch of its own."""
    for _ in range(ELECTIONS):
        await until(lambda: leader_of(cluster, names) is not None)
        leader = leader_of(cluster, names)
        assert leader is not None
        name = f"controller-{leader.leader_id}"
        world.kill(name)
        del cluster.nodes[name]
        await asyncio.sleep(world.random.uniform(1, 3))
        cluster.start(name)
    await until(lambda: leader_of(cluster, names) is not None)


async def _rebuild(cluster: SimCluster, name: str, runtime: SimRuntime) -> None:
    recovery = Recovery(runtime.files, DATA)
    recovery.rebuild(cluster.voter(name))
    recovery.close()


def driver_of(cluster: SimCluster, name: str) -> RaftDriver | None:
    """The driver of a node that runs."""
    node = cluster.nodes.get(name)
    return node.driver if node is not None and cluster.is_up(name) else None


def leader_of(cluster: SimCluster, names: list[str]) -> RaftDriver | None:
    """Who leads among these, with a record of its own epoch committed."""
    drivers = [driver_of(cluster, name) for name in names]
    leaders = [one for one in drivers if one is not None and one.is_leader]
    return next((one for one in leaders if one.high_watermark > 1), None)
