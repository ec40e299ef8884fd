"""Clients of keys and values while the quorum is broken; their history must be linearizable."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.models import Register
from jepsen.env.sim.cluster import CONTROLLER_PORT, Observer, SimCluster
from jepsen.history import Op, OpType
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests import ANY_VERSION, KvCasRequest, KvGetRequest, KvPutRequest
from raftctl.rpc.client import RpcClient
from raftctl.server.kv_client import CLIENT_ID, KvClient

if TYPE_CHECKING:
    from jepsen.env.sim.runtime import SimRuntime
    from jepsen.env.sim.world import World

CLIENTS = 6
"""Half of them look for the leader. Each of the others stays with one controller and only reads, so
that a leader which was deposed and does not know it has somebody to tell what was once true."""
NO_IDLE_RECORDS = {"metadata.max.idle.interval.ms": "0"}
"""What a leader appends of itself would hold up its answers, and so hide that they are stale."""
KEYS = ("a", "b")
VALUES = 4
TIMEOUT_MS = 500
MODEL = Register(failed_cas_observes=True)
"""A cas that ends with `fail` and no error was compared and found another value."""
FAULTS = ("cut off the leader", "pause the leader", "kill the leader", "drop one way")


class Recorder:
    """Notes operations in the order in which they begin and end."""

    def __init__(self) -> None:
        self.history: list[Op] = []

    def note(
        self, process: int, kind: OpType, f: str, value: Any, key: str, error: str | None = None
    ) -> None:
        """Adds a line at the present time."""
        now_ns = int(asyncio.get_running_loop().time() * 1e9)
        index = len(self.history)
        self.history.append(Op(index, now_ns, process, kind, f, value, key, error))


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
            world.start(f"client-{n}", partial(use_keys, cluster, recorder, processes, stop, n))
            for n in range(CLIENTS)
        ]
        for fault in runtime.random.sample(FAULTS, len(FAULTS)):
            await asyncio.sleep(runtime.random.uniform(0.2, 1))
            status = await observer.wait_for(lambda _: True)
            leader = f"controller-{status['leader_id']}"
            await break_and_heal(world, cluster, fault, leader, runtime.random.uniform(0.5, 4))
        before = len(recorder.history)
        await asyncio.sleep(5)
        late = [op for op in recorder.history[before:] if op.type is OpType.OK]
        assert len(late) > 10, f"{len(late)} operations succeeded after everything was healed"
        stop.set()
        for client in clients:
            await client.done

    await world.start("operator", operator).done
    result = check_linearizable(recorder.history, MODEL)
    assert result.valid is True, result.failures[0].counterexample
    done = [op for op in recorder.history if op.type is OpType.OK]
    assert {op.f for op in done} == {"read", "write", "cas"}


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


async def use_keys(
    cluster: SimCluster,
    recorder: Recorder,
    processes: count[int],
    stop: asyncio.Event,
    number: int,
    runtime: SimRuntime,
) -> None:
    """One client: reads, writes and compares at random. What it does not know it leaves open."""
    names = cluster.controller_names
    functions: tuple[str, ...] = ("read", "write", "cas")
    if number < len(names):
        names, functions = [names[number]], ("read",)
    controllers = [
        RpcClient(runtime, name, CONTROLLER_PORT, cluster_id=cluster.cluster_id, node_id=CLIENT_ID)
        for name in names
    ]
    client = KvClient(controllers, runtime)
    process = next(processes)
    while not stop.is_set():
        f = runtime.random.choice(functions)
        key = runtime.random.choice(KEYS)
        if not await _operate(client, recorder, process, f, key, runtime):
            process = next(processes)
        await asyncio.sleep(runtime.random.uniform(0, 0.1))
    for controller in controllers:
        await controller.close()


async def _operate(
    client: KvClient, recorder: Recorder, process: int, f: str, key: str, runtime: SimRuntime
) -> bool:
    """One operation and its two lines; whether the process may go on."""
    old, new = runtime.random.randrange(VALUES), runtime.random.randrange(VALUES)
    value: Any = {"read": None, "write": new, "cas": [old, new]}[f]
    recorder.note(process, OpType.INVOKE, f, value, key)
    try:
        kind, value = await _call(client, f, key, value)
    except KafkaError as error:
        unknown = f != "read" and error.code is ErrorCode.REQUEST_TIMED_OUT
        kind = OpType.INFO if unknown else OpType.FAIL
        recorder.note(process, kind, f, value, key, error.code.name)
        return not unknown
    recorder.note(process, kind, f, value, key)
    return True


async def _call(client: KvClient, f: str, key: str, value: Any) -> tuple[OpType, Any]:
    if f == "read":
        found = (await client.read(KvGetRequest(key), TIMEOUT_MS)).value
        return OpType.OK, None if found is None else int(found)
    if f == "write":
        await client.write(KvPutRequest(key, b"%d" % value), TIMEOUT_MS)
        return OpType.OK, value
    old, new = (b"%d" % number for number in value)
    answer = await client.write(KvCasRequest(key, new, ANY_VERSION, old), TIMEOUT_MS)
    return OpType.OK if answer.error == ErrorCode.NONE else OpType.FAIL, value
