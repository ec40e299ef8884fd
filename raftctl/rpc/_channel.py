"""One WebSocket as both ends use it: frames out without waiting, frames in as they arrive.

`send` never blocks: frames gather until the end of the event loop's turn and go out together, but
for the quorum's own messages, which go at once with all before them: they are few, and everybody
waits for them. What arrives is handed over in the same turn, without a task. While more than a
bound waits for a peer that does not read, nothing more is received from it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import WSCloseCode, WSMsgType

from raftctl.failures import OF_PROGRAMS, HandingTo
from raftctl.rpc._stream import MessageStream
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

    Take = Callable[[list[tuple[int, Any]]], None]
    """Takes (correlation id, object) of each frame of a message."""

OUTGOING_BYTES_MAX = 64 * 1024 * 1024
"""What may wait for a slow reader before its own frames are left unread."""
GATHERED_BYTES = 256 * 1024
"""Frames share a WebSocket message up to about this size."""
CLOSE_TIMEOUT_S = 1.0
PING_BYTES = 8
URGENT = frozenset(QUORUM.values())
"""Classes of messages that do not wait for the end of the turn."""


class Channel:
    """Frames over one WebSocket, which is closed through aiohttp as it was opened."""

    def __init__(
        self,
        socket: WebSocketResponse | ClientWebSocketResponse,
        transport: asyncio.Transport,
        *,
        masks: bool,
    ) -> None:
        """To be made on the event loop while the peer is silent; nothing is read before `run`.

        It `masks` at a client's end.
        """
        self._socket = socket
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
        """Whether `_write` is called at the end of this turn."""
        self._sent: asyncio.Future[None] | None = None
        """Resolves when nothing is queued any more."""
        self._closed = False
        self._congested = False
        """Whether reading is paused until the peer has read more."""
        self._take: Take | None = None
        self._runner: asyncio.Task[Any] | None = None
        self._pings = 0
        """Pings that `when_alive` has sent."""
        self._alive: Callable[[], None] = lambda: None
        """Called when the last of them is answered."""
        self._error: BaseException | None = None
        """Why `run` ends, if not because the connection did."""

    def send(self, correlation_id: int, message: object) -> None:
        """Queue a frame; after the end of the connection it is dropped."""
        if not self._closed:
            self._queue(self._packer.pack(correlation_id, message), at_once=type(message) in URGENT)

    def send_all(self, correlation_ids: Sequence[int], messages: Sequence[object]) -> None:
        """Queue a frame for each message and send them at once: many make up for a turn."""
        if not self._closed:
            self._queue(self._packer.pack_all(correlation_ids, messages), at_once=True)

    def _queue(self, frames: bytes, *, at_once: bool) -> None:
        self._outgoing.append(frames)
        self._outgoing_bytes += len(frames)
        if at_once:
            self._write()
        elif not self._write_due:
            self._write_due = True
            self._loop.call_soon(self._write_at_end)

    @property
    def congested(self) -> bool:
        """Whether too much waits to be sent for anything to be added."""
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
                self._stream.send(self._gathered())
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
            while (frames := self._frames_of(await self._socket.receive())) is not None:
                if self._take is not None:
                    take(frames)
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
        with HandingTo(self._stop_running, OF_PROGRAMS):
            self._take(self._unpacker.unpack(message))
        if self.congested and not self._closed:
            self._congested = True
            self._stream.pause_reading()

    def _stop_running(self, error: BaseException) -> None:
        """Has `run` raise it."""
        self._error = error
        if self._runner is not None:
            self._runner.cancel()

    def _frames_of(self, message: aiohttp.WSMessage) -> list[tuple[int, Any]] | None:
        """What came another way than usual: in pieces, as text, or the end, which is None."""
        if message.type is WSMsgType.BINARY:
            return self._unpacker.unpack(message.data)
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
