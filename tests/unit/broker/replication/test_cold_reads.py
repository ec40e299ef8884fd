"""Fetches of what is not in memory: who reads it from the disk, and when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.log.segments import _segment as segment
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.fake_files import FakeFile, FakeWorker
from tests.unit.broker.replication.world import P0, World, fetch_now, params, wanted

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = make_batch([b"v"])


@pytest.mark.req("R10")
async def test_what_is_not_in_memory_is_read_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "RESIDENT_BYTES", 0)
    async with World(brokers=1) as world:
        world.create_topic(partitions=2)
        leader = world.nodes[1]
        for partition in (P0, TopicPartition("t", 1)):
            leader.replicas.append(1, 0, [(partition, BATCH)])
        leader.files.cold = True
        both = [wanted(0), wanted(0, partition=TopicPartition("t", 1))]
        parked = leader.replicas.fetch(params(wait_ms=60_000), both)
        assert isinstance(parked, asyncio.Future)
        assert [result.size for result in await parked] == [len(BATCH)] * 2
        assert (leader.files.warmed, leader.files.cold_reads) == (1, 0)
        # At the end there is nothing to read, so nothing to wait for.
        leader.files.cold = True
        assert not fetch_now(leader, wanted(1)).records
        assert leader.files.cold_reads == 0


@pytest.mark.req("R10")
async def test_who_catches_up_has_the_next_bytes_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(segment, "AHEAD_BYTES", 0)
    async with World(brokers=1) as world:
        world.create_topic(partitions=1)
        leader = world.nodes[1]
        for _ in range(3):
            leader.replicas.append(1, 0, [(P0, BATCH)])
        asked: list[tuple[int, int]] = []
        warmed = asyncio.get_running_loop().create_future()

        def cold_ahead(file: FakeFile, position: int, size: int) -> Callable[[], None] | None:
            if not file.path.endswith(".log") or size > 1:
                return None
            asked.append((position, size))
            return lambda: warmed.set_result(None)

        monkeypatch.setattr(FakeFile, "warm", cold_ahead)
        found = fetch_now(leader, wanted(0, max_bytes=len(BATCH)))
        assert found.size == len(BATCH)
        # Asked again, it is under way already.
        fetch_now(leader, wanted(0, max_bytes=len(BATCH)))
        await asyncio.wait_for(warmed, 10)
        assert asked == [(len(BATCH), 1)]
        # Then it may be asked for again, also by a fetch that must wait for it.
        await asyncio.sleep(0)
        monkeypatch.setattr(FakeFile, "warm", lambda *_: None)
        assert fetch_now(leader, wanted(1)).size == 2 * len(BATCH)


async def test_a_fetch_does_not_fail_because_nothing_more_is_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(segment, "AHEAD_BYTES", 0)
    async with World(brokers=1) as world:
        world.create_topic()
        leader = world.nodes[1]
        for _ in range(2):
            leader.replicas.append(1, 0, [(P0, BATCH)])

        def refuse(_worker: FakeWorker, _call: object) -> asyncio.Future[None]:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too much is queued")

        monkeypatch.setattr(FakeFile, "warm", lambda _file, _at, size: None if size > 1 else print)
        monkeypatch.setattr(FakeWorker, "submit", refuse)
        assert fetch_now(leader, wanted(0, max_bytes=len(BATCH))).size == len(BATCH)
        monkeypatch.undo()


@pytest.mark.req("R10")
async def test_a_disk_that_refuses_what_is_not_in_memory_takes_its_directory_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment, "RESIDENT_BYTES", 0)
    async with World(brokers=1) as world:
        world.create_topic()
        leader = world.nodes[1]
        leader.replicas.append(1, 0, [(P0, BATCH)])

        def refuse() -> None:
            raise OSError(5, "input/output error")

        monkeypatch.setattr(FakeFile, "warm", lambda *_: refuse)
        parked = leader.replicas.fetch(params(wait_ms=60_000), [wanted(0)])
        assert isinstance(parked, asyncio.Future)
        assert [result.error for result in await parked] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert leader.replica().log.offline is not None
        assert [type(failure) for failure in leader.failures] == [OSError]
        leader.failures.clear()
        # Nobody asks that disk again.
        assert fetch_now(leader, wanted(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
