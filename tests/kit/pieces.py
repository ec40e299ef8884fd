"""Messages as bytes: the pieces of one that is sent, the request in one that is received."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.codec import decode_body, decode_header
from broker.request_context import RequestContext

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.protocol.codec import Frame, Request
    from raftctl.runtime.api import Piece


def as_bytes(pieces: Iterable[Piece]) -> bytes:
    """Buffers as they are, parts of files read."""
    return b"".join(
        piece if isinstance(piece, bytes | bytearray | memoryview) else piece.read(0, len(piece))
        for piece in pieces
    )


def decode_request(frame: Frame) -> Request[Any]:
    """The request in a frame without its length."""
    return decode_body(frame, *decode_header(frame), RequestContext())
