"""What the connections of a broker share: who is connected, how much may wait, when it opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.server.connection import Connection
    from raftctl.config import NodeConfig


class Admission:
    """One a broker. Closed at first: connections are accepted, but their requests wait."""

    def __init__(self, config: NodeConfig, fail: Callable[[BaseException], None]) -> None:
        self.open = False
        self.permits = config.queued_max_requests
        """How many more Produce requests may start behind unanswered ones of their connection."""
        self.frame_bytes_max = config.socket_request_max_bytes
        self.idle_ms_max = config.connections_max_idle_ms
        self.fail = fail
        """Ends the node: a bug was found."""
        self._connections_max = config.max_connections
        self._closed = False
        # A dict for its order: a set's is not the same in each run.
        self._connections: dict[Connection, None] = {}

    def admit(self, connection: Connection) -> str | None:
        """Counts a new connection in; else says why not."""
        if self._closed:
            # It was accepted just before the listener was closed.
            return "the broker stops"
        if len(self._connections) >= self._connections_max:
            return "max.connections is reached"
        self._connections[connection] = None
        return None

    def forget(self, connection: Connection) -> None:
        """Counts a closed connection out."""
        self._connections.pop(connection, None)

    def begin(self) -> None:
        """Lets the requests go ahead, also those that came before."""
        if self.open:
            return
        self.open = True
        for connection in list(self._connections):
            connection.advance()

    def close_all(self) -> None:
        """Closes every connection, and those that are still made."""
        self.open, self._closed = False, True
        for connection in list(self._connections):
            connection.close()
