"""With `flush.on.ack` acks=all means fsynced on every in-sync replica (row L8)."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from broker.types import AppendResult
from raftctl.errors import ErrorCode
from raftctl.metadata.records import TOPIC_RESOURCE, ConfigRecord
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.fake_files import FakeWorker
from tests.unit.broker.log.logs import headers
from tests.unit.broker.replication.world import (
    Node,
    World,
    eventually,
    fetch_now,
    params,
    wanted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("L8")
BATCH = make_batch([b"v"])


class Gate:
    """Holds what is submitted to the workers of one node's log directories."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed_for: dict[Node, None] = {}
        self._held: list[tuple[FakeWorker, Callable[[], Any], asyncio.Future[Any]]] = []
        self._workers: dict[FakeWorker, Node] = {}
        submit = FakeWorker.submit

        def gated(worker: FakeWorker, call: Callable[[], Any]) -> asyncio.Future[Any]:
            if self._workers.get(worker) not in self.closed_for:
                return submit(worker, call)
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._held.append((worker, call, future))
            return future

        self._submit = submit
        monkeypatch.setattr(FakeWorker, "submit", gated)

    def close(self, node: Node) -> None:
        """From now on nothing of this node reaches its disk."""
        self.closed_for[node] = None
        for directory in node.replicas._logs._directories:
            worker = directory.worker
            assert isinstance(worker, FakeWorker)
            self._workers[worker] = node

    def open(self) -> None:
        """Lets go what was held, in order."""
        self.closed_for.clear()
        held, self._held = self._held, []
        for worker, call, future in held:
            self._submit(worker, call).add_done_callback(partial(_copy, future))


def _copy(future: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
    future.set_result(done.result())


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def waiting(node: Node, batch: bytes = BATCH) -> asyncio.Future[list[AppendResult]]:
    done = node.append(batch, acks=-1, timeout_ms=60_000)
    assert isinstance(done, asyncio.Future)
    return done


async def test_a_leader_acknowledges_and_shows_what_is_on_its_disk(gate: Gate) -> None:
    async with World(1, flush_on_ack="true") as world:
        world.create_topic()
        node = world.nodes[1]
        gate.close(node)
        done = waiting(node)
        assert isinstance(node.append(BATCH, acks=1), AppendResult)
        await asyncio.sleep(0.02)
        assert not done.done()
        assert not fetch_now(node, wanted(0)).records
        gate.open()
        assert (await done)[0] == AppendResult(ErrorCode.NONE, 0, -1, 0)
        await eventually(lambda: node.replica().state.high_watermark == 2)


@pytest.mark.parametrize("acks", [1, -1])
async def test_no_more_than_flush_messages_are_acknowledged_before_a_flush(
    gate: Gate, acks: int
) -> None:
    async with World(1, log_flush_interval_messages="3") as world:
        world.create_topic()
        node = world.nodes[1]
        gate.close(node)
        for _ in range(2):
            done = node.append(BATCH, acks=acks)
            assert isinstance(done, AppendResult), "two may be unflushed"
        third = node.append(BATCH, acks=acks)
        assert isinstance(third, asyncio.Future)
        assert isinstance(node.append(BATCH, acks=0), AppendResult)
        await asyncio.sleep(0.02)
        assert not third.done()
        gate.open()
        assert (await third)[0] == AppendResult(ErrorCode.NONE, 2, -1, 0)
        assert node.replica().log.recovery_point >= 3


async def test_what_must_be_flushed_first_is_refused_if_the_disk_refuses() -> None:
    async with World(1, log_dirs="/d1,/d2", log_flush_interval_messages="1") as world:
        world.create_topic()
        node = world.nodes[1]
        node.files.broken = True
        done = node.append(BATCH, acks=1)
        assert isinstance(done, asyncio.Future)
        assert (await done)[0].error is ErrorCode.KAFKA_STORAGE_ERROR
        node.files.broken = False


@pytest.mark.req("R5")
async def test_acks_all_waits_for_the_disk_of_each_replica_in_sync(gate: Gate) -> None:
    async with World(3, listen=True, flush_on_ack="true") as world:
        world.create_topic()
        leader, follower = world.nodes[1], world.nodes[2]
        first = waiting(leader)
        assert (await first)[0].error is ErrorCode.NONE
        gate.close(follower)
        done = waiting(leader)
        await eventually(lambda: follower.replica().log.log_end_offset == 2)
        await asyncio.sleep(0.05)
        assert not done.done()
        gate.open()
        assert (await done)[0].error is ErrorCode.NONE
        durable = [node.replica().log.recovery_point for node in world.nodes.values()]
        assert durable == [2, 2, 2]


async def test_many_that_wait_share_a_flush() -> None:
    async with World(3, listen=True, flush_on_ack="true") as world:
        world.create_topic()
        leader = world.nodes[1]
        syncs = leader.files.syncs
        waits = [waiting(leader, make_batch([b"%d" % number])) for number in range(200)]
        assert [(await one)[0].base_offset for one in waits] == list(range(200))
        assert 0 < leader.files.syncs - syncs < 20


async def test_the_topic_decides_and_a_change_holds_at_once(gate: Gate) -> None:
    async with World(1) as world:
        world.create_topic()
        node = world.nodes[1]
        gate.close(node)
        assert isinstance(node.append(BATCH, acks=-1), AppendResult)
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "flush.on.ack", "true"))
        done = waiting(node)
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "flush.on.ack", "false"))
        assert (await done)[0].error is ErrorCode.NONE
        gate.open()


