"""Metadata, produce, fetch and offsets through `dispatch`, without sockets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from broker.apis import dispatch
from broker.apis._dispatch import APIS
from broker.apis.handler import Reply
from broker.apis.handler import _metadata_cache as metadata_cache
from broker.protocol import codec
from broker.protocol.versions import SERVED, ApiKey, advertised
from broker.request_context import RequestContext
from broker.types import CONSUMER, AppendResult, EpochEndOffset, FetchResult, LeaderHint
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import (
    ConfigRecord,
    Endpoint,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from raftctl.metadata.requests.cluster import CreateTopicsRequest, NewTopic
from tests.kit.pieces import as_bytes
from tests.unit.broker.apis.asking import TOPIC_ID, ask, new_broker
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import eventually
from tests.unit.broker.server.fakes import (
    FakeBroker,
    batch,
    broker_record,
    fetch_message,
    produce_message,
    publish,
)

# --- ApiVersions ----------------------------------------------------------------------------------


@pytest.mark.req("N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.API_VERSIONS])
async def test_api_versions_tells_the_table(broker: FakeBroker, version: int) -> None:
    software = {"client_software_name": "a", "client_software_version": "1"}
    answer = await ask(broker, 18, version, software)
    table = [(a["api_key"], a["min_version"], a["max_version"]) for a in answer["api_keys"]]
    assert answer["error_code"] == 0
    assert table == advertised()


@pytest.mark.req("N1")
def test_what_is_advertised_is_served_but_for_the_old_produce_versions() -> None:
    assert set(APIS) == set(SERVED)
    for key, low, high in advertised():
        served = set(SERVED[key])
        assert set(range(low, high + 1)) - served == ({0, 1, 2} if key == 0 else set())


# --- Metadata -------------------------------------------------------------------------------------


def metadata_request(*names: str, create: bool = False) -> dict[str, Any]:
    topics = [{"name": name, "topic_id": None} for name in names]
    return {
        "topics": topics,
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }


@pytest.mark.req("N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.METADATA])
async def test_metadata_shows_live_brokers_and_partitions(broker: FakeBroker, version: int) -> None:
    answer = await ask(broker, 3, version, metadata_request("t"))
    assert [b["node_id"] for b in answer["brokers"]] == [1, 2]
    (topic,) = answer["topics"]
    assert (topic["error_code"], topic["name"]) == (0, "t")
    assert [p["partition_index"] for p in topic["partitions"]] == [0, 1]
    assert all(p["leader_id"] == 1 and p["isr_nodes"] == [1] for p in topic["partitions"])
    assert answer.get("controller_id", 1) == 1
    assert answer.get("cluster_id", "a-cluster") == "a-cluster"
    assert topic.get("topic_id", TOPIC_ID) == TOPIC_ID


async def test_metadata_of_all_of_none_and_of_an_empty_list_before_version_1(
    broker: FakeBroker,
) -> None:
    everything = {"topics": None, "allow_auto_topic_creation": True}
    assert [t["name"] for t in (await ask(broker, 3, 4, everything))["topics"]] == ["t"]
    assert (await ask(broker, 3, 4, metadata_request()))["topics"] == []
    assert len((await ask(broker, 3, 0, metadata_request()))["topics"]) == 1


async def test_metadata_by_topic_id(broker: FakeBroker) -> None:
    request = metadata_request() | {
        "topics": [{"name": None, "topic_id": TOPIC_ID}, {"name": None, "topic_id": UUID(int=9)}]
    }
    known, unknown = (await ask(broker, 3, 12, request))["topics"]
    assert known["name"] == "t"
    assert (unknown["name"], unknown["error_code"]) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    request["topics"] *= 2
    assert len((await ask(broker, 3, 12, request))["topics"]) == 2


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_that_is_named_twice_is_told_once(broker: FakeBroker, version: int) -> None:
    request = metadata_request("t", "t")
    assert [one["name"] for one in (await ask(broker, 3, version, request))["topics"]] == ["t"]


async def test_a_topic_without_name_and_id_is_none(broker: FakeBroker) -> None:
    request = metadata_request() | {"topics": [{"name": None, "topic_id": None}]}
    answer = await ask(broker, 3, 13, request)
    assert (answer["error_code"], answer["brokers"]) == (ErrorCode.INVALID_REQUEST, [])


async def test_a_reserved_topic_is_not_created_because_a_client_names_it() -> None:
    broker = FakeBroker(auto_create_topics_enable="true")
    (topic,) = (await ask(broker, 3, 9, metadata_request("__cluster_metadata", create=True)))[
        "topics"
    ]
    assert topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not broker.controller.requests


@pytest.mark.req("G1")
@pytest.mark.parametrize(
    ("name", "partitions", "segment"),
    [("__consumer_offsets", 7, "1000000"), ("__transaction_state", 5, "2000000")],
)
async def test_a_client_that_names_the_brokers_own_topic_gets_it_in_its_own_shape(
    name: str, partitions: int, segment: str
) -> None:
    broker = new_broker(
        offsets_topic_num_partitions="7",
        offsets_topic_segment_bytes="1000000",
        transaction_state_log_num_partitions="5",
        transaction_state_log_segment_bytes="2000000",
    )
    asked = metadata_request(name, "ordinary", create=True)
    topic, ordinary = (await ask(broker, 3, 9, asked))["topics"]
    assert (len(topic["partitions"]), len(ordinary["partitions"])) == (partitions, 3)
    (create,) = broker.controller.requests
    assert isinstance(create, CreateTopicsRequest)
    new, other = create.topics
    # As far as there are brokers that live: two of the three that are wanted.
    assert new.replication_factor == 2
    assert {"cleanup.policy": "compact", "segment.bytes": segment}.items() <= dict(
        new.configs
    ).items()
    assert other == NewTopic("ordinary", 3, 1)


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 250, "é"])
@pytest.mark.parametrize("create", [True, False])
async def test_a_name_that_no_topic_can_have_is_said_to_be_none(
    broker: FakeBroker, name: str, create: bool
) -> None:
    (topic,) = (await ask(broker, 3, 9, metadata_request(name, create=create)))["topics"]
    assert topic["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not broker.controller.requests


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(
    "key",
    [{"name": None, "topic_id": TOPIC_ID}, {"name": "t", "topic_id": TOPIC_ID}],
    ids=["id", "both"],
)
async def test_topics_are_not_asked_for_by_id_before_version_12(
    broker: FakeBroker, version: int, key: dict[str, Any]
) -> None:
    answer = await ask(broker, 3, version, metadata_request() | {"topics": [key]})
    assert [topic["error_code"] for topic in answer["topics"]] == [ErrorCode.INVALID_REQUEST]
    assert (answer["brokers"], answer["cluster_id"], answer["controller_id"]) == ([], None, -1)


async def test_a_partition_without_a_live_leader_is_shown_so(broker: FakeBroker) -> None:
    publish(
        broker.metadata,
        [
            PartitionChangeRecord(TOPIC_ID, 0, leader=-1),
            PartitionChangeRecord(TOPIC_ID, 1, leader=3),
        ],
    )
    (topic,) = (await ask(broker, 3, 9, metadata_request("t")))["topics"]
    for partition in topic["partitions"]:
        assert partition["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE
        assert partition["leader_id"] == -1


@pytest.mark.req("S1")
async def test_a_client_gets_the_addresses_of_its_listener(broker: FakeBroker) -> None:
    ports = {"PLAINTEXT": 9092, "INSIDE": 9192}
    endpoints = tuple(Endpoint(name, "127.0.0.1", port) for name, port in ports.items())
    publish(
        broker.metadata,
        [RegisterBrokerRecord(1, UUID(int=2), endpoints, None, (), fenced=False)],
    )
    for listener in ("PLAINTEXT", "INSIDE", "PLAINTEXT"):
        broker.context = replace(broker.context, listener=listener)
        answer = await ask(broker, ApiKey.METADATA, 12, metadata_request("t"))
        found = {one["node_id"]: one["port"] for one in answer["brokers"]}
        assert found[1] == ports[listener]
        request = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
        cluster = await ask(broker, ApiKey.DESCRIBE_CLUSTER, 1, request)
        found = {one["broker_id"]: one["port"] for one in cluster["brokers"]}
        assert found[1] == ports[listener]


@pytest.mark.req("S1")
async def test_a_leader_without_the_listener_is_no_missing_leader(broker: FakeBroker) -> None:
    """Version 5 of Metadata had no such error."""
    inside = Endpoint("INSIDE", "127.0.0.1", 9093)
    publish(
        broker.metadata,
        [
            RegisterBrokerRecord(2, UUID(int=3), (inside,), None, (), fenced=False),
            PartitionChangeRecord(TOPIC_ID, 1, leader=2),
        ],
    )
    for version, expected in (
        (5, ErrorCode.LEADER_NOT_AVAILABLE),
        (6, ErrorCode.LISTENER_NOT_FOUND),
        (12, ErrorCode.LISTENER_NOT_FOUND),
    ):
        answer = await ask(broker, ApiKey.METADATA, version, metadata_request("t"))
        assert [one["node_id"] for one in answer["brokers"]] == [1]
        partitions = answer["topics"][0]["partitions"]
        assert [one["error_code"] for one in partitions] == [ErrorCode.NONE, expected]
        assert partitions[1]["leader_id"] == -1
    described = await ask(
        broker,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [{"name": "t"}], "response_partition_limit": 10, "cursor": None},
    )
    codes = [one["error_code"] for one in described["topics"][0]["partitions"]]
    assert codes == [ErrorCode.NONE, ErrorCode.LISTENER_NOT_FOUND]


async def test_a_broker_is_listed_a_moment_longer_than_it_leads(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed() -> list[int]:
        answer = await ask(broker, 3, 9, metadata_request("t"))
        return [b["node_id"] for b in answer["brokers"]]

    monkeypatch.setattr(metadata_cache, "LISTED_FENCED_S", 0.02)
    publish(broker.metadata, [PartitionChangeRecord(TOPIC_ID, 0, leader=2)])
    assert await listed() == [1, 2]
    publish(broker.metadata, [broker_record(2, 9092, fenced=True)])
    answer = await ask(broker, 3, 9, metadata_request("t"))
    assert [b["node_id"] for b in answer["brokers"]] == [1, 2]
    (topic,) = answer["topics"]
    assert topic["partitions"][0]["leader_id"] == -1
    assert topic["partitions"][0]["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE
    assert list(broker.metadata.live_brokers("PLAINTEXT")) == [1]
    await eventually(lambda: list(broker.metadata.listed_brokers("PLAINTEXT")) == [1])
    assert await listed() == [1]
    # One that lives again stays, and can be fenced again.
    publish(broker.metadata, [broker_record(2, 9092)])
    publish(broker.metadata, [broker_record(2, 9092, fenced=True)])
    publish(broker.metadata, [broker_record(2, 9092)])
    publish(broker.metadata, [broker_record(2, 9092, fenced=True)])
    publish(broker.metadata, [broker_record(2, 9092)])
    await eventually(lambda: not broker.metadata._fenced)
    assert await listed() == [1, 2]
    # One that was never seen alive is not listed.
    publish(broker.metadata, [broker_record(3, 9093, fenced=True)])
    assert await listed() == [1, 2]


async def test_an_answer_is_kept_until_topics_or_brokers_change(broker: FakeBroker) -> None:
    first = await ask(broker, 3, 9, metadata_request("t"))
    publish(broker.metadata, [ConfigRecord(2, "t", "retention.ms", "1")])
    assert len(broker.metadata._bodies) == 1
    assert await ask(broker, 3, 9, metadata_request("t")) == first
    publish(broker.metadata, [broker_record(4, 9095)])
    brokers = (await ask(broker, 3, 9, metadata_request("t")))["brokers"]
    assert [b["node_id"] for b in brokers] == [1, 2, 4]


@pytest.mark.req("C3")
async def test_a_named_topic_is_created_if_client_and_broker_allow_it() -> None:
    broker = new_broker(default_replication_factor="2")
    refused = (await ask(broker, 3, 9, metadata_request("new")))["topics"]
    assert refused[0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.controller.requests == []
    (created,) = (await ask(broker, 3, 9, metadata_request("new", create=True)))["topics"]
    assert (created["error_code"], created["name"]) == (0, "new")
    # As many as this broker's configuration says, whatever the controller's does.
    assert len(created["partitions"]) == 3
    asked = CreateTopicsRequest((NewTopic("new", 3, 2),), False, ("User:ANONYMOUS", "10.0.0.7"))
    assert broker.controller.requests == [asked]


@pytest.mark.req("C3")
async def test_a_named_topic_is_not_created_when_the_broker_does_not() -> None:
    broker = FakeBroker(auto_create_topics_enable="false")
    publish(broker.metadata, [broker_record(1, 9092)])
    (topic,) = (await ask(broker, 3, 9, metadata_request("new", create=True)))["topics"]
    assert topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.controller.requests == []


async def test_a_topic_that_cannot_be_created_now_is_asked_for_again(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_controller(*_: object) -> None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    monkeypatch.setattr(broker.controller, "call", no_controller)
    (topic,) = (await ask(broker, 3, 9, metadata_request("new", create=True)))["topics"]
    assert topic["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_fenced_broker_names_another_as_controller() -> None:
    broker = FakeBroker()
    publish(broker.metadata, [broker_record(1, 9092, fenced=True), broker_record(2, 9093)])
    assert (await ask(broker, 3, 9, metadata_request()))["controller_id"] == 2


# --- Produce --------------------------------------------------------------------------------------


@pytest.mark.req("N1", "R5")
@pytest.mark.parametrize("version", SERVED[ApiKey.PRODUCE])
@pytest.mark.parametrize("acks", [1, -1])
async def test_produce_appends_and_tells_the_offset(
    broker: FakeBroker, version: int, acks: int
) -> None:
    for expected in (0, 5):
        answer = await ask(broker, 0, version, produce_message("t", batch(5), acks))
        (topic,) = answer["responses"]
        (partition,) = topic["partition_responses"]
        assert (topic["name"], partition["index"]) == ("t", 0)
        assert (partition["error_code"], partition["base_offset"]) == (0, expected)
    assert broker.replicas.appended == [batch(5)] * 2


@pytest.mark.req("R5")
async def test_acks_all_is_answered_when_the_records_are_safe(broker: FakeBroker) -> None:
    broker.replicas.hold = True
    frame = codec.encode_request(0, 9, 1, "c", produce_message("t", batch()))
    reply = dispatch(broker.context, frame[4:], RequestContext())
    assert isinstance(reply, Reply)
    assert len(broker.replicas.appended) == 1
    assert not reply.is_done
    broker.replicas.release()
    assert reply.is_done
    message = codec.decode_response(0, 9, as_bytes(reply.result() or [])[4:])[1]
    assert message["responses"][0]["partition_responses"][0]["base_offset"] == 0


async def test_records_reach_the_log_without_a_copy(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = bytearray(codec.encode_request(0, 9, 1, "c", produce_message("t", batch()))[4:])
    seen: list[Any] = []

    def append(acks: int, timeout_ms: int, entries: Any, request: object) -> list[AppendResult]:
        del acks, timeout_ms, request
        seen.extend(records for _, records in entries)
        return [AppendResult(ErrorCode.NONE, 0)]

    monkeypatch.setattr(broker.replicas, "append", append)
    dispatch(broker.context, frame, RequestContext())
    assert seen[0].batch.obj is frame


async def test_a_topic_without_partitions_is_not_in_the_answer(broker: FakeBroker) -> None:
    request = produce_message("t", batch())
    request["topic_data"].insert(0, {"name": "u", "partition_data": []})
    answer = await ask(broker, 0, 9, request)
    assert [topic["name"] for topic in answer["responses"]] == ["t"]


async def test_produce_tells_the_new_leader(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = AppendResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderHint(2, 8))
    monkeypatch.setattr(broker.replicas, "append", lambda *_, **__: [moved])
    answer = await ask(broker, 0, 10, produce_message("t", batch()))
    partition = answer["responses"][0]["partition_responses"][0]
    assert partition["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition["current_leader"] == {"leader_id": 2, "leader_epoch": 8}
    assert [(n["node_id"], n["port"]) for n in answer["node_endpoints"]] == [(2, 9093)]


@pytest.mark.req("N1")
async def test_a_leader_that_there_is_not_is_not_told(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, nobody = ErrorCode.NOT_LEADER_OR_FOLLOWER, LeaderHint(-1, 8)
    refused = AppendResult(error, current_leader=nobody)
    unread = FetchResult(error, current_leader=nobody)
    monkeypatch.setattr(broker.replicas, "append", lambda *_: [refused])
    monkeypatch.setattr(broker.replicas, "fetch", lambda *_: [unread])
    produced = await ask(broker, 0, 10, produce_message("t", batch()))
    fetched = await ask(broker, 1, 12, fetch_message("t"))
    unknown = {"leader_id": -1, "leader_epoch": -1}
    assert produced["responses"][0]["partition_responses"][0]["current_leader"] == unknown
    assert fetched["responses"][0]["partitions"][0]["current_leader"] == unknown


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
async def test_produce_refusals(
    broker: FakeBroker, fields: dict[str, Any], code: ErrorCode
) -> None:
    answer = await ask(broker, 0, 9, produce_message("t", batch()) | fields)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == code
    assert broker.replicas.appended == []


@pytest.mark.parametrize("version", SERVED[ApiKey.PRODUCE])
async def test_zstd_is_not_taken_from_who_could_not_read_it(
    broker: FakeBroker, version: int
) -> None:
    packed = make_batch([b"v"], attributes=4)
    early = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else ErrorCode.NONE
    for topic, code in (("t", early), ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        answer = await ask(broker, 0, version, produce_message(topic, packed))
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == code
    # The fake counts the one for the unknown topic, too.
    assert len(broker.replicas.appended) == (2 if version >= 7 else 1)


# --- Fetch ----------------------------------------------------------------------------------------


@pytest.mark.req("N1", "R10")
@pytest.mark.parametrize("version", SERVED[ApiKey.FETCH])
async def test_fetch_returns_the_records_by_name_or_by_id(broker: FakeBroker, version: int) -> None:
    await ask(broker, 0, 9, produce_message("t", batch(3, b"abc")))
    request = fetch_message("t")
    request["topics"][0]["topic_id"] = TOPIC_ID
    answer = await ask(broker, 1, version, request)
    (topic,) = answer["responses"]
    (partition,) = topic["partitions"]
    assert topic.get("topic", "t") == "t"
    assert topic.get("topic_id", TOPIC_ID) == TOPIC_ID
    assert (partition["error_code"], partition["high_watermark"]) == (0, 3)
    assert bytes(partition["records"]) == batch(3, b"abc")


@pytest.mark.parametrize("version", SERVED[ApiKey.FETCH])
@pytest.mark.parametrize("level", [-1, 2, 9])
async def test_an_isolation_level_that_does_not_exist_reads_nothing(
    broker: FakeBroker, version: int, level: int
) -> None:
    await ask(broker, 0, 9, produce_message("t", batch(3)))
    request = fetch_message("t", isolation_level=level)
    request["topics"][0]["topic_id"] = TOPIC_ID
    answer = await ask(broker, 1, version, request)
    refused = ErrorCode.INVALID_REQUEST
    assert answer.get("error_code", refused) == refused
    for topic in answer["responses"]:
        assert [one["error_code"] for one in topic["partitions"]] == [refused]
    assert broker.replicas.fetches == []


async def test_fetch_of_an_unknown_id_leaves_the_others_alone(broker: FakeBroker) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}
    topics = [{"topic_id": i, "partitions": [partition]} for i in (UUID(int=9), TOPIC_ID, None)]
    answer = await ask(broker, 1, 13, fetch_message("t", topics=topics))
    errors = [topic["partitions"][0]["error_code"] for topic in answer["responses"]]
    aborted = [topic["partitions"][0]["aborted_transactions"] for topic in answer["responses"]]
    assert aborted == [[], None, []]
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert errors == [unknown, ErrorCode.NONE, unknown]
    assert [topic["topic_id"] for topic in answer["responses"]] == [UUID(int=9), TOPIC_ID, None]


@pytest.mark.req("R6")
@pytest.mark.parametrize("has_session", [True, False])
async def test_a_broker_without_a_session_may_be_deposed(
    broker: FakeBroker, has_session: bool
) -> None:
    broker.has_session = has_session
    await ask(broker, 1, 12, fetch_message("t"))
    assert broker.replicas.fetches[-1][0].may_be_deposed is not has_session


@pytest.mark.req("R1")
@pytest.mark.parametrize("version", [12, 15])
async def test_who_fetches_is_passed_on(broker: FakeBroker, version: int) -> None:
    follower: dict[str, Any] = {
        "replica_id": 2,
        "replica_state": {"replica_id": 2, "replica_epoch": 33},
    }
    topics = [{**fetch_message("t")["topics"][0], "topic_id": TOPIC_ID}]
    topics[0]["partitions"][0] |= {"last_fetched_epoch": 4, "current_leader_epoch": 5}
    await ask(broker, 1, version, fetch_message("t", **follower, topics=topics, max_bytes=7))
    await ask(broker, 1, version, fetch_message("t", topics=topics, isolation_level=1))
    (params, (asked,)), (consumer, _) = broker.replicas.fetches
    assert (params.replica_id, params.replica_epoch) == (2, -1 if version < 15 else 33)
    assert (params.max_bytes, params.read_committed) == (7, False)
    assert (consumer.replica_id, consumer.read_committed) == (CONSUMER, True)
    assert (asked.last_fetched_epoch, asked.current_leader_epoch) == (4, 5)


async def test_fetch_passes_on_divergence_leaders_and_aborted_transactions(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = FetchResult(
        ErrorCode.FENCED_LEADER_EPOCH,
        diverging=EpochEndOffset(3, 30),
        current_leader=LeaderHint(2, 4),
        aborted_transactions=((11, 5),),
    )
    monkeypatch.setattr(broker.replicas, "fetch", lambda *_: [result])
    answer = await ask(broker, 1, 12, fetch_message("t"))
    partition = answer["responses"][0]["partitions"][0]
    assert partition["diverging_epoch"] == {"epoch": 3, "end_offset": 30}
    assert partition["current_leader"] == {"leader_id": 2, "leader_epoch": 4}
    assert partition["aborted_transactions"] == [{"producer_id": 11, "first_offset": 5}]


@pytest.mark.req("R10")
async def test_an_answer_is_limited_by_the_broker_too(broker: FakeBroker) -> None:
    await ask(broker, 1, 11, fetch_message("t", max_bytes=2**31 - 1))
    ((params, _),) = broker.replicas.fetches
    assert params.max_bytes == broker.config.fetch_max_bytes


@pytest.mark.req("N3")
async def test_no_request_waits_longer_than_a_connection_may_be_idle(broker: FakeBroker) -> None:
    await ask(broker, 1, 11, fetch_message("t", max_wait_ms=2**31 - 1, min_bytes=0))
    ((params, _),) = broker.replicas.fetches
    assert params.max_wait_ms == broker.config.connections_max_idle_ms
    await ask(broker, 1, 11, fetch_message("t", max_wait_ms=-1))
    assert broker.replicas.fetches[1][0].max_wait_ms == -1


# --- offsets --------------------------------------------------------------------------------------


@pytest.mark.req("N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.LIST_OFFSETS])
async def test_list_offsets(broker: FakeBroker, version: int) -> None:
    await ask(broker, 0, 9, produce_message("t", batch(4)))
    for timestamp, offset in ((-1, 4), (-2, 0)):
        asked = [{"partition_index": one, "timestamp": timestamp} for one in (0, 7)]
        found, unknown = await listed(broker, version, asked)
        assert (found["error_code"], found["offset"]) == (0, offset)
        assert unknown["offset"] == -1
        assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def listed(
    broker: FakeBroker, version: int, asked: list[dict[str, Any]], level: int = 0
) -> list[dict[str, Any]]:
    """What a ListOffsets of topic `t` is answered; topics without partitions stand beside it."""
    topics = [{"name": "t", "partitions": asked}, {"name": "u", "partitions": []}]
    request = {"replica_id": -1, "isolation_level": level, "topics": topics, "timeout_ms": 1}
    (topic,) = (await ask(broker, 2, version, request))["topics"]
    partitions: list[dict[str, Any]] = topic["partitions"]
    return partitions


@pytest.mark.req("N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.LIST_OFFSETS])
@pytest.mark.parametrize("timestamp", [-3, -4, -5, -6, -7, -99, -(2**63)])
async def test_a_time_that_the_version_does_not_know_is_refused(
    broker: FakeBroker, version: int, timestamp: int
) -> None:
    await ask(broker, 0, 9, produce_message("t", batch(4)))
    asked = [{"partition_index": one, "timestamp": timestamp} for one in (0, 7)]
    found, unknown = await listed(broker, version, asked)
    if version < {-3: 7, -4: 8, -5: 9, -6: 11}.get(timestamp, 100):
        refused = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
        for one in (found, unknown):
            assert (one["error_code"], one["offset"], one["timestamp"]) == refused
        return
    assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found["error_code"] == ErrorCode.NONE
    # Nothing is tiered; the earliest local record is the earliest one.
    if timestamp != -3:
        first = {-4: 0, -5: -1, -6: -1}[timestamp]
        assert (found["offset"], found["timestamp"]) == (first, -1)
        assert found["leader_epoch"] == first


@pytest.mark.parametrize("version", SERVED[ApiKey.LIST_OFFSETS])
async def test_a_partition_that_is_asked_for_twice_is_refused_once(
    broker: FakeBroker, version: int
) -> None:
    await ask(broker, 0, 9, produce_message("t", batch(4)))
    asked = [{"partition_index": one, "timestamp": -1} for one in (0, 1, 0)]
    answers = await listed(broker, version, asked)
    assert [(one["partition_index"], one["error_code"]) for one in answers] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
    ]


async def test_no_offset_is_told_for_an_isolation_level_that_does_not_exist(
    broker: FakeBroker,
) -> None:
    asked = [{"partition_index": 0, "timestamp": -1}]
    (answer,) = await listed(broker, 7, asked, level=3)
    assert (answer["error_code"], answer["offset"]) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.req("R4")
@pytest.mark.parametrize("version", SERVED[ApiKey.OFFSET_FOR_LEADER_EPOCH])
async def test_offset_for_leader_epoch(broker: FakeBroker, version: int) -> None:
    await ask(broker, 0, 9, produce_message("t", batch(4)))
    partitions = [{"partition": p, "leader_epoch": 0} for p in (0, 7)]
    topics = [{"topic": "t", "partitions": partitions}]
    answer = (await ask(broker, 23, version, {"topics": topics}))["topics"][0]["partitions"]
    assert (answer[0]["leader_epoch"], answer[0]["end_offset"]) == (0, 4)
    assert answer[1]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
