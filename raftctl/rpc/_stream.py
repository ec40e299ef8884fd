"""Binary messages of an open WebSocket, taken from the transport in the turn in which they arrive.

aiohttp hands a message to a task, which costs a turn of the event loop, and it sends the header of
a large one apart. So when both ends have agreed to speak WebSocket, this protocol takes the place
of aiohttp's on the transport: it reads and writes whole binary messages itself, and leaves all else
(pings, closing, messages in pieces, text) to the protocol that was there before.
Source: RFC 6455 §5.2. The key with which a client masks what it sends is zero, which changes
nothing: masking keeps scripts in browsers from fooling proxies, and here are neither.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

BINARY = 0x82
"""The first byte of a message that is one frame: final, binary."""
PING = 0x89
PONG = 0x8A
_CONTROL = frozenset((0x88, PING, PONG))
"""Close, ping, pong."""
_MASKED = 0x80
_NO_MASK = bytes(4)


class MessageStream(asyncio.Protocol):
    """The protocol of one transport, in front of the one that it had."""

    def __init__(
        self,
        transport: asyncio.Transport,
        *,
        masks: bool,
        message_bytes_max: int,
        on_message: Callable[[memoryview], None],
        on_writable: Callable[[], None],
        on_pong: Callable[[bytes], None],
    ) -> None:
        """To be made while the peer is silent; it `masks` at a client's end.

        `on_message` must not raise. `on_writable` reports that `full` has ended, or the connection;
        `on_pong` is given what the ping had that is answered.
        """
        self._transport = transport
        self._inner = cast("asyncio.Protocol", transport.get_protocol())
        self._masked = _MASKED if masks else 0
        self._message_bytes_max = message_bytes_max
        self._on_message = on_message
        self._on_writable = on_writable
        self._on_pong = on_pong
        self._parts: list[bytes] = []
        """The beginning of a frame that is not here as a whole."""
        self._missing = 0
        self._takes = True
        """Whether messages are taken here; not any more after one that this cannot read."""
        self.full = False
        """Whether the transport wants no more for now."""
        self.heard = True
        """Whether anything has arrived since somebody set this to false."""
        transport.set_protocol(self)

    def send(self, message: bytes) -> None:
        """Send a binary message. Raises ConnectionResetError after the end of the connection."""
        if self._transport.is_closing():
            raise ConnectionResetError("the connection has ended")
        self._transport.write(self._header(BINARY, len(message)) + message)

    def ping(self, payload: bytes = b"") -> None:
        """Ask the peer for a sign of life, which repeats the payload of at most 125 bytes."""
        if not self._transport.is_closing():
            self._transport.write(self._header(PING, len(payload)) + payload)

    def _header(self, first: int, size: int) -> bytes:
        mask = _NO_MASK if self._masked else b""
        if size < 126:
            return bytes((first, self._masked | size)) + mask
        if size < 1 << 16:
            return bytes((first, self._masked | 126)) + size.to_bytes(2, "big") + mask
        return bytes((first, self._masked | 127)) + size.to_bytes(8, "big") + mask

    def pause_reading(self) -> None:
        """Take no more from the peer until `resume_reading`."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on after `pause_reading`."""
        self._transport.resume_reading()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take the messages that are whole now."""
        self.heard = True
        if self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._parts)
            self._parts = []
        position = 0
        while self._takes and position < len(data):
            position = self._take_frame(data, position)
        if position < len(data):
            self._inner.data_received(data[position:])

    def _take_frame(self, data: bytes, position: int) -> int:
        """Deal with the frame at `position`; return where the next one begins."""
        kind = data[position]
        begin, end = _payload(data, position)
        if (kind != BINARY and kind not in _CONTROL) or end - begin > self._message_bytes_max:
            self._takes = False
            return position
        if end > len(data):
            self._parts = [data[position:]]
            self._missing = end - len(data)
            return len(data)
        if kind != BINARY:
            if kind == PONG:
                self._on_pong(bytes(_unmasked(data, position, begin, end)))
            self._inner.data_received(data[position:end])
        else:
            self._on_message(_unmasked(data, position, begin, end))
        return end

    def eof_received(self) -> bool | None:
        """See `asyncio.Protocol`."""
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._inner.connection_lost(exc)
        self._on_writable()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.full = True
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.full = False
        self._inner.resume_writing()
        self._on_writable()


def _payload(data: bytes, position: int) -> tuple[int, int]:
    """Where the payload of the frame at `position` begins and ends, or more than is there."""
    have = len(data) - position
    if have < 2:
        return position + 2, position + 2
    size = data[position + 1] & 0x7F
    begin = position + 2
    if size >= 126:
        begin += 2 if size == 126 else 8
        size = int.from_bytes(data[position + 2 : begin], "big") if len(data) >= begin else 0
    if data[position + 1] & _MASKED:
        begin += 4
    return begin, begin + size


def _unmasked(data: bytes, position: int, begin: int, end: int) -> memoryview:
    payload = memoryview(data)[begin:end]
    if not data[position + 1] & _MASKED or data[begin - 4 : begin] == _NO_MASK:
        return payload
    size = end - begin
    key = (data[begin - 4 : begin] * (size // 4 + 1))[:size]
    plain = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return memoryview(plain.to_bytes(size, "big"))
