"""Connections over loopback: order, back-pressure, bad bytes, limits."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from broker.protocol.versions import ApiKey
from broker.server import _connection as connection_module
from raftctl.errors import ErrorCode, InvariantViolation
from tests.unit.broker.server.fakes import (
    FakeBroker,
    batch,
    connected,
    fetch_message,
    produce_message,
    running,
)

if TYPE_CHECKING:
    from broker.request_context import RequestContext

PRODUCE, FETCH, LIST_OFFSETS, METADATA, VERSIONS = 0, 1, 2, 3, 18
ALL_TOPICS = {"topics": None, "allow_auto_topic_creation": False}


async def settle() -> None:
    """Lets everything on loopback arrive."""
    await asyncio.sleep(0.05)


async def is_served(broker: FakeBroker) -> bool:
    async with connected(broker) as client:
        return bool((await client.ask(VERSIONS, 0, {}))["api_keys"])


def offset_of(answer: dict[str, Any]) -> int:
    partition = answer["responses"][0]["partition_responses"][0]
    assert partition["error_code"] == 0
    offset: int = partition["base_offset"]
    return offset


@pytest.mark.req("R9")
async def test_answers_leave_in_order_of_the_requests() -> None:
    async with running("t") as broker, connected(broker) as client:
        broker.replicas.hold = True
        sent = [client.send(PRODUCE, 9, produce_message("t", batch())) for _ in range(3)]
        sent.append(client.send(VERSIONS, 0, {}))
        await settle()
        assert len(broker.replicas.appended) == 3
        broker.replicas.release(2)
        broker.replicas.release(1)
        await settle()
        assert not vars(client.reader)["_buffer"]  # nothing may have left
        broker.replicas.release(0)
        answers = [await client.receive(PRODUCE, 9) for _ in range(3)]
        assert [correlation for correlation, _ in answers] == sent[:3]
        assert [offset_of(answer) for _, answer in answers] == [0, 1, 2]
        assert (await client.receive(VERSIONS, 0))[0] == sent[3]


@pytest.mark.req("R9")
async def test_only_produce_starts_while_a_produce_waits() -> None:
    async with running("t") as broker, connected(broker) as client:
        broker.replicas.hold = True
        client.send(PRODUCE, 9, produce_message("t", batch()))
        client.send(FETCH, 11, fetch_message("t"))
        client.send(PRODUCE, 9, produce_message("t", batch()))
        await settle()
        assert len(broker.replicas.appended) == 1
        assert broker.replicas.fetches == []
        broker.replicas.release()
        await settle()
        assert len(broker.replicas.appended) == 2
        answer = (await client.receive(PRODUCE, 9), await client.receive(FETCH, 11))[1][1]
        assert answer["responses"][0]["partitions"][0]["high_watermark"] == 1


@pytest.mark.req("R9", "T3")
async def test_no_produce_starts_behind_one_that_has_not_appended_all_it_can() -> None:
    async with running("t") as broker, connected(broker) as client:
        broker.replicas.hold = True
        first = produce_message("t", batch())
        first["topic_data"] += produce_message("__consumer_offsets", batch())["topic_data"]
        client.send(PRODUCE, 9, first)
        client.send(PRODUCE, 9, produce_message("t", batch()))
        await settle()
        assert len(broker.replicas.appended) == 1
        for _ in ("its batch", "what it had to ask about, which is nothing"):
            broker.replicas.release()
            await settle()
        assert len(broker.replicas.appended) == 2
        broker.replicas.release()
        assert offset_of((await client.receive(PRODUCE, 9))[1]) == 0
        assert offset_of((await client.receive(PRODUCE, 9))[1]) == 1


@pytest.mark.req("R9")
async def test_nothing_starts_while_a_fetch_waits() -> None:
    async with running("t") as broker, connected(broker) as client:
        client.send(FETCH, 11, fetch_message("t", max_wait_ms=200))
        client.send(PRODUCE, 9, produce_message("t", batch()))
        await settle()
        assert broker.replicas.appended == []
        fetched = await client.receive(FETCH, 11)
        assert fetched[1]["responses"][0]["partitions"][0]["high_watermark"] == 0
        assert offset_of((await client.receive(PRODUCE, 9))[1]) == 0


@pytest.mark.req("R9")
async def test_produce_behind_a_waiting_one_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "PIPELINED_MAX", 4)
    async with running("t") as broker, connected(broker) as client:
        broker.replicas.hold = True
        for _ in range(10):
            client.send(PRODUCE, 9, produce_message("t", batch()))
        await settle()
        assert len(broker.replicas.appended) == 4
        for _ in range(10):
            broker.replicas.release()
            await client.receive(PRODUCE, 9)
        assert len(broker.replicas.appended) == 10


@pytest.mark.req("R9")
async def test_queued_max_requests_is_shared_and_the_first_of_a_connection_needs_no_permit() -> (
    None
):
    async with running("t", queued_max_requests="2") as broker:
        broker.replicas.hold = True
        async with connected(broker) as one, connected(broker) as other:
            for _ in range(4):
                one.send(PRODUCE, 9, produce_message("t", batch()))
            await settle()
            assert (len(broker.replicas.appended), broker.limits.permits) == (3, 0)
            for _ in range(2):
                other.send(PRODUCE, 9, produce_message("t", batch()))
            await settle()
            assert len(broker.replicas.appended) == 4
            broker.replicas.hold = False
            while broker.replicas.held:
                broker.replicas.release()
            for _ in range(4):
                await one.receive(PRODUCE, 9)
        assert broker.limits.permits == 2
        assert await is_served(broker)


@pytest.mark.req("R9")
async def test_what_governs_the_cluster_does_not_queue_behind_produce_and_fetch() -> None:
    """Heartbeats go to the controllers' own listener; metadata and followers come here."""
    async with running("t", queued_max_requests="1") as broker:
        broker.replicas.hold = True
        async with connected(broker) as full, connected(broker) as waits, connected(broker) as new:
            for _ in range(4):
                full.send(PRODUCE, 9, produce_message("t", batch()))
            waits.send(FETCH, 11, fetch_message("t", offset=99, max_wait_ms=30_000))
            await settle()
            assert broker.limits.permits == 0
            assert len((await new.ask(METADATA, 4, ALL_TOPICS))["topics"]) == 1
            follower = fetch_message("t", replica_id=2)
            (topic,) = (await new.ask(FETCH, 11, follower))["responses"]
            assert topic["partitions"][0]["records"]
            broker.replicas.hold = False
            while broker.replicas.held:
                broker.replicas.release()
            for _ in range(4):
                await full.receive(PRODUCE, 9)
        assert broker.limits.permits == 1


