"""Who of the clients of keys and values was heard of, on the active controller.

Soft state, as for brokers (`raftctl.controller.cluster._sessions`): that a session is open stands
in the log, when it was heard of last does not. A controller that becomes active gives every session
a full timeout, since heartbeats that another controller has answered are not known to it. One that
was itself held up cannot tell who was silent, so it looks often, and when it is late for a look it
gives everyone a full timeout again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.timers import Timers

if TYPE_CHECKING:
    from uuid import UUID

LOOK_MS = 250
"""A look is due after this long; as late again, the controller was held up."""


class KvSessions:
    """Deadlines by session id; each session has a timeout of its own."""

    def __init__(self) -> None:
        self._timeouts: dict[UUID, int] = {}
        self._deadlines: Timers[UUID] = Timers()
        self._looked_ms = 0

    def open(self, session_id: UUID, timeout_ms: int, now_ms: int) -> None:
        """Begins to watch a session, or begins anew."""
        if not self._timeouts:
            self._looked_ms = now_ms
        self._timeouts[session_id] = timeout_ms
        self._deadlines.set(session_id, now_ms + timeout_ms)

    def touch(self, session_id: UUID, now_ms: int) -> None:
        """Notes a heartbeat."""
        timeout_ms = self._timeouts.get(session_id)
        if timeout_ms is not None:
            self._deadlines.set(session_id, now_ms + timeout_ms)

    def close(self, session_id: UUID) -> None:
        """Watches a session no more."""
        self._timeouts.pop(session_id, None)
        self._deadlines.cancel(session_id)

    def clear(self) -> None:
        """Watches nothing any more."""
        self._timeouts.clear()
        self._deadlines = Timers()

    def look(self, now_ms: int) -> None:
        """To be called when `deadline_ms` has come; much later, every timeout begins anew."""
        if now_ms - self._looked_ms > 2 * LOOK_MS:
            for session_id, timeout_ms in self._timeouts.items():
                self._deadlines.set(session_id, now_ms + timeout_ms)
        self._looked_ms = now_ms

    def next_expired(self, now_ms: int) -> UUID | None:
        """A session that was silent for too long, which is watched no more; None if none is."""
        session_id = next(self._deadlines.due(now_ms), None)
        if session_id is not None:
            self.close(session_id)
        return session_id

    def deadline_ms(self) -> int | None:
        """When to look next; None while there is no session."""
        first_ms = self._deadlines.next_ms()
        return None if first_ms is None else min(first_ms, self._looked_ms + LOOK_MS)
