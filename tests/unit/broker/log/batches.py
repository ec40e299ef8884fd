"""Record batches for tests, built record by record."""

from __future__ import annotations

import gzip
import struct

from crc32c import crc32c

from broker.log.batches.compression import compress
from raftctl.metadata.configs.topic import TopicConfig

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


def keyed_record(offset_delta: int, timestamp_delta: int, key: bytes, value: bytes | None) -> bytes:
    """A record with a key; a tombstone if there is no value."""
    size = varint(-1) if value is None else varint(len(value)) + value
    body = b"".join(
        [
            b"\0",
            varint(timestamp_delta),
            varint(offset_delta),
            varint(len(key)) + key,
            size,
            varint(0),
        ]
    )
    return varint(len(body)) + body


def keyed_batch(
    pairs: list[tuple[bytes, bytes | None]],
    *,
    timestamp: int = 1_000,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch of (key, value); `producer` is (id, epoch, sequence)."""
    records = b"".join(keyed_record(i, i, key, value) for i, (key, value) in enumerate(pairs))
    last = len(pairs) - 1
    tail = _AFTER_CRC.pack(codec, last, timestamp, timestamp + last, *producer, len(pairs))
    body = tail + compress(codec, records, TopicConfig())
    return _BEFORE.pack(0, 9 + len(body), -1, 2, crc32c(body)) + body


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