async def test_a_new_leader_flushes_what_it_has() -> None:
    async with World(2, listen=True) as world:
        world.create_topic()
        one, two = world.nodes.values()
        for _ in range(3):
            one.append(BATCH)
        await eventually(lambda: two.replica().log.log_end_offset == 3)
        assert two.replica().log.recovery_point == 0
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "flush.on.ack", "true"))
        world.elect(2)
        await eventually(lambda: two.replica().state.high_watermark == 3)
        assert two.replica().log.recovery_point == 3


@pytest.mark.parametrize("seed", range(5))
async def test_all_brokers_lose_power_at_once_and_nothing_acknowledged_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    async with World(3, listen=True, flush_on_ack="true") as world:
        world.create_topic()
        acknowledged: dict[int, int] = {}
        for _ in range(3):
            leader = world.leader()
            waits = [waiting(leader, make_batch([chance.randbytes(50)])) for _ in range(20)]
            await asyncio.wait(waits[: chance.randint(1, 20)])
            for one in waits:
                if one.done() and one.result()[0].error is ErrorCode.NONE:
                    base = one.result()[0].base_offset
                    acknowledged[base] = crcs(leader)[base]
            for node in world.nodes.values():
                await node.kill()
            for node in world.nodes.values():
                node.files.crash_by(chance)
            for node in world.nodes.values():
                await node.start()
            world.elect(chance.choice(list(world.nodes)))
            leader = world.leader()
            assert {base: crcs(leader).get(base) for base in acknowledged} == acknowledged
            await eventually(partial(same_everywhere, world, leader))


def crcs(node: Node) -> dict[int, int]:
    return {header.base_offset: header.crc for header in headers(node.replica().log)}


def same_everywhere(world: World, leader: Node) -> bool:
    return all(crcs(node) == crcs(leader) for node in world.nodes.values())


async def test_a_follower_does_not_claim_what_a_crash_would_take(gate: Gate) -> None:
    async with World(2, listen=True, flush_on_ack="true") as world:
        world.create_topic()
        leader, follower = world.nodes.values()
        gate.close(follower)
        done = waiting(leader)
        await eventually(lambda: follower.replica().log.log_end_offset == 1)
        assert leader.replica().state.followers[2].log_end_offset == 0
        assert not fetch_now(leader, wanted(0), params()).records
        gate.open()
        assert (await done)[0].error is ErrorCode.NONE
