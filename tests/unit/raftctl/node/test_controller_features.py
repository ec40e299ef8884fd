"""Controllers of two releases in one quorum: no level is raised that one of them cannot take."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.cluster import SimCluster, node_id
from jepsen.simulator.world import World
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import (
    CONTROLLERS_LEVEL,
    ELR_FEATURE,
    METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    supported_ranges,
)
from raftctl.metadata.requests.admin import (
    SAFE_DOWNGRADE,
    UPGRADE,
    AdminResponse,
    FeatureUpdate,
    UpdateFeaturesRequest,
)
from tests.unit.raftctl.node.nodes import PATIENCE_S, Operator, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.req("C11")

OLD = tuple(one for one in supported_ranges() if one.name != ELR_FEATURE)
"""What a release can work with that does not know eligible leader replicas."""
STANDBY = "controller-104"


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=11, tolerated=(KafkaError,)) as made:
        yield made


async def until(holds: Callable[[], bool]) -> None:
    """Looks again and again, until it holds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if holds():
                return
            await asyncio.sleep(0.05)


def registered(cluster: SimCluster, name: str) -> bool:
    """Whether all controllers that run know this one, with the features that it has."""
    node = cluster.nodes[name]
    others = [cluster.nodes[one] for one in cluster.controller_names if cluster.is_up(one)]
    for other in others:
        known = other.loader and other.loader.image.controllers.get(node_id(name))
        if not known or known.features != node.features:
            return False
    return bool(others)


async def update(
    operator: Operator, feature: str, level: int, kind: int = UPGRADE
) -> AdminResponse:
    response = await operator.ask(UpdateFeaturesRequest((FeatureUpdate(feature, level, kind),)))
    assert isinstance(response, AdminResponse)
    return response


async def raised(operator: Operator, level: int) -> None:
    """Asks for the level until all voters have told the active controller that they can."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            response = await update(operator, METADATA_VERSION_FEATURE, level)
            if response.error == ErrorCode.NONE:
                return
            assert "has not registered" in response.message
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("old", ["controller-102", STANDBY])
def test_an_old_controller_holds_a_level_back_until_it_is_upgraded(world: World, old: str) -> None:
    """Whether it votes or stands by; down or up."""
    cluster = SimCluster(world, brokers=0, dynamic=True, spares=1)
    cluster.features[old] = OLD
    cluster.start_all()

    async def story(operator: Operator) -> None:
        await until(lambda: all(registered(cluster, name) for name in cluster.controller_names))
        refused = await update(operator, ELR_FEATURE, 1)
        assert refused.error == ErrorCode.INVALID_UPDATE_VERSION
        assert f"controller(s) {node_id(old)}: upgrade" in refused.message
        world.kill(old)
        assert (await update(operator, ELR_FEATURE, 1)).error == ErrorCode.INVALID_UPDATE_VERSION
        del cluster.features[old]
        killed = cluster.nodes[old]
        cluster.start(old)
        await until(lambda: cluster.nodes[old] is not killed and registered(cluster, old))
        assert (await update(operator, ELR_FEATURE, 1)).error == ErrorCode.NONE
        loader = cluster.nodes[old].loader
        assert loader is not None
        await until(lambda: loader.image.features.get(ELR_FEATURE) == 1)

    tell(world, cluster, story)


def test_an_old_controller_that_meets_a_level_it_cannot_take_says_so(world: World) -> None:
    cluster = SimCluster(world, brokers=0, dynamic=True, spares=1)
    for name in cluster.controller_names[:3]:
        cluster.start(name)

    async def story(operator: Operator) -> None:
        await until(lambda: all(registered(cluster, f"controller-{n}") for n in (101, 102, 103)))
        assert (await update(operator, ELR_FEATURE, 1)).error == ErrorCode.NONE
        cluster.features[STANDBY] = OLD
        cluster.start(STANDBY)
        process = world.node(STANDBY).process
        assert process is not None
        await until(process.done.done)
        error = process.done.exception()
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.UNSUPPORTED_VERSION
        assert f"{ELR_FEATURE} is 1, and this node does not know it" in error.message
        await operator.register(1)

    tell(world, cluster, story)


def test_a_cluster_goes_down_to_a_level_without_registrations_and_up_again(world: World) -> None:
    cluster = SimCluster(world, brokers=0)
    cluster.start_all()

    async def story(operator: Operator) -> None:
        names = cluster.controller_names
        await until(lambda: all(registered(cluster, name) for name in names))
        feature, level = METADATA_VERSION_FEATURE, CONTROLLERS_LEVEL - 1
        assert (await update(operator, feature, level, SAFE_DOWNGRADE)).error == ErrorCode.NONE
        leader = await operator.leader()
        world.kill(leader)
        cluster.start(leader)
        await operator.leader(other_than=leader)
        await raised(operator, METADATA_VERSION)
        await until(lambda: all(registered(cluster, name) for name in names))

    tell(world, cluster, story)


@pytest.mark.req("C2")
def test_a_controller_that_is_configured_differently_warns(world: World) -> None:
    """Not refused: else no rolling restart could change the config."""
    told: list[str] = []
    world.trace.sink = lambda line: (
        told.append(line) if "controllers_configured_differently" in line else None
    )
    cluster = SimCluster(world, brokers=0, spares=1)
    for name in cluster.controller_names[:3]:
        cluster.start(name)

    async def story(operator: Operator) -> None:
        await until(lambda: all(registered(cluster, f"controller-{n}") for n in (101, 102, 103)))
        assert told == []
        cluster.overrides = {"broker.session.timeout.ms": "7777"}
        cluster.start(STANDBY)
        await until(lambda: STANDBY in cluster.nodes and registered(cluster, STANDBY))
        assert len(told) == 1
        assert "broker.session.timeout.ms=7777 (the active controller has " in told[0]

    tell(world, cluster, story)
