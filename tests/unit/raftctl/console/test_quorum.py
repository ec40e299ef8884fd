"""The quorum with lags and elections, at the leader and elsewhere."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftctl.console._quorum import ELECTIONS_MAX, Elections
from raftctl.errors import ErrorCode
from raftctl.metadata.requests.admin import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumReplica,
)
from raftctl.raft import ReplicaStatus
from raftctl.raft.messages import NodeId, Offset
from tests.kit.authorizing import RuledAuthorizer
from tests.unit.raftctl.console.served import serving

pytestmark = pytest.mark.req("W1")


def replica(
    node_id: int, end: int, fetch_ms: int | None, caught_up_ms: int | None
) -> ReplicaStatus:
    return ReplicaStatus(NodeId(node_id), Offset(end), fetch_ms, caught_up_ms, UUID(int=node_id))


async def test_the_leader_knows_the_lags() -> None:
    async with serving() as served:
        served.quorum.voters = (replica(3, 100, 100_000, 100_000), replica(4, 60, 99_500, 98_000))
        served.quorum.observers = (replica(9, -1, None, None),)
        found = await served.get("quorum")
        assert [found[name] for name in ("leader_id", "epoch", "high_watermark")] == [3, 7, 90]
        assert found["voters"][0]["role"] == "leader"
        assert found["voters"][1] == {
            "node_id": 4,
            "directory_id": "AAAAAAAAAAAAAAAAAAAABA",
            "host": "node-4",
            "port": 9093,
            "role": "voter",
            "log_end_offset": 60,
            "lag": 40,
            "last_fetch_age_ms": 500,
            "last_caught_up_age_ms": 2_000,
        }
        observer = found["observers"][0]
        assert (observer["role"], observer["lag"], observer["host"]) == ("observer", None, None)
        assert served.controller.asked == []


async def test_another_node_asks_the_leader() -> None:
    async with serving() as served:
        served.quorum.is_leader, served.quorum.leader_id = False, 4
        unknown = await served.get("quorum")
        assert [(row["node_id"], row["lag"]) for row in unknown["voters"]] == [(3, None), (4, None)]
        assert [row["role"] for row in unknown["voters"]] == ["voter", "leader"]
        served.controller.answer = DescribeQuorumResponse(
            ErrorCode.NONE,
            "",
            4,
            7,
            95,
            (QuorumReplica(3, 80, 1_000, 900), QuorumReplica(4, 120, 2_000, 2_000)),
            (QuorumReplica(9, -1, -1, -1),),
        )
        served.controller.asked.clear()
        found = await served.get("quorum")
        assert [row["lag"] for row in found["voters"]] == [40, 0]
        assert found["voters"][0]["last_fetch_age_ms"] == 1_000
        assert found["observers"][0]["last_fetch_age_ms"] is None
        await served.get("quorum")
        requester = ("User:ANONYMOUS", "127.0.0.1")
        assert served.controller.asked == [DescribeQuorumRequest(requester)], "once a second"
        served.quorum.epoch = 8
        assert [row["lag"] for row in (await served.get("quorum"))["voters"]] == [None, None]


@pytest.mark.req("W2")
async def test_who_may_not_describe_the_cluster_is_refused() -> None:
    rules = RuledAuthorizer("ALLOW User:alice DESCRIBE CLUSTER kafka-cluster")
    async with serving(rules.authorizer) as served:
        denied = (403, "CLUSTER_AUTHORIZATION_FAILED")
        assert await served.refused("quorum", "User:bob") == denied


async def test_elections_become_a_timeline() -> None:
    async with serving() as served:
        for epoch, leader_id in ((5, -1), (6, 4), (6, 4), (7, -1), (8, 3)):
            served.console.elections.on_leader_changed(epoch, leader_id)
        timeline = (await served.get("quorum"))["timeline"]
        assert [(row["epoch"], row["kind"], row["leader_id"]) for row in timeline] == [
            (8, "elected", 3),
            (7, "resigned", None),
            (6, "elected", 4),
            (6, "elected", 4),
        ]
        assert timeline[1]["text"] == "node 4 no longer leads: an election begins"
        assert all(row["at_ms"] > 0 for row in timeline)


def test_a_node_keeps_the_newest_elections() -> None:
    elections = Elections(lambda: 5)
    for epoch in range(ELECTIONS_MAX + 10):
        elections.on_leader_changed(epoch, epoch % 3)
    assert len(elections.timeline()) == ELECTIONS_MAX
    assert elections.timeline()[0]["epoch"] == ELECTIONS_MAX + 9
