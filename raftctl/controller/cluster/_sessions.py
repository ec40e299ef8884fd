"""The sessions of brokers on the active controller: who has been heard of, and how far each is.

Soft state: it is never written to the log, begins anew with each active controller and is not
rolled back. A broker has a session from its registration or first heartbeat until it has been
silent for the session timeout.

A controller that was itself held up (by a paused process, by a long computation) cannot tell who
was silent: heartbeats may wait unread. So it looks several times in a session timeout; when it is
late for a look it was held up, and gives every broker a fresh session rather than fence those that
live (KAFKA-15019).
Source: KIP-631.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


LOOK_SHARE = 4
"""A look is due after this part of the timeout; as late again, the controller was held up."""


@dataclass(slots=True)
class Session:
    """One broker's; lives while it is heard of."""

    contact_ms: int
    metadata_offset: int = -1
    """The last offset that the broker said to have published."""
    drained_offset: int | None = None
    """In a controlled shutdown: once the others are here, none takes this broker for a leader."""


class Sessions:
    """Sessions by broker id, the longest silent first."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._look_ms = max(1, timeout_ms // LOOK_SHARE)
        self._looked_ms: int | None = None
        # The timeout is the same for all, so the order of the last contacts is that of expiry.
        self._sessions: dict[int, Session] = {}

    def open(self, broker_id: int, now_ms: int) -> None:
        """Begins a session, forgetting an earlier one."""
        self._sessions.pop(broker_id, None)
        self._sessions[broker_id] = Session(now_ms)

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int) -> Session:
        """Notes a heartbeat; begins a session if there is none."""
        session = self._sessions.pop(broker_id, None) or Session(now_ms)
        session.contact_ms = now_ms
        session.metadata_offset = metadata_offset
        self._sessions[broker_id] = session
        return session

    def close(self, broker_id: int) -> None:
        """Ends a session, if there is one."""
        self._sessions.pop(broker_id, None)

    def clear(self) -> None:
        """Ends all sessions."""
        self._sessions.clear()
        self._looked_ms = None

    def lives(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker has a session that has not expired."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms < session.contact_ms + self._timeout_ms

    def expired(self, now_ms: int) -> list[int]:
        """The brokers whose sessions have expired, the longest silent first.

        To be asked at `deadline_ms`; asked much later, it begins every session anew.
        """
        deadline_ms = self.deadline_ms()
        if deadline_ms is not None and now_ms - deadline_ms > self._look_ms:
            for session in self._sessions.values():
                session.contact_ms = now_ms
        self._looked_ms = now_ms
        found = []
        for broker_id, session in self._sessions.items():
            if now_ms < session.contact_ms + self._timeout_ms:
                break
            found.append(broker_id)
        return found

    def deadline_ms(self) -> int | None:
        """When to look next: for the next session that can expire, or because time has passed."""
        for session in self._sessions.values():
            looked_ms = session.contact_ms if self._looked_ms is None else self._looked_ms
            return min(session.contact_ms + self._timeout_ms, looked_ms + self._look_ms)
        return None

    def all_have_reached(self, offset: int, broker_ids: Iterable[int]) -> bool:
        """Whether each of these brokers has published the metadata up to `offset`."""
        sessions = map(self._sessions.get, broker_ids)
        return all(one is not None and one.metadata_offset >= offset for one in sessions)
