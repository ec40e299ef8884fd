"""A partition moves to another broker while clients write and brokers die."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.simulator.cluster import Observer, SimCluster
from tests.simulation.cluster_scenarios import (
    RECORDS,
    TOPIC,
    all_brokers_active,
    read_and_compare,
    until,
    write_records,
)
from tests.unit.broker.server.fakes import Client

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime, World

METADATA, ALTER, LIST, CONFIGURE = (3, 9), (45, 0), (46, 0), (44, 0)
STEP_BYTES = 1_000
BYTES_PER_SECOND = 1_000


async def partition_moves_while_its_leader_dies(world: World) -> None:
    """The replicas are changed from three of four brokers to three others, the leader not among

    them, and the leader is killed meanwhile. Every acknowledged record is read back.
    """
    cluster = SimCluster(world, brokers=4)
    cluster.start_all()
    acknowledged: dict[int, bytes] = {}

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        await observer.wait_for(all_brokers_active(cluster))
        writer = world.start("writer", partial(write_records, cluster, acknowledged))
        await until(lambda: len(acknowledged) > RECORDS // 4)
        leader, replicas, addresses = await _partition(cluster)
        (absent,) = [broker_id for broker_id in addresses if broker_id not in replicas]
        target = [absent, *(one for one in replicas if one != leader)]
        at = addresses[absent]
        await _ask(at, ALTER, _moving(target))
        world.kill(f"broker-{leader}")
        await until(lambda: len(acknowledged) > RECORDS // 2)
        cluster.start(f"broker-{leader}")
        await _until_nothing_moves(at)
        await writer.done
        _, moved, _ = await _partition(cluster)
        assert moved == target
        await observer.wait_for(lambda status: status["under_replicated_partitions"] == 0)
        await world.start("reader", partial(read_and_compare, cluster, acknowledged)).done

    await world.start("operator", operator).done


async def throttled_move_keeps_to_its_rate(world: World) -> None:
    """A partition is copied to a fourth broker at a bounded rate, and no faster."""
    step = {"replica.fetch.max.bytes": str(STEP_BYTES)}
    cluster = SimCluster(world, brokers=4, overrides=step)
    cluster.start_all()
    acknowledged: dict[int, bytes] = {}

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        await observer.wait_for(all_brokers_active(cluster))
        await world.start("writer", partial(write_records, cluster, acknowledged)).done
        leader, replicas, addresses = await _partition(cluster)
        (absent,) = [broker_id for broker_id in addresses if broker_id not in replicas]
        broker: Any = cluster.nodes[f"broker-{leader}"].broker
        size = sum(replica.log.size for replica in broker.replicas.partitions.values())
        await _ask(addresses[leader], CONFIGURE, _throttled())
        began = asyncio.get_running_loop().time()
        await _ask(addresses[leader], ALTER, _moving([leader, absent]))
        await _until_nothing_moves(addresses[leader])
        seconds = asyncio.get_running_loop().time() - began
        # What ten windows allow may come at once, and the last step goes beyond.
        least_s = (size - STEP_BYTES) / BYTES_PER_SECOND - 10
        assert least_s > 5, "there is enough to copy"
        assert least_s <= seconds < 3 * least_s + 30, (size, seconds)
        await world.start("reader", partial(read_and_compare, cluster, acknowledged)).done

    await world.start("operator", operator).done


def _throttled() -> dict[str, Any]:
    """Rates for all brokers, and all replicas of the topic named."""
    topic = [f"{one}.replication.throttled.replicas" for one in ("leader", "follower")]
    rates = [f"{one}.replication.throttled.rate" for one in ("leader", "follower")]
    return {
        "resources": [
            {"resource_type": 2, "resource_name": TOPIC, "configs": _set(topic, "*")},
            {
                "resource_type": 4,
                "resource_name": "",
                "configs": _set(rates, str(BYTES_PER_SECOND)),
            },
        ],
        "validate_only": False,
    }


def _set(keys: list[str], value: str) -> list[dict[str, Any]]:
    return [{"name": key, "config_operation": 0, "value": value} for key in keys]


async def _until_nothing_moves(address: tuple[str, int]) -> None:
    for _ in range(1_000):
        if not (await _ask(address, LIST, {"timeout_ms": 1000, "topics": None}))["topics"]:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the partition still moves")


def _moving(target: list[int]) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "replicas": target}]
    return {"timeout_ms": 10_000, "topics": [{"name": TOPIC, "partitions": partitions}]}


async def _partition(cluster: SimCluster) -> tuple[int, list[int], dict[int, tuple[str, int]]]:
    """(leader, replicas, address of each broker)"""
    host, _, port = cluster.bootstrap[0].rpartition(":")
    question = {
        "topics": [{"name": TOPIC}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    answer = await _ask((host, int(port)), METADATA, question)
    (partition,) = answer["topics"][0]["partitions"]
    addresses = {one["node_id"]: (one["host"], one["port"]) for one in answer["brokers"]}
    return partition["leader_id"], list(partition["replica_nodes"]), addresses


async def _ask(
    address: tuple[str, int], api: tuple[int, int], message: dict[str, Any]
) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        return await Client(reader, writer).ask(*api, message)
    finally:
        writer.close()
