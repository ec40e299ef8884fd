"""One WebSocket as both ends use it: frames out without waiting, frames in as they arrive.

`send` never blocks: frames gather until the end of the event loop's turn and go out together, but
for the quorum's own messages, which go at once with all before them: they are few, and everybody
waits for them. What arrives is handed over in the same turn, without a task. While more than a
bound waits for a peer that does not read, nothing more is received from it.

aiohttp hands a message to a task, which costs a turn of the event loop, and it sends the header of
a large one apart. So when both ends have agreed to speak WebSocket, a protocol of our own
(`MessageStream`) takes the place of aiohttp's on the transport: it reads and writes whole binary
messages itself, and leaves all else (closing, messages in pieces, text) to that one.
Source: RFC 6455 §5.2. The key with which a client masks what it sends is zero, which changes
nothing: masking keeps scripts in browsers from fooling proxies, and here are neither.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp import WSCloseCode, WSMsgType

from raftctl.failures import OF_PROGRAMS, HandingTo
from raftctl.rpc._counts import ChannelCounts
from raftctl.rpc.codec import (
    MESSAGE_BYTES_MAX,
    QUORUM,
    FrameError,
    FramePacker,
    FrameUnpacker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp import ClientWebSocketResponse
    from aiohttp.web import WebSocketResponse

    from raftctl.rpc.codec import Run

    Take = Callable[[list[Run]], None]
    """Takes the frames of a message."""

OUTGOING_BYTES_MAX = 64 * 1024 * 1024
"""The bytes that may wait for a slow reader before its own frames are left unread."""
GATHERED_BYTES = 256 * 1024
"""Frames share a WebSocket message up to about this size."""
CLOSE_TIMEOUT_S = 1.0
PING_BYTES = 8
URGENT = frozenset(QUORUM.values())
"""Classes of messages that do not wait for the end of the turn."""
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
        """Make the stream while the peer is silent; it `masks` at a client's end.

        `on_message` must not raise. `on_writable` reports the end of `full` or of the connection.
        `on_pong` gets the payload of the ping that was answered.
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
        """True until a message arrives that cannot be read; after it none is accepted."""
        self.full = False
        """True while the transport accepts no more."""
        self.heard = True
        """True if bytes have arrived since the owner set this to false."""
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
            kind = data[position]
            begin, end = _payload(data, position)
            if (kind != BINARY and kind not in _CONTROL) or end - begin > self._message_bytes_max:
                self._takes = False
                break
            if end > len(data):
                self._parts = [data[position:]]
                self._missing = end - len(data)
                return
            if kind == BINARY:
                self._on_message(_unmasked(data, position, begin, end))
            else:
                if kind == PONG:
                    self._on_pong(bytes(_unmasked(data, position, begin, end)))
                self._inner.data_received(data[position:end])
            position = end
        if position < len(data):
            self._inner.data_received(data[position:])

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


