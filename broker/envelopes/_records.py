"""Records as people look at them: so many, from an offset on, with the beginning of each payload.

Opened on a worker. A batch that is not whole is read as far as it goes, unless it is packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log.batches import markers
from broker.log.batches.compression import NAMES, NONE, decompress
from broker.log.batches.record_batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    crc_matches,
    parse_header,
    shape_problem,
)
from broker.log.batches.records import varint_at
from raftctl.errors import KafkaError
from raftctl.plugins import Payload, ReadBatch, ReadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPENED_BYTES_MAX = 8 << 20
"""That a batch may unpack to: more is not shown."""
ALL_OPENED_BYTES_MAX = 16 << 20
"""That all batches of a call may unpack to, but for the last: then the call ends."""
HEADERS_MAX = 100
"""Headers of one record that are shown."""
_RUN = 1_000
"""Records between two pauses."""
_NULL = -1


def read_batches(
    data: bytes,
    from_offset: int,
    records_max: int,
    payload_bytes_max: int,
    pause: Callable[[], None],
) -> list[ReadBatch]:
    """See `raftctl.plugins.BrokerClient.read`; `pause` lets the event loop go first."""
    found: list[ReadBatch] = []
    view, at, left, opened = memoryview(data), 0, records_max, 0
    while left > 0 and len(view) - at >= HEADER_BYTES and opened < ALL_OPENED_BYTES_MAX:
        header = parse_header(view, at)
        if shape_problem(header) is not None:
            break
        pieces = view[at : at + header.size]
        batch, size = _read(pieces, header, from_offset, left, payload_bytes_max, pause)
        opened += size
        if batch.last_offset >= from_offset:
            found.append(batch)
        left -= len(batch.records)
        at += header.size
    return found


def _read(
    data: memoryview,
    header: BatchHeader,
    from_offset: int,
    records_max: int,
    payload_bytes_max: int,
    pause: Callable[[], None],
) -> tuple[ReadBatch, int]:
    """Return a batch, and how many bytes it has unpacked to."""
    records: list[ReadRecord] = []
    marker = problem = None
    size = 0
    is_whole = len(data) >= header.size
    if header.is_control:
        marker = (_marker(data, header) if is_whole else None) or "control"
    elif is_whole and not crc_matches(data, header):
        problem = "its CRC32C is wrong: raftctl log verify checks the files of a broker"
    elif header.codec != NONE and not is_whole:
        problem = f"it is packed and has {header.size} bytes: a consumer reads it whole"
    else:
        try:
            packed = data[HEADER_BYTES:]
            # What it would be is not known of one that fails.
            size = 0 if header.codec == NONE else OPENED_BYTES_MAX
            opened = memoryview(decompress(header.codec, packed, OPENED_BYTES_MAX))
            size = min(size, len(opened))
            for record in _records(opened, header, payload_bytes_max, pause):
                if record.offset >= from_offset:
                    records.append(record)
                if len(records) == records_max:
                    break
        except KafkaError as error:
            problem = f"{error.message}, or more than {OPENED_BYTES_MAX} bytes"
        except (IndexError, ValueError):
            part = f"it has {header.size} bytes, and not all of it is shown"
            problem = "it ends within a record" if is_whole else part
    batch = ReadBatch(
        header.base_offset,
        header.last_offset,
        header.size,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        NAMES.get(header.codec, str(header.codec)),
        header.is_transactional,
        marker,
        tuple(records),
        len(records) >= records_max,
        problem,
    )
    return batch, size


def _records(
    data: memoryview, header: BatchHeader, payload_bytes_max: int, pause: Callable[[], None]
) -> Iterator[ReadRecord]:
    """Yield records; IndexError or ValueError where one ends beyond the data."""
    at = 0
    for number in range(header.record_count):
        if number % _RUN == _RUN - 1:
            pause()
        length, at = varint_at(data, at)
        end = at + length
        if length <= 0:
            raise ValueError
        timestamp_delta, at = varint_at(data, at + 1)
        offset_delta, at = varint_at(data, at)
        key, at = _payload(data, at, end, payload_bytes_max)
        value, at = _payload(data, at, end, payload_bytes_max)
        timestamp_ms = header.base_timestamp + timestamp_delta
        if header.attributes & LOG_APPEND_TIME:
            timestamp_ms = header.max_timestamp
        headers = () if at >= len(data) else _headers(data, at, end, payload_bytes_max)
        offset = header.base_offset + offset_delta
        yield ReadRecord(offset, timestamp_ms, key, value, headers)
        at = end


def _headers(
    data: memoryview, at: int, end: int, payload_bytes_max: int
) -> tuple[tuple[Payload, Payload | None], ...]:
    found = []
    count, at = varint_at(data, at)
    for _ in range(min(count, HEADERS_MAX)):
        key, at = _payload(data, at, end, payload_bytes_max)
        value, at = _payload(data, at, end, payload_bytes_max)
        found.append((key or Payload(b"", 0), value))
    return tuple(found)


def _payload(data: memoryview, at: int, end: int, bytes_max: int) -> tuple[Payload | None, int]:
    """Return the payload at a position and the position after it, which may be beyond the data."""
    size, at = varint_at(data, at)
    if size == _NULL:
        return None, at
    if size < 0 or at + size > end:
        raise ValueError
    return Payload(bytes(data[at : at + min(size, bytes_max)]), size), at + size


def _marker(data: memoryview, header: BatchHeader) -> str | None:
    try:
        found = markers.parse(data, header)
    except KafkaError:
        return None
    return None if found is None else found.kind.name.lower()
