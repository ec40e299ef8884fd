"""When began what is wrong, for a page that is opened afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.console import _history
from raftctl.metadata.records import (
    LeaderChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
)
from tests.unit.raftctl.console.served import broker, fence, partition, serving, topic

if TYPE_CHECKING:
    from raftctl.metadata.records import Record
    from tests.unit.raftctl.console.served import Served

pytestmark = pytest.mark.req("W2")
ORDERS = UUID(int=1)


def commit(served: Served, *records: Record, at_ms: int) -> None:
    """Commit records, and have them in the log as well."""
    served.commit(*records, timestamp_ms=at_ms)
    served.quorum.append(*records, timestamp_ms=at_ms)


async def since(served: Served) -> dict[str, int | None]:
    """The subject of each problem, and since when it is there, once the log has been read."""
    await served.get("overview")
    looking = served.console._looking_back
    assert looking is not None
    await asyncio.wait_for(asyncio.shield(looking), 5)
    rows = (await served.get("problems"))["rows"]
    return {row["subject"]["name"]: row["since_ms"] for row in rows}


async def test_the_log_says_since_when() -> None:
    async with serving() as served:
        commit(served, *broker(1), *broker(2), *broker(3), at_ms=100)
        commit(served, *topic("orders", partition(1), partition(1, 1)), at_ms=200)
        commit(served, *topic("audit", partition(2)), at_ms=300)
        commit(served, PartitionChangeRecord(ORDERS, 0, isr=(1, 2)), at_ms=400)
        commit(served, PartitionChangeRecord(ORDERS, 0, isr=(1, 2, 3)), at_ms=500)
        commit(served, fence(3), PartitionChangeRecord(ORDERS, 1, isr=(1, 2)), at_ms=600)
        commit(served, PartitionChangeRecord(ORDERS, 0, isr=(1,)), at_ms=700)
        commit(served, PartitionChangeRecord(ORDERS, 1, isr=(1,)), at_ms=800)
        commit(served, PartitionChangeRecord(UUID(int=2), 0, leader=-1), at_ms=900)
        assert await since(served) == {"3": 600, "audit": 900, "orders": 600}


async def test_what_is_older_than_the_log_has_no_time() -> None:
    async with serving() as served:
        served.commit(*broker(1), *broker(2, fenced=True), timestamp_ms=1)
        served.commit(*topic("orders", partition(1, 0, (1, 2), isr=(1,)), partition(1, 1, (1, 2))))
        commit(served, PartitionChangeRecord(ORDERS, 1, isr=(1,)), at_ms=5)
        assert await since(served) == {"2": None, "orders": None}


async def test_the_end_of_a_long_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_history, "LOOK_BACK_BYTES", 200)
    async with serving() as served:
        commit(served, *broker(1), *broker(2, fenced=True), at_ms=1)
        commit(served, *topic("orders", partition(1, 0, (1, 2))), at_ms=2)
        for number in range(200):
            served.quorum.append(NoOpRecord(), timestamp_ms=100 + number)
        commit(served, PartitionChangeRecord(ORDERS, 0, isr=(1,)), at_ms=500)
        assert await since(served) == {"2": None, "orders": 500}


@pytest.mark.req("W1")
async def test_elections_before_the_start_of_this_node() -> None:
    async with serving() as served:
        for leader_id, at_ms in ((3, 100), (4, 200)):
            served.quorum.append(LeaderChangeRecord(leader_id, (3, 4), ()), control=True)
            served.quorum.append(NoOpRecord(), timestamp_ms=at_ms)
        served.console.elections.on_leader_changed(9, 3)
        await since(served)
        timeline = (await served.get("quorum"))["timeline"]
        assert [(row["leader_id"], row["text"]) for row in timeline] == [
            (3, "node 3 leads epoch 9 after node 4"),
            (4, "node 4 leads epoch 7 after node 3"),
            (3, "node 3 leads epoch 7"),
        ]
        assert [row["at_ms"] for row in timeline][1:] == [200, 100]
