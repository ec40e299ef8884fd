"""Transaction markers: control batches that end a producer's transaction in a partition (row T2).

A marker is a batch of one record, whose key names the kind and whose value the epoch of the
coordinator that decided. Only a transaction coordinator has them written. Source: KIP-98, and
"Control Batches" in the Apache Kafka protocol documentation (EndTxnMarker version 0).
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

from broker.log.batches import record_batch, records
from broker.log.batches.record_batch import (
    CONTROL,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
)
from raftctl.errors import invariant

if TYPE_CHECKING:
    from broker.types import EndMarker
    from raftctl.runtime.api import Buffer

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_UNSET = -1


class MarkerKind(enum.IntEnum):
    """Outcome of a transaction."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """Content of a marker."""

    kind: MarkerKind
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition of `__transaction_state`."""


def encoded(marker: EndMarker, now_ms: int) -> tuple[bytes, BatchHeader]:
    """Return the control batch, not placed in a log yet; `now_ms` is the wall clock.

    It has no sequence number: a coordinator repeats a marker until it is answered, and the log
    recognises the repetition by the coordinator's epoch and the producer's state.
    """
    invariant(marker.producer_id != NO_PRODUCER, "a marker ends the transaction of a producer")
    kind = MarkerKind.COMMIT if marker.commit else MarkerKind.ABORT
    key = _KEY.pack(_VERSION, kind)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    tail = b"".join(
        [records.varint(len(key)), key, records.varint(len(value)), value, records.varint(0)]
    )
    body = b"\0" + records.varint(0) + records.varint(0) + tail
    header = BatchHeader(
        base_offset=0,
        length=_UNSET,
        leader_epoch=_UNSET,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return record_batch.assembled(header, records.varint(len(body)) + body)


def parse(batch: Buffer, header: BatchHeader) -> Marker | None:
    """Return the marker in a control batch; None if compaction emptied it, or for another kind.

    Raises KafkaError(CORRUPT_MESSAGE) if the record cannot be read.
    """
    if header.producer_id == NO_PRODUCER:
        return None
    found = records.opened(batch, header)
    key, value = (found[0].key, records.value_of(found[0])) if found else (None, None)
    if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
        return None
    _, kind = _KEY.unpack_from(key)
    if kind not in (MarkerKind.ABORT, MarkerKind.COMMIT):
        return None
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return Marker(MarkerKind(kind), coordinator_epoch)
