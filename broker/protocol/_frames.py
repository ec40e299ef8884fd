"""Cuts the byte stream of a connection into frames: a 4-byte length and as many bytes.

Pure. A small frame is copied out of one receive buffer that lives as long as the connection; a
frame that does not fit there gets a buffer of its own and is received straight into it, so that the
bytes of a large produce request are touched once. Memory a connection is the receive buffer plus
one frame.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from broker.protocol._decoder import MalformedError
from raftctl.errors import invariant

if TYPE_CHECKING:
    from broker.protocol._decoder import Frame

RECEIVE_BYTES = 128 * 1024
"""So that a request with the batch of 64 KiB that many producers send is received at once. Of an
idle connection only the pages ever written take memory."""
_LENGTH_BYTES = 4
_TLS_HANDSHAKE = 0x1603
"""How the first message of a client of TLS begins; as a length it is more than 350 MB."""
FRAME_BYTES_MIN = 8
"""No request is shorter than an api key, a version and a correlation id."""


class FrameReader:
    """The receiving end of one connection."""

    __slots__ = ("_buffer", "_bytes_max", "_bytes_min", "_end", "_large", "_large_end", "_start")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_min = FRAME_BYTES_MIN
        self._bytes_max = bytes_max
        self._buffer = _receive_buffer()
        self._start = 0
        self._end = 0
        self._large: bytearray | None = None
        self._large_end = 0

    def bound(self, bytes_max: int, *, is_request: bool = True) -> None:
        """Set the bounds of the next frame; what is no request may be empty."""
        self._bytes_min = FRAME_BYTES_MIN if is_request else 0
        self._bytes_max = bytes_max

    def writable(self) -> memoryview:
        """Return the room for the next bytes. Take all whole frames out first."""
        if self._large is not None:
            return memoryview(self._large)[self._large_end :]
        if self._start == self._end:
            # Else a frame that would fit is received in two parts, each a turn of the event loop.
            self._start = self._end = 0
        elif self._end == RECEIVE_BYTES:
            self._compact()
        invariant(self._end < RECEIVE_BYTES, "bytes are received while whole frames wait")
        return self._buffer[self._end :]

    def received(self, count: int) -> None:
        """`count` bytes were put where `writable` said."""
        if self._large is not None:
            self._large_end += count
        else:
            self._end += count

    def next(self) -> Frame | None:
        """Return the next whole frame without its length; None: more must be received.

        MalformedError if the length is out of bounds.
        """
        if self._large is not None:
            return self._take_large()
        available = self._end - self._start - _LENGTH_BYTES
        if available < 0:
            return None
        content = self._start + _LENGTH_BYTES
        size = int.from_bytes(self._buffer[self._start : content], "big", signed=True)
        if not self._bytes_min <= size <= self._bytes_max:
            if size >> 16 == _TLS_HANDSHAKE:
                raise MalformedError("it speaks TLS, and the listener does not")
            raise MalformedError(f"a frame of {size} bytes, at most {self._bytes_max}")
        if size > available:
            if size > RECEIVE_BYTES - _LENGTH_BYTES:
                self._begin_large(content, size)
            return None
        self._start = content + size
        return bytes(self._buffer[content : self._start])

    @property
    def partial(self) -> bool:
        """True if the stream ends within a frame."""
        return self._large is not None or self._end > self._start

    def _take_large(self) -> bytearray | None:
        large = self._large
        if large is None or self._large_end < len(large):
            return None
        self._large = None
        return large

    def _begin_large(self, content: int, size: int) -> None:
        self._large = bytearray(size)
        self._large_end = self._end - content
        self._large[: self._large_end] = self._buffer[content : self._end]
        self._start = self._end = 0

    def _compact(self) -> None:
        left = self._end - self._start
        self._buffer[:left] = self._buffer[self._start : self._end]
        self._start, self._end = 0, left


def _receive_buffer() -> memoryview:
    """Pages that take memory when they are first written; a `bytearray` writes all its zeros."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return memoryview(mmap.mmap(-1, RECEIVE_BYTES, flags=private))
