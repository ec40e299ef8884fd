"""Connections of the broker's listeners without sockets: bytes in, bytes out, and their end."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, cast

from broker.server._connection import Connection
from raftctl.security.tls._connection import TlsConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.fuzz.logins.broker import VirtualLoop

TURNS_MAX = 200
"""Turns of the event loop until what was sent has had its effect."""
_TURNS = 5
"""After so many, nothing but the time is waited for."""


class MemoryTransport(asyncio.Transport):
    """What the broker has of the connection."""

    def __init__(self, peer: tuple[str, int]) -> None:
        super().__init__()
        self.peer = peer
        self.sent = bytearray()
        self.is_paused = False
        self._is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.BaseTransport`."""
        return self.peer if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio.WriteTransport`."""
        assert not self._is_closing, "nothing is written after the end"
        self.sent += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """See `asyncio.WriteTransport`."""
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        """See `asyncio.BaseTransport`."""
        self._is_closing = True

    def abort(self) -> None:
        """See `asyncio.WriteTransport`."""
        self._is_closing = True

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport`."""
        return self._is_closing

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport`."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport`."""


class Link:
    """One connection of a peer, over TLS if it is given a context."""

    def __init__(
        self,
        accept: Callable[[], asyncio.BaseProtocol],
        peer: tuple[str, int],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.transport = MemoryTransport(peer)
        protocol = accept()
        inner = protocol.inner if isinstance(protocol, TlsConnection) else protocol
        assert isinstance(inner, Connection)
        self.protocol = cast("asyncio.BufferedProtocol", protocol)
        self.connection = inner
        self._to_send = bytearray()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if context is not None:
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_hostname="localhost"
            )
        self.is_shaken = context is None
        self.protocol.connection_made(self.transport)

    @property
    def is_ended(self) -> bool:
        """Whether the broker has ended it."""
        return self.transport.is_closing()

    @property
    def is_logged_in(self) -> bool:
        """Whether requests are served, as the broker has it."""
        sasl = self.connection._client.sasl
        return sasl is not None and sasl.has_authenticated

    async def shake(self, tamper: Callable[[bytes], bytes] = bytes) -> bool:
        """Shake hands; whether it came to an end that the peer takes for good."""
        assert self._tls is not None
        for _ in range(6):
            try:
                self._tls.do_handshake()
                self.is_shaken = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
            await self.send_raw(tamper(self._outgoing.read()))
            answer = self._take_raw()
            if answer:
                self._incoming.write(answer)
            if self.is_shaken:
                return True
            if not answer:
                return False
        return False

    async def send(self, data: bytes) -> None:
        """Send bytes of the protocol inside, and wait for their effect."""
        if self._tls is None:
            await self.send_raw(data)
            return
        if self.is_shaken:
            self._tls.write(data)
            await self.send_raw(self._outgoing.read())

    async def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._to_send += data
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        for turn in range(TURNS_MAX):
            while self._to_send and not (self.transport.is_paused or self.is_ended):
                room = memoryview(self.protocol.get_buffer(-1))
                count = min(len(room), len(self._to_send))
                room[:count] = self._to_send[:count]
                del self._to_send[:count]
                self.protocol.buffer_updated(count)
            if self.is_ended or not (self._to_send or self._is_busy):
                break
            if turn > _TURNS:
                # It waits for a time, such as before the answer to a failure.
                loop.now += 0.01
            await asyncio.sleep(0)
        if self.is_ended:
            self._to_send.clear()

    @property
    def _is_busy(self) -> bool:
        shaking = isinstance(self.protocol, TlsConnection) and self.protocol._stepping
        return shaking or bool(self.connection._unanswered)

    def received(self) -> bytes:
        """What the broker has answered since the last call."""
        raw = self._take_raw()
        if self._tls is None:
            return raw
        self._incoming.write(raw)
        found = bytearray()
        while self.is_shaken:
            try:
                data = self._tls.read(65_536)
            except ssl.SSLError:
                break
            if not data:
                break
            found += data
        return bytes(found)

    def _take_raw(self) -> bytes:
        sent = bytes(self.transport.sent)
        self.transport.sent.clear()
        return sent

    def lose(self, error: Exception | None = None) -> None:
        """Have the broker see the end of it, whoever ended it."""
        if not self.is_ended and error is None and not self.protocol.eof_received():
            self.transport.close()
        self.transport.close()
        self.protocol.connection_lost(error)
