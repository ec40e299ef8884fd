"""What is wrong, and what to do about it: each kind of problem has its condition and its remedy."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from raftctl.console import _problems
from raftctl.console._problems import CONDITIONS, LONG_REASSIGNMENT_MS
from raftctl.console.brokers import BrokerViews
from raftctl.errors import ErrorCode
from raftctl.hanging_transactions import OpenTransaction
from raftctl.metadata.records import (
    TOPIC_RESOURCE,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
)
from raftctl.raft import ReplicaStatus
from raftctl.raft.messages import NodeId, Offset
from tests.kit.authorizing import RuledAuthorizer, rule
from tests.unit.raftctl.console.fake_brokers import FakeBrokers
from tests.unit.raftctl.console.served import broker, fence, partition, serving, topic

if TYPE_CHECKING:
    from raftctl.console.http import Rights
    from tests.unit.raftctl.console.served import Served

pytestmark = pytest.mark.req("W2")
ROOT = Path(__file__).resolve().parents[4]


def voter(node_id: int, end: int, caught_up_ms: int | None) -> ReplicaStatus:
    return ReplicaStatus(NodeId(node_id), Offset(end), caught_up_ms, caught_up_ms)


async def problems(served: Served, who: str | None = None, **query: Any) -> dict[str, Any]:
    """Each sentence with its row."""
    found = await served.get("problems", who, **query)
    return {row["what"]: row for row in found["rows"]}


async def test_a_healthy_cluster_has_no_problem() -> None:
    async with serving() as served:
        served.quorum.voters = tuple(voter(n, 100, 100_000) for n in (3, 4, 5))
        served.commit(*broker(1), *broker(2), *broker(3), *topic("orders", partition(1)))
        assert await problems(served) == {}
        assert (await served.get("overview"))["problem_count"] == 0


async def test_a_broker_that_is_gone_explains_what_lacks() -> None:
    async with serving() as served:
        served.commit(
            *broker(1),
            *broker(2),
            *topic("orders", partition(1, 0, (1, 2)), partition(1, 1, (2, 1))),
            *topic("audit", partition(2, 0, (2,))),
            *topic("safe", partition(3, 0, (1,))),
            ConfigRecord(TOPIC_RESOURCE, "orders", "min.insync.replicas", "2"),
        )
        await served.get("overview")
        served.commit(
            fence(2),
            PartitionChangeRecord(UUID(int=1), 0, isr=(1,)),
            PartitionChangeRecord(UUID(int=1), 1, isr=(1,), leader=1),
            PartitionChangeRecord(UUID(int=2), 0, leader=-1),
            timestamp_ms=1_234,
        )
        found = await problems(served)
        assert [*found] == [
            "Broker 2 is fenced: it does not report to the controller, and leads nothing",
            "1 of 1 partitions of audit have no leader (0); broker 2 is fenced",
            "2 of 2 partitions of orders have fewer replicas in sync than min.insync.replicas=2 "
            "(0, 1): producers with acks=all are refused; broker 2 is fenced",
            "1 of 4 partitions are not led by their preferred leader: load may be uneven",
        ]
        rows = [*found.values()]
        assert [row["severity"] for row in rows] == ["error", "error", "error", "info"]
        assert rows[0]["subject"] == {"kind": "broker", "name": "2"}
        assert rows[1]["subject"] == {"kind": "topic", "name": "audit", "partition": 0}
        assert rows[2]["subject"] == {"kind": "topic", "name": "orders"}
        assert [row["since_ms"] for row in rows] == [1_234, 1_234, 1_234, None]
        assert "`raftctl brokers unregister 2`" in rows[0]["do"]
        assert "--election-type unclean --partition audit:0`" in rows[1]["do"]
        overview = await served.get("overview")
        assert (overview["problem_count"], overview["problems"]) == (4, rows)
        assert [*await problems(served, filter="audit")] == [rows[1]["what"]]


async def test_what_was_so_before_has_no_time() -> None:
    async with serving() as served:
        served.commit(
            *broker(1), *broker(2, fenced=True), *topic("orders", partition(1, 0, (1, 2)))
        )
        served.commit(PartitionChangeRecord(UUID(int=1), 0, isr=(1,)), timestamp_ms=5)
        found = await problems(served)
        assert [row["since_ms"] for row in found.values()] == [None, None]
        assert [row["severity"] for row in found.values()] == ["error", "warning"]


async def test_a_broker_that_stops_is_no_error() -> None:
    async with serving() as served:
        served.commit(*broker(1), BrokerRegistrationChangeRecord(1, 0, in_controlled_shutdown=True))
        [row] = (await problems(served)).values()
        assert (row["severity"], row["subject"]["name"]) == ("info", "1")


async def test_voters_that_do_not_follow() -> None:
    async with serving() as served:
        served.quorum.voters = (voter(3, 100, 100_000), voter(4, 90, 99_000), voter(5, 40, 50_000))
        assert [*await problems(served)] == [
            "2 of 3 voters follow the leader: with one more lost no controller can be active",
            "Voter 5 does not follow the leader: it lacks 60 records",
        ]
        served.quorum.voters = (voter(3, 100, 100_000), voter(4, -1, None))
        assert [*await problems(served)] == ["Voter 4 does not follow the leader"]


async def test_without_a_leader_nothing_else_is_said_of_the_quorum() -> None:
    async with serving() as served:
        served.quorum.is_leader, served.quorum.leader_id = False, -1
        served.console.elections.on_leader_changed(7, 4)
        served.console.elections.on_leader_changed(8, -1)
        [row] = (await problems(served)).values()
        assert row["what"].startswith("No controller is active")
        assert (row["severity"], row["since_ms"]) == (
            "error",
            served.console.elections.seen[-1].at_ms,
        )


async def test_a_move_that_takes_long() -> None:
    async with serving() as served:
        served.commit(*broker(1), *broker(2), *topic("orders", partition(1, 0, (1,))))
        await served.get("overview")
        adding = PartitionChangeRecord(
            UUID(int=1), 0, replicas=(1, 2), adding_replicas=(2,), leader=1
        )
        began = served.runtime.wall_ms() - LONG_REASSIGNMENT_MS
        served.commit(adding, timestamp_ms=began + 60_000)
        assert not any("moving" in what for what in await problems(served))
        served.commit(PartitionChangeRecord(UUID(int=1), 0, replicas=(1,), adding_replicas=()))
        served.commit(adding, timestamp_ms=began - 1)
        assert any("have been moving for a long time" in what for what in await problems(served))
        rows = (await served.get("reassignments"))["rows"]
        assert rows == [
            {
                "topic": "orders",
                "partition": 0,
                "replicas": [1, 2],
                "adding": [2],
                "removing": [],
                "isr": [1],
                "progress": 0.0,
            }
        ]


async def test_problems_of_others_are_left_out() -> None:
    rules = RuledAuthorizer()
    async with serving(rules.authorizer) as served:
        served.commit(
            *broker(1),
            *broker(2, fenced=True),
            *topic("orders", partition(1, 0, (1, 2), isr=(1,))),
            *topic("audit", partition(2, 0, (1, 2), isr=(1,))),
            rule("ALLOW User:alice DESCRIBE TOPIC orders"),
            rule("ALLOW User:bob DESCRIBE CLUSTER kafka-cluster"),
        )
        for who, names in (("User:alice", ["orders"]), ("User:bob", ["2"]), ("User:eve", [])):
            rows = (await problems(served, who)).values()
            assert [row["subject"]["name"] for row in rows] == names
            assert (await served.get("overview", who))["problem_count"] == len(names)
        denied = (403, "CLUSTER_AUTHORIZATION_FAILED")
        assert await served.refused("reassignments", "User:alice") == denied


def test_remedies_name_commands_and_options_that_there_are() -> None:
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    parts = re.split(r"^## ", reference, flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: part for part in parts}
    for kind, remedy in CONDITIONS.items():
        assert remedy.what[0].isupper() or remedy.what[0] == "{", kind
        for command in re.findall(r"`(raftctl [^`]*)`", remedy.do):
            known = max((name for name in sections if command.startswith(name)), key=len)
            for option in re.findall(r"--[a-z-]+", command):
                assert f"`{option}`" in sections[known], command


async def test_what_only_brokers_know_is_asked_of_them() -> None:
    directories = [
        {"log_dir": "/data/a", "error_code": 0},
        {"log_dir": "/data/b", "error_code": int(ErrorCode.KAFKA_STORAGE_ERROR)},
    ]
    brokers = FakeBrokers({"DESCRIBE_LOG_DIRS": {"error_code": 0, "results": directories}})
    async with serving(client=brokers) as served:
        served.commit(*broker(1))
        [row] = (await problems(served)).values()
        assert row["what"] == "Broker 1 cannot use its log directory /data/b"
        await problems(served)
        assert len(brokers.questions("DESCRIBE_LOG_DIRS")) == 1, "not with each look"


async def test_a_transaction_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hanging(views: BrokerViews, rights: Rights) -> list[OpenTransaction]:
        return [OpenTransaction("orders", 3, 77, 1, 1, 500, 1_234)]

    monkeypatch.setattr(BrokerViews, "hanging", hanging)
    async with serving() as served:
        [row] = (await problems(served)).values()
        assert row["subject"] == {"kind": "topic", "name": "orders", "partition": 3}
        assert "--topic orders --partition 3 --start-offset 500`" in row["do"]
        assert (row["severity"], row["since_ms"]) == ("error", 1_234)


async def test_a_broker_that_does_not_answer_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_problems, "PATIENCE_S", 0.01)
    never = asyncio.Event()

    async def hanging(views: BrokerViews, rights: Rights) -> list[OpenTransaction]:
        await never.wait()
        return [OpenTransaction("orders", 3, 77, 1, 1, 500, 1_234)]

    monkeypatch.setattr(BrokerViews, "hanging", hanging)
    async with serving() as served:
        served.commit(*broker(1, fenced=True))
        assert len(await problems(served)) == 1
        never.set()
        await asyncio.sleep(0)
        assert len(await problems(served)) == 2
