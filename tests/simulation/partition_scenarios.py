"""The failures of partitions that have names: each breaks one thing at the worst moment.

The first two are those that truncation by high watermark did not survive (KIP-101, row R4).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import DATA, node_id
from jepsen.simulator.disk import no_fault
from jepsen.simulator.faults._disk_faults import all_fails_below, syncs_fail_below
from raftctl.metadata.records import NO_LEADER, UNASSIGNED
from tests.simulation.chaos_clients import TOPIC
from tests.simulation.rig import Rig

if TYPE_CHECKING:
    from jepsen.simulator.world import World

ROUNDS = 3
SMALL_STEPS = {"replica.fetch.max.bytes": "300"}
"""Who comes back catches up by a few records at a time."""
FLUSHED = {"flush.on.ack": "true"}
OFTEN_CHECKPOINTED = {"log.flush.offset.checkpoint.interval.ms": "200"}
OTHER_DISK = "/other"
"""Where brokers with two log directories have their first partition."""
LATE_MS = 2_000.0
LONG_SESSIONS = {"broker.session.timeout.ms": "30000"}


async def _two_in_sync(rig: Rig) -> tuple[str, str, str]:
    """Takes one follower away; returns leader, follower in sync, and who is away."""
    await rig.until(lambda: rig.partition().leader >= 0, "somebody leads")
    leader = rig.partition().leader
    follower, away = (f"broker-{one}" for one in rig.partition().replicas if one != leader)
    rig.world.kill(away)
    await rig.until(partial(rig.has_in_sync, 2), "a replica left")
    return f"broker-{leader}", follower, away


async def follower_restarts_then_leader_dies(world: World) -> None:
    """A follower restarts, not yet knowing what was committed; then its leader dies.

    It may lead only with all that was acknowledged.
    """
    rig = Rig(world, SMALL_STEPS)
    await rig.begin()
    for _ in range(ROUNDS):
        leader, follower, away = await _two_in_sync(rig)
        await asyncio.sleep(world.random.uniform(0.1, 0.5))
        world.kill(follower)
        rig.cluster.start(follower)
        await asyncio.sleep(world.random.uniform(0.0, 1.5))
        world.kill(leader)
        await asyncio.sleep(world.random.uniform(0.0, 2.5))
        rig.cluster.start(leader)
        rig.cluster.start(away)
        await rig.until(rig.whole, "all replicas are in sync")
    await rig.end()


async def both_replicas_crash(world: World) -> None:
    """Leader and follower crash together; the one with the shorter log may come back first.

    What it then writes must not stand at the offsets of the other's records.
    """
    rig = Rig(world)
    await rig.begin()
    for _ in range(ROUNDS):
        leader, follower, away = await _two_in_sync(rig)
        # The leader's last records reach nobody.
        world.block(leader, follower)
        await asyncio.sleep(world.random.uniform(0.0, 0.3))
        world.kill(leader)
        world.kill(follower)
        world.heal()
        order = [follower, leader] if world.random.random() < 0.5 else [leader, follower]
        for name in order:
            rig.cluster.start(name)
            await asyncio.sleep(world.random.uniform(0.0, 3.0))
        rig.cluster.start(away)
        await rig.until(rig.whole, "all replicas are in sync")
    await rig.end()


async def log_directory_of_a_replica_fails(world: World) -> None:
    """The disk under a replica's log dies while its broker lives on: others go on without it.

    The leader's in the first and last round, which then comes back as a follower.
    """
    rig = Rig(world, log_directories=(OTHER_DISK, DATA))
    await rig.begin()
    for number in range(ROUNDS):
        leader = rig.partition().leader
        follower = next(one for one in rig.partition().replicas if one != leader)
        name = f"broker-{follower if number == 1 else leader}"
        disk = world.node(name).disk
        await rig.until(partial(_has_place, rig, node_id(name)), "its directory is known")
        disk.fault = all_fails_below(OTHER_DISK)
        await rig.until(partial(_does_without, rig, node_id(name)), "others go on without it")
        written = len(rig.ledger.acknowledged)
        await rig.until(partial(rig.has_written, written + 1), "the writer goes on")
        assert rig.cluster.is_up(name), "its other directory serves"
        await rig.stop(name)
        disk.fault = no_fault
        await asyncio.sleep(world.random.uniform(0.0, 1.0))
        rig.cluster.start(name)
        await rig.until(rig.whole, "all replicas are in sync")
    await rig.end()


async def log_directories_of_all_replicas_fail(world: World) -> None:
    """One after the other, until nobody leads. Who comes back first may lack the last records."""
    rig = Rig(world, log_directories=(OTHER_DISK, DATA))
    await rig.begin()
    leader = rig.partition().leader
    followers = [one for one in rig.partition().replicas if one != leader]
    names = [f"broker-{one}" for one in (*followers, leader)]
    for name in names:
        await rig.until(partial(_has_place, rig, node_id(name)), "its directory is known")
    for name in names:
        world.node(name).disk.fault = all_fails_below(OTHER_DISK)
        await rig.until(partial(_is_led_elsewhere, rig, node_id(name)), "it leads no more")
        await asyncio.sleep(world.random.uniform(0.0, 0.5))
    assert rig.partition().leader == NO_LEADER
    last = f"broker-{rig.partition().isr[0]}"
    for name in [*(one for one in names if one != last), last]:
        assert rig.cluster.is_up(name), "its other directory serves"
        await rig.stop(name)
        world.node(name).disk.fault = no_fault
        rig.cluster.start(name)
        await asyncio.sleep(world.random.uniform(0.0, 3.0))
    await rig.until(rig.whole, "all replicas are in sync")
    await rig.end()


def _is_led_elsewhere(rig: Rig, broker_id: int) -> bool:
    """By another replica in sync, or by nobody."""
    partition = rig.partition()
    return partition is not None and (
        partition.leader == NO_LEADER or broker_id not in (partition.leader, *partition.isr)
    )


def _has_place(rig: Rig, broker_id: int) -> bool:
    partition = rig.partition()
    return partition is not None and partition.directory_of(broker_id) != UNASSIGNED


def _does_without(rig: Rig, broker_id: int) -> bool:
    partition = rig.partition()
    return partition is not None and broker_id not in (partition.leader, *partition.isr)


async def last_replica_standing(world: World) -> None:
    """The last replica in sync loses power, and comes back while the others are there again.

    With `flush.on.ack` it has all that was acknowledged; else only the others might (KIP-966).
    """
    rig = Rig(world, FLUSHED)
    await rig.begin()
    leader, follower, away = await _two_in_sync(rig)
    await asyncio.sleep(world.random.uniform(0.1, 0.5))
    world.kill(follower)
    await rig.until(partial(rig.has_in_sync, 1), "one replica is left")
    # Not by the cluster's own `power_off`, which allows for what the page cache loses.
    world.power_off(leader)
    for name in (follower, away, leader):
        await asyncio.sleep(world.random.uniform(0.0, 1.0))
        rig.cluster.start(name)
    await rig.until(rig.whole, "all replicas are in sync")
    await rig.end()


async def all_brokers_lose_power(world: World) -> None:
    """All brokers lose power at once under load: with `flush.on.ack` no acknowledgement is lost."""
    rig = Rig(world, FLUSHED)
    await rig.begin()
    for _ in range(ROUNDS):
        await asyncio.sleep(world.random.uniform(0.2, 1.0))
        for name in rig.cluster.broker_names:
            world.power_off(name)
        for name in rig.cluster.broker_names:
            await asyncio.sleep(world.random.uniform(0.0, 0.5))
            rig.cluster.start(name)
        await rig.until(rig.whole, "all replicas are in sync")
    await rig.end()


async def syncs_fail_before_the_power(world: World) -> None:
    """The disks under all replicas refuse to sync, and then all brokers lose power (row L8).

    With `flush.on.ack` nothing is acknowledged that was not synced before.
    """
    rig = Rig(world, FLUSHED, log_directories=(OTHER_DISK, DATA))
    await rig.begin()
    await asyncio.sleep(world.random.uniform(0.0, 0.5))
    names = rig.cluster.broker_names
    for name in names:
        world.node(name).disk.fault = syncs_fail_below(OTHER_DISK)
    await asyncio.sleep(world.random.uniform(0.3, 1.0))
    for name in names:
        assert rig.cluster.is_up(name), "its other directory serves"
        world.power_off(name)
        world.node(name).disk.fault = no_fault
    for name in names:
        await asyncio.sleep(world.random.uniform(0.0, 0.5))
        rig.cluster.start(name)
    await rig.until(rig.whole, "all replicas are in sync")
    await rig.end()


async def syncs_fail_before_a_restart_and_the_power(world: World) -> None:
    """As before, but the brokers are killed and run for a while before all lose power (row L8).

    What their disks took for written was in memory alone, and now has to be on disk.
    """
    rig = Rig(world, FLUSHED | OFTEN_CHECKPOINTED, log_directories=(OTHER_DISK, DATA))
    await rig.begin()
    names = rig.cluster.broker_names
    for name in names:
        world.node(name).disk.fault = syncs_fail_below(OTHER_DISK)
    await asyncio.sleep(world.random.uniform(0.3, 1.0))
    for name in names:
        assert rig.cluster.is_up(name), "its other directory serves"
        assert world.node(name).disk.failed_syncs, "its disk has lost something"
        world.kill(name)
        world.node(name).disk.fault = no_fault
        rig.cluster.start(name)
    await rig.until(rig.whole, "all replicas are in sync")
    await asyncio.sleep(world.random.uniform(0.3, 1.0))
    for name in names:
        world.power_off(name)
        rig.cluster.start(name)
    await rig.until(rig.whole, "all replicas are in sync")
    await rig.end()


async def replica_returns_empty_while_it_is_proposed(world: World) -> None:
    """A replica was in sync when its leader asked to add it, and is another broker with an empty
    log when the controller hears of that.
    """
    rig = Rig(world, LONG_SESSIONS)
    await rig.begin()
    partition = rig.partition()
    leader = f"broker-{partition.leader}"
    name = next(f"broker-{one}" for one in partition.replicas if one != partition.leader)
    await rig.stop(name)
    await rig.until(partial(rig.has_in_sync, 2), "a replica left")
    rig.delay(leader, name, LATE_MS)
    rig.cluster.start(name)
    await rig.until(lambda: rig.is_active(name, leader), "the leader knows that it is back")
    for controller in rig.cluster.controller_names:
        world.block(leader, controller)
    state = rig.state(leader)
    await rig.until(lambda: state.proposal is not None, "the leader wants to add it")
    await rig.stop(name)
    world.node(name).disk.remove_tree(f"{DATA}/{TOPIC}-0")
    rig.cluster.start(name)
    await rig.until(rig.all_active, "it is back again")
    world.heal()
    await rig.until(lambda: state.proposal is None, "the proposal is answered")
    rig.delay(leader, name, 0)
    await rig.end()
