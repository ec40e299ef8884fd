"""Answers that are kept for a moment: how often they are made."""

from __future__ import annotations

import asyncio

import pytest

from raftctl.console.brokers import _recent
from raftctl.console.brokers._recent import KEPT_MAX, Recent
from raftctl.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.req("W1")


class Source:
    """Makes answers, each a number."""

    def __init__(self) -> None:
        self.made = 0
        self.takes_s = 0.0
        self.fails = False

    async def make(self) -> int:
        self.made += 1
        await asyncio.sleep(self.takes_s)
        if self.fails:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return self.made


async def test_many_who_ask_at_once_have_one_answer_made() -> None:
    source, recent = Source(), Recent[int]()
    asked = [asyncio.ensure_future(recent.get("a", source.make)) for _ in range(50)]
    await asyncio.sleep(0)
    asked[0].cancel()
    assert set(await asyncio.gather(*asked[1:])) == {1}
    assert await recent.get("b", source.make) == 2
    assert await recent.get("a", source.make) == 1


async def test_an_answer_that_takes_long_is_kept_for_longer() -> None:
    source, recent = Source(), Recent[int](kept_s=0)
    source.takes_s = 0.02
    assert await recent.get("a", source.make) == 1
    await asyncio.sleep(0.05)
    assert await recent.get("a", source.make) == 1
    await asyncio.sleep(_recent.PAUSE_FACTOR * 0.03)
    assert await recent.get("a", source.make) == 2


async def test_a_failure_is_not_kept() -> None:
    source, recent = Source(), Recent[int]()
    source.fails = True
    with pytest.raises(KafkaError):
        await recent.get("a", source.make)
    source.fails = False
    assert await recent.get("a", source.make) == 2


async def test_answers_are_bounded() -> None:
    source, recent = Source(), Recent[int]()
    for number in range(3 * KEPT_MAX):
        await recent.get(number, source.make)
    assert len(recent._kept) <= KEPT_MAX
