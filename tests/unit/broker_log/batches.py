"""Record batches for tests, built record by record."""

from __future__ import annotations

import gzip
import struct

from crc32c import crc32c

_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE = struct.Struct(">qiibI")


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def record(offset_delta: int, timestamp_delta: int, value: bytes) -> bytes:
    body = b"".join(
        [
            b"\0",
            varint(timestamp_delta),
            varint(offset_delta),
            varint(-1),
            varint(len(value)),
            value,
            varint(0),
        ]
    )
    return varint(len(body)) + body


def make_batch(
    values: list[bytes],
    *,
    timestamps: list[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    count: int | None = None,
) -> bytes:
    """A batch of these values, as a producer would send it; attributes 1 is gzip."""
    times = timestamps or [1_000] * max(len(values), 1)
    records = b"".join(record(i, times[i] - times[0], v) for i, v in enumerate(values))
    if attributes & 7 == 1:
        records = gzip.compress(records, mtime=0)
    tail = _AFTER_CRC.pack(
        attributes,
        len(values) - 1,
        times[0],
        max(times),
        producer_id,
        producer_epoch,
        sequence,
        len(values) if count is None else count,
    )
    body = tail + records
    return _BEFORE.pack(base_offset, 9 + len(body), leader_epoch, magic, crc32c(body)) + body
