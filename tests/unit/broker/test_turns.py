"""Answers that are called at the end of the turn in which they are there."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from functools import partial

from broker.turns import Turn, TurnFuture

_request: ContextVar[str] = ContextVar("request", default="")


def answers(count: int) -> tuple[Turn, list[TurnFuture[int]], list[tuple[int, str]]]:
    """Answers of one turn, each called in the context of its number."""
    turn = Turn()
    called: list[tuple[int, str]] = []
    made: list[TurnFuture[int]] = [TurnFuture(turn) for _ in range(count)]
    for number, one in enumerate(made):
        _request.set(str(number))
        one.listen(lambda future: called.append((future.result(), _request.get())))
    _request.set("")
    return turn, made, called


async def test_answers_are_told_in_order_when_the_outermost_leaves_the_turn() -> None:
    turn, (first, second), called = answers(2)
    with turn:
        second.set_result(20)
        with turn:
            first.set_result(10)
        assert called == []
    assert called == [(20, "1"), (10, "0")]
    assert _request.get() == ""


async def test_what_is_told_may_complete_more_in_the_same_turn() -> None:
    turn, (first, second), called = answers(2)
    with turn:
        turn.at_end(partial(first.set_result, 1))
        turn.at_end(partial(second.set_result, 2))
    assert called == [(1, "0"), (2, "1")]


async def test_outside_of_a_turn_answers_are_told_in_the_next_one() -> None:
    _, (one,), called = answers(1)
    one.set_result(5)
    assert called == []
    await asyncio.sleep(0)
    assert called == [(5, "0")]


async def test_a_listener_that_comes_late_is_told() -> None:
    turn: Turn = Turn()
    late: TurnFuture[int] = TurnFuture(turn)
    late.set_result(1)
    called: list[bool] = []
    with turn:
        late.listen(lambda future: called.append(future.done()))
        assert called == []
    assert called == [True]


async def test_one_that_is_cancelled_tells_both_sides() -> None:
    turn: Turn = Turn()
    one: TurnFuture[int] = TurnFuture(turn)
    called: list[str] = []
    one.given_up = partial(called.append, "purgatory")
    one.listen(lambda future: called.append(f"listener: {future.cancelled()}"))
    with turn:
        one.cancel()
    assert called == ["purgatory", "listener: True"]
    one.cancel()
    assert len(called) == 2


async def test_a_listener_that_fails_does_not_keep_others_from_being_told() -> None:
    turn: Turn = Turn()
    called: list[int] = []

    def fail() -> None:
        raise ValueError("a bug")

    try:
        with turn:
            turn.at_end(fail)
            turn.at_end(partial(called.append, 1))
    except ValueError:
        called.append(0)
    await asyncio.sleep(0)
    assert called == [0, 1]
    assert not turn.is_entered
