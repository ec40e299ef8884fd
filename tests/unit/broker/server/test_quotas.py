"""Quotas through sockets: answered at once, with the throttle time, then muted (KIP-219)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from broker.apis.handler.throttling import Metered
from broker.protocol.versions import ApiKey
from broker.request_context import RequestContext
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.metadata.records import ClientQuotaRecord
from raftctl.metadata.requests.cluster import DeleteTopicsRequest
from raftctl.security import Action
from tests.kit.authorizing import denying
from tests.unit.broker.server.fakes import (
    batch,
    connected,
    fetch_message,
    produce_message,
    publish,
    running,
)

if TYPE_CHECKING:
    from tests.unit.broker.server.fakes import Client, FakeBroker

pytestmark = pytest.mark.req("S5")
PRODUCE, FETCH, METADATA, VERSIONS = 0, 1, 3, 18
FILLER = b"x" * 2_000
TINY = 1e-6
ALL_TOPICS = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}


def bound(broker: FakeBroker, key: str, value: float | None, kind: str = "client-id") -> None:
    """Give the test's client, or its address, a quota."""
    name = "127.0.0.1" if kind == "ip" else "test"
    publish(broker.metadata, [ClientQuotaRecord(((kind, name),), key, value)])


def now() -> float:
    return asyncio.get_running_loop().time()


async def exceed(broker: FakeBroker, client: Client, throttle_ms: int) -> dict[str, Any]:
    """Produce one batch under a bound that makes its client wait for so long."""
    message = produce_message("t", batch(filler=FILLER))
    await client.ask(PRODUCE, 9, message)
    bound(broker, "producer_byte_rate", broker.contexts[-1].size / (10 + throttle_ms / 1000))
    return await client.ask(PRODUCE, 9, message)


async def test_a_produce_is_answered_at_once_and_its_connection_is_muted() -> None:
    async with running("t") as broker, connected(broker) as client, connected(broker) as other:
        began = now()
        answer = await exceed(broker, client, 400)
        assert now() - began < 0.3
        assert answer["throttle_time_ms"] == pytest.approx(400, abs=2)
        assert answer["responses"][0]["partition_responses"][0]["base_offset"] == 1
        await other.ask(VERSIONS, 0, {})
        assert now() - began < 0.35
        await client.ask(VERSIONS, 0, {})
        assert now() - began >= 0.39


async def test_produces_sent_ahead_wait_as_well() -> None:
    async with running("t") as broker, connected(broker) as client:
        await exceed(broker, client, 300)
        broker.replicas.hold = True
        began = now()
        for _ in range(3):
            client.send(PRODUCE, 9, produce_message("t", batch(filler=FILLER)))
        await asyncio.sleep(0.1)
        assert len(broker.replicas.held) == 0
        await asyncio.sleep(0.3)
        # The one that starts exceeds the bound by more, and mutes for longer.
        assert len(broker.replicas.held) == 1
        broker.replicas.release()
        _, answer = await client.receive(PRODUCE, 9)
        assert answer["throttle_time_ms"] > 9_000
        assert now() - began < 1


async def test_a_produce_without_an_answer_mutes_too() -> None:
    async with running("t") as broker, connected(broker) as client:
        await exceed(broker, client, 100)
        await client.ask(VERSIONS, 0, {})
        client.send(PRODUCE, 9, produce_message("t", batch(filler=FILLER), acks=0))
        client.send(VERSIONS, 0, {})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.receive(VERSIONS, 0), 0.3)


def session_fetch(session_id: int, epoch: int, offset: int = 0, *, named: bool) -> dict[str, Any]:
    message = fetch_message("t", offset, session_id=session_id, session_epoch=epoch, rack_id="")
    return message if named else {**message, "topics": []}


