"""Record batches that the broker writes itself, into its internal topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.core import NOBODY
from broker.log.batches.record_batch import (
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    assembled,
)
from broker.log.batches.records import varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.coordinator.core import KeyValue

_RECORDS_MAX = 1_000
_BYTES_MAX = 500_000
"""Of keys and values in a batch: about half of what a batch may have unless configured."""
_NULL = varint(-1)
_NO_HEADERS = varint(0)


def batch_of(
    records: Sequence[KeyValue], timestamp_ms: int, producer: tuple[int, int] = NOBODY
) -> bytes:
    """Return an uncompressed batch of these records, all of one time; the log assigns offsets.

    With the id and epoch of a producer they belong to its transaction.
    """
    timestamps = (timestamp_ms, timestamp_ms)
    attributes = 0 if producer == NOBODY else TRANSACTIONAL
    count = len(records)
    header = BatchHeader(
        0, 0, -1, MAGIC, 0, attributes, count - 1, *timestamps, *producer, NO_SEQUENCE, count
    )
    body = b"".join(_record(number, record) for number, record in enumerate(records))
    return assembled(header, body)[0]


def in_batches(records: Sequence[KeyValue]) -> Iterator[list[KeyValue]]:
    """Return the records in order, in batches of bounded size and encoding time."""
    batch: list[KeyValue] = []
    size = 0
    for record in records:
        size += len(record.key) + len(record.value or b"")
        if batch and (len(batch) == _RECORDS_MAX or size > _BYTES_MAX):
            yield batch
            batch, size = [], len(record.key) + len(record.value or b"")
        batch.append(record)
    if batch:
        yield batch


def _record(offset_delta: int, record: KeyValue) -> bytes:
    value = record.value
    body = b"".join(
        [
            b"\0\0",
            varint(offset_delta),
            varint(len(record.key)),
            record.key,
            _NULL if value is None else varint(len(value)) + value,
            _NO_HEADERS,
        ]
    )
    return varint(len(body)) + body
