"""A transport whose peer reads and speaks when the test says so."""

from __future__ import annotations

import asyncio
from typing import cast


class Before(asyncio.Protocol):
    """Who has the transport first; notes what is left to it."""

    def __init__(self) -> None:
        self.data = b""
        self.events: list[str] = []

    def data_received(self, data: bytes) -> None:
        self.data += data

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.before = Before()
        self.protocol: asyncio.BaseProtocol = self.before
        self.written = b""
        self.writes = 0
        self.reading = True
        self.aborted = asyncio.Event()
        self._closing = False

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.writes += 1

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self._closing = True
        self.aborted.set()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    # What the peer does

    def feed(self, data: bytes) -> None:
        """Bytes arrive."""
        cast("asyncio.Protocol", self.protocol).data_received(data)

    def receive(self, message: bytes) -> None:
        """A short message arrives, as a client sends it."""
        self.feed(bytes((0x82, 0x80 | len(message))) + bytes(4) + message)

    def fill(self) -> None:
        """The peer reads no more."""
        self.protocol.pause_writing()

    def drain(self) -> None:
        """The peer reads on."""
        self.protocol.resume_writing()

    def lose(self) -> None:
        """The connection ends."""
        self._closing = True
        self.protocol.connection_lost(None)

    def messages(self) -> list[bytes]:
        """The messages written so far, which are of less than 64 KiB and not masked."""
        found, position = [], 0
        while position < len(self.written):
            assert self.written[position] == 0x82
            size, begin = self.written[position + 1], position + 2
            if size == 126:
                size, begin = int.from_bytes(self.written[begin : begin + 2], "big"), begin + 2
            position = begin + size
            found.append(self.written[begin:position])
        return found
