"""Clients of keys and values while the quorum is broken; their history must be linearizable."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from jepsen.env.sim.cluster import CONTROLLER_PORT, Observer, SimCluster
from raftctl.rpc.client import RpcClient
from raftctl.server.kv_client import CLIENT_ID, KvClient
from tests.kv_load import ALL, Recorder, use_keys

if TYPE_CHECKING:
    from jepsen.env.sim.runtime import SimRuntime
    from jepsen.env.sim.world import World

CLIENTS = 6
"""Half of them look for the leader. Each of the others stays with one controller and only reads, so
that a leader which was deposed and does not know it has somebody to tell what was once true."""
NO_IDLE_RECORDS = {"metadata.max.idle.interval.ms": "0"}
"""What a leader appends of itself would hold up its answers, and so hide that they are stale."""
FAULTS = ("cut off the leader", "pause the leader", "kill the leader", "drop one way")


async def keys_stay_linearizable(world: World) -> None:
    """Leaders are cut off, paused and killed; then all heals and everybody gets an answer."""
    cluster = SimCluster(world, controllers=3, brokers=0, overrides=NO_IDLE_RECORDS)
    cluster.start_all()
    recorder = Recorder()
    processes = count()

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        await observer.wait_for(lambda status: status["high_watermark"] > 1)
        stop = asyncio.Event()
        clients = [
            world.start(
                f"client-{n}", partial(use_controllers, cluster, recorder, processes, stop, n)
            )
            for n in range(CLIENTS)
        ]
        for fault in runtime.random.sample(FAULTS, len(FAULTS)):
            await asyncio.sleep(runtime.random.uniform(0.2, 1))
            status = await observer.wait_for(lambda _: True)
            leader = f"controller-{status['leader_id']}"
            await break_and_heal(world, cluster, fault, leader, runtime.random.uniform(0.5, 4))
        before = len(recorder.history)
        await asyncio.sleep(5)
        late = recorder.succeeded(before)
        assert len(late) > 10, f"{len(late)} operations succeeded after everything was healed"
        stop.set()
        for client in clients:
            await client.done

    await world.start("operator", operator).done
    recorder.assert_linearizable()
    assert {op.f for op in recorder.succeeded()} == set(ALL)


async def break_and_heal(
    world: World, cluster: SimCluster, fault: str, leader: str, seconds: float
) -> None:
    """Does one fault to the leader and undoes it. Clients reach every controller all the while."""
    others = [name for name in cluster.controller_names if name != leader]
    match fault:
        case "cut off the leader":
            for other in others:
                world.partition(leader, other)
        case "drop one way":
            for other in others:
                world.block(leader, other)
        case "pause the leader":
            world.pause(leader)
        case "kill the leader":
            world.kill(leader)
    await asyncio.sleep(seconds)
    world.heal()
    if fault == "pause the leader":
        world.resume(leader)
    elif fault == "kill the leader":
        cluster.start(leader)


async def use_controllers(
    cluster: SimCluster,
    recorder: Recorder,
    processes: count[int],
    stop: asyncio.Event,
    number: int,
    runtime: SimRuntime,
) -> None:
    """One client, of all controllers or of one that it only reads from."""
    names = cluster.controller_names
    only_reads = number < len(names)
    if only_reads:
        names = [names[number]]
    controllers = [
        RpcClient(runtime, name, CONTROLLER_PORT, cluster_id=cluster.cluster_id, node_id=CLIENT_ID)
        for name in names
    ]
    client = KvClient(controllers, runtime)
    await use_keys(
        client, recorder, processes, stop, runtime.random, ("read",) if only_reads else ALL
    )
    for controller in controllers:
        await controller.close()
