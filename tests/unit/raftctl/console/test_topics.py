"""The overview, and topics by window."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.console._topics import PartitionLog
from raftctl.console.brokers import BrokerLogs
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.records import (
    NO_LEADER,
    TOPIC_RESOURCE,
    ConfigRecord,
    PartitionChangeRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
)
from raftctl.security import Action
from tests.kit.authorizing import ListedActions, RuledAuthorizer, rule
from tests.unit.raftctl.console.served import broker, fence, partition, serving, topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.console.http import Rights
    from tests.unit.raftctl.console.served import Served

pytestmark = pytest.mark.req("W1")


def some_topics(served: Served) -> None:
    served.commit(
        *broker(1),
        *broker(2),
        *broker(3, fenced=True),
        *topic("orders", partition(1), partition(1, 1, isr=(2, 1)), partition(1, 2, isr=(1,))),
        *topic("audit", partition(2, isr=(), elr=(1,))),
        *topic("__consumer_offsets", partition(3, replicas=(1, 2))),
    )


async def test_the_cluster_at_a_glance() -> None:
    async with serving() as served:
        some_topics(served)
        found = await served.get("overview")
        assert found["served_ms"] > 0
        assert (
            found.items()
            >= {
                "cluster_id": "a-cluster",
                "node_id": 3,
                "roles": ["controller"],
                "principal": "User:ANONYMOUS",
                "metadata_version": 0,
                "controller": {"id": 3, "epoch": 7},
                "metadata_offset": 10,
                "brokers": {"total": 3, "fenced": 1},
                "topics": 3,
                "partitions": 5,
                "offline": 1,
                "under_replicated": 3,
                "under_min_isr": 1,
                "reassigning": 0,
            }.items()
        )


async def test_counts_follow_changes() -> None:
    async with serving() as served:
        some_topics(served)
        await served.get("overview")
        served.commit(
            PartitionChangeRecord(UUID(int=2), 0, isr=(1, 2, 3), leader=1),
            RemoveTopicRecord(UUID(int=3)),
            ConfigRecord(TOPIC_RESOURCE, "orders", "min.insync.replicas", "2"),
            fence(3, fenced=False),
            *topic("new", partition(4, isr=(), leader=NO_LEADER, elr=(1,))),
        )
        found = await served.get("overview")
        names = ("topics", "partitions", "offline", "under_replicated", "under_min_isr")
        assert [found[name] for name in names] == [3, 5, 1, 3, 2]
        assert found["brokers"] == {"total": 3, "fenced": 0}


async def test_topics_by_window() -> None:
    async with serving() as served:
        some_topics(served)
        whole = await served.get("topics")
        assert [row["name"] for row in whole["rows"]] == ["__consumer_offsets", "audit", "orders"]
        assert whole["rows"][2] == {
            "name": "orders",
            "id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "internal": False,
            "partitions": 3,
            "replication_factor": 3,
            "offline": 0,
            "under_replicated": 2,
            "under_min_isr": 0,
            "reassigning": 0,
            "size": None,
        }
        found = await served.get("topics", sort="-partitions", offset=1, limit=1)
        assert (found["total"], found["offset"], found["metadata_offset"]) == (3, 1, 10)
        assert [row["name"] for row in found["rows"]] == ["__consumer_offsets"]
        found = await served.get("topics", filter="AUD")
        assert [row["name"] for row in found["rows"]] == ["audit"]
        found = await served.get("topics", only="problems", sort="-offline")
        assert [row["name"] for row in found["rows"]] == ["audit", "orders"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "501"}, "limit"),
        ({"offset": "-1"}, "offset"),
        ({"sort": "secret"}, "sort"),
        ({"only": "nothing"}, "only"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_window_that_cannot_be_is_an_error(query: dict[str, str], field: str) -> None:
    async with serving() as served:
        answer = await served.ask("/console/api/topics", params=query)
        assert (answer.status, answer.document["field"]) == (400, field)


async def test_partitions_of_a_topic() -> None:
    async with serving() as served:
        some_topics(served)
        found = await served.get("topics/orders/partitions", sort="-isr", limit=2)
        assert [row["partition"] for row in found["rows"]] == [0, 1]
        assert found["rows"][1] == {
            "partition": 1,
            "leader": 2,
            "leader_epoch": 0,
            "replicas": [1, 2, 3],
            "isr": [2, 1],
            "elr": [],
            "last_known_elr": [],
            "adding": [],
            "removing": [],
            "offline": False,
            "recovering": False,
            "size": None,
            "log_start": None,
            "log_end": None,
            "high_watermark": None,
            "followers": [{"broker_id": 1, "lag": None}, {"broker_id": 3, "lag": None}],
        }
        assert await served.refused("topics/nothing/partitions") == (
            404,
            "UNKNOWN_TOPIC_OR_PARTITION",
        )


@pytest.mark.req("W2")
async def test_topics_of_others_are_left_out_and_refused() -> None:
    rules = RuledAuthorizer()
    async with serving(rules.authorizer) as served:
        some_topics(served)
        served.commit(
            rule("ALLOW User:alice DESCRIBE TOPIC orders"),
            rule("ALLOW User:bob DESCRIBE TOPIC *"),
            rule("DENY User:bob DESCRIBE TOPIC audit"),
            rule("ALLOW User:carol DESCRIBE CLUSTER kafka-cluster"),
        )
        for who, names in (
            ("User:alice", ["orders"]),
            ("User:bob", ["__consumer_offsets", "orders"]),
            ("User:carol", []),
        ):
            found = await served.get("topics", who)
            assert [row["name"] for row in found["rows"]] == names
            assert found["total"] == len(names)
        denied = (403, "TOPIC_AUTHORIZATION_FAILED")
        assert await served.refused("topics/audit/partitions", "User:bob") == denied
        assert await served.refused("topics/nothing/partitions", "User:alice") == denied
        assert (await served.get("overview", "User:alice"))["topics"] is None
        assert (await served.get("overview", "User:carol"))["topics"] == 3


@pytest.mark.req("W2")
async def test_a_right_that_is_revoked_counts_at_once() -> None:
    rules = RuledAuthorizer()
    allowed = rule("ALLOW User:alice DESCRIBE TOPIC orders")
    async with serving(rules.authorizer) as served:
        some_topics(served)
        served.commit(allowed)
        for _ in range(2):
            assert (await served.get("topics", "User:alice"))["total"] == 1
        served.commit(RemoveAccessControlEntryRecord(allowed.entry_id))
        assert (await served.get("topics", "User:alice"))["total"] == 0


async def test_topics_of_a_requester_are_not_asked_for_again_and_again() -> None:
    asked = ListedActions(denied=[Action(Operation.DESCRIBE, ResourceType.TOPIC, "audit")])
    async with serving(asked) as served:
        some_topics(served)
        for who, total in (("User:alice", 2), ("User:alice", 2), ("User:bob", 2)):
            assert (await served.get("topics", who))["total"] == total
        by_name = [who for who, action in asked.asked if action.resource_name == "orders"]
        assert [str(who.principal) for who in by_name] == ["User:alice", "User:bob"]
        served.commit(*topic("new", partition(9)))
        assert (await served.get("topics", "User:alice"))["total"] == 3


async def test_progress_of_a_move_is_by_what_the_new_replica_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def logs(
        logs: BrokerLogs, rights: Rights, name: str, partitions: Sequence[int]
    ) -> dict[int, PartitionLog]:
        return {0: PartitionLog(None, 100, 300, 300, {2: 150, 3: 300})}

    monkeypatch.setattr(BrokerLogs, "partition_logs", logs)
    async with serving() as served:
        moving = partition(1, 0, (1, 2, 3), isr=(1,), adding_replicas=(2, 3))
        other = partition(1, 1, (1, 2, 3), isr=(1, 2), adding_replicas=(2, 3))
        served.commit(*broker(1), *topic("orders", moving, other))
        rows = (await served.get("reassignments"))["rows"]
        assert [row["progress"] for row in rows] == [pytest.approx((0.25 + 0.99) / 2), 0.5]
