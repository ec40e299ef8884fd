"""Batches of records as Kafka's brokers keep them: where each begins and what it says of itself.

Read here by what the format says, not by a broker's code, so that no bug of that goes unseen.
Source: the record batch of Apache Kafka's message format, magic 2 (KIP-98).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
_PREFIX_BYTES = 12
"""Of base offset and length, which the length leaves out."""
_CHECKED_FROM = 21
"""What the CRC is of begins here."""


class BatchHeader(NamedTuple):
    """The header of a batch."""

    position: int
    """Its first byte."""
    size: int
    """All its bytes."""
    base_offset: int
    end_offset: int
    """Behind its last record."""
    epoch: int
    """Of the leader that appended it."""
    crc: int

    def is_right(self, data: bytes) -> bool:
        """Return whether these bytes, all of the batch, are as they were written."""
        return bool(crc32c(memoryview(data)[_CHECKED_FROM:]) == self.crc)


def batch_headers(data: bytes) -> Iterator[BatchHeader]:
    """Return the headers of consecutive batches, up to the first incomplete one."""
    position = 0
    while len(data) - position >= _HEADER.size:
        base, length, epoch, _magic, crc, _attributes, delta = _HEADER.unpack_from(data, position)
        size = _PREFIX_BYTES + length
        if length < _HEADER.size - _PREFIX_BYTES or len(data) - position < size:
            return
        yield BatchHeader(position, size, base, base + delta + 1, epoch, crc)
        position += size
