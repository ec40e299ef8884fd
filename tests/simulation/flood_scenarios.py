"""More is asked of the active controller than it can write or commit, while disks hang."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import CONTROLLER_PORT
from raftctl.errors import ErrorCode
from raftctl.metadata.requests.kv import KvPutRequest
from raftctl.node import WAITING_BYTES_MAX
from raftctl.quorum import UNWRITTEN_BYTES_MAX
from raftctl.rpc import RpcClient, RpcRefused
from tests.simulation.rig import Rig

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime, World

CLIENTS = 3
VALUE_BYTES = 256 * 1024
AT_ONCE = 150
"""Puts that each client has under way; together more than may wait."""
FLOOD_S = 2.0
PAUSE_S = 0.5
TIMEOUT_MS = 20_000
CLIENT = 900
PATIENT = {
    "controller.quorum.fetch.timeout.ms": "30000",
    "controller.quorum.election.timeout.ms": "30000",
}
"""The controller does not resign, which would end what waits."""


async def the_active_controllers_disk_hangs(world: World) -> None:
    """It cannot write what the other voters commit: beyond a bound of bytes more is refused."""
    rig = await _begun(world)
    name = _active_name(rig)
    await _flooded(rig, [name])
    assert rig.active().driver.unwritten_bytes > UNWRITTEN_BYTES_MAX, "it never was full"
    await _goes_on(rig)


async def the_other_voters_disks_hang(world: World) -> None:
    """It can write, but nothing commits: beyond a bound of bytes more is refused."""
    rig = await _begun(world)
    name = _active_name(rig)
    await _flooded(rig, [one for one in rig.cluster.controller_names if one != name])
    assert rig.active().service.waiting_bytes > WAITING_BYTES_MAX, "it never was full"
    await _goes_on(rig)


async def _begun(world: World) -> Rig:
    rig = Rig(world, PATIENT)
    rig.cluster.start_all()
    await rig.until(rig.all_active, "all brokers are active")
    return rig


def _active_name(rig: Rig) -> str:
    return f"controller-{rig.active().config.node_id}"


async def _flooded(rig: Rig, hung: list[str]) -> None:
    """Clients put all the time while these disks hang; something must have been refused."""
    for name in hung:
        rig.world.node(name).disk.hang("hung_writes")
    told: Counter[ErrorCode] = Counter()
    flood = partial(_puts, _active_name(rig), rig.cluster.cluster_id, told, AT_ONCE)
    clients = [rig.world.start(f"client-{number}", flood) for number in range(CLIENTS)]
    await asyncio.sleep(FLOOD_S)
    assert told[ErrorCode.THROTTLING_QUOTA_EXCEEDED], told
    for one in clients:
        rig.world.kill(one.node.name)


async def _goes_on(rig: Rig) -> None:
    """Disks do their work again, and puts are taken."""
    for name in rig.cluster.controller_names:
        rig.world.node(name).disk.heal()
    told: Counter[ErrorCode] = Counter()
    last = partial(_puts, _active_name(rig), rig.cluster.cluster_id, told, 1)
    rig.world.start("last", last)
    await rig.until(lambda: told[ErrorCode.NONE] > 0, "a put is taken")
    rig.world.kill("last")
    rig.world.trace.add("-", "told", str(told))


async def _puts(
    controller: str, cluster_id: str, told: Counter[ErrorCode], at_once: int, runtime: SimRuntime
) -> None:
    """Puts one value after the other, many at once, until it is killed; counts the answers."""
    client = RpcClient(runtime, controller, CONTROLLER_PORT, cluster_id=cluster_id, node_id=CLIENT)
    value = runtime.random.randbytes(VALUE_BYTES)

    async def put(number: int) -> None:
        while True:
            error = ErrorCode.NONE
            try:
                await client.call(KvPutRequest(f"flood-{number}", value), TIMEOUT_MS)
            except RpcRefused as refused:
                error = refused.code
            told[error] += 1
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*(put(number) for number in range(at_once)))
