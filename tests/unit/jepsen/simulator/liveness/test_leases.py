"""A broker that believes in its session after it was fenced is caught, also while it is paused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.liveness import Progress, every_node_follows
from jepsen.simulator.properties import Violation
from jepsen.simulator.world import World
from raftctl.node._registrations import BrokerLifecycle

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("J1", "C2", "R6")

FENCED_S = 4.0


def run(seed: int, go_wrong: Callable[[SimCluster], None]) -> int:
    """What happens to a broker, and time until it is fenced; how often it was rightly not sure."""
    with World(seed) as world:
        cluster = SimCluster(world, brokers=2)
        progress = Progress(cluster)

        async def scenario() -> None:
            cluster.start_all()
            await every_node_follows(cluster)
            await asyncio.sleep(2.0)
            go_wrong(cluster)
            watching = asyncio.create_task(progress.watch())
            await asyncio.wait([watching], timeout=FENCED_S)
            if watching.done():
                await watching
            watching.cancel()

        world.run(scenario())
        return progress.leases.refused


def pause(cluster: SimCluster) -> None:
    cluster.world.pause("broker-1")


def cut_off(cluster: SimCluster) -> None:
    for name in cluster.controller_names:
        cluster.world.partition("broker-1", name)


def stop(cluster: SimCluster) -> None:
    cluster.world.terminate("broker-1")


@pytest.mark.parametrize("go_wrong", [pause, cut_off])
def test_a_fenced_broker_that_is_not_sure_is_left_alone(
    go_wrong: Callable[[SimCluster], None],
) -> None:
    assert run(1, go_wrong) > 0


@pytest.mark.parametrize("go_wrong", [pause, cut_off])
def test_a_fenced_broker_that_is_sure_is_caught(
    monkeypatch: pytest.MonkeyPatch, go_wrong: Callable[[SimCluster], None]
) -> None:
    monkeypatch.setattr(BrokerLifecycle, "has_session", lambda _: True)
    with pytest.raises(Violation, match="fenced_broker_is_not_sure: broker-1 of broker epoch"):
        run(2, go_wrong)


def test_a_broker_that_is_let_go_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerLifecycle, "has_session", lambda _: True)
    assert run(3, stop) == 0
