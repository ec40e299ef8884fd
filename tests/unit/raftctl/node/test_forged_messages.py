"""Whatever a peer sends over the inner RPC, a whole node answers with an error at most."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.world import World
from raftctl.metadata.requests.cluster import BrokerHeartbeatRequest
from raftctl.rpc import RpcError
from raftctl.rpc.codec import QUORUM, TAGGED
from tests.unit.raftctl.controller.test_forged_requests import Forger
from tests.unit.raftctl.node.nodes import CALL_TIMEOUT_MS, Operator, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 6


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=11) as made:
        yield made


@pytest.mark.req("C1", "Q12")
def test_no_message_ends_a_controller(world: World) -> None:
    """Requests with forged contents; responses, hellos and failures that nobody has asked for."""
    cluster = SimCluster(world, controllers=1, brokers=0)
    cluster.start_all()
    classes = [one for one in TAGGED if one not in QUORUM.values()]

    async def story(operator: Operator) -> None:
        name = await operator.leader()
        await operator.register(1)
        node = cluster.nodes[name]
        forger = Forger(cast("Any", node.loader), 1)
        (voter,) = operator.voters.values()
        answered = refused = 0
        for _ in range(ROUNDS):
            for message_class in classes:
                message = forger.make(message_class)
                if isinstance(message, BrokerHeartbeatRequest):
                    # One that is right by chance would unfence a broker that does not run.
                    message = replace(message, want_fence=True)
                try:
                    await voter.call(message, CALL_TIMEOUT_MS)
                    answered += 1
                except RpcError:
                    refused += 1
                assert cluster.is_up(name), message_class
        assert answered
        assert refused
        assert not node.ended.done()
        await operator.register(2)

    tell(world, cluster, story)
