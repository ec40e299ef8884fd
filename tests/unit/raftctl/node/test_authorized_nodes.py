"""A whole node whose authorizer decides what brokers forward (S4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.cluster import CONTROLLER_PORT, SimCluster
from jepsen.simulator.world import World
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.metadata.requests.admin import AdminResponse, UpdateFeaturesRequest
from raftctl.metadata.requests.security import AclBinding, CreateAclsRequest
from raftctl.node import _node
from tests.kit.authorizing import ListedActions
from tests.unit.raftctl.node.nodes import Operator, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.security import Action, Requester

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ALICE, BOB = ("User:alice", "10.0.0.7"), ("User:bob", "10.0.0.7")


class Rules(ListedActions):
    """Allows everything to Alice, and to those whom a rule of the newest image names."""

    principals: frozenset[str] = frozenset()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `raftctl.security.Authorizer`."""
        self.principals = frozenset(rule.principal for rule in image.acls.values())

    def authorize(self, requester: Requester, action: Action) -> bool:
        """See `raftctl.security.Authorizer`."""
        assert action[:3] == (Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        return str(requester.principal) in {ALICE[0], *self.principals}


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=11, tolerated=(KafkaError,)) as made:
        yield made


@pytest.mark.req("S4")
def test_a_controller_decides_by_the_rules_that_are_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_node, "load_authorizer", lambda *_: Rules())
    overrides = {"authorizer.class.name": "rules"}
    cluster = SimCluster(world, controllers=3, brokers=0, overrides=overrides)
    cluster.start_all()
    rule = AclBinding(4, CLUSTER_NAME, 3, BOB[0], "*", Operation.ALTER, 3)

    async def outcome(operator: Operator, request: UpdateFeaturesRequest) -> ErrorCode:
        try:
            response = await operator.ask(request)
        except KafkaError as error:
            return error.code
        assert isinstance(response, AdminResponse)
        return response.error

    async def story(operator: Operator) -> None:
        await operator.leader()
        by_bob = UpdateFeaturesRequest((), requester=BOB)
        assert await outcome(operator, UpdateFeaturesRequest(())) == DENIED
        assert await outcome(operator, by_bob) == DENIED
        assert await outcome(operator, replace(by_bob, requester=ALICE)) == ErrorCode.NONE
        response = await operator.ask(CreateAclsRequest((rule,), ALICE))
        assert isinstance(response, AdminResponse)
        assert [one.error for one in response.outcomes] == [ErrorCode.NONE]
        assert await outcome(operator, by_bob) == ErrorCode.NONE

    tell(world, cluster, story)


@pytest.mark.req("S6", "O1")
def test_rules_hold_for_the_metrics_of_a_broker(world: World) -> None:
    """Nobody is a node there, so nothing is a reason to let everybody in, as at a controller."""
    cluster = SimCluster(
        world,
        controllers=1,
        brokers=1,
        overrides={"authorizer.class.name": "standard", "super.users": ALICE[0]},
        broker_overrides={"http.listener": f"HTTP://broker-1:{CONTROLLER_PORT}"},
    )
    cluster.start_all()
    anonymous = AclBinding(4, CLUSTER_NAME, 3, "User:ANONYMOUS", "*", Operation.DESCRIBE, 3)

    async def story(operator: Operator) -> None:
        await operator.leader()
        await asyncio.sleep(15)
        assert await operator.get("broker-1", "/readyz") == (
            200,
            {"ready": True, "problems": []},
        )
        status, document = await operator.get("broker-1", "/metrics")
        assert (status, document["error"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
        response = await operator.ask(CreateAclsRequest((anonymous,), ALICE))
        assert isinstance(response, AdminResponse)
        await asyncio.sleep(1)
        assert b"raftmetrics" in await operator.read("broker-1", "/metrics")

    tell(world, cluster, story)
