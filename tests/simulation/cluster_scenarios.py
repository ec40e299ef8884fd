"""Scenarios of whole clusters, each run with a seed in a process of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from jepsen.simulator.cluster import Observer, SimCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.simulator.world import SimRuntime, World

TOPIC = "events"
RECORDS = 1000


async def controllers_fail_over(world: World) -> None:
    """Three controllers elect one, lose it, elect another; the old one comes back as follower."""
    cluster = SimCluster(world, brokers=0)
    cluster.start_all()

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        first = await observer.wait_for(lambda status: status["high_watermark"] > 2)
        killed = f"controller-{first['leader_id']}"
        world.kill(killed)
        second = await observer.wait_for(lambda status: status["epoch"] > first["epoch"])
        assert second["leader_id"] != first["leader_id"]
        cluster.start(killed)
        healed = await observer.wait_for(_all_voters_caught_up)
        assert healed["high_watermark"] > first["high_watermark"]

    await world.start("operator", operator).done


def _all_voters_caught_up(status: dict[str, Any]) -> bool:
    end = status["log_end_offset"]
    return all(end - voter["log_end_offset"] <= 1 for voter in status["voters"])


async def leader_dies_under_load(world: World) -> None:
    """Unmodified aiokafka clients write and read while a partition leader and a controller die.

    Every acknowledged record is read back, once and in order.
    """
    cluster = SimCluster(world)
    cluster.start_all()
    acknowledged: dict[int, bytes] = {}

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        await observer.wait_for(all_brokers_active(cluster))
        writer = world.start("writer", partial(write_records, cluster, acknowledged))
        await until(lambda: len(acknowledged) > RECORDS // 4)
        status = await observer.wait_for(lambda status: status["partitions"] == 1)
        leader = next(b["broker_id"] for b in status["brokers"] if b["leaders"])
        world.kill(f"broker-{leader}")
        await observer.wait_for(lambda status: no_leader_on(status, leader))
        await until(lambda: len(acknowledged) > RECORDS // 2)
        world.kill(f"controller-{status['leader_id']}")
        cluster.start(f"broker-{leader}")
        await writer.done
        cluster.start(f"controller-{status['leader_id']}")
        await observer.wait_for(lambda status: status["under_replicated_partitions"] == 0)
        await world.start("reader", partial(read_and_compare, cluster, acknowledged)).done

    await world.start("operator", operator).done


async def write_records(
    cluster: SimCluster, acknowledged: dict[int, bytes], runtime: SimRuntime
) -> None:
    """Creates the topic and writes to it with an idempotent producer, a few records at a time."""
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    topic = NewTopic(TOPIC, 1, 3, topic_configs={"min.insync.replicas": "2"})
    await admin.create_topics([topic])
    await admin.close()
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True
    )
    await producer.start()
    for start in range(0, RECORDS, 10):
        values = [b"record %d" % number for number in range(start, start + 10)]
        sent = [await producer.send(TOPIC, value) for value in values]
        for value, future in zip(values, sent, strict=True):
            acknowledged[(await future).offset] = value
        await asyncio.sleep(0.02)
    await producer.stop()


async def read_and_compare(
    cluster: SimCluster, acknowledged: dict[int, bytes], runtime: SimRuntime
) -> None:
    """Reads everything back and compares with what was acknowledged."""
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, enable_auto_commit=False)
    await consumer.start()
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    found: dict[int, bytes] = {}
    while len(found) < len(acknowledged):
        record = await asyncio.wait_for(consumer.getone(), 30)
        found[record.offset] = record.value
    await consumer.stop()
    assert found == acknowledged
    values = [found[offset] for offset in sorted(found)]
    assert values == [b"record %d" % number for number in range(RECORDS)]


async def until(condition: Callable[[], bool]) -> None:
    """Waits, in virtual time, for something that another process brings about."""
    async with asyncio.timeout(120):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


def all_brokers_active(cluster: SimCluster) -> Callable[[dict[str, Any]], bool]:
    """Whether every broker is registered and unfenced."""

    def holds(status: dict[str, Any]) -> bool:
        return sum(not broker["fenced"] for broker in status["brokers"]) == cluster.brokers

    return holds


def no_leader_on(status: dict[str, Any], broker_id: int) -> bool:
    """Whether the broker leads nothing and every partition has a leader."""
    leads = {broker["broker_id"]: broker["leaders"] for broker in status["brokers"]}
    return not leads[broker_id] and not status["offline_partitions"]


OFTEN_SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.retention.bytes": "0",
    "metadata.log.segment.bytes": "1000",
    "metadata.max.idle.interval.ms": "50",
}


async def snapshots_bring_back_who_was_away(world: World) -> None:
    """A controller and a broker are away while the log they need is deleted; then they catch up.

    Then the others die, so that what came by snapshot is what the next leader starts from.
    """
    cluster = SimCluster(world, brokers=2, overrides=OFTEN_SNAPSHOTS)
    cluster.start_all()

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        status = await observer.wait_for(all_brokers_active(cluster))
        leader_id = status["leader_id"]
        away = next(name for name in cluster.controller_names if not name.endswith(str(leader_id)))
        world.kill(away)
        world.kill("broker-2")
        await asyncio.sleep(10)
        assert checkpoints(world, f"controller-{leader_id}"), "a snapshot was taken"
        cluster.start(away)
        cluster.start("broker-2")
        await observer.wait_for(_all_voters_caught_up)
        await observer.wait_for(all_brokers_active(cluster))
        assert checkpoints(world, away), "it came by snapshot"
        world.kill(f"controller-{leader_id}")
        await observer.wait_for(lambda status: status["leader_id"] != leader_id)
        cluster.start(f"controller-{leader_id}")
        await observer.wait_for(all_brokers_active(cluster))

    await world.start("operator", operator).done


def checkpoints(world: World, node: str) -> list[str]:
    """The snapshots on a node's disk."""
    names = world.node(node).disk.names("/data/__cluster_metadata-0")
    return [name for name in names if name.endswith(".checkpoint")]
