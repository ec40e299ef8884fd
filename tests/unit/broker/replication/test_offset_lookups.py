"""Lookups by time: what is not in memory is read by a worker, not on the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.log.batches import records
from broker.log.batches.compression import GZIP
from broker.log.segments import _segment as segment
from broker.types import OffsetLookup
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import TOPIC_RESOURCE, ConfigRecord
from tests.unit.broker.log.batches import keyed_batch, make_batch
from tests.unit.broker.replication.world import P0, World, offsets_now


@pytest.mark.req("L7")
@pytest.mark.parametrize("timestamp", [1_000, -3])
async def test_a_time_that_is_not_in_memory_is_looked_up_after_a_worker_has_read(
    monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    monkeypatch.setattr(segment, "RESIDENT_BYTES", 0)
    async with World(brokers=1) as world:
        world.create_topic()
        interval = ConfigRecord(TOPIC_RESOURCE, "t", "index.interval.bytes", "1")
        world.controller.commit(interval)
        leader = world.nodes[1]
        for number in range(3):
            leader.append(make_batch([b"v"], timestamps=[1_000 * number]))
        leader.files.cold = True
        known = [OffsetLookup(P0, -1, -1), OffsetLookup(P0, -1, -2), OffsetLookup(P0, -1, 9_000)]
        assert [one.offset for one in offsets_now(leader, *known)] == [3, 0, -1]
        later = leader.replicas.list_offsets([*known, OffsetLookup(P0, -1, timestamp)], -1)
        assert isinstance(later, asyncio.Future)
        assert [one.offset for one in await later] == [3, 0, -1, 1 if timestamp > 0 else 2]
        assert (leader.files.warmed, leader.files.cold_reads) == (1, 0)


@pytest.mark.req("L7", "N3")
@pytest.mark.parametrize("timestamp", [1_000, 1_001, -3])
async def test_a_batch_that_takes_long_to_open_is_searched_by_a_worker(
    monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    opened: list[int] = []

    def spied(*args: Any) -> records.TimestampOffset | None:
        opened.append(args[1].base_offset)
        return first_at_or_after(*args)

    first_at_or_after = records.first_at_or_after
    async with World(brokers=1) as world:
        world.create_topic()
        leader = world.nodes[1]
        leader.append(make_batch([b"v"], timestamps=[1_000]))
        leader.append(keyed_batch([(b"k", b"v")] * 3, timestamp=1_001, codec=GZIP))
        monkeypatch.setattr(records, "first_at_or_after", spied)
        lookups = [OffsetLookup(P0, -1, timestamp)] * 3
        found = leader.replicas.list_offsets(lookups, -1)
        if timestamp == 1_000:
            assert isinstance(found, list)
            assert [one.offset for one in found] == [0, 0, 0]
        else:
            assert isinstance(found, asyncio.Future)
            assert opened == []
            assert [one.offset for one in await found] == [1 if timestamp > 0 else 3] * 3
            assert opened == [1, 1, 1]


@pytest.mark.req("L7")
async def test_a_batch_that_cannot_be_searched_refuses_its_lookup_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: Any) -> None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE)

    async with World(brokers=1) as world:
        world.create_topic()
        leader = world.nodes[1]
        leader.append(keyed_batch([(b"k", b"v")], timestamp=1_000, codec=GZIP))
        monkeypatch.setattr(records, "first_at_or_after", broken)
        lookups = [OffsetLookup(P0, -1, 1_000), OffsetLookup(P0, -1, -1)]
        found = leader.replicas.list_offsets(lookups, -1)
        assert isinstance(found, asyncio.Future)
        answers = [(one.error, one.offset) for one in await found]
        assert answers == [(ErrorCode.CORRUPT_MESSAGE, -1), (ErrorCode.NONE, 1)]
