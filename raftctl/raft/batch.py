"""The batch: the unit that is appended, written, fetched and checked by CRC32C.

Layout (big endian, 38 bytes of header): length u32 of what follows the CRC | crc32c u32 of what
follows it | magic i8 | attributes u8 (bit 0: control) | base offset i64 | epoch i32 | count i32 |
append time ms i64 | payload (`count` MessagePack objects). Everything but the length is under the
CRC, and a wrong length makes it fail, so no flipped bit goes unseen (row Q12).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from raftctl.raft.messages import Epoch, Offset

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = struct.Struct(">II")
_BODY = struct.Struct(">bBqiiq")
PREFIX_BYTES = _PREFIX.size
HEADER_BYTES = PREFIX_BYTES + _BODY.size
MAGIC = 1
BATCH_BYTES_MAX = 16 * 1024 * 1024


class CorruptBatchError(Exception):
    """Bytes that are not a whole batch with a right CRC; `position` is where it would begin."""

    def __init__(self, position: int, why: str, *, torn: bool) -> None:
        self.position = position
        self.why = why
        self.torn = torn
        """True if the bytes end before the batch does, as a crash during a write leaves them."""
        super().__init__(f"{why} at byte {position}")


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive records of one epoch; offsets are `base_offset` .. `base_offset + count - 1`."""

    base_offset: Offset
    epoch: Epoch
    count: int
    timestamp_ms: int
    control: bool
    payload: bytes

    @property
    def end_offset(self) -> Offset:
        """The offset after the last record."""
        return Offset(self.base_offset + self.count)


def without_payload(batch: Batch) -> Batch:
    """Return the batch's header fields."""
    base, epoch, count = batch.base_offset, batch.epoch, batch.count
    return Batch(base, epoch, count, batch.timestamp_ms, batch.control, b"")


def encode_batch(batch: Batch) -> bytes:
    """Return the batch as it stands in the log and on the wire."""
    body = _BODY.pack(
        MAGIC, batch.control, batch.base_offset, batch.epoch, batch.count, batch.timestamp_ms
    )
    crc = crc32c(batch.payload, crc32c(body))
    prefix = _PREFIX.pack(len(body) + len(batch.payload), crc)
    return b"".join((prefix, body, batch.payload))  # one copy of what may have megabytes


def encoded_bytes(prefix: bytes) -> int:
    """Return the length that a batch's first bytes give for it; no CRC is checked.

    Raises CorruptBatchError, as of byte 0, for what cannot be a length.
    """
    if len(prefix) < PREFIX_BYTES:
        raise CorruptBatchError(0, "header cut short", torn=True)
    length, _ = _PREFIX.unpack_from(prefix)
    _check_length(length, 0)
    return PREFIX_BYTES + int(length)


def decode_batches(data: bytes, position: int = 0) -> Iterator[tuple[int, Batch]]:
    """Yield (position, batch) for each batch; raise `CorruptBatchError` at the first bad one."""
    end = len(data)
    while position < end:
        batch, after = _decode_one(data, position)
        yield position, batch
        position = after


def is_whole_but_for_its_length(data: bytes) -> bool:
    """Return whether the bytes are one batch with only its length wrong, which has no CRC."""
    if len(data) < HEADER_BYTES:
        return False
    _, crc = _PREFIX.unpack_from(data)
    return bool(crc32c(memoryview(data)[_PREFIX.size :]) == crc)


def _check_length(length: int, position: int) -> None:
    if not _BODY.size <= length <= BATCH_BYTES_MAX:
        raise CorruptBatchError(position, f"batch length {length} out of bounds", torn=False)


def _decode_one(data: bytes, position: int) -> tuple[Batch, int]:
    if len(data) - position < HEADER_BYTES:
        raise CorruptBatchError(position, "header cut short", torn=True)
    length, crc = _PREFIX.unpack_from(data, position)
    start = position + _PREFIX.size
    _check_length(length, position)
    if len(data) - start < length:
        raise CorruptBatchError(position, "batch cut short", torn=True)
    body = memoryview(data)[start : start + length]
    if crc32c(body) != crc:
        raise CorruptBatchError(position, "CRC32C does not match", torn=False)
    magic, attributes, base_offset, epoch, count, timestamp_ms = _BODY.unpack_from(body)
    if magic != MAGIC or count <= 0:
        raise CorruptBatchError(position, f"magic {magic}, count {count}", torn=False)
    batch = Batch(
        Offset(base_offset),
        Epoch(epoch),
        count,
        timestamp_ms,
        bool(attributes & 1),
        bytes(body[_BODY.size :]),
    )
    return batch, start + length
