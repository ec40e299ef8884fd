"""What is to be sent on one connection, in order: buffers, and parts of files.

Buffers are handed to the transport as they come. A part of a file is neither read nor sent before
the connection can take it, so that what a slow client has asked for stays on disk. Where the
runtime has a `Sender` for the connection the file's bytes never come into this process (row L9);
elsewhere, and when the connection is full, they go through the transport in pieces.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, cast

from raftctl.errors import invariant

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from raftctl.runtime.api import Buffer, Piece, Sender

    MakeSender = Callable[[asyncio.BaseTransport], Sender | None]

CHUNK_BYTES = 128 * 1024
"""More than the transport keeps before it says that it is full."""
_BUFFERS = (bytes, bytearray, memoryview)


class Outbox:
    """Pieces to be sent on one connection; its owner reports when the transport is full."""

    def __init__(self, transport: asyncio.Transport, make_sender: MakeSender) -> None:
        self.is_writable = True
        """Whether the transport takes more; for the owner to set."""
        self.size = 0
        """Bytes that neither a sender nor the transport has."""
        self._transport = transport
        self._make_sender: MakeSender | None = make_sender
        self._sender: Sender | None = None
        self._pieces: deque[Piece] = deque()
        self._start = 0
        """What of the first piece has gone."""
        self._holds_files = False

    def put(self, pieces: Iterable[Piece]) -> None:
        """Add pieces, which `send` sends."""
        for piece in pieces:
            if len(piece):
                self._pieces.append(piece)
                self.size += len(piece)
                self._holds_files |= not isinstance(piece, _BUFFERS)

    def send(self) -> None:
        """Send what can be sent now. OSError if the connection or a file fails."""
        if not self._holds_files:
            self._send_buffers()
            return
        self._have_sender()
        while self._pieces and self.is_writable and not self._transport.is_closing():
            if self._sender is None or self._transport.get_write_buffer_size():
                self._write_some()
                continue
            sent = self._sender.send(self._pieces, self._start)
            self._advance(sent)
            if not sent:
                # The transport says when the connection takes more.
                self._write_some()

    def close(self) -> None:
        """Forget the unsent pieces: the connection is lost."""
        self._pieces.clear()
        self.size = 0
        self._make_sender = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _have_sender(self) -> None:
        if self._make_sender is None:
            return
        self._sender, self._make_sender = self._make_sender(self._transport), None
        if self._sender is not None:
            # Resumed when its buffer is empty: before that nothing can be sent past it.
            self._transport.set_write_buffer_limits(high=CHUNK_BYTES // 2, low=0)

    def _send_buffers(self) -> None:
        if self._pieces:
            invariant(self._start == 0, "buffers alone are sent whole")
            pieces, self._pieces, self.size = self._pieces, deque(), 0
            self._transport.writelines(cast("deque[Buffer]", pieces))

    def _write_some(self) -> None:
        piece = self._pieces[0]
        if isinstance(piece, _BUFFERS):
            data = memoryview(piece)[self._start :]
        else:
            data = memoryview(piece.read(self._start, CHUNK_BYTES))
        # First, since the transport may say at once that it is full.
        self._advance(len(data))
        self._transport.write(data)

    def _advance(self, count: int) -> None:
        self.size -= count
        count += self._start
        while self._pieces and count >= len(self._pieces[0]):
            count -= len(self._pieces.popleft())
        self._start = count
        self._holds_files &= bool(self._pieces)
        begun = not self._start or self._start < len(self._pieces[0])
        invariant(begun, "what was sent whole is forgotten")
        invariant(bool(self._pieces) == (self.size > 0), "the size is that of what waits")