@pytest.mark.req("R9")
async def test_the_socket_is_not_read_while_a_request_is_held() -> None:
    async with running("t") as broker, connected(broker) as client:
        broker.replicas.hold = True
        client.send(PRODUCE, 9, produce_message("t", batch()))
        client.send(FETCH, 11, fetch_message("t"))
        client.writer.transport.set_write_buffer_limits(high=0)
        large = produce_message("t", batch(filler=bytes(16 << 20)))
        client.send(PRODUCE, 9, large)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.writer.drain(), 0.2)
        broker.replicas.hold = False
        broker.replicas.release()
        await client.writer.drain()
        await client.receive(PRODUCE, 9)
        await client.receive(FETCH, 11)
        assert offset_of((await client.receive(PRODUCE, 9))[1]) == 1


@pytest.mark.req("R9")
async def test_a_client_that_does_not_read_is_not_served_without_end() -> None:
    async with running("t") as broker, connected(broker) as client:
        await client.ask(PRODUCE, 9, produce_message("t", batch(filler=bytes(8 << 20))))
        for _ in range(20):
            client.send(FETCH, 11, fetch_message("t"))
        await asyncio.sleep(0.3)
        assert len(broker.replicas.fetches) < 20
        for _ in range(20):
            await client.receive(FETCH, 11)
        assert len(broker.replicas.fetches) == 20


async def test_acks_0_gets_no_answer_and_an_error_closes() -> None:
    async with running("t") as broker, connected(broker) as client:
        client.send(PRODUCE, 9, produce_message("t", batch(), acks=0))
        assert (await client.ask(VERSIONS, 0, {}))["error_code"] == 0
        assert len(broker.replicas.appended) == 1
        client.send(PRODUCE, 9, produce_message("nowhere", batch(), acks=0))
        assert await client.ended()
        assert "acks=0" in broker.events("connection_closed")[0]["reason"]


def request_of(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, -1)


