"""Disks that do not keep what a broker has been told they have: they lie, or are older copies.

A broker may lose all that it has, as long as others are in sync. So nothing that was acknowledged
may be lost, whatever dies next. What holds for voters is in `docs/how-to/change-voters.md`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import node_id
from jepsen.simulator.faults._disk_faults import REFUSALS
from tests.simulation.cluster_chaos import OFTEN_FLUSHED
from tests.simulation.rig import Rig

if TYPE_CHECKING:
    from jepsen.simulator.world import World

ROUNDS = 3
FLUSHED_S = 2.5
RECOVERS_S = 1.5
DIES_WITHIN_S = 1.5


async def brokers_disks_lie(world: World) -> None:
    """Each broker's disk says that it has synced and has not; then its power goes.

    A broker may refuse to start on what is left of its metadata; then it gets an empty disk.
    """
    rig = Rig(world, OFTEN_FLUSHED)
    await rig.begin()
    for name in world.random.sample(rig.cluster.broker_names, ROUNDS):
        node = world.node(name)
        node.disk.lies = True
        await asyncio.sleep(world.random.uniform(0, FLUSHED_S))
        await rig.until(rig.all_active, "all brokers are active")
        await rig.until(rig.whole, "all replicas are in sync")
        rig.cluster.power_off(name)
        node.disk.lies = False
        node.last_error, node.forgiven = None, REFUSALS
        rig.cluster.start(name)
        await _lose_another(rig, name)
        await asyncio.sleep(RECOVERS_S)
        if node.process is None:
            world.trace.add(name, "refused", repr(node.last_error))
            assert "/data/" in str(node.last_error), "it names what is damaged"
            rig.cluster.wipe(name)
            rig.cluster.start(name)
        node.forgiven = ()
        await _all_run(rig)
    await rig.end()


async def brokers_get_old_copies_of_their_disks(world: World) -> None:
    """A broker that ended, well or not, comes back with a disk as it was some time before."""
    rig = Rig(world, OFTEN_FLUSHED)
    await rig.begin()
    for name in world.random.sample(rig.cluster.broker_names, ROUNDS):
        node = world.node(name)
        if world.random.random() < 0.5:
            # Its disk says that it has ended well, and that is so: but in an earlier life.
            await rig.stop(name)
            saved = node.disk.copy()
            rig.cluster.start(name)
        else:
            saved = node.disk.copy()
        await asyncio.sleep(world.random.uniform(0.5, FLUSHED_S))
        await rig.until(rig.all_active, "all brokers are active")
        await rig.until(rig.whole, "all replicas are in sync")
        if world.random.random() < 0.5:
            await rig.stop(name)
        else:
            world.kill(name)
        rig.cluster.properties.lost_power(node_id(name))
        node.disk.put_back(saved)
        rig.cluster.start(name)
        await _lose_another(rig, name)
        await _all_run(rig)
    await rig.end()


async def _lose_another(rig: Rig, name: str) -> None:
    """Soon the partition's leader dies: who has lost records must not follow it."""
    await asyncio.sleep(rig.world.random.uniform(0, DIES_WITHIN_S))
    partition = rig.partition()
    leader = None if partition is None else f"broker-{partition.leader}"
    others = [one for one in rig.cluster.broker_names if one != name and rig.cluster.is_up(one)]
    if leader in others and len(others) > 1 and leader is not None:
        rig.world.kill(leader)


async def _all_run(rig: Rig) -> None:
    for name in rig.cluster.broker_names:
        if rig.world.node(name).process is None:
            rig.cluster.start(name)
    await rig.until(rig.all_active, "all brokers are active")
    await rig.until(rig.whole, "all replicas are in sync")
