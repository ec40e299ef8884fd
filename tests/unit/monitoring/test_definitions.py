"""The table of metrics is what nodes serve: no more and no less."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.cluster import CONTROLLER_PORT, SimCluster
from jepsen.simulator.world import World
from tests.monitoring.definitions import Server, definitions
from tests.unit.raftctl.node.nodes import Operator, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

_FAMILY = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=3) as made:
        yield made


@pytest.mark.req("O5")
def test_the_table_has_what_nodes_serve_and_nothing_else(world: World) -> None:
    overrides = {"http.listener": f"HTTP://broker-1:{CONTROLLER_PORT}"}
    cluster = SimCluster(world, controllers=1, brokers=1, broker_overrides=overrides)
    cluster.start_all()
    nodes = {"controller-101": Server.CONTROLLER, "broker-1": Server.BROKER}

    async def story(operator: Operator) -> None:
        await operator.leader()
        await asyncio.sleep(15)
        for node, role in nodes.items():
            text = (await operator.read(node, "/metrics")).decode()
            assert dict(_FAMILY.findall(text)) == {
                name: one.metric.kind.value
                for name, one in definitions().items()
                if one.server in (role, Server.EVERY)
            }

    tell(world, cluster, story)


def test_a_metric_says_what_it_is_in_sentences() -> None:
    meanings = {name: one.metric.says for name, one in definitions().items()}
    assert [name for name, says in meanings.items() if not re.fullmatch(r"[A-Z\d].*\.", says)] == []
