"""A thousand groups on one broker, each with a member, through the requests of a classic client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker.protocol.versions import ApiKey
from raftctl.errors import ErrorCode
from tests.unit.broker.apis.asking import ask, new_broker

if TYPE_CHECKING:
    from tests.unit.broker.server.fakes import FakeBroker

GROUPS = [f"group-{number}" for number in range(1_000)]
NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


async def find_all(broker: FakeBroker) -> None:
    """Returns when every group has its coordinator."""
    request = {"key_type": 0, "coordinator_keys": GROUPS}
    while True:
        answer = await ask(broker, ApiKey.FIND_COORDINATOR, 4, request)
        if all(one["error_code"] == 0 for one in answer["coordinators"]):
            return
        await asyncio.sleep(0)


async def heartbeat(broker: FakeBroker, member: dict[str, Any]) -> int:
    answer = await ask(broker, ApiKey.HEARTBEAT, 3, member)
    return int(answer["error_code"])


async def join(broker: FakeBroker, group: str) -> dict[str, Any]:
    """A member that was given its assignment, as its later requests name it."""
    request = {
        "group_id": group,
        "session_timeout_ms": 300_000,
        "rebalance_timeout_ms": 300_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    }
    joined = await ask(broker, ApiKey.JOIN_GROUP, 3, request)
    while joined["error_code"] in NOT_YET:
        await asyncio.sleep(0)
        joined = await ask(broker, ApiKey.JOIN_GROUP, 3, request)
    member = {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
    }
    mine = {"member_id": joined["member_id"], "assignment": group.encode()}
    synced = await ask(broker, ApiKey.SYNC_GROUP, 3, {**member, "assignments": [mine]})
    assert (joined["error_code"], synced["error_code"]) == (0, 0)
    assert synced["assignment"] == group.encode()
    return member


async def commit(broker: FakeBroker, member: dict[str, Any], offset: int) -> int:
    position = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    request = {
        **member,
        "generation_id_or_member_epoch": member["generation_id"],
        "topics": [{"name": "t", "partitions": [position]}],
    }
    answer = await ask(broker, ApiKey.OFFSET_COMMIT, 7, request)
    return int(answer["topics"][0]["partitions"][0]["error_code"])


async def committed(broker: FakeBroker) -> list[int]:
    """The offset of each group, asked for in one request."""
    asked = [
        {"group_id": one, "topics": [{"name": "t", "partition_indexes": [0]}]} for one in GROUPS
    ]
    answer = await ask(broker, ApiKey.OFFSET_FETCH, 8, {"groups": asked, "require_stable": True})
    return [one["topics"][0]["partitions"][0]["committed_offset"] for one in answer["groups"]]


async def states(broker: FakeBroker) -> dict[str, str]:
    answer = await ask(broker, ApiKey.LIST_GROUPS, 4, {"states_filter": []})
    return {one["group_id"]: one["group_state"] for one in answer["groups"]}


@pytest.mark.req("G2", "G3")
async def test_a_thousand_groups() -> None:
    broker = new_broker(group_initial_rebalance_delay_ms="0")
    await find_all(broker)
    members = await asyncio.gather(*(join(broker, one) for one in GROUPS))
    assert await states(broker) == dict.fromkeys(GROUPS, "Stable")
    assert {await heartbeat(broker, one) for one in members} == {ErrorCode.NONE}
    codes = await asyncio.gather(*(commit(broker, one, n) for n, one in enumerate(members)))
    assert set(codes) == {ErrorCode.NONE}
    assert await committed(broker) == list(range(len(GROUPS)))
    # One group's member goes, and nobody else's is disturbed.
    gone = members[7]
    left = await ask(broker, ApiKey.LEAVE_GROUP, 2, gone)
    assert left["error_code"] == ErrorCode.NONE
    assert await heartbeat(broker, gone) == ErrorCode.UNKNOWN_MEMBER_ID
    assert {await heartbeat(broker, one) for one in members[8:50]} == {ErrorCode.NONE}
    assert await states(broker) == {**dict.fromkeys(GROUPS, "Stable"), gone["group_id"]: "Empty"}
