"""Groups, as brokers answer for them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from raftctl.console.brokers._assignment import assigned
from raftctl.errors import ErrorCode, KafkaError
from tests.unit.raftctl.console.fake_brokers import FakeBrokers, Question
from tests.unit.raftctl.console.served import broker, partition, serving, topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.raftctl.console.served import Served

pytestmark = pytest.mark.req("W1")
HOSTILE = "<script>alert(1)</script>\u202e\x00" + "g" * 200


def some_topics(served: Served) -> None:
    served.commit(
        *broker(1),
        *broker(2),
        *broker(3, fenced=True),
        *topic("orders", partition(1), partition(1, 1, isr=(2,)), partition(1, 2, isr=())),
        *topic("__consumer_offsets", partition(9)),
    )


def listed(name: str, kind: str = "classic") -> dict[str, Any]:
    return {
        "group_id": name,
        "protocol_type": "consumer",
        "group_state": "Stable",
        "group_type": kind,
    }


def listing(*groups: dict[str, Any], error: int = 0) -> dict[str, Any]:
    return {"error_code": error, "groups": groups}


def committed(asked: Question) -> Mapping[str, Any]:
    """Each group has committed 5 in each of two partitions."""
    offsets = [
        {"partition_index": n, "committed_offset": 5, "metadata": "", "error_code": 0}
        for n in (0, 1)
    ]
    found = [{"topic_id": UUID(int=1), "partitions": offsets}]
    groups = [
        {"group_id": one["group_id"], "topics": found, "error_code": 0}
        for one in asked.body["groups"]
    ]
    return {"groups": groups}


def ends(asked: Question) -> Mapping[str, Any]:
    """Each partition ends at 8."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": one["partition_index"], "offset": 8, "error_code": 0}
                    for one in topic["partitions"]
                ],
            }
            for topic in asked.body["topics"]
        ]
    }


def classic(asked: Question) -> Mapping[str, Any]:
    data = struct.pack(">hih6sii", 0, 1, 6, b"orders", 1, 1)
    member = {
        "member_id": "m-1",
        "group_instance_id": None,
        "client_id": HOSTILE,
        "client_host": "/10.0.0.7",
        "member_metadata": b"",
        "member_assignment": data,
    }
    groups = [
        {
            "error_code": 0,
            "error_message": None,
            "group_id": one,
            "group_state": "Stable",
            "protocol_type": "consumer",
            "protocol_data": "range",
            "members": [member],
        }
        for one in asked.body["groups"]
    ]
    return {"groups": groups}


def consumers(asked: Question) -> Mapping[str, Any]:
    """Groups whose names begin with n are of the newer protocol."""
    assignment = {"topic_partitions": [{"topic_name": "orders", "partitions": [0]}]}
    member = {
        "member_id": "m-2",
        "instance_id": "static",
        "client_id": "c",
        "client_host": "/10.0.0.8",
        "assignment": assignment,
    }
    return {
        "groups": [
            {
                "error_code": 0 if one.startswith("n") else ErrorCode.GROUP_ID_NOT_FOUND,
                "error_message": None,
                "group_id": one,
                "group_state": "Stable",
                "group_epoch": 4,
                "assignor_name": "uniform",
                "members": [member, member],
            }
            for one in asked.body["group_ids"]
        ]
    }


def found_at(node_id: int, error: ErrorCode = ErrorCode.NONE) -> Mapping[str, Any]:
    one = {"key": "g", "node_id": node_id, "error_code": error, "error_message": "no rule"}
    return {"coordinators": [one]}


def some_groups() -> FakeBrokers:
    return FakeBrokers(
        {
            ("LIST_GROUPS", 1): listing(listed("b"), listed(HOSTILE)),
            ("LIST_GROUPS", 2): listing(listed("new", "consumer")),
            "DESCRIBE_GROUPS": classic,
            "CONSUMER_GROUP_DESCRIBE": consumers,
            "OFFSET_FETCH": committed,
            "LIST_OFFSETS": ends,
            "FIND_COORDINATOR": found_at(2),
        }
    )


async def test_groups_of_all_brokers_with_members_and_lag_of_the_window() -> None:
    fake = some_groups()
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await served.get("groups", limit=2, sort="-group")
        assert answer["total"] == 3
        assert [(one["group"], one["members"], one["lag"]) for one in answer["rows"]] == [
            ("new", 2, 6),
            ("b", 1, 6),
        ]
        assert answer["rows"][0]["coordinator"] == 2
        [described] = fake.questions("DESCRIBE_GROUPS")
        assert described.body["groups"] == ["b"]
        found = await served.get("groups", filter="SCRIPT")
        assert [one["group"] for one in found["rows"]] == [HOSTILE]


async def test_a_list_is_asked_for_once_a_second_for_each_requester() -> None:
    fake = some_groups()
    async with serving(client=fake) as served:
        some_topics(served)
        for _ in range(3):
            await served.get("groups")
        await served.get("groups", who="User:alice@10.0.0.7")
        asked = [one.requester.principal.name for one in fake.questions("LIST_GROUPS")]
        assert asked == ["ANONYMOUS", "ANONYMOUS", "alice", "alice"]


async def test_a_broker_that_does_not_answer_is_named_and_the_others_are_shown() -> None:
    fake = some_groups()
    del fake.answers["LIST_GROUPS", 2]
    fake.answers["LIST_OFFSETS", 2] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await served.get("groups")
        assert {one["group"] for one in answer["rows"]} == {"b", HOSTILE}
        assert [one["lag"] for one in answer["rows"]] == [None, None]
        assert answer["unanswered"] == [
            {"broker": 2, "message": "broker 2 does not answer LIST_GROUPS"}
        ]
        del fake.answers["LIST_GROUPS", 1]
        assert await served.refused("groups", who="User:bob") == (503, "BROKER_NOT_AVAILABLE")


@pytest.mark.parametrize(
    ("group", "kind", "member", "epoch"),
    [("b", "classic", "m-1", None), ("new", "consumer", "m-2", 4)],
)
async def test_one_group_whole(group: str, kind: str, member: str, epoch: int | None) -> None:
    async with serving(client=some_groups()) as served:
        some_topics(served)
        found = await served.get(f"groups/{group}")
        assert (found["type"], found["epoch"], found["coordinator"]) == (kind, epoch, 2)
        assert found["members"][0]["id"] == member
        assert found["members"][0]["assignment"][0]["topic"] == "orders"
        assert found["offsets"][0] == {
            "topic": "orders",
            "partition": 0,
            "committed": 5,
            "end": 8,
            "lag": 3,
            "metadata": None,
        }


async def test_a_group_that_is_not_there_or_not_to_be_seen() -> None:
    fake = some_groups()
    fake.answers["FIND_COORDINATOR"] = found_at(-1, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with serving(client=fake) as served:
        # Nobody is asked where no group can be: the question would create the brokers' topic.
        assert await served.refused("groups/g") == (404, "GROUP_ID_NOT_FOUND")
        assert fake.asked == []
        some_topics(served)
        assert await served.refused("groups/g") == (403, "GROUP_AUTHORIZATION_FAILED")


@pytest.mark.req("W3")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\xff" * 50,
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hihi", 0, 1, -1, 1),
        struct.pack(">hih6si", 0, 1, 6, b"orders", 2**31 - 1),
        struct.pack(">hih2si", 0, 1, 2, b"\xff\xfe", 0),
    ],
)
def test_an_assignment_of_another_form_is_no_partitions(data: bytes) -> None:
    assert assigned(data) == []
