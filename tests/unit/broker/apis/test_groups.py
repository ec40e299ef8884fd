"""The requests of consumer groups, in every version that is offered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from broker.apis.consumer import _group_admin as group_admin
from broker.groups.requests import ListGroups
from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import ConfigRecord
from tests.unit.broker.apis.asking import TOPIC_ID, ask, asked, new_broker
from tests.unit.broker.server.fakes import publish, topic_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.groups.requests import GroupRequest
    from tests.unit.broker.server.fakes import FakeBroker


HEARTBEAT: dict[str, Any] = {
    "group_id": "g",
    "member_id": "",
    "member_epoch": 0,
    "rebalance_timeout_ms": 10_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


async def find(broker: FakeBroker, version: int = 4, key: str = "g") -> dict[str, Any]:
    """The coordinator; its topic is loaded on return."""
    request = {"key": key, "key_type": 0, "coordinator_keys": [key]}
    answer = await ask(broker, ApiKey.FIND_COORDINATOR, version, request)
    for _ in range(100):
        # The shards load.
        await asyncio.sleep(0)
    found: dict[str, Any] = answer["coordinators"][0] if version >= 4 else answer
    return found


async def commit(broker: FakeBroker, version: int, offset: int = 5, group: str = "g") -> Any:
    topic = {
        "name": "t",
        "topic_id": TOPIC_ID,
        "partitions": [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": "m"}
            for index in (0, 9)
        ],
    }
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": -1,
        "topics": [topic],
    }
    answer = await ask(broker, ApiKey.OFFSET_COMMIT, version, request)
    return [one["error_code"] for one in answer["topics"][0]["partitions"]]


async def fetched(broker: FakeBroker, version: int, group_id: str = "g") -> Any:
    topics = [{"name": "t", "topic_id": TOPIC_ID, "partition_indexes": [0, 1]}]
    group = {"group_id": group_id, "topics": topics, "member_id": None, "member_epoch": -1}
    request = {**group, "groups": [group], "require_stable": False}
    answer = await ask(broker, ApiKey.OFFSET_FETCH, version, request)
    return answer["groups"][0] if version >= 8 else answer


@pytest.mark.req("G1")
@pytest.mark.parametrize("version", SERVED[ApiKey.FIND_COORDINATOR])
async def test_the_topic_is_created_when_a_coordinator_is_first_asked_for(
    broker: FakeBroker, version: int
) -> None:
    answers = await asyncio.gather(*(find(broker, version) for _ in range(5)))
    assert [(one["error_code"], one["node_id"]) for one in answers] == [(0, 1)] * 5
    assert (answers[0]["host"], answers[0]["port"]) == ("127.0.0.1", 9092)
    assert len(broker.controller.requests) == 1
    topic = broker.metadata.image.topics.by_name("__consumer_offsets")
    assert topic is not None
    assert len(topic.partitions) == 50


@pytest.mark.req("G1")
async def test_keys_of_other_types_have_no_coordinator(broker: FakeBroker) -> None:
    for kind, error in ((1, ErrorCode.NONE), (7, ErrorCode.INVALID_REQUEST)):
        request = {"key_type": kind, "coordinator_keys": ["x"]}
        answer = await ask(broker, ApiKey.FIND_COORDINATOR, 4, request)
        assert answer["coordinators"][0]["error_code"] == error


@pytest.mark.req("G2")
@pytest.mark.parametrize("version", SERVED[ApiKey.JOIN_GROUP])
async def test_join_group(version: int) -> None:
    broker = await _quick()
    request = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    }
    answer = await ask(broker, ApiKey.JOIN_GROUP, version, request)
    if version >= 4:
        assert answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        request["member_id"] = answer["member_id"]
        answer = await ask(broker, ApiKey.JOIN_GROUP, version, request)
    assert (answer["error_code"], answer["generation_id"]) == (0, 1)
    assert answer["member_id"].startswith("test-")
    refused = await ask(broker, ApiKey.JOIN_GROUP, version, {**request, "group_id": ""})
    assert refused["error_code"] == ErrorCode.INVALID_GROUP_ID
    assert refused.get("protocol_name") == (None if version >= 7 else "")


@pytest.mark.req("G2")
async def test_the_other_requests_of_members() -> None:
    broker = await _quick()
    who = {"group_id": "g", "generation_id": 1, "member_id": "nobody"}
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    for version in SERVED[ApiKey.SYNC_GROUP]:
        request = {**who, "assignments": [{"member_id": "nobody", "assignment": b"x"}]}
        answer = await ask(broker, ApiKey.SYNC_GROUP, version, request)
        unnamed = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert answer["error_code"] == (unnamed if version >= 5 else unknown)
        named = {**request, "protocol_type": "consumer", "protocol_name": "range"}
        answer = await ask(broker, ApiKey.SYNC_GROUP, version, named)
        assert answer["error_code"] == unknown
    for version in SERVED[ApiKey.HEARTBEAT]:
        assert (await ask(broker, ApiKey.HEARTBEAT, version, who))["error_code"] == unknown
    for version in SERVED[ApiKey.LEAVE_GROUP]:
        request = {**who, "members": [{"member_id": "nobody", "group_instance_id": None}]}
        answer = await ask(broker, ApiKey.LEAVE_GROUP, version, request)
        told = answer["members"][0] if version >= 3 else answer
        assert told["error_code"] == unknown


@pytest.mark.req("G1", "G2")
async def test_a_heartbeat_is_accepted_while_its_group_is_loaded(broker: FakeBroker) -> None:
    publish(broker.metadata, topic_records("__consumer_offsets", UUID(int=77), 50))
    who = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    # Taken up before the event loop has loaded anything.
    sync = asked(broker, ApiKey.SYNC_GROUP, 3, {**who, "assignments": []})
    heartbeat = asked(broker, ApiKey.HEARTBEAT, 3, who)
    assert (await sync)["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await heartbeat)["error_code"] == ErrorCode.NONE
    await find(broker)
    told = await ask(broker, ApiKey.HEARTBEAT, 3, who)
    assert told["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.req("G3")
@pytest.mark.parametrize("version", SERVED[ApiKey.OFFSET_COMMIT])
async def test_offset_commit(broker: FakeBroker, version: int) -> None:
    await find(broker)
    assert await commit(broker, version) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.req("G3", "N3")
async def test_a_retention_beyond_all_time_is_kept_until_then(broker: FakeBroker) -> None:
    """It fits into no record: a commit in one batch with those of others must not fail them."""
    await find(broker)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    answers = await asyncio.gather(
        *(
            ask(
                broker,
                ApiKey.OFFSET_COMMIT,
                2,
                {
                    "group_id": group,
                    "generation_id_or_member_epoch": -1,
                    "member_id": "",
                    "retention_time_ms": retention_ms,
                    "topics": [{"name": "t", "partitions": [partition]}],
                },
            )
            for group, retention_ms in (("g", 2**63 - 1), ("h", -1))
        )
    )
    for answer in answers:
        assert [one["error_code"] for one in answer["topics"][0]["partitions"]] == [0]


async def test_members_are_told_with_their_last_assignment_during_a_rebalance() -> None:
    broker = new_broker(group_initial_rebalance_delay_ms="0")
    await find(broker)

    async def described() -> tuple[str, bytes]:
        answer = await ask(broker, ApiKey.DESCRIBE_GROUPS, 2, {"groups": ["g"]})
        (group,) = answer["groups"]
        (member,) = group["members"]
        return group["group_state"], bytes(member["member_assignment"])

    join = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"one"}],
    }
    joined = await ask(broker, ApiKey.JOIN_GROUP, 3, join)
    assert await described() == ("CompletingRebalance", b"")
    member_id = joined["member_id"]
    sync = {
        "group_id": "g",
        "generation_id": joined["generation_id"],
        "member_id": member_id,
        "assignments": [{"member_id": member_id, "assignment": b"all of it"}],
    }
    assert (await ask(broker, ApiKey.SYNC_GROUP, 3, sync))["error_code"] == 0
    assert await described() == ("Stable", b"all of it")
    again = {"member_id": member_id, "protocols": [{"name": "range", "metadata": b"two"}]}
    assert (await ask(broker, ApiKey.JOIN_GROUP, 3, join | again))["error_code"] == 0
    assert await described() == ("CompletingRebalance", b"all of it")


async def test_a_commit_does_not_name_topics_without_partitions(broker: FakeBroker) -> None:
    await find(broker)
    partition = {"partition_index": 0, "committed_offset": 5}
    topics = [{"name": "u", "partitions": []}, {"name": "t", "partitions": [partition]}]
    request = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = await ask(broker, ApiKey.OFFSET_COMMIT, 8, request | {"topics": topics})
    assert [topic["name"] for topic in answer["topics"]] == ["t"]


@pytest.mark.req("G3")
@pytest.mark.parametrize("version", SERVED[ApiKey.OFFSET_FETCH])
async def test_offset_fetch(broker: FakeBroker, version: int) -> None:
    await find(broker)
    await commit(broker, 9)
    answer = await fetched(broker, version)
    (topic,) = answer["topics"]
    offsets = [(one["committed_offset"], one["metadata"]) for one in topic["partitions"]]
    assert offsets == [(5, "m"), (-1, "")]


@pytest.mark.req("G3", "T2")
@pytest.mark.parametrize("version", SERVED[ApiKey.TXN_OFFSET_COMMIT])
async def test_old_producers_are_not_sent_that_a_coordinator_loads(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    await find(broker)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def ask_loading(_key: str, _request: GroupRequest) -> asyncio.Future[Any]:
        raise KafkaError(loading)

    monkeypatch.setattr(broker.groups, "ask", ask_loading)
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}]
    producer = {"transactional_id": "x", "producer_id": 9, "producer_epoch": 0}
    request = {**producer, "group_id": "g", "topics": topics}
    answer = await ask(broker, ApiKey.TXN_OFFSET_COMMIT, version, request)
    (partition,) = answer["topics"][0]["partitions"]
    expected = loading if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert partition["error_code"] == expected
    await broker.groups.stop()


@pytest.mark.req("G3")
async def test_a_group_that_refuses_names_no_topics_from_version_8_on(broker: FakeBroker) -> None:
    """Before that partitions have the error too: aiokafka looks at nothing else."""
    for version in SERVED[ApiKey.OFFSET_FETCH]:
        answer = await fetched(broker, version)
        assert answer.get("error_code", 16) == ErrorCode.NOT_COORDINATOR
        assert len(answer["topics"]) == (0 if version >= 8 else 1)
    await find(broker)
    nameless = {"topics": [{"name": "", "partition_indexes": [0]}], "group_id": "g"}
    answer = await ask(broker, ApiKey.OFFSET_FETCH, 5, nameless)
    (partition,) = answer["topics"][0]["partitions"]
    assert (partition["error_code"], partition["committed_offset"]) == (0, -1)
    refused = await ask(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**HEARTBEAT, "group_id": " "})
    assert refused["error_code"] == ErrorCode.INVALID_REQUEST
    assert (refused["member_id"], refused["member_epoch"]) == (None, 0)
    await broker.groups.stop()


@pytest.mark.req("G3")
async def test_a_group_without_a_name_keeps_offsets_and_has_no_members(broker: FakeBroker) -> None:
    await find(broker, key="")
    assert (await commit(broker, 9, group=""))[0] == 0
    for version in SERVED[ApiKey.OFFSET_FETCH]:
        (topic,) = (await fetched(broker, version, group_id=""))["topics"]
        assert topic["partitions"][0]["committed_offset"] == 5
    nameless = {"groups": [""], "include_authorized_operations": False}
    described = await ask(broker, ApiKey.DESCRIBE_GROUPS, 5, nameless)
    assert described["groups"][0]["group_state"] == "Empty"
    for key, version, request in (
        (ApiKey.HEARTBEAT, 4, {"group_id": "", "generation_id": 1, "member_id": "m"}),
        (ApiKey.OFFSET_DELETE, 0, {"group_id": "", "topics": []}),
    ):
        answer = await ask(broker, key, version, request)
        assert answer["error_code"] == ErrorCode.INVALID_GROUP_ID
    deleted = await ask(broker, ApiKey.DELETE_GROUPS, 2, {"groups_names": [""]})
    assert deleted["results"][0]["error_code"] == 0
    await broker.groups.stop()


@pytest.mark.req("G3")
@pytest.mark.parametrize("version", SERVED[ApiKey.OFFSET_COMMIT])
async def test_a_member_of_no_group_is_told_what_its_version_knows(
    broker: FakeBroker, version: int
) -> None:
    await find(broker)
    request = {
        "group_id": "g",
        "generation_id_or_member_epoch": 3,
        "member_id": "m",
        "retention_time_ms": -1,
        "topics": [
            {
                "name": "t",
                "topic_id": TOPIC_ID,
                "partitions": [
                    {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
                ],
            }
        ],
    }
    answer = await ask(broker, ApiKey.OFFSET_COMMIT, version, request)
    code = answer["topics"][0]["partitions"][0]["error_code"]
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert code == expected
    # A member of KIP-848 commits by epochs, which older versions do not know.
    member = {**HEARTBEAT, "member_id": "m"}
    joined = await ask(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, member)
    for epoch in (joined["member_epoch"], joined["member_epoch"] - 1):
        now = {**request, "generation_id_or_member_epoch": epoch}
        answer = await ask(broker, ApiKey.OFFSET_COMMIT, version, now)
        code = answer["topics"][0]["partitions"][0]["error_code"]
        stale = ErrorCode.STALE_MEMBER_EPOCH
        told = ErrorCode.NONE if epoch == joined["member_epoch"] else stale
        assert code == (told if version >= 9 else ErrorCode.UNSUPPORTED_VERSION)
    await broker.groups.stop()


@pytest.mark.req("G3")
async def test_all_offsets_of_a_group(broker: FakeBroker) -> None:
    await find(broker)
    await commit(broker, 9)
    for version in (2, 7, 8, 9, 10):
        group = {"group_id": "g", "topics": None, "member_id": None, "member_epoch": -1}
        request = {**group, "groups": [group], "require_stable": True}
        answer = await ask(broker, ApiKey.OFFSET_FETCH, version, request)
        (topic,) = (answer["groups"][0] if version >= 8 else answer)["topics"]
        assert [one["committed_offset"] for one in topic["partitions"]] == [5]


@pytest.mark.req("G2", "G3")
async def test_administration(broker: FakeBroker) -> None:
    await find(broker)
    await commit(broker, 9)
    for version in SERVED[ApiKey.LIST_GROUPS]:
        request: dict[str, Any] = {"states_filter": ["Empty"], "types_filter": ["Classic"]}
        answer = await ask(broker, ApiKey.LIST_GROUPS, version, request)
        assert [one["group_id"] for one in answer["groups"]] == ["g"]
    for version in SERVED[ApiKey.DESCRIBE_GROUPS]:
        request = {"groups": ["g", "none"], "include_authorized_operations": True}
        answer = await ask(broker, ApiKey.DESCRIBE_GROUPS, version, request)
        known, none = answer["groups"]
        assert (known["group_state"], none["group_state"]) == ("Empty", "Dead")
        assert known.get("authorized_operations", 3400) == 3400
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert none["error_code"] == expected
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    request = {"group_id": "g", "topics": topics}
    answer = await ask(broker, ApiKey.OFFSET_DELETE, 0, request)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    assert (await fetched(broker, 9))["topics"][0]["partitions"][0]["committed_offset"] == -1
    request = {"group_id": "none", "topics": topics}
    answer = await ask(broker, ApiKey.OFFSET_DELETE, 0, request)
    assert answer["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    for version in SERVED[ApiKey.DELETE_GROUPS]:
        await commit(broker, 9)
        answer = await ask(broker, ApiKey.DELETE_GROUPS, version, {"groups_names": ["g", "none"]})
        told = [one["error_code"] for one in answer["results"]]
        assert told == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    await commit(broker, 9)
    answer = await ask(broker, ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g", "g"]})
    assert [one["error_code"] for one in answer["results"]] == [0]


@pytest.mark.req("G3")
async def test_many_groups_are_listed_some_in_each_turn(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await find(broker)
    assert broker.groups is not None
    names = [name for name in map(str, range(500)) if broker.groups.partition_of(name) == 7]
    for name in names:
        await commit(broker, 9, group=name)
    monkeypatch.setattr(group_admin, "STEP_ITEMS", 2)
    shard = broker.groups.shard_of(names[0])
    whole, asked_for = shard.ask, list[int]()

    def ask_shard(request: GroupRequest) -> asyncio.Future[Any]:
        if isinstance(request, ListGroups):
            asked_for.append(len(request.group_ids))
        return whole(request)

    monkeypatch.setattr(shard, "ask", ask_shard)
    turns = broker.groups.turns
    listing = asyncio.ensure_future(ask(broker, ApiKey.LIST_GROUPS, 4, {"states_filter": []}))
    seen = 0
    while not listing.done():
        await turns.next()
        assert len(asked_for) <= seen + 1
        seen = len(asked_for)
    assert sum(asked_for) == len(names) > 5
    assert max(asked_for) == 2
    assert [one["group_id"] for one in listing.result()["groups"]] == names
    # A partition that moves away meanwhile is its new coordinator's to tell of.
    monkeypatch.setattr(shard, "ask", lambda request: _gone(whole, request))
    assert (await ask(broker, ApiKey.LIST_GROUPS, 4, {"states_filter": []}))["groups"] == []
    await broker.groups.stop()


def _gone(
    whole: Callable[[GroupRequest], asyncio.Future[Any]], request: GroupRequest
) -> asyncio.Future[Any]:
    if isinstance(request, ListGroups):
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    return whole(request)


@pytest.mark.req("G1")
async def test_before_the_topic_exists_there_is_no_coordinator(broker: FakeBroker) -> None:
    answer = await fetched(broker, 9)
    assert answer["error_code"] == ErrorCode.NOT_COORDINATOR
    assert (await ask(broker, ApiKey.LIST_GROUPS, 4, {"states_filter": []}))["groups"] == []


async def _quick() -> FakeBroker:
    broker = new_broker(group_initial_rebalance_delay_ms="0")
    await find(broker)
    return broker


@pytest.mark.req("G3")
async def test_offsets_expire() -> None:
    broker = new_broker(offsets_retention_check_interval_ms="20")
    await find(broker)
    await commit(broker, 9)
    broker.wall_ms += 7 * 86_400_000 - 1
    await asyncio.sleep(0.1)
    assert (await fetched(broker, 9))["topics"][0]["partitions"][0]["committed_offset"] == 5
    broker.wall_ms += 1
    for _ in range(500):
        await asyncio.sleep(0.01)
        answer = await fetched(broker, 9)
        if answer["topics"][0]["partitions"][0]["committed_offset"] == -1:
            break
    assert (await ask(broker, ApiKey.LIST_GROUPS, 4, {"states_filter": []}))["groups"] == []


@pytest.mark.req("G4", "N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.CONSUMER_GROUP_HEARTBEAT])
async def test_consumer_group_heartbeat_and_describe(version: int) -> None:
    broker = await _quick()
    publish(broker.metadata, [ConfigRecord(32, "g", "consumer.heartbeat.interval.ms", "6000")])
    request = {**HEARTBEAT, "member_id": "a" if version else ""}
    joined = await ask(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, version, request)
    assert (joined["error_code"], joined["member_epoch"]) == (0, 1)
    assert joined["heartbeat_interval_ms"] == 6_000
    assert joined["assignment"] == {
        "topic_partitions": [{"topic_id": TOPIC_ID, "partitions": [0, 1]}]
    }
    described = await ask(
        broker,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        version,
        {"group_ids": ["g", "none", ""], "include_authorized_operations": True},
    )
    group, absent, nameless = described["groups"]
    assert (group["group_state"], group["assignor_name"]) == ("Stable", "uniform")
    assert group["authorized_operations"] == 3400
    (member,) = group["members"]
    assert member["member_id"] == joined["member_id"]
    assert member["assignment"]["topic_partitions"][0]["topic_name"] == "t"
    assert member["assignment"] == member["target_assignment"]
    assert absent["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert nameless["error_code"] == ErrorCode.INVALID_GROUP_ID
    fenced = {**request, "member_id": joined["member_id"], "member_epoch": 7}
    refused = await ask(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, version, fenced)
    assert refused["error_code"] == ErrorCode.FENCED_MEMBER_EPOCH
    assert "rejoin" in refused["error_message"]
