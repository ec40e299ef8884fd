"""Large records on slow links: answers wait in the middle of a file while it goes or leaders do."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import OffsetOutOfRangeError

from tests.simulation.chaos_clients import TOPIC, Ledger, Writer, follow
from tests.simulation.rig import PATIENCE_S, Rig

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime, World

RECORD_BYTES = 600_000
"""More than a connection keeps of what is sent before the other end has read it."""
LARGE = 12
LARGE_PACE_S = 0.1
SLOW_BYTES_PER_S = 800_000
SMALL_SEGMENTS = {
    "log.segment.bytes": "700000",
    "log.segment.delete.delay.ms": "1",
    "log.flush.offset.checkpoint.interval.ms": "200",
}


async def leaders_fail_while_they_send(world: World) -> None:
    """A leader dies, another is cut off and deposed, while followers are sent large records."""
    rig = Rig(world)
    await rig.begin()
    large = Writer("large" + "." * RECORD_BYTES, rig.cluster.bootstrap, rig.ledger, 1, PATIENCE_S)
    world.start("large-writer", partial(large.write, LARGE, LARGE_PACE_S))
    for isolates in (False, True):
        await rig.until(rig.whole, "all replicas are in sync")
        leader = rig.partition().leader
        _slow_down(rig, f"broker-{leader}", SLOW_BYTES_PER_S)
        await asyncio.sleep(world.random.uniform(1.0, 3.0))
        if isolates:
            rig.isolate(f"broker-{leader}")
        else:
            world.kill(f"broker-{leader}")
        await rig.until(partial(_is_led_by_another, rig, leader), "another leads")
        await asyncio.sleep(world.random.uniform(0.0, 1.0))
        _slow_down(rig, f"broker-{leader}", None)
        world.heal()
        if not isolates:
            rig.cluster.start(f"broker-{leader}")
    world.kill("large-writer")
    await rig.end()


async def segments_are_removed_while_they_are_sent(world: World) -> None:
    """A consumer on a slow link has asked for records whose files are removed meanwhile.

    What it gets is what was written, up to where it has to ask again.
    """
    rig = Rig(world, SMALL_SEGMENTS)
    await rig.begin()
    cluster = rig.cluster
    large = Writer("large" + "." * RECORD_BYTES, cluster.bootstrap, rig.ledger, 1, PATIENCE_S)
    await rig.run("large-writer", partial(large.write, LARGE, 0.0))
    world.kill("reader")
    leader = f"broker-{rig.partition().leader}"
    slow = Ledger()
    world.network.link(leader, "slow-reader").bytes_per_s = SLOW_BYTES_PER_S
    world.node("slow-reader").forgiven = (OffsetOutOfRangeError,)
    reading = world.start("slow-reader", partial(follow, cluster.bootstrap, slow, 1)).done
    await rig.until(lambda: bool(slow.seen), "it has begun to read")
    await asyncio.sleep(world.random.uniform(0.1, 0.6))
    await rig.run("admin", partial(_delete_all, cluster.bootstrap))
    await rig.until(lambda: len(_segments(world, leader)) == 1, "files are removed")
    before = len(slow.seen)
    await rig.until(reading.done, "it has to ask again")
    assert len(slow.seen) > before, "it got what it had asked for"
    wrong = [at for at, value in slow.seen.items() if rig.ledger.acknowledged.get(at) != value]
    assert not wrong, f"{wrong[0]} is not what was acknowledged"


def _slow_down(rig: Rig, source: str, bytes_per_s: float | None) -> None:
    for name in rig.cluster.broker_names:
        rig.world.network.link(source, name).bytes_per_s = bytes_per_s


def _is_led_by_another(rig: Rig, broker_id: int) -> bool:
    partition = rig.partition()
    return partition is not None and partition.leader not in (-1, broker_id)


def _segments(world: World, name: str) -> list[str]:
    """The files of the partition that hold batches, also those that are about to be removed."""
    names = world.node(name).disk.names(f"/data/{TOPIC}-0")
    return [one for one in names if one.endswith((".log", ".log.deleted"))]


async def _delete_all(bootstrap: list[str], runtime: SimRuntime) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.delete_records({TopicPartition(TOPIC, 0): RecordsToDelete(before_offset=-1)})
    await admin.close()