async def test_a_throttled_fetch_is_empty_and_its_session_goes_on() -> None:
    async with running("t") as broker, connected(broker) as client:
        opened = await client.ask(FETCH, 11, session_fetch(0, 0, named=True))
        session_id = opened["session_id"]
        assert session_id
        await client.ask(PRODUCE, 9, produce_message("t", batch(filler=FILLER)))
        bound(broker, "consumer_byte_rate", 2_000 / 10)
        answer = await client.ask(FETCH, 11, session_fetch(session_id, 1, named=False))
        assert (answer["error_code"], answer["session_id"]) == (0, session_id)
        assert answer["responses"] == []
        assert 0 < answer["throttle_time_ms"] < 1_500
        # What was not sent does not count, so the records come as soon as the bound lets them.
        bound(broker, "consumer_byte_rate", 2_500 / 10)
        answer = await client.ask(FETCH, 11, session_fetch(session_id, 2, named=False))
        assert (answer["error_code"], answer["throttle_time_ms"]) == (0, 0)
        assert len(answer["responses"][0]["partitions"][0]["records"]) > 2_000


async def test_a_throttled_fetch_without_a_session_opens_none() -> None:
    async with running("t") as broker, connected(broker) as client:
        await client.ask(PRODUCE, 9, produce_message("t", batch(filler=FILLER)))
        bound(broker, "consumer_byte_rate", 2_000 / 10)
        answer = await client.ask(FETCH, 11, session_fetch(0, 0, named=True))
        assert (answer["session_id"], answer["responses"]) == (0, [])
        assert answer["throttle_time_ms"] > 0
        assert len(broker.context.sessions) == 0


async def test_a_fetch_asks_for_what_its_quota_can_ever_let_through() -> None:
    async with running("t") as broker, connected(broker) as client:
        bound(broker, "consumer_byte_rate", 100.0)
        await client.ask(FETCH, 11, {**fetch_message("t"), "min_bytes": 5_000})
        params, _ = broker.replicas.fetches[-1]
        assert (params.max_bytes, params.min_bytes) == (1_000, 1_000)


async def test_brokers_are_exempt() -> None:
    async with running("t") as broker, connected(broker) as client:
        await client.ask(PRODUCE, 9, produce_message("t", batch(filler=FILLER)))
        for key in ("consumer_byte_rate", "request_percentage"):
            bound(broker, key, TINY)
        answer = await client.ask(FETCH, 11, fetch_message("t", replica_id=2))
        assert answer["throttle_time_ms"] == 0
        assert len(answer["responses"][0]["partitions"][0]["records"]) > 2_000
        await client.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": []})
        assert broker.contexts[-1].connection.muted_until == 0


ANSWERED: list[tuple[int, int, dict[str, Any]]] = [
    (METADATA, 9, {**ALL_TOPICS, "include_cluster_authorized_operations": False}),
    (METADATA, 3, ALL_TOPICS),
    (VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}),
    (VERSIONS, 1, {}),
    (ApiKey.LIST_OFFSETS, 6, {"replica_id": -1, "isolation_level": 0, "topics": []}),
    (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}),
    (ApiKey.CREATE_TOPICS, 7, {"topics": [], "timeout_ms": 1_000, "validate_only": False}),
    (FETCH, 11, {**fetch_message("t"), "session_id": 0, "session_epoch": -1, "rack_id": ""}),
    (PRODUCE, 9, produce_message("t", batch())),
]


@pytest.mark.parametrize(("api", "version", "message"), ANSWERED)
async def test_each_answer_has_its_throttle_time(
    api: int, version: int, message: dict[str, Any]
) -> None:
    async with running("t") as broker, connected(broker) as client:
        bound(broker, "request_percentage", TINY)
        answer = await client.ask(api, version, message)
        # Of time on the loop at most a window.
        assert answer["throttle_time_ms"] == 1_000
        assert broker.contexts[-1].connection.muted_until - now() > 0.8


async def test_a_version_without_the_field_is_answered_and_muted() -> None:
    async with running("t") as broker, connected(broker) as client:
        bound(broker, "request_percentage", TINY)
        assert (await client.ask(VERSIONS, 0, {}))["error_code"] == 0
        assert broker.contexts[-1].connection.muted_until - now() > 0.8


async def test_nothing_is_measured_without_a_quota() -> None:
    async with running("t") as broker, connected(broker) as client:
        await client.ask(VERSIONS, 0, {})
        assert broker.contexts[-1].loop_seconds == 0
        bound(broker, "producer_byte_rate", 1e9)
        await client.ask(VERSIONS, 0, {})
        assert 0 < broker.contexts[-1].loop_seconds < 1
        bound(broker, "producer_byte_rate", None)
        await client.ask(VERSIONS, 0, {})
        assert broker.contexts[-1].loop_seconds == 0


