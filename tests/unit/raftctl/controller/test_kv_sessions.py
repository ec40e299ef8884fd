"""Who was silent for too long: against a model, and that what was closed is not kept for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raftctl.controller.kv._kv_coordination import CHECK_MS, KvSessions

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.req("Q10")

IDS = st.sampled_from([UUID(int=number) for number in range(1, 5)])
STEPS = st.lists(
    st.tuples(st.sampled_from(("open", "touch", "close", "wait")), IDS, st.integers(1, 3)),
    max_size=60,
)


def expire(sessions: KvSessions, now_ms: int) -> Iterator[UUID]:
    while (session_id := sessions.next_expired(now_ms)) is not None:
        yield session_id


@settings(max_examples=400)
@given(STEPS)
@example([("open", UUID(int=1), 3), ("open", UUID(int=1), 1), *[("wait", UUID(int=1), 1)] * 2])
def test_a_session_expires_when_it_was_silent_for_its_timeout(
    steps: list[tuple[str, UUID, int]],
) -> None:
    sessions = KvSessions()
    now_ms = 0
    model: dict[UUID, tuple[int, int]] = {}
    for step, session_id, number in steps:
        timeout_ms = number * 400
        match step:
            case "open":
                sessions.open(session_id, timeout_ms, now_ms)
                model[session_id] = (now_ms + timeout_ms, timeout_ms)
            case "touch":
                sessions.touch(session_id, now_ms)
                if session_id in model:
                    own_ms = model[session_id][1]
                    model[session_id] = (now_ms + own_ms, own_ms)
            case "close":
                sessions.close(session_id)
                model.pop(session_id, None)
            case _:
                now_ms += CHECK_MS // number
                sessions.check(now_ms)
                expired = set(expire(sessions, now_ms))
                over = {one for one, (at_ms, _) in model.items() if at_ms <= now_ms}
                assert expired == over
                for one in over:
                    del model[one]
        assert (sessions.deadline_ms() is None) == (not model)


def test_what_was_closed_leaves_nothing_behind() -> None:
    """However often a client opens the same session again."""
    sessions = KvSessions()
    kept, again = UUID(int=1), UUID(int=2)
    sessions.open(kept, 600_000, 0)
    for now_ms in range(0, 100_000, 100):
        sessions.open(again, 1_000, now_ms)
        sessions.touch(again, now_ms)
        sessions.close(again)
        sessions.check(now_ms)
        assert sessions.next_expired(now_ms) is None
        assert len(sessions._deadlines._heap) < 20


@pytest.mark.parametrize(("late_ms", "is_over"), [(2 * CHECK_MS, True), (2 * CHECK_MS + 1, False)])
def test_who_is_late_for_a_look_by_more_than_a_look_was_held_up(
    late_ms: int, *, is_over: bool
) -> None:
    sessions, silent = KvSessions(), UUID(int=1)
    sessions.open(silent, 3 * CHECK_MS, 0)
    sessions.check(CHECK_MS)
    sessions.check(CHECK_MS + late_ms)
    assert (sessions.next_expired(CHECK_MS + late_ms) == silent) is is_over


def test_looks_come_often_and_when_the_first_session_is_over() -> None:
    sessions = KvSessions()
    sessions.open(UUID(int=1), 10 * CHECK_MS, 5_000)
    assert sessions.deadline_ms() == 5_000 + CHECK_MS, "not after what was before the first"
    sessions.open(UUID(int=2), CHECK_MS // 2, 5_100)
    assert sessions.deadline_ms() == 5_100 + CHECK_MS // 2
    sessions.check(5_100)
    sessions.close(UUID(int=2))
    assert sessions.deadline_ms() == 5_100 + CHECK_MS
    sessions.touch(UUID(int=3), 5_100)
    sessions.clear()
    assert sessions.deadline_ms() is None


def test_a_controller_that_was_held_up_gives_every_session_its_whole_timeout() -> None:
    """It heard nobody while it stood still, and nobody is to blame."""
    sessions, silent = KvSessions(), UUID(int=1)
    sessions.open(silent, 5_000, 0)
    woken_ms = 20_000
    sessions.check(woken_ms)
    assert sessions.next_expired(woken_ms) is None
    for now_ms in range(woken_ms, woken_ms + 5_000, CHECK_MS):
        sessions.check(now_ms)
        assert sessions.next_expired(now_ms) is None
    sessions.check(woken_ms + 5_000)
    assert sessions.next_expired(woken_ms + 5_000) == silent
