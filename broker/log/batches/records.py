"""The records inside a batch, opened only where the header does not do.

Look-ups by time, compaction, and replay by coordinators need them. Produced batches are walked by
`_scanning`, which makes no object of a record.

Source: "Record" in the Apache Kafka protocol documentation (variable-length integers are zigzag
encoded).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from broker.log.batches._scanning import RECORD_BYTES_MIN
from broker.log.batches.compression import decompress
from broker.log.batches.record_batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    from raftctl.runtime.api import Buffer

    Search: TypeAlias = Callable[[Buffer, BatchHeader, int, int], "TimestampOffset | None"]
    """As `first_at_or_after`; it may raise an error to have the batch searched elsewhere."""

_NULL = -1
_VARINT_BITS_MAX = 63
"""A longer number is none: without a bound a long run of bytes would cost its square in time."""

_LARGE = 0x80
"""A byte from here on is not the last of its number."""
_SMALL = [(byte >> 1) ^ -(byte & 1) for byte in range(_LARGE)]
_SMALL_ENCODED = [bytes([value << 1]) for value in range(_LARGE >> 1)]
_LAST, _NOT_LAST = bytes(range(_LARGE)), bytes(range(_LARGE, 256))
_ALIKE_MIN, _ALIKE_MAX = 8, 128
"""Records left in a batch for which it pays to compare layouts, and records compared at once."""


class TimestampOffset(NamedTuple):
    """A record's timestamp in milliseconds, and its offset."""

    timestamp: int
    offset: int


class Record(NamedTuple):
    """A record as far as the log must know it."""

    offset: int
    timestamp: int
    """Milliseconds."""
    key: bytes | None
    has_value: bool
    """False for a tombstone."""
    raw: memoryview
    """All its bytes, the length included."""
    tail: memoryview
    """The bytes from the key's length on."""


def opened(batch: Buffer, header: BatchHeader) -> list[Record]:
    """Return all records of the batch, in order; headers of records stay opaque bytes.

    Raises KafkaError(CORRUPT_MESSAGE) if they cannot be unpacked, or one ends beyond its length.
    """
    data = memoryview(decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size]))
    if header.record_count * RECORD_BYTES_MIN > len(data):
        raise _cut_short(header)
    found, position = [], 0
    try:
        for _ in range(header.record_count):
            record, position = _record(data, position, header)
            found.append(record)
    except IndexError:
        raise _cut_short(header) from None
    return found


def _record(data: memoryview, start: int, header: BatchHeader) -> tuple[Record, int]:
    length, body = varint_at(data, start)
    timestamp_delta, at = varint_at(data, body + 1)
    offset_delta, tail = varint_at(data, at)
    key_size, at = varint_at(data, tail)
    key = None if key_size == _NULL else bytes(data[at : at + key_size])
    value_size, at = varint_at(data, at + max(key_size, 0))
    end = body + length
    if length <= 0 or end > len(data) or at + max(value_size, 0) > end:
        raise _cut_short(header)
    if key_size < _NULL or value_size < _NULL:
        raise _cut_short(header)
    if header.attributes & LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
    offset = header.base_offset + offset_delta
    has_value = value_size != _NULL
    return Record(offset, timestamp, key, has_value, data[start:end], data[tail:end]), end


def value_of(record: Record) -> bytes | None:
    """Return the record's value; None for a tombstone."""
    if not record.has_value:
        return None
    key_size, at = varint_at(record.tail, 0)
    size, at = varint_at(record.tail, at + max(key_size, 0))
    return bytes(record.tail[at : at + size])


