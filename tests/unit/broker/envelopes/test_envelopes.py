"""Envelopes through a real connection: who may send them, for whom, and with what in them."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from broker.envelopes import EnvelopeClient
from broker.envelopes._envelope import CARRIED, REQUEST_BYTES_MAX, envelope, requester_in
from broker.envelopes._server import RECORDS_BYTES_MAX
from broker.protocol.codec import decode_response, encode_request
from broker.protocol.versions import SERVED, ApiKey, advertised
from broker.request_context import RequestContext
from broker.types import TopicPartition
from raftctl.config import make_config
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import ClientQuotaRecord
from raftctl.plugins import ANY_BROKER
from raftctl.runtime.real import RealRuntime
from raftctl.security import ANONYMOUS, Principal, Requester
from raftctl.tracing import Named, follow
from tests.kit.authorizing import RuledAuthorizer, requester
from tests.unit.broker.server.fakes import (
    KEYS,
    batch,
    broker_record,
    connected,
    publish,
    running,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.unit.broker.server.fakes import FakeBroker

pytestmark = [pytest.mark.req("W2"), pytest.mark.req("S4")]
ALICE = requester("User:alice@10.0.0.7")
NODES_MAY_SEND = "ALLOW User:ANONYMOUS CLUSTER_ACTION CLUSTER kafka-cluster"
TIMEOUT_MS = 5_000
LIST_GROUPS: dict[str, Any] = {"states_filter": (), "types_filter": ()}


@asynccontextmanager
async def asking(
    broker: FakeBroker, keys: Mapping[str, str] | None = None, *, in_process: bool = False
) -> AsyncIterator[EnvelopeClient]:
    """A client of a node that has the broker in its process, or is another node."""
    runtime = RealRuntime(io.StringIO())
    config = make_config({**KEYS, "node.id": "1" if in_process else "9"} | dict(keys or {}))
    local = broker.local if in_process else None
    client = EnvelopeClient(config, runtime, lambda: broker.metadata.image, local)
    try:
        yield client
    finally:
        await client.close()
        runtime.close()


async def ask(
    client: EnvelopeClient,
    api: str,
    body: Mapping[str, Any],
    one: Requester = ALICE,
    broker_id: int = 1,
) -> Mapping[str, Any]:
    return await client.ask(broker_id, api, body, one, TIMEOUT_MS)


async def send(broker: FakeBroker, message: Mapping[str, Any]) -> dict[str, Any]:
    async with connected(broker) as client:
        client.send(ApiKey.ENVELOPE, 0, dict(message))
        return (await client.receive(ApiKey.ENVELOPE, 0))[1]


def request(api: ApiKey = ApiKey.LIST_GROUPS, body: Mapping[str, Any] = LIST_GROUPS) -> bytes:
    return encode_request(api, SERVED[api][-1], 7, "somebody", body)[4:]


@pytest.mark.parametrize("in_process", [False, True])
async def test_a_broker_answers_as_it_answers_the_requester(*, in_process: bool) -> None:
    rules = RuledAuthorizer(NODES_MAY_SEND, "ALLOW User:alice@10.0.0.7 DESCRIBE TOPIC seen")
    async with running("seen", "hidden") as broker:
        broker.context = replace(broker.context, authorizer=rules.authorizer)
        async with asking(broker, in_process=in_process) as client:
            body: dict[str, Any] = {
                "topics": None,
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            }
            for who, names in [
                (ALICE, ["seen"]),
                (requester("User:alice@10.0.0.8"), []),
                (requester("User:bob@10.0.0.7"), []),
            ]:
                answer = await ask(client, "METADATA", body, who)
                assert [topic["name"] for topic in answer["topics"]] == names
    assert broker.contexts[0].connection.requester == ALICE


@pytest.mark.req("O2")
@pytest.mark.parametrize("in_process", [False, True])
async def test_a_request_keeps_its_id_on_the_broker_that_answers(*, in_process: bool) -> None:
    """Without an id, as before there is a request, it has that of its envelope."""
    async with running() as broker, asking(broker, in_process=in_process) as client:
        follow(Named("9.19a7c3e5b21.0.4"))
        await ask(client, "LIST_GROUPS", LIST_GROUPS)
        follow(None)
        await ask(client, "LIST_GROUPS", LIST_GROUPS)
    named, unnamed = [one.request_id for one in broker.contexts]
    assert named == "9.19a7c3e5b21.0.4"
    assert unnamed == ("" if in_process else "1.0.1.2")


async def test_only_who_may_act_for_the_cluster_sends_envelopes() -> None:
    async with running() as broker:
        rules = RuledAuthorizer("ALLOW User:alice@10.0.0.7 ALL CLUSTER kafka-cluster")
        broker.context = replace(broker.context, authorizer=rules.authorizer)
        answer = await send(broker, envelope(request(), ALICE))
        assert answer == {
            "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "response_data": None,
        }
        async with asking(broker) as client:
            with pytest.raises(KafkaError, match=r"CLUSTER_ACTION .*super\.users") as caught:
                await ask(client, "LIST_GROUPS", LIST_GROUPS)
        assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE
        assert not broker.contexts


async def test_an_envelope_is_for_the_listener_of_the_brokers_alone() -> None:
    async with running() as broker:
        frame = encode_request(ApiKey.ENVELOPE, 0, 1, "c", envelope(request(), ALICE))[4:]
        with pytest.raises(Exception, match="api 58 version 0 is not supported"):
            broker.dispatch(frame, RequestContext())
    assert ApiKey.ENVELOPE not in {key for key, _, _ in advertised()}


@pytest.mark.parametrize(
    "api", [api for api in ApiKey if api not in CARRIED], ids=lambda api: api.name
)
async def test_what_belongs_to_a_connection_is_not_carried(api: ApiKey) -> None:
    async with running() as broker:
        inner = api.to_bytes(2, "big") + b"\0\0" + b"\0\0\0\1" + b"\xff\xff" + b"\0" * 20
        answer = await send(broker, envelope(inner, ALICE))
        assert answer["error_code"] == ErrorCode.INVALID_REQUEST
        assert not broker.contexts


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b""}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\1\2U\2a\0\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\0\2U\1\0\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\0\2U\2a\0\0x"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\0\2U\x7fa"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b""}, ErrorCode.INVALID_REQUEST),
        ({"client_host_address": b"12345"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.INVALID_REQUEST),
        ({"request_data": request()[:12]}, ErrorCode.INVALID_REQUEST),
        ({"request_data": bytes(REQUEST_BYTES_MAX + 1)}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"request_data": b"\0\x10\0\x63\0\0\0\1\xff\xff"}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_a_bad_envelope_is_refused_and_the_connection_goes_on(
    change: dict[str, Any], code: ErrorCode
) -> None:
    async with running() as broker, connected(broker) as client:
        client.send(ApiKey.ENVELOPE, 0, envelope(request(), ALICE) | change)
        assert (await client.receive(ApiKey.ENVELOPE, 0))[1]["error_code"] == code
        client.send(ApiKey.ENVELOPE, 0, envelope(request(), ALICE))
        answer = (await client.receive(ApiKey.ENVELOPE, 0))[1]
        key = ApiKey.LIST_GROUPS
        correlation_id, inner = decode_response(key, SERVED[key][-1], answer["response_data"])
        assert (correlation_id, inner["error_code"], answer["error_code"]) == (7, 0, 0)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("10.0.0.7", "10.0.0.7"), ("::1", "0:0:0:0:0:0:0:1"), ("::ffff:10.0.0.7", "10.0.0.7")],
)
def test_a_host_is_named_as_rules_name_it(host: str, shown: str) -> None:
    message = envelope(b"", Requester(Principal("Robot", "r\u202e<b>"), host))
    found = requester_in(message["request_principal"], message["client_host_address"])
    assert found == Requester(Principal("Robot", "r\u202e<b>"), shown)


def fetch(topic_id: UUID) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}
    return {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 30,
        "isolation_level": 0,
        "topics": [{"topic_id": topic_id, "partitions": [partition]}],
        "forgotten_topics_data": (),
        "rack_id": "",
    }


async def test_a_batch_larger_than_an_answer_is_cut() -> None:
    async with running("t") as broker, asking(broker) as client:
        large = batch(filler=b"x" * (3 * RECORDS_BYTES_MAX))
        broker.replicas.append(1, 0, [(TopicPartition("t", 0), large)])
        answer = await ask(client, "FETCH", fetch(UUID(int=1)))
        [partition] = answer["responses"][0]["partitions"]
        assert len(partition["records"]) == RECORDS_BYTES_MAX
        assert bytes(partition["records"][8:]) == large[8:RECORDS_BYTES_MAX]


async def test_a_quota_has_the_requester_wait_and_nobody_else() -> None:
    async with running("t") as broker, asking(broker) as client:
        broker.replicas.append(1, 0, [(TopicPartition("t", 0), batch(filler=bytes(10_000)))])
        publish(broker.metadata, [ClientQuotaRecord((("user", "alice"),), "consumer_byte_rate", 9)])
        answer = await ask(client, "FETCH", fetch(UUID(int=1)))
        assert answer["throttle_time_ms"] > 0
        with pytest.raises(KafkaError, match=r"a quota of User:alice is used up: try again in"):
            await ask(client, "FETCH", fetch(UUID(int=1)))
        answer = await ask(client, "LIST_GROUPS", LIST_GROUPS, requester("User:bob"))
        assert answer["throttle_time_ms"] == 0


async def test_any_broker_is_one_that_can_be_asked() -> None:
    async with running() as broker, asking(broker) as client:
        records = [broker_record(0, 1), broker_record(2, 1), broker_record(3, 1, fenced=True)]
        publish(broker.metadata, records)
        for _ in range(4):
            answer = await ask(client, "LIST_GROUPS", LIST_GROUPS, broker_id=ANY_BROKER)
            assert answer["error_code"] == ErrorCode.NONE


@pytest.mark.parametrize(
    ("keys", "broker_id", "why"),
    [
        ({}, 7, "broker 7 is not registered"),
        ({}, 2, "cannot connect to 127.0.0.1:1"),
        (
            {"inter.broker.listener.name": "IN", "listener.security.protocol.map": "IN:PLAINTEXT"},
            1,
            r"no listener IN: set inter\.broker\.listener\.name .* PLAINTEXT",
        ),
    ],
)
async def test_a_broker_out_of_reach_is_named_with_the_key_to_set(
    keys: dict[str, str], broker_id: int, why: str
) -> None:
    controller = {
        "process.roles": "controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:1",
        "controller.quorum.voters": "9@127.0.0.1:1",
    }
    if "listener.security.protocol.map" in keys:
        keys["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    async with running() as broker, asking(broker, controller | keys) as client:
        publish(broker.metadata, [broker_record(2, 1)])
        with pytest.raises(KafkaError, match=why) as caught:
            await ask(client, "LIST_GROUPS", LIST_GROUPS, broker_id=broker_id)
        assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_requests_to_a_broker_wait_for_their_turn_and_one_that_leaves_harms_none() -> None:
    async with running("t") as broker, asking(broker) as client:
        many = [asyncio.ensure_future(ask(client, "LIST_GROUPS", LIST_GROUPS)) for _ in range(50)]
        await asyncio.sleep(0)
        many[3].cancel()
        del many[3]
        assert {one["error_code"] for one in await asyncio.gather(*many)} == {0}
    assert {context.connection.principal for context in broker.contexts} == {ALICE.principal}
    assert ALICE.principal != ANONYMOUS
