"""What each principal may discover: topics, operations, coordinators (row S4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from broker.apis.discovery import _metadata
from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.metadata.records import RemoveTopicRecord
from raftctl.metadata.requests.cluster import CreateTopicsRequest
from raftctl.security import Action, Principal, Requester
from tests.kit.authorizing import ListedActions, denying
from tests.unit.broker.apis.asking import TOPIC_ID, ask, asked, new_broker
from tests.unit.broker.server.fakes import FakeBroker, publish, topic_records

pytestmark = pytest.mark.req("S4")

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_ASKED = -(2**31)
EVERY_TOPIC_OPERATION = 0b1101_1111_1000
EVERY_CLUSTER_OPERATION = 0b1_1111_1010_0000


class NotForBob(ListedActions):
    """What is denied is denied to Bob alone."""

    def authorize(self, requester: Requester, action: Action) -> bool:
        """See `raftctl.security.Authorizer`."""
        return super().authorize(requester, action) or requester.principal != BOB


def on_topic(operation: Operation, name: str) -> Action:
    return Action(operation, TOPIC, name)


def on_cluster(operation: Operation) -> Action:
    return Action(operation, CLUSTER, CLUSTER_NAME)


def describe(*names: str) -> list[Action]:
    return [on_topic(Operation.DESCRIBE, name) for name in names]


def authorized(broker: FakeBroker, *denied: Action, by: type[ListedActions] = ListedActions) -> Any:
    """The authorizer that this broker asks from now on."""
    authorizer = by(denied=denied)
    broker.context = replace(broker.context, authorizer=authorizer)
    return authorizer


def metadata(
    *names: str | UUID, create: bool = False, operations: bool = False, every: bool = False
) -> dict[str, Any]:
    topics = [
        {"name": None, "topic_id": one}
        if isinstance(one, UUID)
        else {"name": one, "topic_id": None}
        for one in names
    ]
    return {
        "topics": None if every else topics,
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": operations,
        "include_cluster_authorized_operations": operations,
    }


def topics_of(answer: dict[str, Any]) -> list[tuple[str | None, int]]:
    return [(one["name"], one["error_code"]) for one in answer["topics"]]


# --- Metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", SERVED[ApiKey.METADATA])
async def test_the_list_of_all_topics_leaves_out_what_may_not_be_described(
    broker: FakeBroker, version: int
) -> None:
    publish(broker.metadata, topic_records("hidden", UUID(int=6), 1))
    authorized(broker, *describe("hidden"))
    request = metadata(every=version > 0)
    answer = await ask(broker, 3, version, request)
    assert topics_of(answer) == [("t", 0)]
    assert topics_of(await ask(broker, 3, version, request)) == [("t", 0)]


@pytest.mark.parametrize("version", SERVED[ApiKey.METADATA])
async def test_a_topic_that_is_named_is_denied_whether_it_exists_or_not(
    broker: FakeBroker, version: int
) -> None:
    authorized(broker, *describe("t", "absent", "new"))
    request = metadata("t", "absent", "bad/name", create=True)
    answer = await ask(broker, 3, version, request)
    found, absent, bad = answer["topics"]
    assert found | {"name": "absent"} == absent
    assert (found["error_code"], found["partitions"]) == (DENIED, [])
    assert found.get("topic_id") is None
    assert not found["is_internal"] if version else True
    assert bad["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not broker.controller.requests


async def test_a_topic_that_is_asked_for_by_its_id_is_denied_without_its_name(
    broker: FakeBroker,
) -> None:
    authorized(broker, *describe("t"))
    hidden, unknown = (await ask(broker, 3, 12, metadata(TOPIC_ID, UUID(int=9))))["topics"]
    assert (hidden["name"], hidden["topic_id"], hidden["error_code"]) == (None, TOPIC_ID, DENIED)
    assert hidden["partitions"] == []
    assert (unknown["name"], unknown["error_code"]) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    # The request is refused as a whole, or is answered: never does it say the name.
    authorized(broker)
    (shown,) = (await ask(broker, 3, 12, metadata(TOPIC_ID)))["topics"]
    assert (shown["name"], shown["error_code"]) == ("t", 0)


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("operations", [True, False])
async def test_no_principal_is_given_the_answer_of_another(
    broker: FakeBroker, *, every: bool, operations: bool
) -> None:
    publish(broker.metadata, topic_records("hidden", UUID(int=6), 1))
    alter = [on_topic(Operation.ALTER, "t"), on_cluster(Operation.ALTER)]
    authorized(broker, *describe("hidden"), *alter, by=NotForBob)
    names = () if every else ("hidden", "t")
    request = metadata(*names, every=every, operations=operations)
    both = [("hidden", 0), ("t", 0)]
    bobs = [("t", 0)] if every else [("hidden", DENIED), ("t", 0)]
    for _ in range(2):
        for principal, expected in ((ALICE, both), (BOB, bobs), (ALICE, both)):
            answer = await ask(broker, 3, 8, request, principal)
            assert sorted(topics_of(answer)) == expected
            granted = answer["cluster_authorized_operations"]
            less = 1 << Operation.ALTER if principal == BOB else 0
            assert granted == (EVERY_CLUSTER_OPERATION - less if operations else NOT_ASKED)
            (t,) = [one for one in answer["topics"] if one["name"] == "t"]
            granted = t["topic_authorized_operations"]
            assert granted == (EVERY_TOPIC_OPERATION - less if operations else NOT_ASKED)


@pytest.mark.parametrize("every", [True, False])
async def test_principals_that_see_the_same_have_operations_of_their_own(
    broker: FakeBroker, *, every: bool
) -> None:
    authorized(broker, on_topic(Operation.ALTER, "t"), by=NotForBob)
    request = metadata("t", every=every, operations=True)
    for principal, less in ((ALICE, 0), (BOB, 1 << Operation.ALTER), (ALICE, 0)):
        (t,) = (await ask(broker, 3, 12, request, principal))["topics"]
        assert t["topic_authorized_operations"] == EVERY_TOPIC_OPERATION - less


async def test_principals_that_see_the_same_topics_share_an_encoded_answer(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [r for i in range(100) for r in topic_records(f"u{i}", UUID(int=100 + i), 1)]
    publish(broker.metadata, records)
    authorized(broker, *describe("u7"), by=NotForBob)
    for principal in (ALICE, BOB):
        await ask(broker, 3, 12, metadata(every=True), principal)
    monkeypatch.setattr(broker.metadata, "keep_body", None)
    for principal, count in ((ALICE, 101), (BOB, 100)):
        answer = await ask(broker, 3, 12, metadata(every=True), principal)
        assert len(answer["topics"]) == count


class _Turns:
    """As `Slices` of which each is over after one step."""

    async def rest(self) -> None:
        await asyncio.sleep(0)


async def test_many_topics_are_asked_about_in_several_turns(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics that come and go meanwhile were not asked about, and are no errors."""
    publish(broker.metadata, topic_records("hidden", UUID(int=6), 1))
    publish(broker.metadata, topic_records("going", UUID(int=7), 1))
    monkeypatch.setattr(_metadata, "_ASKED_AT_ONCE", 1)
    monkeypatch.setattr(_metadata, "Slices", _Turns)
    for denied, expected in (((), ["going", "hidden", "t"]), (("hidden",), ["going", "t"])):
        authorizer = authorized(broker, *describe("coming", *denied))
        answer = await ask(broker, 3, 12, metadata(every=True))
        assert sorted(topics_of(answer)) == [(name, 0) for name in expected]
        authorizer.asked.clear()
        asking = asked(broker, 3, 12, metadata(every=True))
        await asyncio.sleep(0)
        assert 1 <= len(authorizer.asked) < 3
        publish(broker.metadata, topic_records("coming", UUID(int=8), 1))
        publish(broker.metadata, [RemoveTopicRecord(UUID(int=7))])
        expected.remove("going")
        assert sorted(topics_of(await asking)) == [(name, 0) for name in expected]
        publish(broker.metadata, [RemoveTopicRecord(UUID(int=8))])
        publish(broker.metadata, topic_records("going", UUID(int=7), 1))


