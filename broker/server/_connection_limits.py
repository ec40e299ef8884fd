"""What the connections of a broker share: who is connected, how much may wait, when it opens.

Where there are too many connections, of the broker or of a listener, new ones wait unread, one
after the other, as if they had not been accepted yet (KIP-402). So they do where they are made too
fast (KIP-612). Apache Kafka waits with accepting them; what it leaves to the system's queue has a
bound here, too. Of one address too many are refused. One from an address that makes them too fast
is closed, but only after a wait, lest it came back at once.

A connection of TLS arrives before its handshake, so what waits costs no cryptography.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.metrics import ConnectionCounts
from broker.quotas import ConnectionRates, Windows, canonical_address
from raftctl.errors import invariant
from raftctl.runtime import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.turns import Turn
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage

WAITING_MAX = 1_000
"""Connections that wait to be let in or to be closed; beyond it new ones are closed at once."""


class Limited(Protocol):
    """A connection, as its limits see it."""

    @property
    def active_at(self) -> float:
        """Time of the last bytes in or out, in seconds of the event loop's clock."""

    def let_in(self) -> None:
        """Read the connection from now on."""

    def advance(self) -> None:
        """Start the requests that may start now."""

    def hang_up(self, reason: str) -> None:
        """Close the connection and log the reason."""

    def close(self) -> None:
        """Close the connection; no answer follows."""


class _Origin(NamedTuple):
    """Where a connection comes from."""

    listener: str
    host: str


class ConnectionLimits:
    """One a broker. Closed at first: connections are accepted, but their requests wait."""

    def __init__(
        self, config: NodeConfig, fail: Callable[[BaseException], None], turn: Turn
    ) -> None:
        self.open = False
        self.turn = turn
        """Of the broker: what is read from a connection and written to others."""
        self._permits_max = self._permits = config.queued_max_requests
        self.frame_bytes_max = config.socket_request_max_bytes
        self.idle_ms_max = config.connections_max_idle_ms
        self.fail = fail
        """Ends the node: a bug was found."""
        names = [listener.name for listener in config.broker_listeners]
        self._names = names
        self._protected = config.inter_broker_listener if len(names) > 1 else None
        self._bound(config)
        self.counts = ConnectionCounts(names)
        """Of each listener."""
        self._closed = False
        self._connections: dict[Limited, _Origin] = {}
        self._counts: Counter[str] = Counter()
        """Connections of each listener and of each address."""
        self._rates = ConnectionRates(
            *self._rate_bounds(config),
            self._protected,
            Windows(config.quota_window_num, config.quota_window_size_seconds * 1000),
        )
        self._gates: dict[str, _Gate] = {}
        self._doomed: dict[Limited, asyncio.TimerHandle] = {}
        """Connections that are closed after a wait."""

    def _bound(self, config: NodeConfig) -> None:
        """Take the greatest numbers of connections from a configuration."""
        self._connections_max = config.max_connections
        self._listener_max = {
            name: config.listener_limits(name).max_connections for name in self._names
        }
        self._host_max = config.max_connections_per_ip
        self._host_overrides = {
            canonical_address(host): count
            for host, count in config.max_connections_per_ip_overrides.items()
        }

    def _rate_bounds(self, config: NodeConfig) -> tuple[int, dict[str, int]]:
        """(new connections a second of the broker, of each listener)."""
        return config.max_connection_creation_rate, {
            name: config.listener_limits(name).max_connection_creation_rate for name in self._names
        }

    def reconfigure(self, config: NodeConfig) -> None:
        """Take the limits of a configuration with the same listeners; no connection is closed."""
        self._bound(config)
        self._rates.bound(*self._rate_bounds(config))
        self._advance_gates()

    @property
    def permits(self) -> int:
        """How many more Produce requests may start behind unanswered ones of their connection."""
        return self._permits

    @permits.setter
    def permits(self, left: int) -> None:
        """Take permits or give them back."""
        invariant(0 <= left <= self._permits_max, "a permit is given back by the one that took it")
        self._permits = left

    def publish(self, image: MetadataImage) -> None:
        """Take up the rates of addresses that a newer image has."""
        self._rates.publish(image)

    def arrive(self, connection: Limited, listener: str, host: str) -> None:
        """Let a new connection in, now or later, or close it."""
        if self._closed:
            # It was accepted just before the listener was closed.
            connection.hang_up("the broker stops")
            return
        waiting = len(self._doomed) + sum(map(len, self._gates.values()))
        if waiting >= WAITING_MAX:
            connection.hang_up("too many connections wait to be let in")
            return
        gate = self._gates.get(listener)
        if gate is None:
            gate = self._gates[listener] = _Gate(
                partial(self._has_slot, listener), partial(self._rates.accept, listener)
            )
        gate.arrive(connection, lambda: self._admit(connection, _Origin(listener, host)))

    def _admit(self, connection: Limited, origin: _Origin) -> None:
        loop = asyncio.get_running_loop()
        wait_ms = self._rates.accept_from(origin.host, origin.listener, int(loop.time() * 1000))
        if wait_ms:
            self._doomed[connection] = loop.call_later(
                wait_ms / 1000, connection.hang_up, "its address connects too often"
            )
            return
        host_max = self._host_overrides.get(canonical_address(origin.host), self._host_max)
        if self._counts[origin.host] >= host_max:
            connection.hang_up("max.connections.per.ip is reached")
            return
        invariant(connection not in self._connections, "a connection is admitted once")
        self._connections[connection] = origin
        self._counts.update(origin)
        self.counts[origin.listener].created.count += 1
        if len(self._connections) > self._connections_max:
            # After it has its place, lest one who waits took it.
            self._make_room()
        connection.let_in()

    def _has_slot(self, listener: str) -> bool:
        """Return whether one more connection of a listener may be open.

        Brokers always get in by a listener of their own (KIP-402): the connection of another
        listener goes for theirs that has been quiet for longest.
        """
        is_protected = listener == self._protected
        # The node's own limit is not one of the brokers' listener.
        listener_max = self._listener_max[listener]
        is_own = not is_protected or listener_max != self._connections_max
        if is_own and self._counts[listener] >= listener_max:
            return False
        return is_protected or len(self._connections) < self._connections_max

    def _advance_gates(self) -> None:
        """Let in those who waited for a slot that is free now."""
        for gate in self._gates.values():
            gate.advance()

    def _make_room(self) -> None:
        others = [one for one, at in self._connections.items() if at.listener != self._protected]
        if others:
            quietest = min(others, key=lambda one: one.active_at)
            self.forget(quietest)
            quietest.hang_up("max.connections is reached, and another broker connects")

    def forget(self, connection: Limited) -> None:
        """Count a closed connection out."""
        origin = self._connections.pop(connection, None)
        if origin is not None:
            self.counts[origin.listener].closed.count += 1
            for counted in origin:
                self._counts[counted] -= 1
                if not self._counts[counted]:
                    del self._counts[counted]
        if (timer := self._doomed.pop(connection, None)) is not None:
            timer.cancel()
        for gate in self._gates.values():
            gate.forget(connection)
        if origin is not None and not self._closed:
            self._advance_gates()

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
        held = [one for gate in self._gates.values() for one in gate.close()]
        for connection in [*self._connections, *self._doomed, *held]:
            connection.close()


