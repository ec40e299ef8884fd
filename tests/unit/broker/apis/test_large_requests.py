"""Requests for very many things: bounded when they are decoded, answered in turns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker.apis import _dispatch as dispatching
from broker.apis import dispatch
from broker.apis._dispatch import APIS, SLICE_ITEMS, elements, joined, slices
from broker.apis.handler import Reply
from broker.protocol import codec
from broker.protocol._decoder import ELEMENTS_MAX, PRODUCED_MAX
from broker.protocol.versions import ApiKey
from broker.request_context import RequestContext
from raftctl.errors import ErrorCode
from tests.kit.pieces import as_bytes, decode_request
from tests.unit.broker.apis.asking import ask, new_broker
from tests.unit.broker.server.fakes import connected, running

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request

NAMES = [f"n{number}" for number in range(12_000)]
TURN_ITEMS_MAX = 1_000
"""Some milliseconds of work."""
TOPICS = [{"name": name} for name in NAMES]
NUMBERS = list(range(12_000))
OFFSETS = [{"partition_index": n, "current_leader_epoch": -1, "timestamp": -1} for n in NUMBERS]
EPOCHS = [{"partition": n, "current_leader_epoch": -1, "leader_epoch": 1} for n in NUMBERS]
RESOURCES = [{"resource_type": 2, "resource_name": name} for name in NAMES]
REQUESTS: dict[ApiKey, tuple[int, dict[str, Any], str]] = {
    ApiKey.METADATA: (4, {"topics": TOPICS, "allow_auto_topic_creation": True}, "topics"),
    ApiKey.FIND_COORDINATOR: (4, {"key_type": 0, "coordinator_keys": NAMES}, "coordinators"),
    ApiKey.DESCRIBE_GROUPS: (2, {"groups": NAMES}, "groups"),
    ApiKey.DELETE_GROUPS: (2, {"groups_names": NAMES}, "results"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        0,
        {"group_ids": NAMES, "include_authorized_operations": False},
        "groups",
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, {"transactional_ids": NAMES}, "transaction_states"),
    ApiKey.DESCRIBE_CONFIGS: (
        4,
        {
            "resources": [one | {"configuration_keys": None} for one in RESOURCES],
            "include_synonyms": False,
            "include_documentation": False,
        },
        "results",
    ),
    ApiKey.LIST_OFFSETS: (
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": OFFSETS}],
        },
        "topics",
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        4,
        {"replica_id": -1, "topics": [{"topic": "t", "partitions": EPOCHS}]},
        "topics",
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        0,
        {"topics": [{"name": "t", "partition_indexes": NUMBERS}]},
        "topics",
    ),
}


@pytest.mark.req("N3")
@pytest.mark.parametrize(
    "key",
    [ApiKey.METADATA, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_CONFIGS],
)
async def test_a_request_for_very_many_things_does_not_keep_the_others_waiting(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch, slice_steps: Callable[[int], None]
) -> None:
    """Others have their turn after each slice; as a whole it takes the loop half a second."""
    slice_steps(1)
    version, message, answered = REQUESTS[key]
    broker = new_broker()
    api, turn, handled = APIS[key], 0, []

    def handle(context: ApiContext, request: Request[Any]) -> Any:
        handled.append((turn, elements(request.body)))
        return api.handle(context, request)

    monkeypatch.setitem(APIS, key, api._replace(handle=handle))
    frame = codec.encode_request(key, version, 77, "test", message)[4:]
    reply = dispatch(broker.context, frame, RequestContext())
    assert isinstance(reply, Reply)
    assert handled == [], "it is not even decoded on the loop"
    while not reply.is_done:
        await asyncio.sleep(0)
        turn += 1
    pieces = reply.result()
    assert pieces is not None
    _, answer = codec.decode_response(key, version, as_bytes(pieces)[4:])
    found = answer[answered]
    assert len(found if len(found) > 1 else found[0]["partitions"]) == len(NAMES)
    assert len({at for at, _ in handled}) == len(handled)
    assert max(size for _, size in handled) <= TURN_ITEMS_MAX


@pytest.mark.req("N3")
@pytest.mark.parametrize("key", REQUESTS)
async def test_slices_answer_what_the_whole_does(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, message, _ = REQUESTS[key]
    message = _cut(message, 1_700)
    sliced = await ask(new_broker(auto_create_topics_enable="false"), key, version, message)
    monkeypatch.setattr(dispatching, "slices", lambda _request: None)
    assert sliced == await ask(new_broker(auto_create_topics_enable="false"), key, version, message)


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, dict):
        return {name: _cut(inner, length) for name, inner in value.items()}
    return [_cut(one, length) for one in value[:length]] if isinstance(value, list) else value


@pytest.mark.req("N3")
async def test_what_names_something_twice_is_told_so_however_long_it_is() -> None:
    partitions = [*OFFSETS[:3_000], OFFSETS[0]]
    topics = [{"name": "t", "partitions": partitions}]
    message = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    answer = await ask(new_broker(), ApiKey.LIST_OFFSETS, 7, message)
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.INVALID_REQUEST


@pytest.mark.req("N3")
async def test_what_cannot_be_taken_apart_is_refused_when_there_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatching, "WHOLE_ITEMS_MAX", 7_999)
    names = map(str, range(8_000))
    topics = [{"name": name, "num_partitions": 1} for name in names]
    whole = [t | {"replication_factor": 1, "assignments": [], "configs": []} for t in topics]
    message = {"topics": whole, "timeout_ms": 1_000, "validate_only": False}
    answer = await ask(new_broker(), ApiKey.CREATE_TOPICS, 5, message)
    assert {one["error_code"] for one in answer["topics"]} == {ErrorCode.INVALID_REQUEST}
    assert "ask in parts" in answer["topics"][0]["error_message"]


@pytest.mark.req("N3")
async def test_the_elements_of_a_request_are_bounded_while_it_is_decoded() -> None:
    """Before anything is made of them: five million names took gigabytes."""
    half = [{"name": "t", "partition_indexes": [0] * (ELEMENTS_MAX // 2)}]
    frame = codec.encode_request(ApiKey.DESCRIBE_PRODUCERS, 0, 1, "c", {"topics": half * 2})
    with pytest.raises(codec.MalformedError, match="partition_indexes has 125000 elements"):
        decode_request(frame[4:])
    fits = codec.encode_request(ApiKey.DESCRIBE_PRODUCERS, 0, 1, "c", {"topics": half})
    assert decode_request(fits[4:]).body["topics"] == half
    names = b"\x00" * 5_000_000
    header = codec.encode_request(ApiKey.DESCRIBE_GROUPS, 1, 1, "c", {"groups": []})[4:-4]
    with pytest.raises(codec.MalformedError, match="groups has 2500000 elements"):
        decode_request(header + (2_500_000).to_bytes(4, "big") + names)


@pytest.mark.req("N3")
async def test_the_batches_of_a_produce_are_bounded() -> None:
    data = [{"index": n, "records": None} for n in range(PRODUCED_MAX)]
    message = {"acks": 1, "timeout_ms": 1, "topic_data": [{"name": "t", "partition_data": data}]}
    frame = codec.encode_request(ApiKey.PRODUCE, 7, 1, "c", message)
    with pytest.raises(codec.MalformedError, match="partition_data has 20000 elements"):
        decode_request(frame[4:])


@pytest.mark.req("N3")
async def test_a_large_request_that_is_broken_closes_its_connection() -> None:
    async with running("t") as broker, connected(broker) as client:
        client.send(ApiKey.DESCRIBE_GROUPS, 2, {"groups": ["g"] * (ELEMENTS_MAX + 1)})
        assert await client.ended()
        assert "elements" in broker.events("connection_closed")[0]["reason"]


def test_a_partition_list_is_cut_and_joined() -> None:
    message = {"topics": [{"name": "t", "partition_indexes": NUMBERS[: 2 * SLICE_ITEMS + 1]}]}
    request = codec.Request(ApiKey.DESCRIBE_PRODUCERS, 0, 1, "c", message)
    parts = slices(request)
    assert parts is not None
    assert [len(part.body["topics"][0]["partition_indexes"]) for part in parts] == [500, 500, 1]
    answers = [
        {"topics": [{"name": "t", "partitions": part.body["topics"][0]["partition_indexes"]}]}
        for part in parts
    ]
    assert joined(request, answers) == {
        "topics": [{"name": "t", "partitions": NUMBERS[: 2 * SLICE_ITEMS + 1]}]
    }
