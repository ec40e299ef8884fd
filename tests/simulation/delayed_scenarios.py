"""Requests to the controller that hang on the way until who sent them has given them up.

The broker asks again, on another connection or another controller, and tells its client what that
attempt came to. The old one must not be done when it arrives: a topic that was created, then
deleted, would be there again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from jepsen.simulator.cluster import BROKER_PORT, CONTROLLER_PORT, SimCluster
from jepsen.simulator.liveness import every_node_follows
from jepsen.simulator.network._network import RETRANSMIT_MAX_S
from jepsen.simulator.properties import Violation
from raftctl.controller_channel import CLIENT_ID
from raftctl.controller_channel._channel import ATTEMPT_TIMEOUT_MS
from raftctl.errors import ErrorCode
from raftctl.raft.messages import (
    AddVoterRequest,
    ChangeVotersResponse,
    NodeId,
    OffsetAndEpoch,
    RemoveVoterRequest,
    ReplicaKey,
    TransferLeadershipRequest,
)
from raftctl.rpc import RpcClient, RpcError
from tests.simulation.chaos_clients import new_topic
from tests.simulation.cluster_scenarios import until
from tests.simulation.rig import Rig
from tests.simulation.voter_changes import VoterOperator
from tests.unit.broker.server.fakes import Client

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime, World
    from raftctl.raft.messages import Voter

ROUNDS = 4
PATIENT = {"broker.session.timeout.ms": "30000", "broker.heartbeat.interval.ms": "1000"}
"""A broker that reaches no controller for some seconds is not fenced."""
TIMEOUT_MS = 20_000
HANG_S = ATTEMPT_TIMEOUT_MS / 1000 + 0.2
CREATE = (ApiKey.CREATE_TOPICS, 7, "topics")
DELETE = (ApiKey.DELETE_TOPICS, 6, "responses")


async def the_same_controller_gets_it_late(world: World) -> None:
    """The broker reaches the controller again on a connection that is quicker than the old one."""
    rig = Rig(world, PATIENT)
    await rig.begin()
    for number in range(ROUNDS):
        name = f"delayed-{number}"
        broker = world.random.choice(rig.cluster.broker_names)
        active = _active(rig)
        world.block(broker, active)
        creation = world.start(f"creator-{number}", partial(_created, broker, name)).done
        await asyncio.sleep(HANG_S)
        world.heal()
        await _is_gone_once_deleted(rig, name, await creation)
    await rig.end()


async def a_controller_that_leads_again_gets_it_late(world: World) -> None:
    """The broker reached another controller meanwhile, and never the first one."""
    rig = Rig(world, PATIENT)
    await rig.begin()
    for number in range(ROUNDS):
        name = f"delayed-{number}"
        broker = world.random.choice(rig.cluster.broker_names)
        first = _active(rig)
        second = next(one for one in rig.cluster.controller_names if one != first)
        world.block(broker, first)
        creation = world.start(f"creator-{number}", partial(_created, broker, name)).done
        await asyncio.sleep(HANG_S / 4)  # it has been sent
        await _lead(rig, second)
        done = await creation
        deleted = world.start(f"deleter-{number}", partial(_deleted, broker, name)).done
        assert await deleted in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await _lead(rig, first)
        world.heal()
        await _is_gone_once_deleted(rig, name, done)
    await rig.end()


async def a_change_of_voters_gets_there_late(world: World) -> None:
    """The operator has asked again, with another client, and taken the voter out since."""
    cluster = SimCluster(world, brokers=0, spares=1)
    cluster.start_all()
    joining = cluster.controller_names[-1]
    for number in range(ROUNDS):
        await until(lambda: joining in cluster.nodes and _leader(cluster) is not None)
        leader = _leader(cluster)
        assert leader is not None
        connected = asyncio.Event()
        late = f"late-{number}"
        asking = partial(_asked_late, cluster, leader, joining, connected)
        hanging = world.start(late, asking).done
        await connected.wait()
        world.block(late, leader)
        await asyncio.sleep(HANG_S)
        for what in ("add", "remove"):
            operator = VoterOperator(cluster, lambda: _voters(cluster))
            carrying_out = partial(operator.carry_out, [(what, joining)])
            await world.start(f"{what}-{number}", carrying_out).done
        world.heal()
        answer = await hanging
        if answer is ErrorCode.NONE or any(
            voter == cluster.voter(joining) for voter in _voters(cluster) or ()
        ):
            raise Violation("acknowledged_operation_stays", f"{joining} was removed and votes")
    await every_node_follows(cluster)


async def _asked_late(
    cluster: SimCluster, leader: str, joining: str, connected: asyncio.Event, runtime: SimRuntime
) -> ErrorCode | None:
    """Has the voter added by a request that its connection holds back for long."""
    client = RpcClient(
        runtime, leader, CONTROLLER_PORT, cluster_id=cluster.cluster_id, node_id=CLIENT_ID
    )
    nobody = RemoveVoterRequest(ReplicaKey(NodeId(999), None))
    await client.call(nobody, TIMEOUT_MS)
    driver = cluster.nodes[leader].driver
    assert driver is not None
    status = driver.status()
    seen = OffsetAndEpoch(status.voters_offset, status.epoch)
    connected.set()
    await asyncio.sleep(0.01)  # the link is blocked
    try:
        answer = await client.call(AddVoterRequest(cluster.voter(joining), seen), TIMEOUT_MS)
    except RpcError:
        return None
    finally:
        await client.close()
    assert isinstance(answer, ChangeVotersResponse)
    return answer.error


def _leader(cluster: SimCluster) -> str | None:
    """The controller that leads the newest epoch."""
    drivers = {
        name: cluster.nodes[name].driver
        for name in cluster.controller_names
        if name in cluster.nodes
    }
    epochs = {name: one.epoch for name, one in drivers.items() if one is not None and one.is_leader}
    return max(epochs, key=epochs.__getitem__, default=None)


def _voters(cluster: SimCluster) -> tuple[Voter, ...] | None:
    leader = _leader(cluster)
    driver = None if leader is None else cluster.nodes[leader].driver
    return None if driver is None else driver.core.voters.voters


def _active(rig: Rig) -> str:
    return next(
        name for name in rig.cluster.controller_names if rig.cluster.nodes.get(name) is rig.active()
    )


async def _lead(rig: Rig, name: str) -> None:
    node = rig.cluster.nodes[name]
    while rig.active() is not node or not rig.all_active():
        leader = rig.active()
        if leader is not None and leader is not node:
            request = TransferLeadershipRequest(NodeId(node.config.node_id))
            leader.driver.answer(request, lambda _: None)
        await asyncio.sleep(0.5)


async def _is_gone_once_deleted(rig: Rig, name: str, created: int) -> None:
    """Deletes what a client was told to be created, and waits for what hangs still."""
    assert created in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
    if created == ErrorCode.NONE:
        broker = rig.world.random.choice(rig.cluster.broker_names)
        await rig.run(f"last-{name}", partial(_deleted, broker, name))
        await asyncio.sleep(2 * RETRANSMIT_MAX_S)
        await rig.until(lambda: rig.active() is not None, "a controller is active")
        image = rig.active().loader.image
        if image.topics.by_name(name) is not None:
            raise Violation("acknowledged_operation_stays", f"{name} was deleted and is there")


async def _created(broker: str, name: str, runtime: SimRuntime) -> int:
    return await _answer(broker, CREATE, new_topic(name, TIMEOUT_MS))


async def _deleted(broker: str, name: str, runtime: SimRuntime) -> int:
    message = {"topics": [{"name": name, "topic_id": None}], "timeout_ms": TIMEOUT_MS}
    return await _answer(broker, DELETE, message)


async def _answer(broker: str, api: tuple[ApiKey, int, str], message: dict[str, Any]) -> int:
    """The error code of the only item."""
    key, version, items = api
    client = Client(*await asyncio.open_connection(broker, BROKER_PORT))
    answer = await client.ask(key, version, message)
    client.writer.close()
    return int(answer[items][0]["error_code"])
