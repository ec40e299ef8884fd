"""Connections as asyncio shows them: the transport, the server, and the sender of file regions.

A transport behaves as that of the selector event loop: bytes that do not fit the send window wait
in a buffer bounded by watermarks, `connection_lost` comes exactly once and never from within a call
that the protocol makes, and reading starts after `connection_made`.

The sender is the counterpart of the production runtime's: the socket takes as much as its window
has room for, and now and then less or nothing, as the buffers of a real socket do.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, cast

from jepsen.simulator._errno import os_error
from jepsen.simulator.network._connection import WINDOW_BYTES, Listener, sockets_of
from raftctl.failures import ENDS_OF_PROGRAMS, HandingTo
from raftctl.runtime.api import Sender

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from jepsen.simulator.kernel.process import Process
    from jepsen.simulator.network._connection import Address, Endpoint
    from raftctl.runtime.api import Piece

Buffer = bytes | bytearray | memoryview

READ_BYTES_MAX = 256 * 1024
WRITE_BUFFER_HIGH_BYTES = 64 * 1024


class SimTransport(asyncio.Transport):
    """A connected stream. Created and called only within its process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        protocol: asyncio.BaseProtocol,
    ) -> None:
        super().__init__(extra={"peername": endpoint.remote, "sockname": endpoint.local})
        self._loop = loop
        self._endpoint = endpoint
        self._buffer = bytearray()
        self._reading = True
        self._closing = False
        self._lost = False
        self._eof_written = False
        self._eof_seen = False
        self._protocol_paused = False
        self._protocol = protocol
        self.set_write_buffer_limits()

    def __repr__(self) -> str:
        return f"<connection {self._endpoint.local} to {self._endpoint.remote}>"

    def start(self) -> None:
        """Notify the protocol, then begin to read."""
        self._protocol.connection_made(self)
        self._endpoint.wake = self._look
        self._endpoint.notify()

    # Asking

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that gets the bytes."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to another protocol."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Return True if the transport is closed or about to be."""
        return self._closing

    def is_reading(self) -> bool:
        """Return True if bytes are handed to the protocol."""
        return self._reading and not self._closing

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes written and not yet accepted by the operating system."""
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high watermark in bytes."""
        return self._low_bytes, self._high_bytes

    def can_write_eof(self) -> bool:
        """Half-closing is supported."""
        return True

    # Reading

    def pause_reading(self) -> None:
        """Stop handing bytes to the protocol; the window closes behind them."""
        self._reading = False

    def resume_reading(self) -> None:
        """Hand bytes to the protocol again."""
        self._reading = True
        self._endpoint.notify()

    # Writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the watermarks in bytes at which the protocol is paused and resumed."""
        if high is None:
            high = WRITE_BUFFER_HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high_bytes = high
        self._low_bytes = low
        self._pause_protocol_if_full()

    def write(self, data: Buffer) -> None:
        """Send bytes, now or when the window opens; nothing happens once it is lost."""
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost or not data:
            return
        view = memoryview(data).cast("B")
        taken = 0 if self._buffer else self._endpoint.send(view)
        if taken < len(view):
            self._buffer += view[taken:]
            self._pause_protocol_if_full()

    def send_past(self, data: memoryview) -> int:
        """Write to the socket itself, and return the number of bytes that it accepts now.

        Raises OSError if the connection is broken.
        """
        if self._endpoint.error is not None:
            raise self._endpoint.error
        if self._lost or self._eof_written:
            raise os_error(errno.EPIPE)
        return self._endpoint.send(data)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send the concatenation of the parts."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Close the sending half once the buffer is empty."""
        if not self._eof_written and not self._closing:
            self._eof_written = True
            if not self._buffer:
                self._endpoint.shut_down()

    # Ending

    def close(self) -> None:
        """Stop reading, send the buffer, then close."""
        if not self._closing:
            self._closing = True
            if not self._buffer:
                self._lose(None)

    def abort(self) -> None:
        """Drop the buffer and reset the connection."""
        self._buffer.clear()
        self._closing = True
        self._lose(None, reset=True)

    def _lose(self, error: BaseException | None, *, reset: bool = False) -> None:
        if not self._lost:
            self._lost = True
            self._closing = True
            self._buffer.clear()
            self._loop.call_soon(self._finish, error, reset, context=self._endpoint.context)

    def _finish(self, error: BaseException | None, reset: bool) -> None:
        self._endpoint.wake = None
        try:
            self._protocol.connection_lost(cast("Exception | None", error))
        finally:
            self._endpoint.close(reset=reset)

    # What the endpoint has to say

    def _look(self) -> None:
        if self._lost:
            return
        if self.is_reading() and self._endpoint.readable:
            self._call_protocol(self._read)
        elif self._endpoint.error is not None:
            self._lose(self._endpoint.error)
        elif self.is_reading() and self._endpoint.end_of_stream and not self._eof_seen:
            self._call_protocol(self._read_eof)
        if not self._lost and self._buffer:
            self._flush()

    def _call_protocol(self, step: Callable[[], None]) -> None:
        with HandingTo(self._drop, but=ENDS_OF_PROGRAMS):
            step()

    def _drop(self, error: BaseException) -> None:
        """As real transports do when their protocol fails: reports it and drops the connection."""
        failure = "the protocol failed on what it received"
        self._loop.call_exception_handler(
            {
                "message": failure,
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        self._lose(error, reset=True)

    def _read(self) -> None:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            self._read_into(self._protocol)
        else:
            data = self._endpoint.receive(READ_BYTES_MAX)
            cast("asyncio.Protocol", self._protocol).data_received(data)
        # One read a turn, as with a real selector; the rest gets its own turn.
        if self._endpoint.readable or self._endpoint.ended:
            self._endpoint.notify()

    def _read_into(self, protocol: asyncio.BufferedProtocol) -> None:
        buffer = memoryview(cast("bytearray", protocol.get_buffer(-1))).cast("B")
        if not buffer:
            raise RuntimeError("get_buffer() returned an empty buffer")
        data = self._endpoint.receive(min(len(buffer), READ_BYTES_MAX))
        buffer[: len(data)] = data
        protocol.buffer_updated(len(data))

    def _read_eof(self) -> None:
        self._eof_seen = True
        protocol = cast("asyncio.Protocol", self._protocol)
        if not protocol.eof_received():
            self.close()

    def _flush(self) -> None:
        with memoryview(self._buffer) as view:
            taken = self._endpoint.send(view)
        del self._buffer[:taken]
        self._resume_protocol_if_drained()
        if not self._buffer:
            if self._closing:
                self._lose(None)
            elif self._eof_written:
                self._endpoint.shut_down()

    def _pause_protocol_if_full(self) -> None:
        if len(self._buffer) > self._high_bytes and not self._protocol_paused:
            self._protocol_paused = True
            self._protocol.pause_writing()

    def _resume_protocol_if_drained(self) -> None:
        if self._protocol_paused and len(self._buffer) <= self._low_bytes:
            self._protocol_paused = False
            self._protocol.resume_writing()


class ListeningSocket:
    """The address, which is all that callers need of `server.sockets`."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        """Return the address and port listened on."""
        return self._address


class SimServer(asyncio.Server):
    """A listening server; one port on one or more addresses of a node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: Process,
        addresses: frozenset[str],
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        super().__init__(loop, (), protocol_factory, None, 0, None)
        self._loop = loop
        self._process = process
        self._factory = protocol_factory
        self._listener = Listener(process, addresses, port, self._accept)
        self._closed = loop.create_future()
        self._accepting = False

    def start(self) -> None:
        """Begin to accept; OSError (EADDRINUSE) if the port is taken."""
        if self._accepting:
            return
        listener = self._listener
        listeners = sockets_of(self._process).listeners
        if listener.port in listeners:
            raise os_error(errno.EADDRINUSE, f"port {listener.port} of {self._process.node.name}")
        listeners[listener.port] = listener
        self._accepting = True

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """One stand-in per address; empty after `close`."""
        if self._closed.done():
            return ()
        found = [
            ListeningSocket((a, self._listener.port)) for a in sorted(self._listener.addresses)
        ]
        return cast("tuple[socket.socket, ...]", tuple(found))

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the world."""
        return self._loop

    def is_serving(self) -> bool:
        """Return True if connections are accepted."""
        return self._accepting

    async def start_serving(self) -> None:
        """Begin to accept."""
        self.start()

    async def serve_forever(self) -> None:
        """Accept until cancelled or closed."""
        self.start()
        try:
            await asyncio.shield(self._closed)
        finally:
            self.close()

    def close(self) -> None:
        """Stop accepting; open connections stay."""
        self._accepting = False
        self._listener.close()
        if not self._closed.done():
            self._closed.set_result(None)

    async def wait_closed(self) -> None:
        """Wait until `close` was called."""
        await asyncio.shield(self._closed)

    def _accept(self, endpoint: Endpoint) -> None:
        protocol = self._factory()
        SimTransport(self._loop, endpoint, protocol).start()


SHORT_CHANCE = 0.05


class SimSender(Sender):
    """A `Sender` on a simulated connection."""

    def __init__(self, transport: SimTransport, source: random.Random) -> None:
        self._transport = transport
        self._random = source
        self._closed = False

    def send(self, pieces: Iterable[Piece], start: int) -> int:
        if self._closed:
            raise os_error(errno.EBADF, "the sender was closed")
        # Else what the transport has yet to send would be overtaken.
        assert not self._transport.get_write_buffer_size(), "the transport has something to send"
        data, error = _gathered(pieces, start)
        if self._random.random() < SHORT_CHANCE:
            del data[self._random.randint(0, len(data)) :]
        sent = self._transport.send_past(memoryview(data))
        if error is not None:
            raise error
        return sent

    def close(self) -> None:
        self._closed = True


def _gathered(pieces: Iterable[Piece], start: int) -> tuple[bytearray, OSError | None]:
    """What may be sent at once, and what is wrong with the part of a file after it."""
    data = bytearray()
    for piece in pieces:
        if len(data) >= WINDOW_BYTES:
            break
        if isinstance(piece, bytes | bytearray | memoryview):
            data += memoryview(piece)[start:]
        else:
            try:
                data += piece.read(start, len(piece) - start)
            except OSError as error:
                return data, error
        start = 0
    return data, None
