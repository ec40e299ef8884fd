"""What the connections of a broker share: who is connected, how much may wait, when it opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.config import NodeConfig


class Limited(Protocol):
    """A connection, as its limits see it."""

    @property
    def active_at(self) -> float:
        """Time of the last bytes in or out, in seconds of the event loop's clock."""

    def advance(self) -> None:
        """Start the requests that may start now."""

    def hang_up(self, reason: str) -> None:
        """Close the connection and log the reason."""

    def close(self) -> None:
        """Close the connection; no answer follows."""


class ConnectionLimits:
    """One a broker. Closed at first: connections are accepted, but their requests wait."""

    def __init__(self, config: NodeConfig, fail: Callable[[BaseException], None]) -> None:
        self.open = False
        self._permits_max = self._permits = config.queued_max_requests
        self.frame_bytes_max = config.socket_request_max_bytes
        self.idle_ms_max = config.connections_max_idle_ms
        self.fail = fail
        """Ends the node: a bug was found."""
        self._connections_max = config.max_connections
        has_several = len(config.broker_listeners) > 1
        self._protected = config.inter_broker_listener if has_several else None
        self._closed = False
        self._connections: dict[Limited, bool] = {}
        """Each connection to whether its listener is protected."""

    @property
    def permits(self) -> int:
        """How many more Produce requests may start behind unanswered ones of their connection."""
        return self._permits

    @permits.setter
    def permits(self, left: int) -> None:
        """Take permits or give them back."""
        invariant(0 <= left <= self._permits_max, "a permit is given back by the one that took it")
        self._permits = left

    def admit(self, connection: Limited, listener: str) -> str | None:
        """Count a new connection of a listener in, or return the reason to refuse it.

        Brokers always get in by a listener of their own (KIP-402): the connection of another
        listener goes for theirs that has been quiet for longest.
        """
        if self._closed:
            # It was accepted just before the listener was closed.
            return "the broker stops"
        is_protected = listener == self._protected
        if len(self._connections) >= self._connections_max:
            if not is_protected:
                return "max.connections is reached"
            self._make_room()
        invariant(connection not in self._connections, "a connection is admitted once")
        self._connections[connection] = is_protected
        return None

    def _make_room(self) -> None:
        others = [one for one, is_protected in self._connections.items() if not is_protected]
        if others:
            quietest = min(others, key=lambda one: one.active_at)
            self.forget(quietest)
            quietest.hang_up("max.connections is reached, and another broker connects")

    def forget(self, connection: Limited) -> None:
        """Count a closed connection out."""
        self._connections.pop(connection, None)

    def begin(self) -> None:
        """Let the requests go ahead, also those that came before."""
        if self.open:
            return
        self.open = True
        for connection in list(self._connections):
            connection.advance()

    def close_all(self) -> None:
        """Close every connection, and those that are still made."""
        self.open, self._closed = False, True
        for connection in list(self._connections):
            connection.close()