async def test_waiting_costs_no_time_of_the_loop() -> None:
    context = RequestContext()

    async def work() -> str:
        await asyncio.sleep(0.2)
        return "done"

    assert await asyncio.get_running_loop().create_task(Metered(work(), context)) == "done"
    assert 0 < context.loop_seconds < 0.1


async def test_a_metered_request_can_be_cancelled() -> None:
    context, ended = RequestContext(), []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(True)

    task = asyncio.get_running_loop().create_task(Metered(work(), context))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


# --- changes of topics ----------------------------------------------------------------------------


def creation(name: str, partitions: int) -> dict[str, Any]:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return {"topics": [topic], "timeout_ms": 1_000, "validate_only": False}


async def test_newer_clients_are_refused_changes_beyond_their_quota() -> None:
    async with running() as broker, connected(broker) as client:
        bound(broker, "controller_mutation_rate", 2.0)
        answer = await client.ask(ApiKey.CREATE_TOPICS, 7, creation("a", 22 + 1))
        assert (answer["topics"][0]["error_code"], answer["throttle_time_ms"]) == (0, 0)
        asked = len(broker.controller.requests)
        answer = await client.ask(ApiKey.CREATE_TOPICS, 7, creation("b", 1))
        assert answer["topics"][0]["error_code"] == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 300 < answer["throttle_time_ms"] <= 500
        assert len(broker.controller.requests) == asked
        deletion = {"topics": [{"name": "a", "topic_id": None}], "timeout_ms": 1_000}
        answer = await client.ask(ApiKey.DELETE_TOPICS, 6, deletion)
        # The connection was muted until there were tokens again.
        assert answer["responses"][0]["error_code"] == 0


@pytest.mark.req("S4")
async def test_what_the_quota_says_does_not_depend_on_topics_that_are_hidden() -> None:
    """Else a client that may do nothing could find out by its throttling which topics exist."""
    denied = [
        Action(operation, kind, name)
        for operation in (Operation.CREATE, Operation.DELETE)
        for kind, name in ((ResourceType.CLUSTER, CLUSTER_NAME), (ResourceType.TOPIC, "hidden"))
    ]
    async with running("hidden") as broker, connected(broker) as client:
        bound(broker, "controller_mutation_rate", 2.0)
        await client.ask(ApiKey.CREATE_TOPICS, 7, creation("a", 22 + 1))
        broker.context = replace(broker.context, authorizer=denying(*denied))
        topics = [{"name": name, "topic_id": None} for name in ("hidden", "missing")]
        deletion = {"topics": topics, "timeout_ms": 1_000}
        answer = await client.ask(ApiKey.DELETE_TOPICS, 6, deletion)
        refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert refused not in [one["error_code"] for one in answer["responses"]]
        asked = broker.controller.requests[-1]
        assert isinstance(asked, DeleteTopicsRequest)
        assert asked.topics == (("hidden", None), ("missing", None))
        answer = await client.ask(ApiKey.CREATE_TOPICS, 7, creation("hidden", 100))
        assert answer["topics"][0]["error_code"] != refused


async def test_older_clients_change_topics_and_wait() -> None:
    async with running() as broker, connected(broker) as client:
        bound(broker, "controller_mutation_rate", 2.0)
        answer = await client.ask(ApiKey.CREATE_TOPICS, 5, creation("a", 22 + 4))
        assert answer["topics"][0]["error_code"] == 0
        assert 1_700 < answer["throttle_time_ms"] <= 2_000
        assert broker.metadata.image.topics.by_name("a") is not None


# --- connections ----------------------------------------------------------------------------------


async def test_an_address_that_connects_too_often_is_closed_after_a_wait() -> None:
    async with running() as broker:
        bound(broker, "connection_creation_rate", 1.0, "ip")
        for _ in range(10):
            async with connected(broker) as client:
                await client.ask(VERSIONS, 0, {})
        async with connected(broker) as refused:
            began = now()
            refused.send(VERSIONS, 0, {})
            assert await refused.ended()
            assert now() - began > 0.5
        assert "too often" in broker.events("connection_closed")[-1]["reason"]
        assert len(broker.contexts) == 10