def keys_and_values(batch: Buffer, header: BatchHeader) -> list[tuple[bytes | None, bytes | None]]:
    """Return the key and value of each record: as `opened` with `value_of`, but quickly.

    A coordinator that takes over a partition replays a million of them before it answers. Most
    numbers have one byte, which are decoded by a table, in line. Records with the layout of the one
    before them are taken together.

    Raises KafkaError(CORRUPT_MESSAGE) as `opened` does.
    """
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    data = bytes(decompress(header.codec, packed))
    found: list[tuple[bytes | None, bytes | None]] = []
    at, end, count = 0, len(data), header.record_count
    try:
        while len(found) < count:
            start, number = at, data[at]
            if number < _LARGE:
                length, body = _SMALL[number], at + 1
            elif (more := data[at + 1]) < _LARGE:
                number, body = number - _LARGE | more << 7, at + 2
                length = (number >> 1) ^ -(number & 1)
            else:
                length, body = varint_at(data, at)
            at = body + 1
            at = at + 1 if data[at] < _LARGE else varint_at(data, at)[1]
            deltas = at = at + 1 if data[at] < _LARGE else varint_at(data, at)[1]
            number = data[at]
            key_size, key_at = (_SMALL[number], at + 1) if number < _LARGE else varint_at(data, at)
            key_end = key_at + key_size if key_size > 0 else key_at
            number = data[key_end]
            value_size, value_at = (
                (_SMALL[number], key_end + 1) if number < _LARGE else varint_at(data, key_end)
            )
            value_end = value_at + value_size if value_size > 0 else value_at
            at = body + length
            if length <= 0 or at > end or value_end > at:
                raise _cut_short(header)
            if key_size < _NULL or value_size < _NULL:
                raise _cut_short(header)
            key = None if key_size == _NULL else data[key_at:key_end]
            value = None if value_size == _NULL else data[value_at:value_end]
            found.append((key, value))
            left = count - len(found)
            if left < _ALIKE_MIN or key is None or value is None or data[at] != data[start]:
                continue
            numbers = (start, body), (deltas, key_at), (key_end, value_at)
            most = min(left, (end - at) // (at - start), _ALIKE_MAX)
            alike = _alike(data, at - start, numbers, range(body + 1, deltas), most)
            if alike:
                gaps = key_at - start, value_at - key_end, at - value_end
                layout = f"{gaps[0]}x{key_size}s{gaps[1]}x{value_size}s{gaps[2]}x"
                after = at + alike * (at - start)
                found += struct.iter_unpack(layout, data[at:after])
                at = after
    except IndexError:
        raise _cut_short(header) from None
    return found


def _alike(
    data: bytes, size: int, numbers: Iterable[tuple[int, int]], deltas: Iterable[int], most: int
) -> int:
    """Return how many records, at most so many, follow a record of this size with its layout.

    Their sizes, which the record has at `numbers`, are the same, and their `deltas` take as many
    bytes. Each byte is compared in all of them at once.
    """
    places = [(place, data[place : place + 1]) for one in numbers for place in range(*one)]
    places += [(place, _LAST if data[place] < _LARGE else _NOT_LAST) for place in deltas]
    for place, same in places:
        column = data[place + size : place + size * (most + 1) : size]
        most = len(column) - len(column.lstrip(same))
        if not most:
            break
    return most


def encoded(record: Record, header: BatchHeader) -> bytes:
    """Return the record's bytes in a batch whose base offset and timestamp are the header's.

    Needed where the base timestamp changes: the records' own are differences from it.
    """
    within = header.base_offset <= record.offset <= header.last_offset
    invariant(within, "a record keeps its offset, which its batch covers")
    body = b"".join(
        [
            b"\0",
            varint(record.timestamp - header.base_timestamp),
            varint(record.offset - header.base_offset),
            record.tail,
        ]
    )
    return varint(len(body)) + body


def first_at_or_after(
    batch: Buffer, header: BatchHeader, timestamp: int, offset: int
) -> TimestampOffset | None:
    """Return the first record of the batch not older than `timestamp` and not before `offset`.

    `timestamp` is in milliseconds. None if there is none, also where the header says otherwise:
    compaction may have removed the record with the largest timestamp.
    """
    for found in _timestamps(batch, header):
        if found.timestamp >= timestamp and found.offset >= offset:
            return found
    return None


def newest(
    batch: Buffer, header: BatchHeader, search: Search = first_at_or_after
) -> TimestampOffset:
    """Return the first record that has the batch's largest timestamp."""
    found = search(batch, header, header.max_timestamp, 0)
    return found or TimestampOffset(header.max_timestamp, header.last_offset)


def _timestamps(batch: Buffer, header: BatchHeader) -> Iterator[TimestampOffset]:
    if header.attributes & LOG_APPEND_TIME and header.record_count:
        yield TimestampOffset(header.max_timestamp, header.base_offset)
        return
    try:
        data = decompress(header.attributes & CODEC_MASK, memoryview(batch)[HEADER_BYTES:])
    except KafkaError:
        # The client wrote it so. Its first offset is never later than the exact answer.
        yield TimestampOffset(header.max_timestamp, header.base_offset)
        return
    position = 0
    try:
        for _ in range(header.record_count):
            length, body = varint_at(data, position)
            timestamp_delta, after = varint_at(data, body + 1)
            offset_delta, _ = varint_at(data, after)
            timestamp = header.base_timestamp + timestamp_delta
            yield TimestampOffset(timestamp, header.base_offset + offset_delta)
            position = body + length
    except IndexError:
        # The client's CRC held, so the client wrote it so. Its own readers will complain.
        raise _cut_short(header) from None


def _cut_short(header: BatchHeader) -> KafkaError:
    text = f"the batch at offset {header.base_offset} ends within a record"
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, text)


def varint_at(data: Buffer, position: int) -> tuple[int, int]:
    """Return the zigzag-encoded number at a position, and the position after it.

    Raises IndexError if the data ends before, or the number has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise IndexError


def varint(value: int) -> bytes:
    """Return the zigzag encoding of a number of at most 64 bits."""
    if 0 <= value < _LARGE >> 1:
        return _SMALL_ENCODED[value]
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])