class _Gate:
    """New connections of a listener, let in one after the other, where and when they may."""

    def __init__(self, has_slot: Callable[[], bool], accept: Callable[[int], int]) -> None:
        """`has_slot`: one more may be open; `advance` is to be called when that changes.

        `accept` counts a connection at this time, and returns how many ms it must wait.
        """
        self._has_slot = has_slot
        self._accept = accept
        self._waiting: dict[Limited, Callable[[], None]] = {}
        """In order of arrival."""
        self._is_counted = False
        """Whether the rate has counted the first, which is let in when the timer has fired."""
        self._timer = Deadline(asyncio.get_running_loop(), self.advance)

    def __len__(self) -> int:
        return len(self._waiting)

    def arrive(self, connection: Limited, admit: Callable[[], None]) -> None:
        """Have `admit` called when the connection's turn has come, perhaps at once."""
        self._waiting[connection] = admit
        self.advance()

    def forget(self, connection: Limited) -> None:
        """Let a connection go that is lost. Its wait goes on for those behind it."""
        if self._waiting.pop(connection, None) is not None and not self._waiting:
            self._stop()

    def close(self) -> list[Limited]:
        """Let nobody in any more; return who waits."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._stop()
        return waiting

    def advance(self) -> None:
        """Let in the first, and those behind it, until one must wait."""
        loop = asyncio.get_running_loop()
        while self._waiting and self._timer.at_s is None and self._has_slot():
            if not self._is_counted:
                self._is_counted = True
                wait_ms = self._accept(int(loop.time() * 1000))
                if wait_ms:
                    self._timer.set(loop.time() + wait_ms / 1000)
                    return
            self._is_counted = False
            connection = next(iter(self._waiting))
            self._waiting.pop(connection)()

    def _stop(self) -> None:
        self._is_counted = False
        self._timer.set(None)