BAD_FRAMES = {
    "negative length": struct.pack(">i", -1),
    "too short": struct.pack(">i", 3) + b"abc",
    "oversized": struct.pack(">i", 2_000_000) + b"x" * 100,
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "unknown api": struct.pack(">i", 10) + request_of(999, 0),
    "version not served": struct.pack(">i", 10) + request_of(ApiKey.PRODUCE, 2),
    "version unheard of": struct.pack(">i", 10) + request_of(ApiKey.METADATA, 99),
    "body cut short": struct.pack(">i", 12) + request_of(ApiKey.METADATA, 4) + b"\0\0",
    "array beyond belief": struct.pack(">i", 14)
    + request_of(ApiKey.METADATA, 4)
    + b"\x7f\xff\xff\xff",
}


@pytest.mark.req("N3")
@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
async def test_bad_bytes_close_their_connection_with_one_line_and_hurt_nobody(data: bytes) -> None:

    async with (
        running("t", socket_request_max_bytes="1000000") as broker,
        connected(broker) as bystander,
    ):
        await bystander.ask(VERSIONS, 0, {})
        async with connected(broker) as client:
            client.writer.write(data)
            assert await asyncio.wait_for(client.ended(), 5)
        assert len(broker.events("connection_closed")) == 1
        assert len(broker.logged.entries) == 1
        assert (await bystander.ask(VERSIONS, 0, {}))["error_code"] == 0
        assert broker.failures == []


@pytest.mark.req("N3")
async def test_a_truncated_request_is_logged_when_the_client_leaves() -> None:
    async with running() as broker:
        async with connected(broker) as client:
            client.writer.write(struct.pack(">i", 100) + b"half of it")
            await client.writer.drain()
            await settle()
        await settle()
        assert [e["reason"] for e in broker.events("connection_closed")] == [
            "it ended within a request"
        ]
        assert await is_served(broker)


async def test_answers_before_a_bad_frame_still_leave() -> None:
    async with running() as broker, connected(broker) as client:
        sent = client.send(VERSIONS, 0, {})
        client.writer.write(struct.pack(">i", -1))
        assert (await client.receive(VERSIONS, 0))[0] == sent
        assert await client.ended()


@pytest.mark.req("N1")
async def test_an_unknown_version_of_api_versions_is_answered_as_version_0() -> None:
    async with running() as broker, connected(broker) as client:
        client.writer.write(struct.pack(">ihhih", 10, VERSIONS, 57, 1, -1))
        _, answer = await client.receive(VERSIONS, 0)
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION
        assert {"api_key": 18, "min_version": 0, "max_version": 4} in answer["api_keys"]
        software = {"client_software_name": "a", "client_software_version": "1"}
        assert (await client.ask(VERSIONS, 4, software))["error_code"] == 0


async def test_requests_wait_until_the_broker_opens() -> None:
    async with running("t", opened=False) as broker, connected(broker) as client:
        sent = client.send(VERSIONS, 0, {})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.receive(VERSIONS, 0), 0.1)
        broker.limits.begin()
        assert (await client.receive(VERSIONS, 0))[0] == sent


async def test_connections_beyond_the_limit_wait() -> None:
    async with running(max_connections="1") as broker:
        async with connected(broker) as client:
            await client.ask(VERSIONS, 0, {})
            async with connected(broker) as waiting:
                waiting.send(VERSIONS, 0, {})
                await asyncio.sleep(0.05)
                assert len(broker.contexts) == 1
                await client.ask(VERSIONS, 0, {})
                client.writer.close()
                await waiting.receive(VERSIONS, 0)
        assert broker.events("connection_closed") == []


async def test_clients_that_use_up_the_limit_do_not_keep_brokers_out() -> None:
    started = running(
        listeners="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        listener_security_protocol_map="CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        inter_broker_listener_name="BROKERS",
        max_connections="2",
    )
    async with started as broker:
        (brokers,) = broker.other_ports
        async with connected(broker) as quiet, connected(broker) as busy:
            for client in (quiet, busy, quiet, busy):
                await client.ask(VERSIONS, 0, {})
            async with connected(broker, brokers) as first, connected(broker, brokers) as second:
                await first.ask(VERSIONS, 0, {})
                assert await quiet.ended()
                await second.ask(VERSIONS, 0, {})
                assert await busy.ended()
                # Brokers do not take each other's place.
                async with connected(broker, brokers) as third:
                    for client in (first, second, third):
                        await client.ask(VERSIONS, 0, {})
        await settle()
        assert await is_served(broker)


async def test_the_only_listener_is_not_protected() -> None:
    async with running(max_connections="1") as broker, connected(broker) as client:
        await client.ask(VERSIONS, 0, {})
        async with connected(broker) as waiting:
            waiting.send(VERSIONS, 0, {})
            await settle()
            await client.ask(VERSIONS, 0, {})
            assert len(broker.contexts) == 2