async def test_a_list_of_all_topics_is_no_line_in_the_audit_log(broker: FakeBroker) -> None:
    authorizer = authorized(broker, *describe("t"))
    await ask(broker, 3, 12, metadata(every=True))
    assert [action.log_if_denied for _, action in authorizer.asked] == [False]
    authorizer.asked.clear()
    await ask(broker, 3, 12, metadata("t"))
    assert [action.log_if_denied for _, action in authorizer.asked] == [True]


@pytest.mark.parametrize(
    ("denied", "error"),
    [
        pytest.param((), 0, id="both"),
        pytest.param((on_cluster(Operation.CREATE),), 0, id="topic"),
        pytest.param((on_topic(Operation.CREATE, "new"),), 0, id="cluster"),
        pytest.param(
            (on_cluster(Operation.CREATE), on_topic(Operation.CREATE, "new")), DENIED, id="neither"
        ),
    ],
)
async def test_a_topic_comes_because_it_is_named_if_it_may_be_created(
    broker: FakeBroker, denied: tuple[Action, ...], error: int
) -> None:
    authorized(broker, *denied)
    answer = await ask(broker, 3, 12, metadata("t", "new", create=True), ALICE)
    assert topics_of(answer) == [("t", 0), ("new", error)]
    assert (broker.metadata.image.topics.by_name("new") is None) == bool(error)
    requesters = [
        request.requester
        for request in broker.controller.requests
        if isinstance(request, CreateTopicsRequest)
    ]
    assert requesters == ([] if error else [("User:alice", "10.0.0.7")])


