"""Pieces of a snapshot's file for other replicas, none with a byte that no right CRC vouches for.

A piece begins and ends anywhere. So the batches that it touches are read and checked each time it
is asked for; where batches begin is found once for the file that was asked for last. What a disk
has spoiled since a snapshot was written is found here, by who has the image to write another.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from raftctl.raft.batch import PREFIX_BYTES, CorruptBatchError, decode_batches, encoded_bytes

if TYPE_CHECKING:
    from raftctl.runtime.api import File


class SnapshotPieces:
    """Reads pieces; used by one thread at a time."""

    def __init__(self) -> None:
        self._of = ("", 0)
        """Path and size of the file that `_starts` is about."""
        self._starts = array("q")

    def read(self, path: str, file: File, position: int, max_bytes: int) -> bytes:
        """Bytes from the position on; none at the end. Raises CorruptBatchError."""
        size = file.size()
        starts = self._starts_in(path, file, size)
        end = min(size, position + max_bytes)
        if not 0 <= position < end:
            return b""
        begin = starts[bisect_right(starts, position) - 1]
        after = bisect_left(starts, end)
        data = file.read_at(begin, (starts[after] if after < len(starts) else size) - begin)
        _check(data, begin)
        return data[position - begin : end - begin]

    def _starts_in(self, path: str, file: File, size: int) -> array[int]:
        if self._of != (path, size):
            self._starts = _batch_starts(file, size)
            self._of = path, size
        return self._starts


def _batch_starts(file: File, size: int) -> array[int]:
    """Where each batch begins, from the lengths that they give; the last must be the footer."""
    starts = array("q")
    position = 0
    while position < size:
        starts.append(position)
        try:
            position += encoded_bytes(file.read_at(position, PREFIX_BYTES))
        except CorruptBatchError as error:
            raise CorruptBatchError(position, error.why, torn=error.torn) from None
    # The header is one, too.
    if len(starts) < 2 or not _check(file.read_at(starts[-1], size - starts[-1]), starts[-1]):
        raise CorruptBatchError(size, "no footer: the end is missing", torn=True)
    return starts


def _check(data: bytes, begin: int) -> bool:
    """Whether the last of the batches is a control batch. Raises CorruptBatchError."""
    control = False
    try:
        for _, batch in decode_batches(data):
            control = batch.control
    except CorruptBatchError as error:
        raise CorruptBatchError(begin + error.position, error.why, torn=error.torn) from None
    return control