async def test_a_connection_that_is_accepted_while_the_broker_stops_is_closed() -> None:
    async with running() as broker:
        broker.limits.close_all()
        async with connected(broker) as late:
            assert await late.ended()
        assert "stops" in broker.events("connection_closed")[-1]["reason"]


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async with running("t", connections_max_idle_ms="150") as broker:
        # Before the connection is made, since its quiet time begins then.
        started = asyncio.get_running_loop().time()
        async with connected(broker) as idle, connected(broker) as waiting:
            waiting.send(FETCH, 11, fetch_message("t", max_wait_ms=400))
            assert await idle.ended()
            assert asyncio.get_running_loop().time() - started >= 0.14
            await waiting.receive(FETCH, 11)


@pytest.mark.req("S5")
async def test_a_muted_connection_waits_and_is_neither_idle_nor_in_the_way_of_others() -> None:
    async with running("t", connections_max_idle_ms="150") as broker, connected(broker) as muted:
        await muted.ask(VERSIONS, 0, {})
        loop = asyncio.get_running_loop()
        until = broker.contexts[0].connection.muted_until = loop.time() + 0.4
        muted.send(VERSIONS, 0, {})
        async with connected(broker) as other:
            await other.ask(VERSIONS, 0, {})
        assert loop.time() < until
        await muted.receive(VERSIONS, 0)
        assert loop.time() >= until
        assert len(broker.contexts) == 3


@pytest.mark.req("S1")
async def test_a_request_has_the_context_of_its_connection_and_its_own_times() -> None:
    async with running("t") as broker, connected(broker) as client:
        named = {"client_software_name": "librdkafka", "client_software_version": "2.3"}
        await client.ask(VERSIONS, 3, named)
        broker.replicas.hold = True
        client.send(PRODUCE, 9, produce_message("t", batch()))
        client.send(FETCH, 11, fetch_message("t"))
        await asyncio.sleep(0.2)
        broker.replicas.release()
        await client.receive(PRODUCE, 9)
        await client.receive(FETCH, 11)
    first, produce, fetch = broker.contexts
    connection = first.connection
    assert produce.connection is fetch.connection is connection
    assert connection.listener == connection.security_protocol == "PLAINTEXT"
    assert str(connection.requester.principal) == "User:ANONYMOUS"
    assert connection.requester.host == "127.0.0.1"
    software = connection.client_software_name, connection.client_software_version
    assert software == ("librdkafka", "2.3")
    assert produce.size > 60
    # The records wait for other replicas; the fetch, which came as early, waits for its turn.
    assert produce.answered_at - produce.started_at >= 0.19
    assert fetch.started_at - fetch.arrived_at >= 0.19
    assert fetch.answered_at >= fetch.started_at >= produce.answered_at


@pytest.mark.req("O2")
async def test_a_request_is_followed_until_its_answer_has_left() -> None:
    async with running("t") as broker, connected(broker) as client, connected(broker) as other:
        broker.replicas.hold = True
        client.send(PRODUCE, 9, produce_message("t", batch()))
        client.send(PRODUCE, 9, produce_message("t", batch()))
        await settle()
        await other.ask(VERSIONS, 0, {})
        first, second, of_other = broker.contexts
        assert first.followed_id == first.request_id == f"{broker.config.node_id}.0.1.1"
        assert second.request_id == f"{broker.config.node_id}.0.1.2"
        assert of_other.request_id == f"{broker.config.node_id}.0.2.1"
        broker.replicas.release()
        await client.receive(PRODUCE, 9)
        assert (first.followed_id, second.followed_id) == ("", second.request_id)


async def test_large_frames_arrive_whole() -> None:
    async with running("t") as broker, connected(broker) as client:
        records = [batch(filler=bytes([n]) * size) for n, size in enumerate([70_000, 10, 3 << 20])]
        for data in records:
            client.send(PRODUCE, 9, produce_message("t", data))
        for offset in range(3):
            assert offset_of((await client.receive(PRODUCE, 9))[1]) == offset
        assert broker.replicas.appended == records


async def test_a_client_that_leaves_does_not_disturb_what_it_waited_for() -> None:
    async with running("t") as broker:
        broker.replicas.hold = True
        async with connected(broker) as client:
            client.send(PRODUCE, 9, produce_message("t", batch()))
            client.send(PRODUCE, 9, produce_message("t", batch()))
            await settle()
        await settle()
        broker.replicas.release()
        broker.replicas.held.pop()[0].set_exception(ValueError("nobody hears this"))
        await settle()
        assert broker.limits.permits == 500
        assert await is_served(broker)


