"""One object from a handler to the socket: a result that a future must complete first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker.apis.handler import Reply
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_the_result_is_computed_from_that_of_the_future() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reply = Reply(future, lambda: f"{future.result()} records").then(lambda result: result() + "!")
    assert (reply.is_done, reply.has_acted) == (False, True)
    future.set_result(3)
    assert reply.is_done
    assert reply.result() == await reply.wait() == "3 records!"


async def test_a_step_may_turn_an_error_into_a_result() -> None:
    def refuse(result: Callable[[], int]) -> int:
        try:
            return result()
        except KafkaError as error:
            return -error.code

    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reply = Reply(future, future.result)
    future.set_exception(KafkaError(ErrorCode.INVALID_REQUEST))
    assert reply.then(refuse).result() == -ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError):
        await reply.wait()


async def test_only_its_own_task_is_cancelled() -> None:
    """An append that waits for replication cannot be taken back; a handler's task can."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    Reply(future, future.result).cancel()
    assert not future.done()
    reply = Reply.run(asyncio.sleep(3_600))
    assert not reply.has_acted
    seen: list[asyncio.Future[object]] = []
    reply.on_done(seen.append)
    reply.cancel()
    await reply.wait_until_done()
    await asyncio.sleep(0)
    assert [one.cancelled() for one in seen] == [True]


async def test_a_waiter_that_gives_up_leaves_the_future_to_the_others() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reply = Reply(future, future.result)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reply.wait(), 0.001)
    future.set_result(1)
    assert reply.result() == 1
