"""Brokers with two listeners: a client gets the addresses of the one that it came by (row S1)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from broker.protocol.versions import ApiKey
from raftctl.errors import ErrorCode
from raftctl.localcluster.ports import free_ports
from tests.integration.clusters import running_cluster, wait_healthy
from tests.kit.topics import create_topic
from tests.unit.broker.server.fakes import (
    Client,
    batch,
    connected,
    fetch_message,
    produce_message,
)

if TYPE_CHECKING:
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

TIMEOUT_S = 60
TOPIC = "t"
MAP = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
Ports = dict[int, int]
"""By the broker's id."""


class Door:
    """One listener of a broker, as `connected` wants it."""

    def __init__(self, port: int) -> None:
        self.port = port


def add_listeners(cluster: LocalCluster) -> tuple[Ports, Ports]:
    """Give each broker a second listener; return the ports of the inner and the outer ones."""
    inside = {node.node_id: node.port for node in cluster.layout.brokers}
    outside = dict(zip(inside, free_ports(len(inside)), strict=True))
    for node in cluster.layout.brokers:
        cluster.kill(node)
        path = cluster.directory / node.name / "node.properties"
        listeners = (
            f"INSIDE://127.0.0.1:{node.port},OUTSIDE://127.0.0.1:{outside[node.node_id]}\n"
            f"listener.security.protocol.map={MAP}\n"
            "inter.broker.listener.name=INSIDE\n"
        )
        path.write_text(f"{path.read_text()}listeners={listeners}")
        cluster.start(node)
    wait_healthy(cluster)
    return inside, outside


def addresses(nodes: Any, key: str = "node_id") -> Ports:
    """The ports in an answer, all on loopback."""
    assert {node["host"] for node in nodes} == {"127.0.0.1"}
    return {node[key]: node["port"] for node in nodes}


def metadata_message(topic: str | None) -> dict[str, Any]:
    """Ask for one topic, or for all."""
    return {
        "topics": None if topic is None else [{"name": topic}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


async def named(client: Client, leader: int) -> Ports:
    """The addresses of brokers in the answers about them; all agree."""
    metadata = await client.ask(ApiKey.METADATA, 12, metadata_message(None))
    found = addresses(metadata["brokers"])
    cluster = await client.ask(
        ApiKey.DESCRIBE_CLUSTER,
        1,
        {"include_cluster_authorized_operations": False, "endpoint_type": 1},
    )
    assert addresses(cluster["brokers"], "broker_id") == found
    while True:
        asked = {"key_type": 0, "coordinator_keys": ["g"]}
        (group,) = (await client.ask(ApiKey.FIND_COORDINATOR, 4, asked))["coordinators"]
        if group["error_code"] == ErrorCode.NONE:
            break
        await asyncio.sleep(0.1)
    assert group["port"] == found[group["node_id"]]
    old = await client.ask(ApiKey.FIND_COORDINATOR, 1, {"key": "g", "key_type": 0})
    assert old["port"] == found[old["node_id"]]
    # Of a partition that the broker does not lead (KIP-951).
    produced = await client.ask(ApiKey.PRODUCE, 10, produce_message(TOPIC, batch()))
    (response,) = produced["responses"][0]["partition_responses"]
    assert response["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert addresses(produced["node_endpoints"]) == {leader: found[leader]}
    topic_id = next(one["topic_id"] for one in metadata["topics"] if one["name"] == TOPIC)
    asked_for = fetch_message(TOPIC, session_id=0, session_epoch=-1)
    asked_for["topics"][0]["topic_id"] = topic_id
    fetched = await client.ask(ApiKey.FETCH, 16, asked_for)
    assert addresses(fetched["node_endpoints"]) == {leader: found[leader]}
    return found


@pytest.mark.req("N2", "S1")
def test_a_client_gets_the_addresses_of_its_listener(tmp_path: Path) -> None:
    with running_cluster(tmp_path, 1, 2) as cluster:
        inside, outside = add_listeners(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap})
        create_topic(admin, TOPIC, 1, 2, {}, TIMEOUT_S)
        wait_healthy(cluster)

        async def ask() -> tuple[Ports, Ports]:
            async with connected(Door(inside[1])) as client:
                metadata = await client.ask(ApiKey.METADATA, 12, metadata_message(TOPIC))
            leader = metadata["topics"][0]["partitions"][0]["leader_id"]
            (other,) = {1, 2} - {leader}
            found = []
            for ports in (inside, outside, inside):
                async with connected(Door(ports[other])) as client:
                    found.append(await asyncio.wait_for(named(client, leader), TIMEOUT_S))
            assert found[0] == found[2]
            return found[0], found[1]

        assert asyncio.run(ask()) == (inside, outside)
