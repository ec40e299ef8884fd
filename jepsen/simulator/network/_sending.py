"""Sends parts of simulated files on simulated connections, past the transport.

The counterpart of `raftctl.runtime._real_sending`: the socket takes what its window has room for,
now and then less or nothing, as the buffers of a real one do.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from jepsen.simulator._errno import os_error
from jepsen.simulator.network._connection import WINDOW_BYTES

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from jepsen.simulator.network._transport import SimTransport
    from raftctl.runtime.api import Piece

SHORT_CHANCE = 0.05


class SimSender:
    """A `Sender` on a simulated connection."""

    def __init__(self, transport: SimTransport, source: random.Random) -> None:
        self._transport = transport
        self._random = source
        self._closed = False

    def send(self, pieces: Iterable[Piece], start: int) -> int:
        """See `Sender.send`."""
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
        """See `Sender.close`."""
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
