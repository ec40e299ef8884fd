"""Record batches for the table, right and wrong: any field of the header may lie."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import cramjam
from crc32c import crc32c

from broker.log.batches.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from raftctl.metadata.configs.topic import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

T = 1_750_000_000_000
"""When records were written: long ago, so that no time of a test is like it."""
_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


class Rec(NamedTuple):
    """One record."""

    value: bytes | None = b"v"
    key: bytes | None = None
    at: int = 0
    """Milliseconds after the batch's time."""
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    delta: int | None = None
    """Of its offset; None: its place."""


def varint(value: int) -> bytes:
    """Zigzag, as in records."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def payload(records: Sequence[Rec]) -> bytes:
    """The records of a batch, not compressed."""
    out = []
    for place, one in enumerate(records):
        delta = place if one.delta is None else one.delta
        headers = b"".join(_sized(key) + _sized(value) for key, value in one.headers)
        body = b"\0" + varint(one.at) + varint(delta) + _sized(one.key) + _sized(one.value)
        body += varint(len(one.headers)) + headers
        out.append(varint(len(body)) + body)
    return b"".join(out)


def compressed(codec: int, data: bytes) -> bytes:
    """As clients do."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(data))
        return _XERIAL + struct.pack(">i", len(block)) + block
    if codec == LZ4:
        # Clients in Java take independent blocks only, which not every writer makes.
        return compress(LZ4, data, TopicConfig())
    return bytes(cramjam.zstd.compress(data)) if codec == ZSTD else data


def batch(
    *records: Rec | bytes,
    codec: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    body: bytes | None = None,
    count: int | None = None,
    last_delta: int | None = None,
    base_offset: int = 0,
    time: int = T,
    newest: int | None = None,
    magic: int = 2,
    crc: int | None = None,
    length: int | None = None,
    epoch: int = -1,
) -> bytes:
    """A batch of these records; `producer` is its id, epoch and first sequence."""
    given = [one if isinstance(one, Rec) else Rec(one) for one in records or (Rec(),)]
    data = compressed(codec, payload(given)) if body is None else body
    count = len(given) if count is None else count
    last_delta = len(given) - 1 if last_delta is None else last_delta
    newest = max(time + one.at for one in given) if newest is None else newest
    tail = struct.pack(">hiqqqhii", codec | attributes, last_delta, time, newest, *producer, count)
    tail += data
    crc = crc32c(tail) if crc is None else crc
    length = 9 + len(tail) if length is None else length
    return struct.pack(">qiibI", base_offset, length, epoch, magic, crc) + tail


def message_set(magic: int, value: bytes = b"v") -> bytes:
    """One message of the formats before batches, magic 0 or 1."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", T) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message
