"""What is due in many partitions at once is done in turns (rows G1, T2)."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from broker.coordinator._cooperative import TurnQueue

pytestmark = pytest.mark.req("G1", "T2")


class Clock:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.now = 0
        self._next()

    def _next(self) -> None:
        self.now += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


async def test_each_turn_does_one_piece() -> None:
    clock, turns, done = Clock(), TurnQueue(), list[tuple[int, str]]()

    def note(name: str) -> None:
        done.append((clock.now, name))
        if name == "a":
            turns.submit(lambda: note("again"))

    async def wait() -> None:
        await turns.next()
        note("waited")

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    for name in "abc":
        turns.submit(partial(note, name))
    await turns.next()
    note("last")
    clock.stop()
    assert [name for _, name in done] == ["waited", "a", "b", "c", "last"]
    assert len({turn for turn, _ in done}) == 5
    await task
    await turns.next()
    assert done[-1][1] == "again"


async def test_who_waits_no_more_keeps_nobody_from_his_turn() -> None:
    turns = TurnQueue()
    task = asyncio.create_task(turns.next())
    await asyncio.sleep(0)
    task.cancel()
    await turns.next()
    assert task.cancelled()
