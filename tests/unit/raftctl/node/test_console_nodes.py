"""Whole nodes that serve the console: a controller, and a node that is only a broker (W1, A4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.cluster import CONTROLLER_PORT, SimCluster
from jepsen.simulator.world import World
from raftctl.metadata.requests.cluster import CreateTopicsRequest, NewTopic
from tests.unit.raftctl.node.nodes import Operator, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKER = "broker-1"
API = "/console/api"


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=11) as made:
        yield made


@pytest.mark.req("W1", "A4")
def test_both_kinds_of_nodes_serve_the_console(world: World) -> None:
    cluster = SimCluster(
        world,
        controllers=3,
        brokers=1,
        broker_overrides={"http.listener": f"HTTP://{BROKER}:{CONTROLLER_PORT}"},
    )
    cluster.start_all()

    async def story(operator: Operator) -> None:
        leader = await operator.leader()
        await asyncio.sleep(15)
        await operator.ask(CreateTopicsRequest((NewTopic("orders", 2, 1),)))
        await asyncio.sleep(2)
        others = [name for name in cluster.controller_names if name != leader]
        for name in (leader, others[0], BROKER):
            assert b"<title>" in await operator.read(name, "/console/")
            status, overview = await operator.get(name, f"{API}/overview")
            assert (status, overview["topics"], overview["partitions"]) == (200, 1, 2)
            assert overview["roles"] == ["broker" if name == BROKER else "controller"]
            assert overview["brokers"] == {"total": 1, "fenced": 0}
            _, topics = await operator.get(name, f"{API}/topics")
            assert [row["name"] for row in topics["rows"]] == ["orders"]
            status, quorum = await operator.get(name, f"{API}/quorum")
            assert f"controller-{quorum['leader_id']}" == leader
            assert all(row["lag"] is not None for row in quorum["voters"]), name
            assert len(quorum["voters"]) == 3
            assert [row["node_id"] for row in quorum["observers"]] == [
                row["id"] for row in (await operator.get(name, f"{API}/brokers"))[1]["rows"]
            ]
        before = len((await operator.get(BROKER, f"{API}/quorum"))[1]["timeline"])
        world.kill(leader)
        await operator.leader(other_than=leader)
        await asyncio.sleep(2)
        _, quorum = await operator.get(BROKER, f"{API}/quorum")
        assert len(quorum["timeline"]) > before
        assert quorum["timeline"][0]["kind"] == "elected"

    tell(world, cluster, story)
