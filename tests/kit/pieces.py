"""What a message's pieces say once they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from raftctl.runtime.api import Piece


def as_bytes(pieces: Iterable[Piece]) -> bytes:
    """Buffers as they are, parts of files read."""
    return b"".join(
        piece if isinstance(piece, bytes | bytearray | memoryview) else piece.read(0, len(piece))
        for piece in pieces
    )
