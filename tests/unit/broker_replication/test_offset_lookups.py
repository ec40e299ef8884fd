"""Lookups by time: what is not in memory is read by a worker, not on the event loop."""

from __future__ import annotations

import asyncio

import pytest

from broker.log import segment
from broker.types import OffsetLookup
from raftctl.metadata.image import TOPIC_RESOURCE
from raftctl.metadata.records import ConfigRecord
from tests.unit.broker_log.batches import make_batch
from tests.unit.broker_replication.world import P0, World, offsets_now


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