class Channel:
    """Frames over one WebSocket, which is closed through aiohttp as it was opened."""

    def __init__(
        self,
        socket: WebSocketResponse | ClientWebSocketResponse,
        transport: asyncio.Transport,
        *,
        masks: bool,
        counts: ChannelCounts | None = None,
    ) -> None:
        """Make the channel on the event loop while the peer is silent; `run` begins to read.

        It `masks` at a client's end, which also `counts`.
        """
        self._socket = socket
        self._counts = ChannelCounts() if counts is None else counts
        self._packer = FramePacker()
        self._unpacker = FrameUnpacker()
        self._loop = asyncio.get_running_loop()
        self._stream = MessageStream(
            transport,
            masks=masks,
            message_bytes_max=MESSAGE_BYTES_MAX,
            on_message=self._received,
            on_writable=self._write,
            on_pong=self._ponged,
        )
        self._stream.pause_reading()
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._write_due = False
        """True if `_write` is called at the end of this turn."""
        self._sent: asyncio.Future[None] | None = None
        """Resolves when nothing is queued any more."""
        self._closed = False
        self._congested = False
        """True while reading is paused until the peer has read more."""
        self._take: Take | None = None
        self._runner: asyncio.Task[Any] | None = None
        self._pings = 0
        """Pings that `when_alive` has sent."""
        self._alive: Callable[[], None] = lambda: None
        """The function to call when the last of them is answered."""
        self._error: BaseException | None = None
        """The error that ends `run`; None if the connection just ended."""

    def send(self, correlation_id: int, message: object) -> None:
        """Queue a frame, to leave at the end of the turn; an urgent one takes all with it at once.

        After the end of the connection it is dropped.
        """
        if self._closed:
            return
        frame = self._packer.pack(correlation_id, message)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        if type(message) in URGENT:
            self._write()
        elif not self._write_due:
            self._write_due = True
            self._loop.call_soon(self._write_at_end)

    def send_all(self, correlation_ids: Sequence[int], messages: Sequence[object]) -> None:
        """Queue a frame for each message and send them at once: many make up for a turn."""
        if self._closed:
            return
        frames = self._packer.pack_all(correlation_ids, messages)
        self._outgoing.append(frames)
        self._outgoing_bytes += len(frames)
        self._write()

    @property
    def congested(self) -> bool:
        """True if too much waits to be sent for anything to be added."""
        return self._outgoing_bytes > OUTGOING_BYTES_MAX

    def when_alive(self, alive: Callable[[], None]) -> None:
        """Call `alive` when the peer has answered a ping that is sent now, or never.

        All that the peer had sent before it read the ping has arrived then. A later call takes the
        place of this one.
        """
        self._pings += 1
        self._alive = alive
        self._stream.ping(self._pings.to_bytes(PING_BYTES, "big"))

    def _ponged(self, payload: bytes) -> None:
        if payload == self._pings.to_bytes(PING_BYTES, "big"):
            self._alive()

    def abort(self) -> None:
        """End the connection at once; nothing that has come is taken any more."""
        self._closed = True
        self._take = None
        self._stream.abort()

    def _write_at_end(self) -> None:
        self._write_due = False
        self._write()

    def _write(self) -> None:
        """Hand to the transport what is queued, as far as the peer reads."""
        try:
            while self._outgoing and not self._stream.full:
                message = self._gathered()
                self._stream.send(message)
                self._counts.outgoing.count += len(message)
        except ConnectionError:
            # The receiving side learns of the end of the connection too, and deals with it.
            self._closed = True
            self._outgoing.clear()
            self._outgoing_bytes = 0
        if not self._outgoing and self._sent is not None and not self._sent.done():
            self._sent.set_result(None)
        if self._congested and not self.congested:
            self._congested = False
            self._stream.resume_reading()

    def _gathered(self) -> bytes:
        if self._outgoing_bytes <= GATHERED_BYTES:
            frames, self._outgoing = self._outgoing, []
            self._outgoing_bytes = 0
            return b"".join(frames) if len(frames) > 1 else frames[0]
        size = count = 0
        while size < GATHERED_BYTES and count < len(self._outgoing):
            size += len(self._outgoing[count])
            count += 1
        data = b"".join(self._outgoing[:count])
        del self._outgoing[:count]
        self._outgoing_bytes -= size
        return data

    async def run(self, take: Take, heartbeat_s: float | None = None) -> None:
        """Hand over frames as they arrive until the connection has ended.

        With `heartbeat_s` an idle peer is asked for a sign of life so often, and given up if none
        comes. Raises FrameError for what is no frame, and whatever `take` raises.
        """
        self._take, self._runner = take, asyncio.current_task()
        beat = None if heartbeat_s is None else self._loop.create_task(self._beat(heartbeat_s))
        self._stream.resume_reading()
        try:
            while (runs := self._runs_of(await self._socket.receive())) is not None:
                if self._take is not None:
                    take(runs)
        except asyncio.CancelledError:
            if self._error is None or (self._runner is not None and self._runner.uncancel()):
                raise
            raise self._error from None
        finally:
            self._take = None
            if beat is not None:
                beat.cancel()

    def _received(self, message: memoryview) -> None:
        """A message has arrived, in a turn that belongs to nobody."""
        if self._take is None or self._error is not None:
            return
        self._counts.incoming.count += len(message)
        with HandingTo(self._stop_running, OF_PROGRAMS):
            self._take(self._unpacker.unpack_runs(message))
        if self.congested and not self._closed:
            self._congested = True
            self._stream.pause_reading()

    def _stop_running(self, error: BaseException) -> None:
        """Has `run` raise it."""
        self._error = error
        if self._runner is not None:
            self._runner.cancel()

    def _runs_of(self, message: aiohttp.WSMessage) -> list[Run] | None:
        """What came another way than usual: in pieces, as text, or the end, which is None."""
        if message.type is WSMsgType.BINARY:
            return self._unpacker.unpack_runs(message.data)
        if message.type is WSMsgType.TEXT:
            raise FrameError("a text message")
        if message.type is WSMsgType.ERROR and isinstance(message.data, aiohttp.WebSocketError):
            raise FrameError(str(message.data))
        return None

    async def _beat(self, heartbeat_s: float) -> None:
        while self._stream.heard:
            self._stream.heard = False
            await asyncio.sleep(heartbeat_s)
            if not self._stream.heard:
                self._stream.ping()
                await asyncio.sleep(heartbeat_s / 2)
        self._stream.abort()

    async def close(self, code: int = WSCloseCode.OK, reason: str = "") -> None:
        """Send what is queued, if that is possible soon, and close the connection."""
        self._closed = True
        with contextlib.suppress(ConnectionError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                self._write()
                if self._outgoing:
                    self._sent = self._loop.create_future()
                    await self._sent
                await self._socket.close(code=code, message=reason.encode()[:120])
