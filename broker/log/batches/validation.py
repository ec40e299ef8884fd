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
    MAGIC,
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


class NotOneBatchError(KafkaError):
    """No partition takes it, whatever it has: a request may bring one batch of magic 2."""


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
    MESSAGE_TOO_LARGE if the topic's codec needs more than `max.message.bytes`,
    RECORD_LIST_TOO_LARGE if no segment holds it.
    Raises RecordsRefusedError: INVALID_TIMESTAMP for records too far from the broker's time,
    INVALID_RECORD for those without a key in a compacted topic.
    """
    header = check_produced(batch, config, is_sequenced=is_sequenced)
    records = _unpacked(batch, header)
    return _stored(batch, header, records, config, now_ms, pause)


def prepared_at_once(batch: Buffer, config: TopicConfig, now_ms: int) -> Prepared | None:
    """Return the batch as `prepared` does, for the event loop; None if that may take long.

    Then nothing is decided yet, not even an error: a worker prepares the batch from the start.
    """
    if len(batch) > AT_ONCE_BYTES_MAX:
        return None
    header = check_produced(batch, config)
    if header.record_count > AT_ONCE_RECORDS_MAX:
        return None
    try:
        records = _unpacked(batch, header, AT_ONCE_OPENED_BYTES_MAX)
    except KafkaError:
        # It is too large, or broken: to find out which may take long.
        return None
    if len(records) > AT_ONCE_OPENED_BYTES_MAX and _changes_codec(header, config):
        return None
    return _stored(batch, header, records, config, now_ms)


def check_produced(batch: Buffer, config: TopicConfig, *, is_sequenced: bool = True) -> BatchHeader:
    """Return the header of the one batch that a client may send to a partition.

    Only what the broker writes itself may lack a sequence number (`is_sequenced`).

    Raises KafkaError: MESSAGE_TOO_LARGE, also for more than RECORDS_MAX records, CORRUPT_MESSAGE,
    or INVALID_RECORD, also for the formats before magic 2. One of a later magic is no batch at all.
    MESSAGE_TOO_LARGE by size comes first: clients divide such a batch, and give up on the others.
    """
    size = len(batch)
    if size < HEADER_BYTES:
        raise NotOneBatchError(ErrorCode.INVALID_RECORD, f"{size} bytes are no record batch")
    header = record_batch.parse_header(batch)
    if header.magic != MAGIC:
        is_old = 0 <= header.magic < MAGIC
        code = ErrorCode.INVALID_RECORD if is_old else ErrorCode.CORRUPT_MESSAGE
        raise NotOneBatchError(code, f"record format {header.magic} is not supported, only {MAGIC}")
    if size > config.max_message_bytes:
        text = f"batch of {size} bytes exceeds max.message.bytes, {config.max_message_bytes}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    claimed = header.size
    if HEADER_BYTES <= claimed < size:
        raise NotOneBatchError(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    if claimed > size:
        raise NotOneBatchError(ErrorCode.INVALID_RECORD, "less than one batch for a partition")
    # The CRC comes before the fields: in damaged bytes a field would be blamed that was sent right.
    if claimed != size or not record_batch.crc_matches(batch, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "length or CRC32C of the batch is wrong")
    wrong = _field_problem(header)
    if wrong is None and is_sequenced and header.producer_id >= 0 and header.base_sequence < 0:
        wrong = "a producer id without sequence"
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_RECORD, wrong)
    if header.record_count > RECORDS_MAX:
        # Clients in Java divide a batch that is too large, and send the parts.
        text = f"a batch of {header.record_count} records; at most {RECORDS_MAX} are taken at once"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    return header


def _field_problem(header: BatchHeader) -> str | None:
    """Return what a client may not have sent; None if each field may be as it is."""
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        return f"{header.record_count} records but last offset delta {header.last_offset_delta}"
    if header.is_control:
        return "clients may not write control batches"
    if header.producer_id >= 0 and header.producer_epoch < 0:
        return "a producer id without epoch"
    if header.is_transactional and header.producer_id < 0:
        return "a transactional batch without a producer id"
    if header.base_offset != 0:
        return f"the batch begins at offset {header.base_offset}: brokers give offsets, send 0"
    if header.codec not in NAMES:
        return f"codec {header.codec} is not known"
    if header.attributes & DELETE_HORIZON:
        return "clients may not set a delete horizon"
    return None


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
    batch: Buffer,
    sent: BatchHeader,
    records: Buffer,
    config: TopicConfig,
    now_ms: int,
    pause: Callable[[], None] | None = None,
) -> Prepared:
    """Walk the records; return the batch as the topic stores it."""
    # Without a key a record of a compacted topic could never be replaced, and so never removed.
    wanted = Scan(sent.base_timestamp, keys_needed="compact" in config.cleanup_policy)
    # Where the broker's time replaces the producers', theirs may be anything.
    keeps_time = config.message_timestamp_type != _BROKER_TIME
    if keeps_time:
        wanted.newest = min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX)
        if config.message_timestamp_before_max_ms != LONG_MAX:
            wanted.oldest = now_ms - config.message_timestamp_before_max_ms
    scan(records, sent.record_count, wanted, pause)
    if wanted.untimely or wanted.keyless:
        raise _refusal(wanted, config)
    # Whose time the records bear is the topic's to say.
    attributes = sent.attributes & ~LOG_APPEND_TIME
    header = sent._replace(max_timestamp=wanted.max_timestamp, attributes=attributes)
    if _changes_codec(header, config):
        batch, header = _repacked(header, records, config)
        if header.size > config.max_message_bytes:
            # Consumers must be able to take what is stored.
            codec = config.compression_type
            text = f"the batch has {header.size} bytes as {codec}, over max.message.bytes"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    elif header != sent and keeps_time:
        batch, header = record_batch.assembled(header, memoryview(batch)[HEADER_BYTES:])
    if header.size > config.segment_bytes:
        text = f"the batch has {header.size} bytes, over segment.bytes, {config.segment_bytes}"
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, text)
    # Retention and the time index go by the header: with the client's own number a record from
    # the future would keep its segment for ever, and one from the past would not be found.
    same_time = header.max_timestamp == wanted.max_timestamp
    invariant(same_time, "the header has its records' newest time")
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
