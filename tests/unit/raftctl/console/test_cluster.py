"""Brokers, a topic by its name, rules and quotas."""

from __future__ import annotations

import pytest

from raftctl.metadata.records import ClientQuotaRecord
from raftctl.plugins import ANY_BROKER
from tests.kit.authorizing import RuledAuthorizer, rule
from tests.unit.raftctl.console.fake_brokers import FakeBrokers
from tests.unit.raftctl.console.served import broker, partition, serving, topic

pytestmark = pytest.mark.req("W1")
DENIED = (403, "CLUSTER_AUTHORIZATION_FAILED")


async def test_brokers_with_what_they_lead_and_keep() -> None:
    async with serving() as served:
        served.commit(
            *broker(2, rack="b"),
            *broker(1, rack="a"),
            *broker(3, fenced=True),
            *topic(
                "orders", partition(1, 0, (1, 2)), partition(1, 1, (2, 1)), partition(1, 2, (2,))
            ),
        )
        rows = (await served.get("brokers"))["rows"]
        assert [(row["id"], row["leaders"], row["replicas"]) for row in rows] == [
            (1, 1, 2),
            (2, 2, 3),
            (3, 0, 0),
        ]
        assert (await served.get("brokers/1")).items() >= rows[0].items()
        assert {name: rows[0][name] for name in ("rack", "fenced", "endpoints", "epoch")} == {
            "rack": "a",
            "fenced": False,
            "endpoints": ["PLAINTEXT://broker-1:9092"],
            "epoch": 0,
        }
        found = await served.get("brokers", sort="-leaders", limit=1)
        assert ([row["id"] for row in found["rows"]], found["total"]) == ([2], 3)
        for name in ("9", "x", "%C2%B2"):
            assert await served.refused(f"brokers/{name}") == (404, "BROKER_ID_NOT_REGISTERED")


async def test_a_topic_by_its_name() -> None:
    async with serving() as served:
        served.commit(*topic("orders", partition(1), partition(1, 1, isr=(1,))))
        found = await served.get("topics/orders")
        assert (found["partition_count"], found["under_replicated"]) == (2, 1)
        assert await served.refused("topics/none") == (404, "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.req("W2")
async def test_rules_of_access() -> None:
    rules = RuledAuthorizer()
    async with serving(rules.authorizer) as served:
        served.commit(
            rule("ALLOW User:alice DESCRIBE CLUSTER kafka-cluster"),
            rule("DENY User:bob READ TOPIC orders..."),
            rule("ALLOW User:bob READ KEY a-key"),
        )
        found = await served.get("acls", "User:alice", sort="-resource_type")
        assert found["rows"] == [
            {
                "principal": "User:bob",
                "host": "*",
                "operation": "READ",
                "permission": "DENY",
                "resource_type": "TOPIC",
                "resource_name": "orders",
                "pattern_type": "PREFIXED",
            },
            {
                "principal": "User:alice",
                "host": "*",
                "operation": "DESCRIBE",
                "permission": "ALLOW",
                "resource_type": "CLUSTER",
                "resource_name": "kafka-cluster",
                "pattern_type": "LITERAL",
            },
        ]
        assert await served.refused("acls", "User:bob") == DENIED
        assert await served.refused("quotas", "User:alice") == DENIED
    async with serving() as served:
        assert await served.refused("acls") == (403, "SECURITY_DISABLED")


async def test_quotas() -> None:
    async with serving() as served:
        served.commit(
            ClientQuotaRecord((("client-id", None), ("user", "alice")), "producer_byte_rate", 5.0),
            ClientQuotaRecord((("ip", "10.0.0.7"),), "connection_creation_rate", 3.0),
        )
        found = await served.get("quotas", sort="-value")
        assert found["rows"] == [
            {
                "user": "alice",
                "client_id": "<default>",
                "ip": None,
                "key": "producer_byte_rate",
                "value": 5.0,
            },
            {
                "user": None,
                "client_id": None,
                "ip": "10.0.0.7",
                "key": "connection_creation_rate",
                "value": 3.0,
            },
        ]
        assert (await served.get("quotas", filter="ALICE"))["total"] == 1


def described(value: str, *, sensitive: bool = False) -> dict[str, object]:
    """A broker's answer to DescribeConfigs with one config."""
    config = {
        "name": "retention.ms",
        "value": value,
        "read_only": False,
        "config_source": 1,
        "is_sensitive": sensitive,
        "synonyms": [
            {"name": "retention.ms", "value": value, "source": 1},
            {"name": "log.retention.hours", "value": "168", "source": 5},
        ],
        "config_type": 5,
        "documentation": "The age.",
    }
    result = {"error_code": 0, "error_message": None, "configs": [config]}
    return {"results": [result]}


async def test_configs_are_those_that_a_broker_describes() -> None:
    brokers = FakeBrokers({"DESCRIBE_CONFIGS": described("5")})
    async with serving(client=brokers) as served:
        served.commit(*broker(1), *topic("orders", partition(1)))
        found = await served.get("configs/topic/orders", "User:alice")
        assert found["configs"] == [
            {
                "name": "retention.ms",
                "value": "5",
                "source": "DYNAMIC_TOPIC_CONFIG",
                "read_only": False,
                "sensitive": False,
                "type": "LONG",
                "documentation": "The age.",
                "synonyms": [
                    {"name": "retention.ms", "value": "5", "source": "DYNAMIC_TOPIC_CONFIG"},
                    {"name": "log.retention.hours", "value": "168", "source": "DEFAULT_CONFIG"},
                ],
            }
        ]
        await served.get("configs/broker/1")
        asked = brokers.questions("DESCRIBE_CONFIGS")
        assert [one.broker_id for one in asked] == [ANY_BROKER, 1]
        assert str(asked[0].requester.principal) == "User:alice"
        assert (await served.get("topics/orders"))["configs"] == found["configs"]
        answer = await served.ask("/console/api/configs/colour/red")
        assert (answer.status, answer.document["field"]) == (400, "type")


@pytest.mark.req("W3")
async def test_a_secret_has_no_value_whatever_the_broker_sends() -> None:
    brokers = FakeBrokers({"DESCRIBE_CONFIGS": described("pa55word", sensitive=True)})
    async with serving(client=brokers) as served:
        served.commit(*broker(1))
        assert "pa55word" not in str(await served.get("configs/broker/1"))


async def test_what_a_broker_says_of_itself() -> None:
    directory = {
        "log_dir": "/data",
        "error_code": 0,
        "topics": [],
        "total_bytes": 9,
        "usable_bytes": -1,
    }
    brokers = FakeBrokers(
        {
            "DESCRIBE_CONFIGS": described("5"),
            "DESCRIBE_LOG_DIRS": {"error_code": 0, "results": [directory]},
        }
    )
    async with serving(client=brokers) as served:
        served.commit(*broker(1), *broker(2, fenced=True))
        found = await served.get("brokers/1")
        assert found["log_directories"] == [
            {
                "path": "/data",
                "size": 0,
                "total": 9,
                "usable": None,
                "offline": False,
                "partitions": 0,
            }
        ]
        assert found["configs"][0]["name"] == "retention.ms"
        brokers.asked.clear()
        found = await served.get("brokers/2")
        assert (found["log_directories"], found["configs"], brokers.asked) == (None, None, [])
