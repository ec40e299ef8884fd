"""Where members of groups are, as tools show it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.protocol.versions import ApiKey
from broker.server._connection import client_host
from tests.unit.broker.server.fakes import Client, connected, running

JOIN: dict[str, Any] = {
    "group_id": "g",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"x"}],
}
HEARTBEAT: dict[str, Any] = {
    "group_id": "h",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 10_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


async def found(client: Client) -> None:
    """The coordinators of both groups are loaded on return."""
    asked = {"key_type": 0, "coordinator_keys": ["g", "h"]}
    await client.ask(ApiKey.FIND_COORDINATOR, 4, asked)
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.mark.req("G2", "G4")
async def test_members_of_both_kinds_of_groups_have_a_host() -> None:
    quick = {"group_initial_rebalance_delay_ms": "0"}
    async with running("t", opened=True, **quick) as broker, connected(broker) as client:
        await found(client)
        await client.ask(ApiKey.JOIN_GROUP, 3, JOIN)
        described = {"groups": ["g"], "include_authorized_operations": False}
        answer = await client.ask(ApiKey.DESCRIBE_GROUPS, 5, described)
        (classic,) = answer["groups"][0]["members"]
        await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, HEARTBEAT)
        asked = {"group_ids": ["h"], "include_authorized_operations": False}
        answer = await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked)
        (member,) = answer["groups"][0]["members"]
    assert classic["client_host"] == member["client_host"] == "/127.0.0.1"


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        (("127.0.0.1", 5), "127.0.0.1"),
        (("::1", 5, 0, 0), "0:0:0:0:0:0:0:1"),
        (("::ffff:10.0.0.7", 5, 0, 0), "10.0.0.7"),
        (("fe80::1%eth0", 5, 0, 2), "fe80:0:0:0:0:0:0:1"),
        (("a-name", 5), "a-name"),
    ],
)
def test_a_host_is_written_as_java_does(peer: tuple[str, int], host: str) -> None:
    assert client_host(peer) == host