async def test_a_handler_that_fails_is_answered_and_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running("t") as broker, connected(broker) as client:

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(broker.replicas, "list_offsets", fail)
        answer = await client.ask(LIST_OFFSETS, 1, _lookup("t"))
        code = answer["topics"][0]["partitions"][0]["error_code"]
        assert code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert broker.events("request_failed")[0]["api"] == "LIST_OFFSETS"
        assert (await client.ask(VERSIONS, 0, {}))["error_code"] == 0


async def test_a_bug_that_an_invariant_finds_ends_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running("t") as broker, connected(broker) as client:

        def fail(*_: object) -> None:
            raise InvariantViolation("why")

        monkeypatch.setattr(broker.replicas, "list_offsets", fail)
        client.send(LIST_OFFSETS, 1, _lookup("t"))
        await settle()
        assert [str(failure) for failure in broker.failures] == ["why"]


def _lookup(topic: str) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "timestamp": -1}]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}


async def test_a_taken_port_is_one_sentence_that_names_the_key() -> None:
    from raftctl.errors import ConfigError

    async with running() as broker:
        with pytest.raises(ConfigError, match=r"listeners: PLAINTEXT://127.0.0.1:\d+ cannot be"):
            async with running(listeners=f"PLAINTEXT://{broker.address}"):
                pass


@pytest.mark.req("N3")
@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_comes_as_the_broker_stops_is_closed(turns: int) -> None:
    """In whichever turn of the loop it is accepted."""

    async def connect_and_stop() -> socket.socket:
        async with running("t") as broker:
            client = socket.create_connection(("127.0.0.1", broker.port))
            for _ in range(turns):
                await asyncio.sleep(0)
        return client

    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        with asyncio.run(connect_and_stop()):
            gc.collect()
    assert [str(one.message) for one in left_open if one.category is ResourceWarning] == []


def stages(context: RequestContext) -> list[float]:
    """The times of a request's stages, in their order."""
    return [
        context.arrived_at,
        context.started_at,
        context.returned_at,
        context.answered_at,
        context.queued_at,
        context.sent_at,
    ]


@pytest.mark.req("N4")
async def test_a_request_has_the_times_of_its_stages_once_its_answer_has_left() -> None:
    async with running("t") as broker, connected(broker) as client:
        broker.replicas.hold = True
        first = client.send(PRODUCE, 9, produce_message("t", batch()))
        second = client.send(PRODUCE, 9, produce_message("t", batch()))
        await settle()
        broker.replicas.release(1)
        await asyncio.sleep(0.02)
        assert broker.sent == []
        broker.replicas.release(0)
        for _ in range(2):
            await client.receive(PRODUCE, 9)
        one, other = broker.sent
        assert [one.correlation_id, other.correlation_id] == [first, second]
        assert (one.api_key, one.api_version, one.client_id) == (PRODUCE, 9, other.client_id)
        for context in (one, other):
            assert stages(context)[0] > 0
            assert stages(context) == sorted(stages(context))
        assert one.answered_at == one.queued_at
        assert other.queued_at - other.answered_at >= 0.02


@pytest.mark.req("N4")
async def test_a_request_without_an_answer_is_reported_as_well() -> None:
    async with running("t") as broker, connected(broker) as client:
        client.send(PRODUCE, 9, {**produce_message("t", batch()), "acks": 0})
        client.send(VERSIONS, 0, {})
        await client.receive(VERSIONS, 0)
        assert [context.api_key for context in broker.sent] == [PRODUCE, VERSIONS]


@pytest.mark.req("N4")
async def test_a_request_whose_client_has_gone_is_not_reported() -> None:
    async with running("t") as broker:
        async with connected(broker) as client:
            broker.replicas.hold = True
            client.send(PRODUCE, 9, produce_message("t", batch()))
            await settle()
        await settle()
        broker.replicas.release()
        await settle()
        assert broker.sent == []


async def test_a_lost_connection_is_freed_without_a_collection_of_garbage() -> None:
    """Frozen objects are never looked at again; a cycle among them would stay for ever."""
    async with running("t") as broker:
        assert await is_served(broker)
        await settle()
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                assert await is_served(broker)
            await settle()
            kept = [one for one in gc.get_objects() if type(one) is connection_module.Connection]
        finally:
            gc.enable()
        assert kept == []
