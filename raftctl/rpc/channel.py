"""One WebSocket as both ends use it: frames out without waiting, frames in by the message.

`send` never blocks: frames gather until the end of the event loop's turn and go out together, but
for the quorum's own messages, which go at once with all before them: they are few, and everybody
waits for them. While more than a bound waits for a peer that does not read, nothing more is
received from it.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import coroutine
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import WSCloseCode, WSMsgType

from raftctl.rpc.codec import QUORUM, FrameError, FramePacker, FrameUnpacker

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from aiohttp import ClientWebSocketResponse
    from aiohttp.web import WebSocketResponse

OUTGOING_BYTES_MAX = 64 * 1024 * 1024
"""What may wait for a slow reader before its own frames are left unread."""
GATHERED_BYTES = 256 * 1024
"""Frames share a WebSocket message up to about this size."""
CLOSE_TIMEOUT_S = 1.0
URGENT = frozenset(QUORUM.values())
"""Classes of messages that do not wait for the end of the turn."""


class Channel:
    """Frames over one open WebSocket."""

    def __init__(self, socket: WebSocketResponse | ClientWebSocketResponse) -> None:
        """To be made on the event loop."""
        self._socket = socket
        self._packer = FramePacker()
        self._unpacker = FrameUnpacker()
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._write_due = False
        """Whether `_write` is called at the end of this turn."""
        self._room: asyncio.Future[None] | None = None
        self._closed = False
        self._waiting: asyncio.Task[None] | None = None
        """Waits until the peer has read what was written, then goes on writing."""

    def send(self, correlation_id: int, message: object) -> None:
        """Queues a frame; after the end of the connection it is dropped."""
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

    @property
    def congested(self) -> bool:
        """Whether too much waits to be sent for anything to be added."""
        return self._outgoing_bytes > OUTGOING_BYTES_MAX

    def _write_at_end(self) -> None:
        self._write_due = False
        self._write()

    def _write(self) -> None:
        """Hands to the socket what is queued, as far as the peer reads.

        Writing waits only for a slow peer, so its coroutine is driven from here: a task for each
        message would cost more than the message, and come a turn of the event loop later.
        """
        while self._outgoing and self._waiting is None and not self._closed:
            writing = self._socket.send_bytes(self._take())
            try:
                awaited = writing.send(None)
            except StopIteration:
                continue
            except (ConnectionError, aiohttp.ClientError):
                self._end()
            else:
                self._waiting = self._loop.create_task(self._wait(writing, awaited))

    async def _wait(self, writing: Coroutine[Any, Any, None], awaited: object) -> None:
        try:
            await _rest(writing, awaited)
        except (ConnectionError, aiohttp.ClientError):
            self._end()
        finally:
            self._waiting = None
        self._write()
        self._make_room()

    def _end(self) -> None:
        """Whoever receives learns of the end of the connection too, and deals with it."""
        self._closed = True
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self.congested:
            if not self._room.done():
                self._room.set_result(None)
            self._room = None

    def _take(self) -> bytes:
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

    async def receive(self) -> list[tuple[int, Any]] | None:
        """The next frames, (correlation id, object); None when the connection has ended.

        Raises FrameError for what is no frame.
        """
        while self.congested and not self._closed:
            self._room = self._loop.create_future()
            await self._room
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            return self._unpacker.unpack(message.data)
        if message.type is WSMsgType.TEXT:
            raise FrameError("a text message")
        if message.type is WSMsgType.ERROR and isinstance(message.data, aiohttp.WebSocketError):
            raise FrameError(str(message.data))
        return None

    async def close(self, code: int = WSCloseCode.OK, reason: str = "") -> None:
        """Sends what is queued, if that is possible soon, and closes the connection."""
        self._closed = True
        self._make_room()
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])
        with contextlib.suppress(ConnectionError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._outgoing:
                    await self._socket.send_bytes(self._take())
                await self._socket.close(code=code, message=reason.encode()[:120])


@coroutine
def _rest(begun: Coroutine[Any, Any, None], awaited: object) -> Generator[object, Any, None]:
    """Awaits the rest of a coroutine that was begun outside of a task and waits for `awaited`."""
    try:
        while True:
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - also a cancellation is for the rest
                awaited = begun.throw(error)
            else:
                awaited = begun.send(None)
    except StopIteration:
        return