async def test_without_creation_a_missing_topic_is_unknown_to_who_may_describe_it(
    broker: FakeBroker,
) -> None:
    authorized(broker, on_cluster(Operation.CREATE), on_topic(Operation.CREATE, "new"))
    answer = await ask(broker, 3, 12, metadata("new"))
    assert topics_of(answer) == [("new", UNKNOWN)]


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_operations_of_the_cluster_are_for_who_may_describe_it(version: int) -> None:
    broker = new_broker()
    authorized(broker, on_cluster(Operation.DESCRIBE))
    answer = await ask(broker, 3, version, metadata(operations=True))
    assert answer["cluster_authorized_operations"] == 0


async def test_operations_are_answered_for_what_may_be_described_alone(broker: FakeBroker) -> None:
    authorized(broker, *describe("hidden"), on_topic(Operation.WRITE, "absent"))
    request = metadata("t", "hidden", "absent", operations=True)
    answer = await ask(broker, 3, 12, request)
    granted = {one["name"]: one["topic_authorized_operations"] for one in answer["topics"]}
    assert granted == {
        "t": EVERY_TOPIC_OPERATION,
        "hidden": NOT_ASKED,
        "absent": EVERY_TOPIC_OPERATION - (1 << Operation.WRITE),
    }


# --- DescribeCluster, ApiVersions -----------------------------------------------------------------


@pytest.mark.parametrize("version", SERVED[ApiKey.DESCRIBE_CLUSTER])
@pytest.mark.parametrize(
    ("denied", "granted"),
    [
        ((), EVERY_CLUSTER_OPERATION),
        ((Operation.ALTER,), EVERY_CLUSTER_OPERATION - (1 << Operation.ALTER)),
        ((Operation.DESCRIBE,), 0),
    ],
)
async def test_the_cluster_is_described_to_everybody_and_its_operations_are_not(
    broker: FakeBroker, version: int, denied: tuple[Operation, ...], granted: int
) -> None:
    authorized(broker, *map(on_cluster, denied))
    request = {
        "include_cluster_authorized_operations": True,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
    }
    answer = await ask(broker, 60, version, request)
    assert [one["broker_id"] for one in answer["brokers"]] == [1, 2]
    assert answer["cluster_authorized_operations"] == granted


async def test_versions_need_no_right(broker: FakeBroker) -> None:
    authorizer = authorized(broker)
    client = {"client_software_name": "test", "client_software_version": "1"}
    assert (await ask(broker, 18, 4, client))["error_code"] == 0
    assert not authorizer.asked


