"""The seam of the harness to simulated clusters: what it breaks is whole again afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from jepsen.environments import ClusterSpec
from jepsen.simulator.environment import SimEnvironment

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime, World

TOPIC = "kept"
WHOLE_S = 30.0
POLL_S = 0.1


async def every_fault_of_disks_passes(world: World) -> None:
    """Each kind strikes a node of each role it can strike, one after the other, under writes.

    Nothing acknowledged is lost, and each time everybody is in sync again.
    """
    environment = SimEnvironment(world, ClusterSpec(brokers=3))
    environment.start()

    async def operate(_runtime: SimRuntime) -> None:
        await environment.wait_ready()
        bootstrap = environment.bootstrap_servers
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(TOPIC, 1, 3)])
        await admin.close()
        written = await _breaks_all(environment, world, bootstrap)
        async with AIOKafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        ) as reader:
            read = {(await anext(reader)).value for _ in written}
        assert set(written) <= read

    await world.start("operator", operate).done


async def _breaks_all(environment: SimEnvironment, world: World, bootstrap: str) -> list[bytes]:
    """What was written and acknowledged, a record before, during and after each fault."""
    written: list[bytes] = []
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
    ) as writer:

        async def write() -> None:
            written.append(b"%d" % len(written))
            await writer.send_and_wait(TOPIC, written[-1])

        for kind, possible in environment.disk_faults.items():
            for role in (environment.controllers, environment.brokers):
                if struck := [node for node in role if node in possible]:
                    await _whole(environment)
                    nodes = [world.random.choice(struck)]
                    await environment.inject(kind, nodes, None)
                    await write()
                    await environment.relieve(kind, nodes)
                    await write()
        await _whole(environment)
    return written


async def _whole(environment: SimEnvironment) -> None:
    async with asyncio.timeout(WHOLE_S):
        while True:
            if await environment.is_in_sync():
                return
            await asyncio.sleep(POLL_S)
