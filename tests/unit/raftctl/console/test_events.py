"""Live updates: the newest state for every viewer, and no queues."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from uuid import UUID

import pytest

from raftctl.console import _events
from raftctl.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from tests.kit.authorizing import RuledAuthorizer, rule
from tests.unit.raftctl.console.served import broker, fence, partition, serving, topic

pytestmark = pytest.mark.req("W1", "A4")


async def test_a_viewer_sees_what_is_and_what_changes() -> None:
    async with serving() as served:
        served.commit(*broker(1), *topic("orders", partition(1)))
        async with served.events() as events:
            assert events.answer.headers["Content-Type"] == "text/event-stream"
            assert events.answer.headers["X-Content-Type-Options"] == "nosniff"
            first = await events.next("overview")
            assert (first["id"], first["topics"], first["offline"]) == (2, 1, 0)
            assert (await events.next("quorum"))["leader_id"] == 3
            began = asyncio.get_running_loop().time()
            served.commit(PartitionChangeRecord(UUID(int=1), 0, isr=(), leader=-1, elr=(1,)))
            changed = await events.next("changed")
            assert asyncio.get_running_loop().time() - began < 1.0
            assert changed == {
                "id": 3,
                "metadata_offset": 3,
                "topics": ["orders"],
                "brokers": False,
                "configs": False,
                "acls": False,
                "quotas": False,
                "groups": False,
            }
            served.commit(fence(1))
            assert (await events.next("overview"))["brokers"] == {"total": 1, "fenced": 1}


async def test_changes_are_gathered_while_a_state_is_written() -> None:
    async with serving() as served:
        served.commit(*broker(1))
        async with served.events() as events:
            await events.next("overview")
            served.commit(*topic("first", partition(1)))
            assert (await events.next("changed"))["topics"] == ["first"]
            for number in range(2, 12):
                served.commit(*topic(f"topic-{number}", partition(number)))
                await asyncio.sleep(0)
            served.commit(RemoveTopicRecord(UUID(int=1)))
            changed = await events.next("changed")
            assert changed["topics"] == sorted(["first", *(f"topic-{n}" for n in range(2, 12))])


async def test_of_many_topics_no_names_are_sent() -> None:
    async with serving() as served:
        served.commit(*broker(1))
        async with served.events() as events:
            await events.next("overview")
            count = _events.NAMES_MAX + 1
            for number in range(count):
                served.commit(*topic(f"topic-{number}", partition(number + 1)))
            changed = await events.next("changed")
            assert (changed["topics"], changed["groups"]) == (None, True)


@pytest.mark.req("W2")
async def test_a_viewer_sees_no_names_of_topics_that_are_not_for_it() -> None:
    rules = RuledAuthorizer()
    async with serving(rules.authorizer) as served:
        served.commit(rule("ALLOW User:alice DESCRIBE TOPIC orders"))
        async with served.events("User:alice") as events:
            first = await events.next("overview")
            assert first["topics"] is None
            served.commit(*topic("orders", partition(1)), *topic("audit", partition(2)))
            assert (await events.next("changed"))["topics"] == ["orders"]


async def test_an_election_is_seen_at_once() -> None:
    async with serving() as served, served.events() as events:
        assert (await events.next("quorum"))["timeline"] == []
        served.quorum.epoch = 8
        served.console.elections.on_leader_changed(8, 4)
        found = await events.next("quorum")
        assert (found["epoch"], len(found["timeline"])) == (8, 1)


@pytest.mark.req("W3")
async def test_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_events, "STREAMS_MAX", 2)
    async with serving() as served, AsyncExitStack() as stack:
        for _ in range(2):
            await (await stack.enter_async_context(served.events())).next("overview")
        answer = await served.ask("/console/api/events")
        assert (answer.status, answer.document["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")


@pytest.mark.req("W3")
async def test_a_node_stops_though_pages_are_open() -> None:
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        async with serving() as served:
            events = await stack.enter_async_context(served.events())
            await events.next("overview")
            began = loop.time()
        assert loop.time() - began < 2.0


@pytest.mark.req("W3")
async def test_a_slow_reader_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes nothing, so its socket fills; its stream ends, and the others go on."""
    monkeypatch.setattr(_events, "PAUSE_S", 0.0)
    monkeypatch.setattr(_events, "WRITE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(_events, "encoded", lambda event, offset, document: b"x" * 2_000_000)
    async with serving() as served:
        served.commit(*broker(1))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
        writer.write(b"GET /console/api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        streams = served.console._events._viewers
        async with asyncio.timeout(5):
            await reader.readuntil(b"\r\n\r\n")
            while streams:
                served.commit(fence(1, fenced=not served.loader.image.brokers[1].fenced))
                await asyncio.sleep(0.02)
        writer.close()
