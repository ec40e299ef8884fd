"""Timers on the hierarchical timing wheel: the published worked example, and any schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replication.purgatory._purgatory import TICK_MS, WHEEL_SIZE, Timer, TimingWheel

pytestmark = pytest.mark.req("R8")


def wheel(now_ms: int = 0) -> TimingWheel[str]:
    return TimingWheel(now_ms, tick_ms=1, wheel_size=20)


def test_the_worked_example_finds_its_slots() -> None:
    timers = wheel()
    assert timers.add("2 ms", 2).place == (1, 2)
    assert timers.advance(2) == ["2 ms"]
    assert timers.add("8 ms later", 2 + 8).place == (1, 10)
    assert timers.add("350 ms", 350).place == (2, 17)
    assert timers.add("450 ms", 450).place == (3, 1)


def test_the_worked_example_comes_down_the_levels_and_fires_in_time() -> None:
    timers = wheel()
    timer = timers.add("450 ms", 450)
    steps = [(now_ms, timers.advance(now_ms), timer.place) for now_ms in (399, 400, 440, 449, 450)]
    assert steps == [
        (399, [], (3, 1)),
        (400, [], (2, 2)),
        (440, [], (1, 10)),
        (449, [], (1, 10)),
        (450, ["450 ms"], None),
    ]


def test_the_clock_wakes_once_for_a_timer_that_waits_alone() -> None:
    timers = wheel()
    timers.add("450 ms", 450)
    assert timers.deadline_ms() == 450
    assert timers.advance(450) == ["450 ms"]
    assert timers.deadline_ms() is None


def test_the_clock_wakes_for_whatever_comes_first_on_any_level() -> None:
    timers = wheel()
    soon = timers.add("450 ms", 450)
    timers.add("790 ms", 790)
    timers.add("405 ms", 405)
    timers.advance(390)
    timers.add("403 ms", 403)
    assert timers.deadline_ms() == 403
    assert timers.advance(403) == ["403 ms"]
    assert timers.deadline_ms() == 405
    assert timers.advance(405) == ["405 ms"]
    assert timers.deadline_ms() == 450
    assert soon.cancel()
    woken = []
    while (deadline := timers.deadline_ms()) is not None:
        woken.append((deadline, timers.advance(deadline)))
    assert woken[-1] == (790, ["790 ms"])


def test_the_clock_wakes_only_for_buckets_that_are_not_empty() -> None:
    timers = wheel()
    first, second = timers.add("a", 5), timers.add("b", 7)
    assert timers.deadline_ms() == 5
    assert first.cancel()
    assert timers.deadline_ms() == 7
    assert second.cancel()
    assert timers.deadline_ms() is None
    assert not second.cancel()
    timers.add("c", 5)
    assert timers.deadline_ms() == 5
    assert timers.advance(100) == ["c"]


def test_what_is_due_already_fires_a_tick_later() -> None:
    timers = wheel(now_ms=1_000)
    timers.add("late", 3)
    assert timers.advance(1_000) == []
    assert timers.deadline_ms() == 1_001
    assert timers.advance(1_001) == ["late"]


def test_cancelling_many_leaves_a_bounded_number_of_buckets() -> None:
    timers = wheel()
    for number in range(20_000):
        assert timers.add("x", 1 + number * 7 % 100_000).cancel()
    assert len(timers._levels) == 4
    assert len(timers._queue) <= 4 * 20
    assert timers.deadline_ms() is None
    assert timers._queue == []


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 100_000)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("advance"), st.integers(0, 10_000)),
    ),
    max_size=80,
)


@given(steps, st.integers(0, 10**13), st.sampled_from([(TICK_MS, WHEEL_SIZE), (10, 4)]))
def test_every_timer_fires_once_in_its_tick_unless_cancelled(
    steps: list[tuple[str, int]], start: int, shape: tuple[int, int]
) -> None:
    tick, size = shape
    timers: TimingWheel[int] = TimingWheel(start, tick_ms=tick, wheel_size=size)
    now, waiting, made = start, dict[int, int](), list[Timer[int]]()
    for step, amount in [*steps, ("advance", 10**8)]:
        if step == "add":
            waiting[len(made)] = max(now + amount, now + tick)
            made.append(timers.add(len(made), now + amount))
        elif step == "cancel" and made:
            chosen = amount % len(made)
            assert made[chosen].cancel() == (waiting.pop(chosen, None) is not None)
        elif step == "advance":
            now += amount
            fired = timers.advance(now)
            tick_of = {number: at // tick for number, at in waiting.items()}
            assert sorted(fired) == [n for n in sorted(waiting) if tick_of[n] * tick <= now]
            assert [tick_of[n] for n in fired] == sorted(tick_of[n] for n in fired)
            for number in fired:
                del waiting[number]
        deadline = timers.deadline_ms()
        assert (deadline is None) == (not waiting)
        assert deadline is None or now < deadline <= min(waiting.values())
    assert waiting == {}
