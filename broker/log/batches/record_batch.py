"""Record batches (magic 2) by their 61-byte header: records stay opaque bytes.

Decides where a batch ends and the next one begins. The base offset and the leader epoch stand
before the CRC32C (which covers everything from byte 21), so a log sets them without touching the
rest. Source: "Record Batch" in the Apache Kafka protocol documentation.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.runtime.api import Buffer

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PLACE = struct.Struct(">qii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
HEADER_BYTES = _HEADER.size
PREFIX_BYTES = 12
"""Base offset and length: what stands before the bytes that the length counts."""
CRC_COVERS_FROM = 21
_ATTRIBUTES_AT = CRC_COVERS_FROM + 1
"""The lower of their two bytes."""
_LEADER_EPOCH_ENDS = _PLACE.size
MAGIC = 2
NO_PRODUCER = -1
NO_SEQUENCE = -1
"""Of what brokers write themselves: it is never sent twice."""
SEQUENCE_MAX = 2**31 - 1

CODEC_MASK = 0x07
"""Bits of the attributes: the codec of the records."""
LOG_APPEND_TIME = 0x08
"""All records have the broker's time, `max_timestamp`; theirs in the bytes do not count."""
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""The base timestamp is the delete horizon of a compacted batch (KIP-534)."""


class BatchHeader(NamedTuple):
    """The fields of the header, in their order on the wire."""

    base_offset: int
    length: int
    """Bytes after this field."""
    leader_epoch: int
    """The epoch of the leader that appended the batch."""
    magic: int
    crc: int
    """CRC32C of everything from the attributes on."""
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    """Milliseconds; each record has the difference from it."""
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    """Less than the offsets that the batch covers, if compaction has removed records."""

    @property
    def size(self) -> int:
        """The bytes of the whole batch."""
        return self.length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record, also if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; after 2^31 - 1 comes 0."""
        last = self.base_sequence + self.last_offset_delta
        return last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1

    @property
    def codec(self) -> int:
        """How the records are compressed; a number of `broker.log.batches.compression`."""
        return self.attributes & CODEC_MASK

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of a compacted batch may go: wall clock; None if not decided yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def is_control(self) -> bool:
        """Whether the broker wrote it, for a transaction, rather than a client."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction, which decides whether it counts."""
        return bool(self.attributes & TRANSACTIONAL)


def parse_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header that begins at `position`; the bytes must be there.

    Nothing is checked. What comes from outside goes to `shape_problem` next, since a negative
    length would lead a reader back to where it was.
    """
    return BatchHeader._make(_HEADER.unpack_from(data, position))


def is_packed_with(codec: int, batch: Buffer) -> bool:
    """Return whether the header names this codec; what is no batch names none."""
    return len(batch) >= HEADER_BYTES and batch[_ATTRIBUTES_AT] & CODEC_MASK == codec


def claims_a_transaction(batch: Buffer) -> bool:
    """Return whether the header says so, be it right or not; what is no batch says nothing."""
    return len(batch) >= HEADER_BYTES and bool(batch[_ATTRIBUTES_AT] & TRANSACTIONAL)


def crc_matches(data: Buffer, header: BatchHeader, position: int = 0) -> bool:
    """Return whether the CRC32C of the batch that begins at `position` is right.

    The whole batch must be there: of the bytes that are missing no checksum is taken.
    """
    view = memoryview(data)
    return crc32c(view[position + CRC_COVERS_FROM : position + header.size]) == header.crc


def placed(
    batch: Buffer, header: BatchHeader, base_offset: int, leader_epoch: int
) -> tuple[list[Buffer], BatchHeader]:
    """Return the batch with its place in the log, as pieces to write.

    Only the first 16 bytes are new. The CRC does not cover them, so a batch is stored as it was
    sent, without a copy and without a second checksum.
    """
    invariant(base_offset >= 0, "the offsets of a log begin at 0")
    place = _PLACE.pack(base_offset, header.length, leader_epoch)
    moved = BatchHeader(base_offset, header.length, leader_epoch, *header[3:])
    return [place, memoryview(batch)[_LEADER_EPOCH_ENDS:]], moved


def stamped(batch: Buffer, header: BatchHeader, now_ms: int) -> tuple[bytes, BatchHeader]:
    """Return the batch with the broker's time as its records' timestamp (LogAppendTime)."""
    attributes = header.attributes | LOG_APPEND_TIME
    changed = header._replace(attributes=attributes, max_timestamp=now_ms)
    return assembled(changed, memoryview(batch)[HEADER_BYTES:])


def assembled(header: BatchHeader, records: Buffer) -> tuple[bytes, BatchHeader]:
    """Return a batch of a header and the bytes of its records, and the header that it has.

    Length and CRC32C are made to fit; the other fields stay, so they must fit the records.
    """
    body = _AFTER_CRC.pack(*header[5:]) + records
    length = len(body) + CRC_COVERS_FROM - PREFIX_BYTES
    whole = header._replace(length=length, crc=crc32c(body))
    batch = _HEADER.pack(*whole)[:CRC_COVERS_FROM] + body
    # A reader finds the next batch by this one's length: a wrong one hides all that follow.
    invariant(whole.size == len(batch), "a batch is as long as its header says")
    invariant(whole.last_offset_delta >= 0, "a batch covers an offset")
    return batch, whole


def split_fetched(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each whole batch of what a leader sent; an incomplete last one is left out.

    A leader cuts a response at a number of bytes, not at a batch (KIP-74). The follower asks for
    the rest with its next Fetch.

    Raises KafkaError(CORRUPT_MESSAGE) when it comes to a damaged batch.
    """
    view = memoryview(data)
    position, end = 0, len(view)
    while end - position >= HEADER_BYTES:
        header = parse_header(view, position)
        problem = shape_problem(header)
        if problem is not None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"fetched batch: {problem}")
        if header.size > end - position:
            return
        if not crc_matches(view, header, position):
            text = f"CRC32C of the fetched batch at offset {header.base_offset} is wrong"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
        yield header, view[position : position + header.size]
        position += header.size


def shape_problem(header: BatchHeader) -> str | None:
    """Return why bytes are no header, without looking at the CRC; None if they may be one."""
    if header.magic != MAGIC:
        return f"magic {header.magic}"
    if header.size < HEADER_BYTES:
        return f"length {header.length}"
    if header.base_offset < 0 or header.last_offset_delta < 0:
        return f"offset {header.base_offset} + {header.last_offset_delta}"
    return None
