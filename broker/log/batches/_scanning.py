"""The walk over a produced batch's records: every number of every record, and no object for any.

A reader must be able to read what is stored, so each record has to end where its length says, the
offsets have no gaps, and no bytes are left over. Most numbers have one byte; those are decoded by
a table, in line, since a call for each would double the time.
Source: "Record" in the Apache Kafka protocol documentation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.integers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.runtime.api import Buffer

RECORD_BYTES_MIN = 7
"""Six numbers of at least a byte each, and the attributes."""
REFUSED_MAX = 1_000
"""Indexes that an answer names at most: the walk ends there, for the batch is refused anyway."""
SLICE_RECORDS = 1_000
"""A millisecond or two of walking."""
_INT, _LONG = 5, 10
"""The most bytes of a number of 32 and of 64 bits."""
_LARGE = 0x80
"""A byte from here on is not the last of its number."""
_SMALL = [(byte >> 1) ^ -(byte & 1) for byte in range(_LARGE)]
_NO_TIMESTAMP = -1
_VIEWED_FROM_BYTES = 512
"""Records of this mean size or more are walked in place: copying them costs more than it saves."""


@dataclass(slots=True)
class Scan:
    """Aim and findings of a walk over batches. Timestamps are milliseconds."""

    base_timestamp: int
    oldest: int = -LONG_MAX - 1
    """Records before it are refused, if they have a timestamp at all."""
    newest: int = LONG_MAX
    keys_needed: bool = False
    max_timestamp: int = _NO_TIMESTAMP
    keyless: list[int] = field(default_factory=list)
    """Indexes of the records without a key, where keys are needed."""
    untimely: list[int] = field(default_factory=list)
    """Indexes of the records whose timestamps are out of bounds."""


def scan(
    records: Buffer, count: int, wanted: Scan, pause: Callable[[], None] | None = None
) -> None:
    """Walk the decompressed records of a batch.

    Records that can be read, but that the topic does not take, are named in `wanted`. `pause` is
    called after every SLICE_RECORDS. Raises KafkaError(INVALID_RECORD) for the first record that
    cannot be read.
    """
    if count * RECORD_BYTES_MIN > len(records):
        raise _broken(f"{count} records do not fit into {len(records)} bytes")
    data = records if len(records) >= count * _VIEWED_FROM_BYTES else bytes(records)
    index = 0
    try:
        at = 0
        for index in range(count):
            at = _one(data, at, index, wanted)
            if len(wanted.keyless) + len(wanted.untimely) >= REFUSED_MAX:
                return
            if pause is not None and index % SLICE_RECORDS == SLICE_RECORDS - 1:
                pause()
    except IndexError:
        raise _broken(f"record {index} is cut short") from None
    except UnicodeDecodeError:
        raise _broken(f"record {index} has a header whose key is not UTF-8") from None
    if at != len(data):
        raise _broken(f"{len(data) - at} bytes are left over after the last record")


def _one(data: Buffer, at: int, index: int, wanted: Scan) -> int:
    """Check the record that begins at `at`; return where it ends."""
    byte = data[at]
    size, at = (_SMALL[byte], at + 1) if byte < _LARGE else _number(data, at, _INT)
    end = at + size
    if size < RECORD_BYTES_MIN - 1 or end > len(data):
        raise _broken(f"record {index} has length {size}")
    if data[at] >= _LARGE:
        # No bit of it means anything yet, and some clients read it as a number: kafka-python.
        raise _broken(f"record {index} has attributes {data[at]}")
    at += 1
    byte = data[at]
    delta, at = (_SMALL[byte], at + 1) if byte < _LARGE else _number(data, at, _LONG)
    timestamp = wanted.base_timestamp + delta
    byte = data[at]
    delta, at = (_SMALL[byte], at + 1) if byte < _LARGE else _number(data, at, _INT)
    # Else two records could have one offset, and a reader would pass over the second.
    if delta != index:
        raise _broken(f"record {index} has offset delta {delta}")
    at = _key_and_value(data, at, index, wanted)
    at = _headers(data, at, end, index) if data[at] else at + 1
    if at != end:
        raise _broken(f"record {index} does not end where its length says")
    if timestamp > wanted.max_timestamp:
        wanted.max_timestamp = timestamp
    if not wanted.oldest <= timestamp <= wanted.newest:
        _note_time(timestamp, index, wanted)
    return end


def _key_and_value(data: Buffer, at: int, index: int, wanted: Scan) -> int:
    byte = data[at]
    size, at = (_SMALL[byte], at + 1) if byte < _LARGE else _number(data, at, _INT)
    if size > 0:
        at += size
    elif size < -1:
        raise _broken(f"record {index} has a key of {size} bytes")
    elif size and wanted.keys_needed:
        wanted.keyless.append(index)
    byte = data[at]
    size, at = (_SMALL[byte], at + 1) if byte < _LARGE else _number(data, at, _INT)
    if size < -1:
        raise _broken(f"record {index} has a value of {size} bytes")
    return at + size if size > 0 else at


def _note_time(timestamp: int, index: int, wanted: Scan) -> None:
    if not -LONG_MAX - 1 <= timestamp <= LONG_MAX:
        raise _broken(f"record {index} has a timestamp of more than 64 bits")
    if timestamp != _NO_TIMESTAMP:
        wanted.untimely.append(index)


def _headers(data: Buffer, at: int, end: int, index: int) -> int:
    count, at = _number(data, at, _INT)
    if not 0 <= count <= end - at:
        raise _broken(f"record {index} has {count} headers")
    for _ in range(count):
        size, at = _number(data, at, _INT)
        if not 0 <= size <= end - at:
            raise _broken(f"record {index} has a header with a key of {size} bytes")
        str(data[at : at + size], "utf-8")
        size, at = _number(data, at + size, _INT)
        if not -1 <= size <= end - at:
            raise _broken(f"record {index} has a header with a value of {size} bytes")
        at += max(size, 0)
    return at


def _number(data: Buffer, at: int, bytes_max: int) -> tuple[int, int]:
    """Return the zigzag number at `at`, and where it ends.

    Raises IndexError if it has more than `bytes_max` bytes, or more bits than they are for.
    """
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _LARGE:
            if value >> (32 if bytes_max == _INT else 64):
                raise IndexError
            return (value >> 1) ^ -(value & 1), at
    raise IndexError


def _broken(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, text)
