"""The records inside a batch, opened only to answer for a timestamp (row L7).

Records that snappy, lz4 or zstd compressed are not opened: the answer is then the batch's first
offset, which is never later than the exact one. Source: "Record" in the Apache Kafka protocol
documentation (variable-length integers are zigzag encoded).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from broker.log.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
)
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.runtime.api import Buffer

_NO_COMPRESSION = 0
_GZIP = 1
_GZIP_WINDOW_BITS = 31
_OPENED_BYTES_MAX = 64 * 1024 * 1024


class TimestampOffset(NamedTuple):
    """A record's timestamp in milliseconds, and its offset."""

    timestamp: int
    offset: int


def first_at_or_after(
    batch: Buffer, header: BatchHeader, *, timestamp: int, offset: int
) -> TimestampOffset | None:
    """The first record of the batch not older than `timestamp` and not before `offset`."""
    for found in _timestamps(batch, header):
        if found.timestamp >= timestamp and found.offset >= offset:
            return found
    return None


def newest(batch: Buffer, header: BatchHeader) -> TimestampOffset:
    """The first record that bears the batch's largest timestamp."""
    found = first_at_or_after(batch, header, timestamp=header.max_timestamp, offset=0)
    return found or TimestampOffset(header.max_timestamp, header.last_offset)


def _timestamps(batch: Buffer, header: BatchHeader) -> Iterator[TimestampOffset]:
    if header.attributes & LOG_APPEND_TIME:
        yield TimestampOffset(header.max_timestamp, header.base_offset)
        return
    records = _opened(memoryview(batch)[HEADER_BYTES:], header.attributes & CODEC_MASK)
    if records is None:
        yield TimestampOffset(header.max_timestamp, header.base_offset)
        return
    position = 0
    try:
        for _ in range(header.record_count):
            length, body = _varint(records, position)
            timestamp_delta, after = _varint(records, body + 1)
            offset_delta, _ = _varint(records, after)
            timestamp = header.base_timestamp + timestamp_delta
            yield TimestampOffset(timestamp, header.base_offset + offset_delta)
            position = body + length
    except IndexError:
        # The client's CRC held, so the client wrote it so. Its own readers will complain.
        text = f"the batch at offset {header.base_offset} ends within a record"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text) from None


def _opened(records: memoryview, codec: int) -> Buffer | None:
    if codec == _NO_COMPRESSION:
        return records
    if codec != _GZIP:
        return None
    try:
        return zlib.decompressobj(_GZIP_WINDOW_BITS).decompress(records, _OPENED_BYTES_MAX)
    except zlib.error:
        return None


def _varint(data: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
