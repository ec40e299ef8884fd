"""Sessions: who is fenced for silence, and who is not because the controller itself was held up."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raftctl.controller._cluster_control import Sessions

TIMEOUT_MS = 1_600
LOOK_MS = 400


def looked_at(sessions: Sessions, *, until_ms: int) -> list[int]:
    """Looks at every deadline up to a time; the brokers that expired."""
    expired: list[int] = []
    while (deadline_ms := sessions.deadline_ms()) is not None and deadline_ms <= until_ms:
        for broker_id in sessions.expired(deadline_ms):
            sessions.close(broker_id)
            expired.append(broker_id)
    return expired


@pytest.mark.req("C2")
def test_a_silent_broker_expires_at_its_timeout_while_the_others_live() -> None:
    sessions = Sessions(TIMEOUT_MS)
    sessions.open(1, 0)
    sessions.open(2, 0)
    assert looked_at(sessions, until_ms=1_000) == []
    sessions.touch(2, 5, 1_000)
    assert looked_at(sessions, until_ms=TIMEOUT_MS - 1) == []
    assert sessions.lives(1, TIMEOUT_MS - 1)
    assert not sessions.lives(1, TIMEOUT_MS), "as soon as it may be fenced"
    assert looked_at(sessions, until_ms=TIMEOUT_MS) == [1]
    assert sessions.lives(2, TIMEOUT_MS)


@pytest.mark.req("C2")
@pytest.mark.parametrize("stalled_ms", [900, 1_700, 3_000])
def test_nobody_is_fenced_for_a_silence_that_the_controller_slept_through(stalled_ms: int) -> None:
    """Everything stood still; the brokers' heartbeats come just after the controller wakes."""
    sessions = Sessions(TIMEOUT_MS)
    sessions.open(1, 0)
    looked_at(sessions, until_ms=2 * LOOK_MS)
    sessions.touch(1, 5, 2 * LOOK_MS)
    woken_ms = 2 * LOOK_MS + stalled_ms
    assert sessions.expired(woken_ms) == []
    assert sessions.lives(1, woken_ms + LOOK_MS)


@pytest.mark.req("C2")
@pytest.mark.parametrize(("late_ms", "expired"), [(LOOK_MS, [1]), (LOOK_MS + 1, [])])
def test_who_is_late_for_a_look_by_more_than_a_look_was_held_up(
    late_ms: int, expired: list[int]
) -> None:
    sessions = Sessions(TIMEOUT_MS)
    sessions.open(1, 0)
    looked_at(sessions, until_ms=TIMEOUT_MS - 1)
    assert sessions.expired(TIMEOUT_MS + late_ms) == expired


STEPS = st.lists(
    st.tuples(st.sampled_from(("open", "touch", "close", "look")), st.integers(1, 4)), max_size=60
)


@pytest.mark.req("C2")
@given(STEPS)
@example([("open", 1), ("open", 2), ("look", 4), ("touch", 1), *[("look", 4)] * 4])
@example([("touch", 1), ("touch", 2), ("look", 4), ("open", 1), *[("look", 4)] * 4])
def test_as_a_model_that_looks_at_everybody(steps: list[tuple[str, int]]) -> None:
    """The order in which they were heard of is kept by whoever opens, touches and closes."""
    sessions, model = Sessions(TIMEOUT_MS), dict[int, tuple[int, int]]()
    now_ms = 0
    for number, (step, one) in enumerate(steps):
        match step:
            case "open":
                sessions.open(one, now_ms)
                model[one] = now_ms, -1
            case "touch":
                sessions.touch(one, number, now_ms)
                model[one] = now_ms, number
            case "close":
                sessions.close(one)
                model.pop(one, None)
            case _:
                deadline_ms = sessions.deadline_ms()
                now_ms = now_ms + LOOK_MS if deadline_ms is None else max(now_ms, deadline_ms)
                over = {it for it, (at_ms, _) in model.items() if now_ms >= at_ms + TIMEOUT_MS}
                assert set(sessions.expired(now_ms)) == over
        for it in range(1, 5):
            lives = it in model and now_ms < model[it][0] + TIMEOUT_MS
            assert sessions.lives(it, now_ms) is lives
            reached = it in model and model[it][1] >= 5
            assert sessions.all_have_reached(5, [it]) is reached
        assert (sessions.deadline_ms() is None) is (not model)


@pytest.mark.req("C2")
def test_a_new_session_has_reached_nothing_and_drains_nothing() -> None:
    """What the incarnation before it had read is not what this one has."""
    sessions = Sessions(TIMEOUT_MS)
    sessions.touch(1, 9, 0).drained_offset = 9
    sessions.open(1, 5)
    assert not sessions.all_have_reached(0, [1])
    assert sessions.touch(1, 0, 6).drained_offset is None
    assert sessions.all_have_reached(0, [1])
    assert not sessions.all_have_reached(0, [1, 2]), "who has no session has reached nothing"
    sessions.clear()
    assert not sessions.lives(1, 6)


@pytest.mark.req("C2")
def test_a_controller_that_becomes_active_again_has_not_been_held_up() -> None:
    """Between its two times there was nobody to look."""
    sessions = Sessions(TIMEOUT_MS)
    sessions.open(1, 0)
    looked_at(sessions, until_ms=LOOK_MS)
    sessions.clear()
    sessions.open(1, 50_000)
    assert sessions.deadline_ms() == 50_000 + LOOK_MS
    assert looked_at(sessions, until_ms=50_000 + TIMEOUT_MS) == [1]


def test_without_sessions_there_is_nothing_to_look_for() -> None:
    sessions = Sessions(TIMEOUT_MS)
    assert sessions.deadline_ms() is None
    sessions.open(1, 50_000)
    assert sessions.deadline_ms() == 50_000 + LOOK_MS
    sessions.close(1)
    assert sessions.deadline_ms() is None
