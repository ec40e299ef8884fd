"""A node that ends in good order leaves nothing behind; whatever it forgets is named."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.liveness import every_node_follows
from jepsen.simulator.world import World
from jepsen.simulator.world._world import WorldFailed
from raftctl.storage.log import RecordLog

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("J1")


def stop_all(seed: int, go_wrong: Callable[[SimCluster], None] = lambda _: None) -> None:
    """Every node of a small cluster is asked to end."""
    with World(seed) as world:
        cluster = SimCluster(world, controllers=1, brokers=1)

        async def scenario() -> None:
            cluster.start_all()
            await every_node_follows(cluster)
            await asyncio.sleep(2.0)
            go_wrong(cluster)
            for name in ("broker-1", "controller-101"):
                world.terminate(name)
                await asyncio.sleep(5.0)
                assert world.node(name).process is None

        world.run(scenario())


def test_nodes_that_end_leave_nothing() -> None:
    stop_all(1)


def test_a_file_that_stays_open_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordLog, "close", lambda _: None)
    with pytest.raises(WorldFailed, match=r"nothing_is_left_of_a_node_that_ended.*\.log is open"):
        stop_all(2)


def test_a_task_that_goes_on_is_named() -> None:
    def begin_a_task(cluster: SimCluster) -> None:
        process = cluster.world.node("controller-101").process
        assert process is not None

        def begin() -> None:
            asyncio.get_running_loop().create_task(asyncio.sleep(3_600), name="forgotten")

        process.context.run(begin)

    with pytest.raises(WorldFailed, match=r"nothing_is_left_of_a_node_that_ended.*forgotten"):
        stop_all(3, begin_a_task)
