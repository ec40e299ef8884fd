"""Sessions: who is fenced for silence, and who is not because the controller itself was held up."""

from __future__ import annotations

import pytest

from raftctl.controller.sessions import Sessions

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


def test_without_sessions_there_is_nothing_to_look_for() -> None:
    sessions = Sessions(TIMEOUT_MS)
    assert sessions.deadline_ms() is None
    sessions.open(1, 50_000)
    assert sessions.deadline_ms() == 50_000 + LOOK_MS
    sessions.close(1)
    assert sessions.deadline_ms() is None
