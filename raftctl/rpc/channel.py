"""One WebSocket as both ends use it: frames out without waiting, frames in by the message.

`send` never blocks: frames gather until the sending task gets its turn and go out together. While
more than a bound waits for a peer that does not read, nothing more is received from it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import WSCloseCode, WSMsgType

from raftctl.rpc.codec import FrameError, FramePacker, FrameUnpacker

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse
    from aiohttp.web import WebSocketResponse

OUTGOING_BYTES_MAX = 64 * 1024 * 1024
"""What may wait for a slow reader before its own frames are left unread."""
GATHERED_BYTES = 256 * 1024
"""Frames share a WebSocket message up to about this size."""
CLOSE_TIMEOUT_S = 1.0


class Channel:
    """Frames over one open WebSocket."""

    def __init__(self, socket: WebSocketResponse | ClientWebSocketResponse) -> None:
        """To be made on the event loop; starts the sending task."""
        self._socket = socket
        self._packer = FramePacker()
        self._unpacker = FrameUnpacker()
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._idle: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._closed = False
        self._sender = self._loop.create_task(self._send_gathered())

    def send(self, correlation_id: int, message: object) -> None:
        """Queues a frame; after the end of the connection it is dropped."""
        if self._closed:
            return
        frame = self._packer.pack(correlation_id, message)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    @property
    def congested(self) -> bool:
        """Whether too much waits to be sent for anything to be added."""
        return self._outgoing_bytes > OUTGOING_BYTES_MAX

    async def _send_gathered(self) -> None:
        try:
            while True:
                if not self._outgoing:
                    self._idle = self._loop.create_future()
                    await self._idle
                await self._socket.send_bytes(self._take())
                self._make_room()
        except (ConnectionError, aiohttp.ClientError):
            # Whoever receives learns of the end of the connection too, and deals with it.
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
        self._sender.cancel()
        await asyncio.wait([self._sender])
        with contextlib.suppress(ConnectionError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._outgoing:
                    await self._socket.send_bytes(self._take())
                await self._socket.close(code=code, message=reason.encode()[:120])
