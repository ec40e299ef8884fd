"""Sends parts of files on sockets without reading them: the kernel hands its pages over (row L9).

A sender writes to the socket of an asyncio transport, past the transport, while that has nothing to
send itself. It has a descriptor of its own: the transport closes its socket without a word, and its
number may be another connection's the next moment.
Sources: sendfile(2); MSG_MORE, which keeps a header from leaving in a packet of its own: send(2).
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator

    from raftctl.runtime.api import Buffer, Piece

SENT_FROM_FILE_BYTES = 16 * 1024
"""Less than that is read: to send it from the file would save less than it costs."""
BUFFERS_PER_SEND_MAX = 1024
"""IOV_MAX on Linux."""


class Descriptor:
    """An open file, closed when nobody holds it any more."""

    __slots__ = ("cuts", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.cuts = 0
        """How often the file was made shorter."""

    def __del__(self) -> None:
        """Close the file."""
        os.close(self.number)


class RealRegion:
    """A `FileRegion` of a file on disk."""

    __slots__ = ("_cuts", "_held", "_path", "_position", "_size")

    def __init__(self, held: Descriptor, path: str, position: int, size: int) -> None:
        self._held = held
        self._cuts = held.cuts
        self._path = path
        self._position = position
        self._size = size

    def __len__(self) -> int:
        """How many bytes these are."""
        return self._size

    def read(self, start: int, size: int) -> bytes:
        """See `FileRegion.read`."""
        self._check()
        data = os.pread(self._held.number, min(size, self._size - start), self._position + start)
        return data or self._gone()

    def send_to(self, descriptor: int, start: int) -> int:
        """Send bytes from the one numbered `start`; return how many were taken."""
        self._check()
        size = self._size - start
        sent = os.sendfile(descriptor, self._held.number, self._position + start, size)
        return sent or self._gone()

    def _check(self) -> None:
        if self._held.cuts != self._cuts:
            # Whatever stands there now, it is not what was found.
            self._gone()

    def _gone(self) -> NoReturn:
        raise OSError(errno.ESTALE, "cut off before it was sent", self._path)


class RealSender:
    """A `Sender` on a TCP socket."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` of the connection's socket, of which the sender makes its own."""
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)

    def send(self, pieces: Iterable[Piece], start: int) -> int:
        """See `Sender.send`."""
        sent = 0
        for part in _parts(pieces, start):
            try:
                taken = part.send(self._socket)
            except (BlockingIOError, InterruptedError):
                break
            sent += taken
            if taken < part.size:
                break
        return sent

    def close(self) -> None:
        """See `Sender.close`."""
        self._socket.close()


def make_sender(transport: asyncio.BaseTransport) -> RealSender | None:
    """A sender for the connection if it is plain TCP: what TLS sends must be read."""
    connection = transport.get_extra_info("socket")
    if connection is None or transport.get_extra_info("sslcontext") is not None:
        return None
    return RealSender(connection.fileno())


class _Buffers:
    """What can be sent with one call, as it is in memory."""

    def __init__(self, buffers: list[Buffer], flags: int) -> None:
        self._buffers = buffers
        self._flags = flags
        self.size = sum(map(len, buffers))

    def send(self, connection: socket.socket) -> int:
        """Return how many bytes were taken."""
        return connection.sendmsg(self._buffers[:BUFFERS_PER_SEND_MAX], (), self._flags)


class _Rest:
    """A part of a file from a byte of it on."""

    def __init__(self, region: RealRegion, start: int) -> None:
        self._region = region
        self._start = start
        self.size = len(region) - start

    def send(self, connection: socket.socket) -> int:
        """Return how many bytes were taken."""
        return self._region.send_to(connection.fileno(), self._start)


def _parts(pieces: Iterable[Piece], start: int) -> Iterator[_Buffers | _Rest]:
    buffers: list[Buffer] = []
    for piece in pieces:
        if isinstance(piece, bytes | bytearray | memoryview):
            buffers.append(memoryview(piece)[start:] if start else piece)
        else:
            if buffers:
                yield _Buffers(buffers, socket.MSG_MORE)
                buffers = []
            yield _Rest(cast("RealRegion", piece), start)
        start = 0
    if buffers:
        yield _Buffers(buffers, 0)
