"""Controllers as real processes: they elect, fail over, hand over and forget nothing."""

from __future__ import annotations

import io
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.controller_channel import QuorumControllerClient
from raftctl.errors import ErrorCode
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.localcluster.processes import wait_gone
from raftctl.metadata.records import Endpoint
from raftctl.metadata.requests.cluster import RegisterBrokerRequest, RegisterBrokerResponse
from raftctl.rpc import RpcClient
from raftctl.runtime.real import RealRuntime
from tests.integration.clusters import launcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from raftctl.localcluster.layout import LocalNode
    from raftctl.localcluster.status import ClusterStatus

PATIENCE_S = 15.0
OPERATOR_ID = 999


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three controllers; the broker of the layout is never started."""
    spec = ClusterSpec(controllers=3, brokers=1)
    made = LocalCluster.open(
        tmp_path / "cluster", spec, random_uuid_text, format_storage, launcher().launch
    )
    try:
        for node in made.layout.controllers:
            made.start(node)
        yield made
    finally:
        made.kill_all()
    assert not any(made.is_running(node) for node in made.layout.nodes)


def until(cluster: LocalCluster, holds: Callable[[ClusterStatus], Any]) -> Any:
    """What the condition says of the first status for which it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        status = cluster.status()
        found = holds(status)
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"no such status within {PATIENCE_S} s: {status}")


def leader_after(cluster: LocalCluster, epoch: int) -> tuple[LocalNode, int]:
    """The controller that leads an epoch after that one, and its epoch."""
    found = until(cluster, lambda status: status.leader if _epoch(status.leader) > epoch else None)
    return cluster.layout.node(found["node_id"]), found["epoch"]


def _epoch(leader: dict[str, Any] | None) -> int:
    return leader["epoch"] if leader is not None else -1


async def register(cluster: LocalCluster, broker_id: int) -> int:
    """Registers a broker with whoever is the active controller; returns its epoch."""
    runtime = RealRuntime(io.StringIO())
    voters = {
        node.node_id: RpcClient(
            runtime,
            "127.0.0.1",
            node.port,
            cluster_id=cluster.layout.cluster_id,
            node_id=OPERATOR_ID,
        )
        for node in cluster.layout.controllers
    }
    client = QuorumControllerClient(voters, lambda: -1, runtime)
    endpoints = (Endpoint("PLAINTEXT", "somewhere", 9092),)
    request = RegisterBrokerRequest(
        broker_id, UUID(int=broker_id), cluster.layout.cluster_id, endpoints, None, ()
    )
    response = await client.call(request, int(PATIENCE_S * 1000))
    for voter in voters.values():
        await voter.close()
    runtime.close()
    assert isinstance(response, RegisterBrokerResponse)
    assert response.error == ErrorCode.NONE
    return response.broker_epoch


def all_know(cluster: LocalCluster, broker_ids: list[int]) -> None:
    """Waits until every controller answers and knows these brokers."""

    def know(status: ClusterStatus) -> bool:
        return all(
            answer is not None and [b["broker_id"] for b in answer["brokers"]] == broker_ids
            for answer in status.answers.values()
        )

    until(cluster, know)


@pytest.mark.req("Q1", "Q5", "C1")
async def test_a_killed_leader_is_replaced_and_comes_back_as_follower(
    cluster: LocalCluster,
) -> None:
    first = await register(cluster, 1)
    leader, epoch = leader_after(cluster, 0)
    cluster.kill(leader)
    began = time.monotonic()
    assert await register(cluster, 2) > first
    assert time.monotonic() - began < PATIENCE_S / 2
    successor, _ = leader_after(cluster, epoch)
    assert successor != leader
    cluster.start(leader)
    all_know(cluster, [1, 2])
    roles = Counter(answer and answer["role"] for answer in cluster.status().answers.values())
    assert roles == {"leader": 1, "follower": 2}


@pytest.mark.req("Q1", "Q3")
async def test_what_was_answered_survives_the_death_of_all(cluster: LocalCluster) -> None:
    for broker_id in (1, 2, 3):
        await register(cluster, broker_id)
    _, epoch = leader_after(cluster, 0)
    cluster.kill_all()
    for node in cluster.layout.controllers:
        cluster.start(node)
    _, next_epoch = leader_after(cluster, epoch)
    assert next_epoch > epoch
    all_know(cluster, [1, 2, 3])


@pytest.mark.req("Q4")
async def test_a_leader_that_is_stopped_hands_over_and_ends_cleanly(cluster: LocalCluster) -> None:
    await register(cluster, 1)
    leader, epoch = leader_after(cluster, 0)
    process = cluster.process(leader)
    assert process is not None
    process.send(signal.SIGTERM)
    assert wait_gone([process], PATIENCE_S) == []
    successor, _ = leader_after(cluster, epoch)
    assert successor != leader
    log = cluster.log_path(leader).read_text()
    assert "controller_renounced" in log
    assert "node_stopped" in log
    assert "Traceback" not in log
