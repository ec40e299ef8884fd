"""Operations that wait: answered once, by a change or by their deadline, then watched nowhere."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.purgatory import DelayedOperation, Purgatory
from broker.turns import Turn
from broker.types import TopicPartition
from tests.unit.broker.replication.world import eventually

pytestmark = pytest.mark.req("R8")
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Waiting(DelayedOperation[str]):
    """Complete when told so."""

    def __init__(self) -> None:
        super().__init__(Turn())
        self.ready = False
        self.asked = 0

    def is_complete_after(self, partition: TopicPartition) -> bool:
        self.asked += 1
        return self.ready

    def answer(self) -> str:
        return "complete" if self.ready else "out of time"


def purgatory() -> Purgatory[str]:
    return Purgatory(asyncio.get_running_loop())


async def test_a_change_completes_an_operation_and_takes_its_timer_with_it() -> None:
    waits, one = purgatory(), Waiting()
    done = waits.wait(one, [P0, P1, P0], 60_000)
    waits.wake(P0)
    assert not done.done()
    one.ready = True
    waits.wake(P1)
    assert done.result() == "complete"
    waits.wake(P0)
    assert (one.asked, len(waits), waits._watchers) == (2, 0, {})
    assert waits._wheel.deadline_ms() is None


async def test_a_deadline_answers_with_what_there_is() -> None:
    loop = asyncio.get_running_loop()
    waits, began = purgatory(), loop.time()
    late, soon = waits.wait(Waiting(), [P0], 40), waits.wait(Waiting(), [P0], 1)
    assert await soon == "out of time"
    assert not late.done()
    assert await late == "out of time"
    assert loop.time() - began >= 0.04
    assert len(waits) == 0
    assert waits._timer.at_s is None


async def test_a_cancelled_operation_is_forgotten() -> None:
    waits = purgatory()
    kept, given_up = waits.wait(Waiting(), [P0], 60_000), waits.wait(Waiting(), [P0], 50_000)
    given_up.cancel()
    await eventually(lambda: len(waits) == 1)
    waits.close()
    assert kept.cancelled()
    assert (len(waits), waits._watchers) == (0, {})


async def test_the_event_loop_has_one_timer_for_any_number_of_operations() -> None:
    waits = purgatory()
    for number in range(1_000):
        waits.wait(Waiting(), [P0], 60_000 + number)
    assert len(waits) == 1_000
    assert waits._timer.at_s is not None
    first = waits._timer.at_s
    waits.wait(Waiting(), [P1], 50)
    assert waits._timer.at_s < first
    waits.close()
    assert waits._timer.at_s is None
