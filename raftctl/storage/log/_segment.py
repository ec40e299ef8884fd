"""One file of the metadata log: finding batches in it, and telling a torn tail from corruption.

A crash during a write leaves a tail that ends in the middle of a batch, or holds zeros where the
length of the file was durable before its bytes were; nothing valid follows. That was never
acknowledged and may be cut. Damage that a whole batch follows, that stands where all has been
durable, or that looks like neither is something else: acknowledged records may be lost, and going
on would make this replica diverge (row Q12, `docs/decisions/0005-recovery-point.md`).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from raftctl.errors import DiskError
from raftctl.raft.batch import (
    BATCH_BYTES_MAX,
    HEADER_BYTES,
    CorruptBatchError,
    decode_batches,
    is_whole_but_for_its_length,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.raft.batch import Batch
    from raftctl.raft.messages import Offset
    from raftctl.runtime.api import File

INDEX_INTERVAL_BYTES = 4096
SCAN_BYTES = 1024 * 1024
SEARCH_BYTES = 16 * 1024 * 1024
SECTOR_BYTES = 512
"""Bytes that a disk writes wholly or not at all."""
_BODY_START = 8
"""Position of a batch's magic: after its length and CRC."""


class CorruptLogError(DiskError):
    """The log holds bytes it should not; names the file and the position. Stops the node."""

    def __init__(self, path: str, position: int, why: str) -> None:
        self.path = path
        self.position = position
        super().__init__(
            f"{path}: corrupt at byte {position}: {why}; "
            "restore the disk, or format the directory again and join as a new replica"
        )


class Segment:
    """The batches from `base_offset` to the next segment, with a sparse index of positions.

    `size` is the length that the file has once all that is queued is written.
    """

    __slots__ = ("_offsets", "_positions", "base_offset", "file", "path", "size")

    def __init__(self, directory: str, base_offset: Offset, file: File | None = None) -> None:
        self.base_offset = base_offset
        self.path = f"{directory}/{base_offset:020}.log"
        self.file = file
        """None until the first write creates it."""
        self.size = 0
        self._offsets = array("q")
        self._positions = array("q")

    def note(self, base_offset: Offset, size: int) -> None:
        """Count a batch of `size` bytes at the end."""
        if not self._positions or self.size - self._positions[-1] >= INDEX_INTERVAL_BYTES:
            self._offsets.append(base_offset)
            self._positions.append(self.size)
        self.size += size

    def floor(self, offset: Offset) -> int:
        """Return the position of some batch at or before the one that contains the offset."""
        index = bisect_right(self._offsets, offset) - 1
        return self._positions[index] if index >= 0 else 0

    def cut(self, position: int) -> None:
        """Forget everything at and above the position."""
        while self._positions and self._positions[-1] >= position:
            self._positions.pop()
            self._offsets.pop()
        self.size = position


def batch_bytes(batch: Batch) -> int:
    """Return the length of the batch as encoded."""
    return HEADER_BYTES + len(batch.payload)


def scan(
    file: File, start: int, end: int, chunk_bytes: int = SCAN_BYTES
) -> Iterator[tuple[int, Batch]]:
    """Yield (position, batch) from `start` on; raise CorruptBatchError at the first bad one."""
    position = start
    while position < end:
        data = file.read_at(position, min(chunk_bytes, end - position))
        try:
            for relative, batch in decode_batches(data):
                yield position + relative, batch
        except CorruptBatchError as error:
            if not error.torn or position + len(data) >= end:
                raise CorruptBatchError(
                    position + error.position, error.why, torn=error.torn
                ) from None
            # Only the chunk ends here, not the file. A batch longer than the chunk needs a larger.
            chunk_bytes = chunk_bytes if error.position else chunk_bytes * 2
            position += error.position
        else:
            if not data:
                raise CorruptBatchError(position, "file cut short", torn=True)
            position += len(data)


def find_batch(file: File, start: int, end: int, after: Offset) -> int | None:
    """Return the position of some whole batch at or above `start`, of an offset above `after`.

    Every record takes at least a byte, which bounds the base offsets that can stand in the rest of
    the file; their common leading bytes make the search a fast one.
    """
    lowest = after.to_bytes(8)
    highest = (after + end - start).to_bytes(8)
    shared = next((at for at in range(8) if lowest[at] != highest[at]), 8)
    head = re.compile(b"(?=\x01[\x00\x01]" + re.escape(lowest[:shared]) + b")", re.DOTALL)
    for window in range(start, end, SEARCH_BYTES):
        data = file.read_at(window, SEARCH_BYTES + _BODY_START + BATCH_BYTES_MAX)
        for match in head.finditer(data, _BODY_START, SEARCH_BYTES + HEADER_BYTES):
            position = match.start() - _BODY_START
            try:
                _, batch = next(decode_batches(data, position))
            except CorruptBatchError:
                continue
            if batch.base_offset > after:
                return window + position
    return None


def why_not_torn(
    file: File,
    error: CorruptBatchError,
    end_offset: Offset,
    *,
    last: bool,
    recovery_point: Offset | None,
) -> str | None:
    """Return why the tail is damaged and not torn; None if it may be cut.

    The batches before the damage end at `end_offset`; `last` says whether this is the last segment.
    """
    size = file.size()
    following = find_batch(file, error.position + 1, size, end_offset)
    if following is not None:
        return f"{error.why}, yet a whole batch follows at byte {following}"
    if not last:
        return f"{error.why}, yet this is not the last segment"
    if recovery_point is not None and end_offset < recovery_point:
        return f"{error.why}, yet all below offset {recovery_point} was durable"
    if not _is_unfinished(file, error, size):
        return f"{error.why}, and the tail does not look like an interrupted write"
    return None


def _is_unfinished(file: File, error: CorruptBatchError, size: int) -> bool:
    """Return whether the tail is short, or has a stretch of zeros as long as one disk write."""
    position = error.position
    if error.torn:
        return not is_whole_but_for_its_length(file.read_at(position, size - position))
    at = position
    while at < size:
        # The first stretch ends with the sector; less of it than the prefix proves nothing.
        length = SECTOR_BYTES - at % SECTOR_BYTES
        stretch = file.read_at(at, min(length, size - at))
        if not any(stretch) and (at > position or len(stretch) >= _BODY_START):
            return True
        at += length
    return False
