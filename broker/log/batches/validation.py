"""What a produced batch must be before a topic takes it, and what the topic makes of it.

The records of every batch are walked: what no reader could read is never stored, and the header's
largest timestamp, by which retention and the time index go, is the records' own.
Source: Apache Kafka's validation of produced batches; KIP-467 for the records that are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log.batches import record_batch
from broker.log.batches._scanning import Scan, scan
from broker.log.batches.compression import (
    CODECS,
    LZ4,
    NAMES,
    OPENED_BYTES_MAX,
    compress,
    decompress,
    has_linked_blocks,
)
from broker.log.batches.record_batch import (
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
)
from broker.types import Prepared
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.integers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.runtime.api import Buffer

_AS_PRODUCED = "producer"
_BROKER_TIME = "LogAppendTime"
RECORDS_MAX = 250_000
"""In a batch. The walk takes about two microseconds for each; small ones compress so well that
`max.message.bytes` alone would let in millions of them.
"""
AT_ONCE_RECORDS_MAX = 4_000
"""Of a batch that is prepared on the event loop: eight milliseconds of walking."""
AT_ONCE_BYTES_MAX = 4 << 20
"""The same for its size, of which a checksum is taken: a few milliseconds."""
AT_ONCE_OPENED_BYTES_MAX = 512 << 10
"""The same for what is unpacked, and may be repacked: gzip takes 20 ms for as much."""


class RecordsRefusedError(KafkaError):
    """Some records of the batch may not be in the topic: `records` are their indexes, and why."""

    def __init__(self, code: ErrorCode, message: str, records: dict[int, str]) -> None:
        super().__init__(code, message)
        self.records = records


def prepared(
    batch: Buffer,
    config: TopicConfig,
    now_ms: int,
    *,
    is_sequenced: bool = True,
    pause: Callable[[], None] | None = None,
) -> Prepared:
    """Return the batch if the topic takes it, in the topic's codec; `now_ms` is the wall clock.

    `pause` is called now and then during a long walk, see `Worker.pause`.

    Raises KafkaError: what `check_produced` says, INVALID_RECORD for what cannot be read,
    MESSAGE_TOO_LARGE for more than RECORDS_MAX records, or if the topic's codec needs more than
    `max.message.bytes`; RECORD_LIST_TOO_LARGE if no segment holds it.
    Raises RecordsRefusedError: INVALID_TIMESTAMP for records too far from the broker's time,
    INVALID_RECORD for those without a key in a compacted topic.
    """
    header = _header(batch, config, is_sequenced=is_sequenced)
    records = _unpacked(batch, header)
    return _prepared(batch, header, records, config, now_ms, pause)


def prepared_at_once(batch: Buffer, config: TopicConfig, now_ms: int) -> Prepared | None:
    """Return the batch as `prepared` does, for the event loop; None if that may take long.

    Then nothing is decided yet, not even an error: a worker prepares the batch from the start.
    """
    if len(batch) > AT_ONCE_BYTES_MAX:
        return None
    header = _header(batch, config, is_sequenced=True)
    if header.record_count > AT_ONCE_RECORDS_MAX:
        return None
    try:
        records = _unpacked(batch, header, AT_ONCE_OPENED_BYTES_MAX)
    except KafkaError:
        # It is too large, or broken: to find out which may take long.
        return None
    if len(records) > AT_ONCE_OPENED_BYTES_MAX and _changes_codec(header, config):
        return None
    return _prepared(batch, header, records, config, now_ms, None)


def _header(batch: Buffer, config: TopicConfig, *, is_sequenced: bool) -> BatchHeader:
    header = record_batch.check_produced(batch, config.max_message_bytes, is_sequenced=is_sequenced)
    if header.codec not in NAMES:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"codec {header.codec} is not known")
    if header.record_count > RECORDS_MAX:
        # Clients in Java divide a batch that is too large, and send the parts.
        text = f"a batch of {header.record_count} records; at most {RECORDS_MAX} are taken at once"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    if header.attributes & DELETE_HORIZON:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not set a delete horizon")
    return header


def _prepared(
    batch: Buffer,
    header: BatchHeader,
    records: Buffer,
    config: TopicConfig,
    now_ms: int,
    pause: Callable[[], None] | None,
) -> Prepared:
    # Without a key a record of a compacted topic could never be replaced, and so never removed.
    wanted = Scan(header.base_timestamp, keys_needed="compact" in config.cleanup_policy)
    # Where the broker's time replaces the producers', theirs may be anything.
    if config.message_timestamp_type != _BROKER_TIME:
        wanted.newest = min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX)
        if config.message_timestamp_before_max_ms != LONG_MAX:
            wanted.oldest = now_ms - config.message_timestamp_before_max_ms
    scan(records, header.record_count, wanted, pause)
    if wanted.untimely or wanted.keyless:
        raise _refusal(wanted, config)
    return _stored(batch, header, records, config, wanted.max_timestamp)


def _unpacked(batch: Buffer, header: BatchHeader, bytes_max: int = OPENED_BYTES_MAX) -> Buffer:
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    if header.codec == LZ4 and has_linked_blocks(packed):
        raise KafkaError(ErrorCode.INVALID_RECORD, "LZ4 blocks must not depend on each other")
    try:
        return decompress(header.codec, packed, bytes_max)
    except KafkaError as error:
        # Its CRC held, so this is what the client meant to send.
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from None


def _refusal(found: Scan, config: TopicConfig) -> RecordsRefusedError:
    """Return the error that names every record which the topic does not take (KIP-467)."""
    late, early = config.message_timestamp_after_max_ms, config.message_timestamp_before_max_ms
    time = f"the timestamp is more than {late} ms ahead of the broker's or {early} ms behind"
    key = "a compacted topic takes no record without a key"
    named = dict.fromkeys(found.keyless, key) | dict.fromkeys(found.untimely, time)
    code = ErrorCode.INVALID_TIMESTAMP if found.untimely else ErrorCode.INVALID_RECORD
    first = min(named)
    text = f"{len(named)} records are refused; the first is record {first}: {named[first]}"
    return RecordsRefusedError(code, text, dict(sorted(named.items())))


def _changes_codec(header: BatchHeader, config: TopicConfig) -> bool:
    wanted = config.compression_type
    return wanted != _AS_PRODUCED and CODECS[wanted] != header.codec


def _stored(
    batch: Buffer, sent: BatchHeader, records: Buffer, config: TopicConfig, max_timestamp: int
) -> Prepared:
    # Whose time the records bear is the topic's to say.
    attributes = sent.attributes & ~LOG_APPEND_TIME
    header = sent._replace(max_timestamp=max_timestamp, attributes=attributes)
    if _changes_codec(header, config):
        batch, header = _repacked(header, records, config)
        if header.size > config.max_message_bytes:
            # Consumers must be able to take what is stored.
            wanted = config.compression_type
            text = f"the batch has {header.size} bytes as {wanted}, over max.message.bytes"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    elif header != sent and config.message_timestamp_type != _BROKER_TIME:
        batch, header = record_batch.assembled(header, memoryview(batch)[HEADER_BYTES:])
    if header.size > config.segment_bytes:
        text = f"the batch has {header.size} bytes, over segment.bytes, {config.segment_bytes}"
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, text)
    # Retention and the time index go by the header: with the client's own number a record from
    # the future would keep its segment for ever, and one from the past would not be found.
    invariant(header.max_timestamp == max_timestamp, "the header has its records' newest time")
    # The log gives offsets by the header, the client counts its records: both must agree.
    same_span = header.last_offset_delta == sent.last_offset_delta
    invariant(same_span, "a repacked batch covers the offsets that it covered")
    return Prepared(batch, header)


def _repacked(
    header: BatchHeader, records: Buffer, config: TopicConfig
) -> tuple[bytes, BatchHeader]:
    codec = CODECS[config.compression_type]
    attributes = header.attributes & ~record_batch.CODEC_MASK | codec
    changed = header._replace(attributes=attributes)
    return record_batch.assembled(changed, compress(codec, records, config))
