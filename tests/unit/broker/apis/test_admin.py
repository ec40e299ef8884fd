"""Topics, configs, coordinators and producer ids through `dispatch`."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
)
from raftctl.metadata.requests.cluster import CreateTopicsRequest
from tests.unit.broker.apis.asking import TOPIC_ID, ask
from tests.unit.broker.server.fakes import (
    FakeBroker,
    publish,
    topic_records,
)

# --- topics ---------------------------------------------------------------------------------------


def create_request(name: str, **fields: Any) -> dict[str, Any]:
    topic: dict[str, Any] = {
        "name": name,
        "num_partitions": 2,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "1234"}],
    }
    return {"topics": [topic | fields], "timeout_ms": 1000, "validate_only": False}


@pytest.mark.req("N1", "C3")
@pytest.mark.parametrize("version", SERVED[ApiKey.CREATE_TOPICS])
async def test_create_topics(broker: FakeBroker, version: int) -> None:
    (topic,) = (await ask(broker, 19, version, create_request("new")))["topics"]
    assert (topic["error_code"], topic["name"]) == (0, "new")
    image = broker.metadata.image.topics.by_name("new")
    assert image is not None
    assert len(image.partitions) == 2
    assert topic.get("topic_id", image.topic_id) == image.topic_id
    configs = {c["name"]: c for c in topic.get("configs") or []}
    if version >= 5:
        assert (topic["num_partitions"], topic["replication_factor"]) == (2, 1)
        assert configs["retention.ms"]["value"] == "1234"
        assert configs["retention.ms"]["config_source"] == 1
    (again,) = (await ask(broker, 19, version, create_request("new")))["topics"]
    assert again["error_code"] == ErrorCode.TOPIC_ALREADY_EXISTS
    assert again["error_message"] == "it is there"


@pytest.mark.req("C3", "G1")
async def test_what_is_left_open_of_the_brokers_own_topics_is_as_they_need_it(
    broker: FakeBroker,
) -> None:
    left_open = {"num_partitions": -1, "replication_factor": -1, "configs": []}
    await ask(broker, 19, 7, create_request("__consumer_offsets", **left_open))
    named = {"num_partitions": 4, "configs": [{"name": "segment.bytes", "value": "2000"}]}
    await ask(broker, 19, 7, create_request("__transaction_state", **named))
    offsets, transactions = (
        request.topics[0]
        for request in broker.controller.requests
        if isinstance(request, CreateTopicsRequest)
    )
    assert (offsets.partitions, offsets.replication_factor) == (50, 2)
    assert dict(offsets.configs)["cleanup.policy"] == "compact"
    assert (transactions.partitions, transactions.replication_factor) == (4, 1)
    configs = dict(transactions.configs)
    assert (configs["segment.bytes"], configs["cleanup.policy"]) == ("2000", "compact")


@pytest.mark.req("C3")
async def test_an_assignment_is_passed_on(broker: FakeBroker) -> None:
    assignments = [{"partition_index": 0, "broker_ids": [2, 1]}]
    request = create_request(
        "new", num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    await ask(broker, 19, 5, request)
    (sent,) = broker.controller.requests
    assert isinstance(sent, CreateTopicsRequest)
    assert sent.topics[0].assignments == ((0, (2, 1)),)


async def test_the_answer_waits_until_this_broker_sees_the_topic(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raftctl.metadata.requests.cluster import CreateTopicsResponse, TopicResult

    async def create(*_: object) -> CreateTopicsResponse:
        result = TopicResult("new", ErrorCode.NONE, "", UUID(int=8), 1, 1)
        return CreateTopicsResponse(ErrorCode.NONE, (result,))

    monkeypatch.setattr(broker.controller, "call", create)
    asking = asyncio.create_task(ask(broker, 19, 5, create_request("new")))
    await asyncio.sleep(0.02)
    assert not asking.done()
    publish(broker.metadata, topic_records("new", UUID(int=8), 1))
    assert (await asking)["topics"][0]["error_code"] == 0
    late = {**create_request("new"), "timeout_ms": 10}
    publish(broker.metadata, [])
    monkeypatch.setattr(broker.metadata, "image", FakeBroker().metadata.image)
    assert (await ask(broker, 19, 5, late))["topics"][0]["error_code"] == 0


@pytest.mark.req("N1", "C3")
@pytest.mark.parametrize("version", SERVED[ApiKey.DELETE_TOPICS])
async def test_delete_topics(broker: FakeBroker, version: int) -> None:
    publish(broker.metadata, topic_records("u", UUID(int=6), 1))
    topics = [{"name": "t", "topic_id": None}, {"name": None, "topic_id": UUID(int=6)}]
    request = {"topic_names": ["t", "u"], "topics": topics, "timeout_ms": 1000}
    answer = (await ask(broker, 20, version, request))["responses"]
    assert [(t["name"], t["error_code"]) for t in answer] == [("t", 0), ("u", 0)]
    assert list(broker.metadata.image.topics.in_order()) == []
    again = {"topic_names": ["t"], "topics": topics[:1], "timeout_ms": 1000}
    (gone,) = (await ask(broker, 20, version, again))["responses"]
    assert gone["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.req("C3")
async def test_a_topic_is_deleted_by_name_or_by_id(broker: FakeBroker) -> None:
    topics = [
        {"name": "t", "topic_id": TOPIC_ID},
        {"name": None, "topic_id": None},
        {"name": "absent", "topic_id": None},
    ]
    answer = await ask(broker, 20, 6, {"topics": topics, "timeout_ms": 1000})
    invalid, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one["error_code"] for one in answer["responses"]] == [invalid, invalid, unknown]
    assert broker.metadata.image.topics.by_name("t") is not None
    answer = await ask(broker, 20, 6, {"topics": topics[:2], "timeout_ms": 1000})
    assert len(answer["responses"]) == 2
    assert len(broker.controller.requests) == 1
    # Twice is no way to say it either, and deletes nothing.
    by_name = {"name": "t", "topic_id": None}
    answer = await ask(broker, 20, 6, {"topics": [by_name, by_name], "timeout_ms": 1000})
    assert [one["error_code"] for one in answer["responses"]] == [invalid]
    assert broker.metadata.image.topics.by_name("t") is not None


@pytest.mark.parametrize(("key", "version"), [(19, 5), (20, 5), (20, 6), (22, 4)])
async def test_an_error_of_the_controller_reaches_the_client(
    broker: FakeBroker, key: int, version: int
) -> None:
    broker.controller.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    request = {
        **create_request("new"),
        "topic_names": ["t"],
        "transactional_id": None,
        "transaction_timeout_ms": 0,
    }
    if version == 6:
        request["topics"] = [{"name": "t", "topic_id": None}]
    answer = await ask(broker, key, version, request)
    results = answer.get("topics", answer.get("responses", [answer]))
    expected = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert results[0]["error_code"] == (
        expected if key != 22 else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )


# --- configs, cluster, coordinators ---------------------------------------------------------------


def config_request(kind: int, name: str, *keys: str) -> dict[str, Any]:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": list(keys) or None,
    }
    return {
        "resources": [resource],
        "include_synonyms": True,
        "include_documentation": True,
    }


@pytest.mark.req("N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.DESCRIBE_CONFIGS])
async def test_topic_configs_have_their_sources(version: int) -> None:
    broker = FakeBroker(log_retention_ms="777")
    publish(
        broker.metadata,
        [*topic_records("t", TOPIC_ID, 1), ConfigRecord(2, "t", "segment.bytes", "2000000")],
    )
    answer = await ask(broker, 32, version, config_request(2, "t"))
    (result,) = answer["results"]
    configs = {c["name"]: c for c in result["configs"]}
    assert result["error_code"] == 0
    assert _value_and_source(configs["segment.bytes"]) == ("2000000", 1)
    assert _value_and_source(configs["retention.ms"]) == ("777", 4)
    assert _value_and_source(configs["cleanup.policy"]) == ("delete", 5)
    assert [s["source"] for s in configs["segment.bytes"]["synonyms"]] == [1, 5]


def _value_and_source(entry: dict[str, Any]) -> tuple[str, int]:
    return entry["value"], entry["config_source"]


async def test_broker_configs(broker: FakeBroker) -> None:
    request = config_request(4, "1", "num.partitions", "log.dirs", "queued.max.requests")
    (result,) = (await ask(broker, 32, 4, request))["results"]
    configs = {c["name"]: _value_and_source(c) for c in result["configs"]}
    assert configs == {
        "num.partitions": ("3", 4),
        "log.dirs": ("/nowhere", 4),
        "queued.max.requests": ("500", 5),
    }
    assert all(c["read_only"] for c in result["configs"])


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (4, "2", ErrorCode.INVALID_REQUEST),
        (8, "2", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_configs_of_what_is_not_there(
    broker: FakeBroker, kind: int, name: str, code: ErrorCode
) -> None:
    (result,) = (await ask(broker, 32, 4, config_request(kind, name)))["results"]
    assert result["error_code"] == code


@pytest.mark.req("N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.DESCRIBE_CLUSTER])
async def test_describe_cluster(broker: FakeBroker, version: int) -> None:
    request = {"include_cluster_authorized_operations": True, "include_fenced_brokers": True}
    answer = await ask(broker, 60, version, request)
    expected = [1, 2, 3] if version == 2 else [1, 2]
    assert [b["broker_id"] for b in answer["brokers"]] == expected
    assert (answer["cluster_id"], answer["controller_id"]) == ("a-cluster", 1)
    if version:
        answer = await ask(broker, 60, version, {**request, "endpoint_type": 2})
        assert answer["error_code"] == ErrorCode.MISMATCHED_ENDPOINT_TYPE


# --- producer ids ---------------------------------------------------------------------------------

INIT = {"transactional_id": None, "transaction_timeout_ms": 0}


@pytest.mark.req("C10")
async def test_producer_ids_are_never_given_twice(broker: FakeBroker) -> None:
    answers = await asyncio.gather(*(ask(broker, 22, 4, INIT) for _ in range(35)))
    ids = [answer["producer_id"] for answer in answers]
    assert sorted(ids) == list(range(35))
    assert {answer["producer_epoch"] for answer in answers} == {0}
    await asyncio.sleep(0.01)
    # Four blocks of ten, or the fifth asked for ahead: not one for each client.
    assert 4 <= len(broker.controller.requests) <= 5


@pytest.mark.req("C10")
async def test_producer_ids_without_a_controller_are_asked_for_again(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_controller(*_: object) -> None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    with monkeypatch.context() as patch:
        patch.setattr(broker.controller, "call", no_controller)
        answer = await ask(broker, 22, 4, INIT)
        assert answer["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await ask(broker, 22, 4, INIT))["producer_id"] == 0


# --- DescribeTopicPartitions ----------------------------------------------------------------------


async def test_partitions_are_described_page_by_page(broker: FakeBroker) -> None:
    publish(
        broker.metadata,
        [
            TopicRecord("b", UUID(int=7)),
            *(PartitionRecord(UUID(int=7), i, (1, 3), (1,), 1, 0, 0) for i in range(3)),
        ],
    )
    found: list[tuple[str, int]] = []
    cursor = None
    for _ in range(5):
        topics = [{"name": "t"}, {"name": "b"}]
        request = {"topics": topics, "response_partition_limit": 2, "cursor": cursor}
        answer = await ask(broker, 75, 0, request)
        for topic in answer["topics"]:
            assert topic["error_code"] == 0
            found += [(topic["name"], p["partition_index"]) for p in topic["partitions"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert found == [("b", 0), ("b", 1), ("b", 2), ("t", 0), ("t", 1)]
    first = await ask(broker, 75, 0, {"topics": [{"name": "b"}, {"name": "x"}]})
    assert {one["topic_authorized_operations"] for one in first["topics"]} == {3576}
    assert first["topics"][0]["partitions"][0]["offline_replicas"] == [3]
    assert first["topics"][1]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("topic", "partition"), [("t", -1), ("other", 0), ("a", 0)], ids=["below 0", "after", "before"]
)
async def test_a_page_does_not_begin_where_nothing_was_asked_for(
    broker: FakeBroker, topic: str, partition: int
) -> None:
    cursor = {"topic_name": topic, "partition_index": partition}
    request = {"topics": [{"name": "t"}], "response_partition_limit": 2, "cursor": cursor}
    answer = await ask(broker, 75, 0, request)
    (refused,) = answer["topics"]
    assert refused["error_code"] == ErrorCode.INVALID_REQUEST
    assert refused["topic_authorized_operations"] == -(2**31)
    everything = request | {"topics": [], "cursor": {"topic_name": "a", "partition_index": 0}}
    assert [one["name"] for one in (await ask(broker, 75, 0, everything))["topics"]] == ["t"]


async def test_a_name_that_no_topic_can_have_is_not_described(broker: FakeBroker) -> None:
    request = {"topics": [{"name": "a/b"}], "response_partition_limit": 2, "cursor": None}
    (topic,) = (await ask(broker, 75, 0, request))["topics"]
    assert topic["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    producers = {"topics": [{"name": "a/b", "partition_indexes": [0]}]}
    (topic,) = (await ask(broker, 61, 0, producers))["topics"]
    (partition,) = topic["partitions"]
    assert partition["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_name_is_told_as_it_came_though_it_is_empty(broker: FakeBroker) -> None:
    topics = [{"name": "", "topic_id": None}]
    (told,) = (await ask(broker, 20, 6, {"topics": topics, "timeout_ms": 1000}))["responses"]
    assert (told["name"], told["topic_id"]) == ("", None)
