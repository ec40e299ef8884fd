"""When what shards have gathered is written: with others, and never much later than alone."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from broker.coordinator._linger import Linger

PATIENCE_S = 5
NEVER_MS = 1_000_000


class Shards:
    """Each has something to write; `written` says who has, in order."""

    def __init__(self, linger_ms: int) -> None:
        self.linger = Linger(linger_ms)
        self.written: list[str] = []
        self._some = asyncio.Event()

    def gather(self, *names: str) -> None:
        for name in names:
            self.linger.gathered(name, partial(self._write, name))

    async def next_turn(self) -> list[str]:
        """What one turn of the loop has written."""
        await asyncio.sleep(0)
        return self._taken()

    async def in_time(self) -> list[str]:
        """What is written by itself."""
        await asyncio.wait_for(self._some.wait(), PATIENCE_S)
        return self._taken()

    def _write(self, name: str) -> None:
        self.written.append(name)
        self.linger.written(name)
        self._some.set()

    def _taken(self) -> list[str]:
        taken, self.written = self.written, []
        self._some.clear()
        return taken


@pytest.mark.req("G2")
async def test_who_is_alone_waits_for_no_others() -> None:
    shards = Shards(-1)
    shards.gather("a")
    assert not shards.written, "others of the same turn come along"
    shards.gather("b")
    assert await shards.next_turn() == ["a", "b"]


@pytest.mark.req("G2")
async def test_what_comes_while_something_is_on_its_way_is_written_when_all_has_arrived() -> None:
    shards = Shards(-1)
    shards.gather("a", "b")
    assert await shards.next_turn() == ["a", "b"]
    shards.gather("c", "a")
    shards.linger.committed("a")
    assert await shards.next_turn() == []
    shards.linger.committed("b")
    shards.gather("d")
    assert await shards.next_turn() == ["c", "a", "d"]


@pytest.mark.req("G2")
async def test_a_shard_whose_followers_are_gone_holds_the_others_up_for_a_moment_only() -> None:
    shards = Shards(-1)
    shards.gather("stuck")
    assert await shards.next_turn() == ["stuck"]
    shards.gather("a")
    assert await shards.in_time() == ["a"]
    shards.linger.committed("a")
    shards.gather("b")
    shards.linger.closed("stuck")
    assert await shards.next_turn() == ["b"]


@pytest.mark.req("G2")
async def test_a_shard_that_is_closed_writes_nothing_more() -> None:
    shards = Shards(-1)
    shards.gather("a", "b")
    shards.linger.closed("a")
    assert await shards.next_turn() == ["b"]


@pytest.mark.req("G2")
async def test_a_time_that_was_set_is_waited_for() -> None:
    shards = Shards(1)
    shards.gather("a")
    assert await shards.next_turn() == []
    assert await shards.in_time() == ["a"]
    shards = Shards(NEVER_MS)
    shards.gather("a")
    shards.linger.committed("b")
    assert await shards.next_turn() == []


@pytest.mark.req("G2")
async def test_no_time_at_all_is_a_turn_of_the_loop() -> None:
    shards = Shards(0)
    shards.gather("stuck")
    assert await shards.in_time() == ["stuck"]
    shards.gather("a", "b")
    assert await shards.in_time() == ["a", "b"]


@pytest.mark.req("G2")
async def test_a_write_that_fails_keeps_no_other_shard_from_its_own() -> None:
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))

    def fail() -> None:
        raise ValueError("not written")

    shards = Shards(-1)
    shards.gather("a")
    shards.linger.gathered("broken", fail)
    shards.gather("b")
    assert await shards.next_turn() == ["a", "b"]
    assert told == ["not written"]
