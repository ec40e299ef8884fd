"""Clients of keys and values while the quorum is broken; their history must be linearizable."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from jepsen.simulator.cluster import CONTROLLER_PORT, Observer, SimCluster
from jepsen.simulator.network import Link
from raftctl.client import connect
from raftctl.controller_channel import CLIENT_ID
from raftctl.rpc import RpcClient
from tests.kit.kv_client import KvClient
from tests.kit.kv_load import ALL, TIMEOUT_MS, HttpKeys, Recorder, use_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from jepsen.simulator.world import SimRuntime, World

    UseControllers = Callable[
        [SimCluster, Recorder, count[int], asyncio.Event, int, SimRuntime],
        Coroutine[Any, Any, None],
    ]

CLIENTS = 6
"""Half of them look for the leader. Each of the others stays with one controller and only reads, so
that a leader which was deposed and does not know it has somebody to tell what was once true."""
NO_IDLE_RECORDS = {"metadata.max.idle.interval.ms": "0"}
"""What a leader appends of itself would hold up its answers, and so hide that they are stale."""
READERS_ONLY_CHANCE = 0.5
"""How often a leader in trouble gets no writes: one that it cannot commit holds up its reads."""
LATE_MS = 1_400.0
"""More than it takes to elect another leader, less than the old one believes without hearing."""
FAULTS = (
    "cut off the leader",
    "pause the leader",
    "kill the leader",
    "drop one way",
    "hear of before",
)


async def keys_stay_linearizable(world: World) -> None:
    """Clients speak the inner RPC."""
    await break_leaders(world, use_controllers)


async def keys_stay_linearizable_over_http(world: World) -> None:
    """Clients speak HTTP; every controller answers, by the active one or from its own image."""
    await break_leaders(world, use_http)


async def break_leaders(world: World, use: UseControllers) -> None:
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
            world.start(f"client-{n}", partial(use, cluster, recorder, processes, stop, n))
            for n in range(CLIENTS)
        ]
        for fault in runtime.random.sample(FAULTS, len(FAULTS)):
            await asyncio.sleep(runtime.random.uniform(0.2, 1))
            status = await observer.wait_for(lambda _: True)
            leader = f"controller-{status['leader_id']}"
            alone = runtime.random.random() < READERS_ONLY_CHANCE
            writers = [f"client-{n}" for n in range(cluster.controllers, CLIENTS)] if alone else []
            seconds = runtime.random.uniform(0.5, 4)
            await break_and_heal(world, cluster, fault, leader, seconds, writers)
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
    world: World,
    cluster: SimCluster,
    fault: str,
    leader: str,
    seconds: float,
    writers: Sequence[str] = (),
) -> None:
    """Does one fault to the leader and undoes it; `writers` do not reach it either meanwhile.

    All other clients reach every controller all the while.
    """
    others = [name for name in cluster.controller_names if name != leader]
    for writer in writers:
        world.partition(leader, writer)
    match fault:
        case "pause the leader":
            world.pause(leader)
        case "kill the leader":
            world.kill(leader)
        case _:
            cut_off(world, fault, leader, others)
    await asyncio.sleep(seconds)
    world.heal()
    for other in others:
        world.network.link(other, leader).latency_min_ms = Link().latency_min_ms
    if fault == "pause the leader":
        world.resume(leader)
    elif fault == "kill the leader":
        cluster.start(leader)


def cut_off(world: World, fault: str, leader: str, others: Sequence[str]) -> None:
    """The others do not hear the leader; it hears them, or not, or what they said before."""
    for other in others:
        world.block(leader, other)
        if fault == "cut off the leader":
            world.block(other, leader)
        late_ms = LATE_MS if fault == "hear of before" else 0
        world.network.link(other, leader).latency_min_ms = Link().latency_min_ms + late_ms


async def use_http(
    cluster: SimCluster,
    recorder: Recorder,
    processes: count[int],
    stop: asyncio.Event,
    number: int,
    runtime: SimRuntime,
) -> None:
    """As `use_controllers`, over HTTP."""
    names = cluster.controller_names
    only_reads = number < len(names)
    known = [f"{name}:{CONTROLLER_PORT}" for name in ([names[number]] if only_reads else names)]
    functions = ("read",) if only_reads else ALL
    async with connect(known, timeout_s=TIMEOUT_MS / 1000, rng=runtime.random) as client:
        await use_keys(HttpKeys(client), recorder, processes, stop, runtime.random, functions)


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
