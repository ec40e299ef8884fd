"""A deadline calls once, at the time that was set last."""

from __future__ import annotations

import asyncio
import weakref

from raftctl.runtime import Deadline


def made(calls: list[float]) -> tuple[Deadline, float]:
    loop = asyncio.get_running_loop()
    return Deadline(loop, lambda: calls.append(loop.time())), loop.time()


async def test_only_the_time_set_last_counts() -> None:
    calls: list[float] = []
    deadline, now = made(calls)
    deadline.set(now)
    deadline.set(now + 0.02)
    await asyncio.sleep(0.05)
    assert len(calls) == 1
    assert calls[0] >= now + 0.01
    assert deadline.at_s is None
    deadline.set(now)
    deadline.set(None)
    await asyncio.sleep(0.01)
    assert len(calls) == 1


async def test_a_call_that_comes_earlier_may_stay() -> None:
    deadline, now = made([])
    deadline.set_at_latest(now + 2)
    deadline.set_at_latest(now + 3)
    assert deadline.at_s == now + 2
    deadline.set_at_latest(now + 1)
    assert deadline.at_s == now + 1
    deadline.set_at_latest(None)
    assert deadline.at_s is None


async def test_it_is_set_again_from_within_the_call() -> None:
    loop = asyncio.get_running_loop()
    left = 3
    done = loop.create_future()

    def call() -> None:
        nonlocal left
        left -= 1
        if left:
            deadline.set(loop.time())
        else:
            done.set_result(None)

    deadline = Deadline(loop, call)
    deadline.set(loop.time())
    await asyncio.wait_for(done, 5)


async def test_one_that_is_closed_never_calls_and_lets_go_of_the_callee() -> None:
    class Owner:
        def __init__(self) -> None:
            self.deadline = Deadline(asyncio.get_running_loop(), self.call)
            self.calls = 0

        def call(self) -> None:
            self.calls += 1

    owner = Owner()
    owner.deadline.set(asyncio.get_running_loop().time())
    owner.deadline.close()
    await asyncio.sleep(0.01)
    assert owner.calls == 0
    alive = weakref.ref(owner)
    del owner
    # Without a collection of garbage.
    assert alive() is None