# --- FindCoordinator ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", SERVED[ApiKey.FIND_COORDINATOR])
@pytest.mark.parametrize(
    ("key_type", "kind", "error"),
    [
        (0, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (1, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_a_coordinator_is_found_by_who_may_describe(
    broker: FakeBroker, version: int, key_type: int, kind: ResourceType, error: ErrorCode
) -> None:
    if key_type and not version:
        return
    authorized(broker, Action(Operation.DESCRIBE, kind, "hidden"))
    keys = ["hidden"] if version < 4 else ["hidden", "shown"]
    request = {"key": "hidden", "key_type": key_type, "coordinator_keys": keys}
    answer = await ask(broker, 10, version, request)
    hidden, *others = answer.get("coordinators") or [answer]
    assert (hidden["error_code"], hidden["node_id"], hidden["port"]) == (error, -1, -1)
    assert [one["error_code"] for one in others] == [0] * (len(keys) - 1)
    assert bool(hidden.get("error_message")) == (1 <= version < 4)
    # Nobody has a coordinators' topic created who may not ask for one.
    assert len(broker.controller.requests) == len(keys) - 1


async def test_the_coordinator_of_share_groups_is_for_brokers(broker: FakeBroker) -> None:
    request = {"key_type": 2, "coordinator_keys": ["g:t:0"]}
    for denied, error in (
        ((), ErrorCode.INVALID_REQUEST),
        ((on_cluster(Operation.CLUSTER_ACTION),), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ):
        authorized(broker, *denied)
        answer = await ask(broker, 10, 6, request)
        assert [one["error_code"] for one in answer["coordinators"]] == [error]


# --- DescribeTopicPartitions ----------------------------------------------------------------------


def pages(*names: str, limit: int = 100, cursor: Any = None) -> dict[str, Any]:
    return {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": cursor,
    }


async def test_partitions_are_described_of_what_may_be_described(broker: FakeBroker) -> None:
    publish(broker.metadata, topic_records("hidden", UUID(int=6), 1))
    authorized(broker, *describe("absent", "hidden"), on_topic(Operation.WRITE, "t"))
    answer = await ask(broker, 75, 0, pages("t", "hidden", "absent", "unknown"))
    assert topics_of(answer) == [
        ("t", 0),
        ("unknown", UNKNOWN),
        ("absent", DENIED),
        ("hidden", DENIED),
    ]
    t, unknown, absent, hidden = answer["topics"]
    assert absent | {"name": "hidden"} == hidden
    assert (hidden["topic_id"], hidden["partitions"]) == (None, [])
    assert hidden["topic_authorized_operations"] == NOT_ASKED
    assert t["topic_authorized_operations"] == EVERY_TOPIC_OPERATION - (1 << Operation.WRITE)
    assert unknown["topic_authorized_operations"] == EVERY_TOPIC_OPERATION


async def test_pages_of_all_partitions_leave_out_what_may_not_be_described(
    broker: FakeBroker,
) -> None:
    for number, name in enumerate(("a", "b", "z")):
        publish(broker.metadata, topic_records(name, UUID(int=20 + number), 1))
    authorized(broker, *describe("a", "t"))
    first = await ask(broker, 75, 0, pages(limit=1))
    assert topics_of(first) == [("b", 0)]
    assert first["next_cursor"] == {"topic_name": "z", "partition_index": 0}
    last = await ask(broker, 75, 0, pages(limit=1, cursor=first["next_cursor"]))
    assert topics_of(last) == [("z", 0)]
    assert last["next_cursor"] is None


async def test_an_authorizer_that_allows_everything_changes_no_answer(broker: FakeBroker) -> None:
    for request in (metadata("t", "absent"), metadata(every=True, operations=True)):
        without = await ask(broker, 3, 12, request)
        broker.context = replace(broker.context, authorizer=denying())
        assert await ask(broker, 3, 12, request) == without
        broker.context = replace(broker.context, authorizer=None)
