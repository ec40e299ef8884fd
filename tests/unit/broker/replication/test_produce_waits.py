"""A Produce with acks=all notes which replica it waited for, for the log of slow requests."""

from __future__ import annotations

import asyncio

import pytest

from broker.request_context import ReplicaWait, RequestContext, WaitEnd
from broker.types import AppendResult
from raftctl.errors import ErrorCode
from tests.unit.broker.replication.test_replica_manager import BATCH, replicate
from tests.unit.broker.replication.world import P0, World

pytestmark = pytest.mark.req("O2")


async def test_it_names_the_replica_that_was_the_last_to_have_the_records() -> None:
    async with World(brokers=3) as world:
        world.create_topic()
        request = RequestContext()
        done = world.nodes[1].replicas.append(-1, 10_000, [(P0, BATCH)], request)
        assert isinstance(done, asyncio.Future)
        replicate(world.nodes[1], 1, 3)
        assert request.waited_for is None
        replicate(world.nodes[1], 1, 2)
        await done
        assert request.waited_for == ReplicaWait("t", 0, (2,))


async def test_it_names_those_that_did_not_have_them_in_time() -> None:
    async with World(brokers=3) as world:
        world.create_topic()
        request = RequestContext()
        done = world.nodes[1].replicas.append(-1, 20, [(P0, BATCH)], request)
        assert isinstance(done, asyncio.Future)
        replicate(world.nodes[1], 1, 2)
        (result,) = await done
        assert isinstance(result, AppendResult)
        assert result.error is ErrorCode.REQUEST_TIMED_OUT
        assert request.waited_for == ReplicaWait("t", 0, (3,), WaitEnd.TIMED_OUT)


async def test_it_names_those_that_left() -> None:
    async with World(brokers=3) as world:
        world.create_topic()
        request = RequestContext()
        done = world.nodes[1].replicas.append(-1, 10_000, [(P0, BATCH)], request)
        assert isinstance(done, asyncio.Future)
        replicate(world.nodes[1], 1, 2)
        # Else the leader would wait for it, since it may join again at once.
        world.nodes[1].replica().state.followers[3].caught_up_ms = -1_000_000
        world.set_isr(1, 2)
        await done
        assert request.waited_for == ReplicaWait("t", 0, (3,), WaitEnd.LEFT_ISR)
