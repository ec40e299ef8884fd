"""What a produced batch must be before a topic takes it, and what the topic makes of it.

The records of every batch are walked: what no reader could read is never stored, and the header's
largest timestamp, by which retention and the time index go, is the records' own.
Source: Apache Kafka's validation of produced batches; KIP-467 for the records that are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.log import record_batch
from broker.log.compression import CODECS, LZ4, NAMES, compress, decompress, has_linked_blocks
from broker.log.record_batch import DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader
from broker.log.scanning import Scan, scan
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.topic_config import LONG_MAX

if TYPE_CHECKING:
    from raftctl.metadata.topic_config import TopicConfig
    from raftctl.runtime.api import Buffer

_AS_PRODUCED = "producer"
_BROKER_TIME = "LogAppendTime"
RECORDS_MAX = 250_000
"""In a batch. The walk is done on the event loop, at about two microseconds for each; small ones
compress so well that `max.message.bytes` alone would let in millions of them.
"""


class RecordsRefusedError(KafkaError):
    """Some records of the batch may not be in the topic: `records` are their indexes, and why."""

    def __init__(self, code: ErrorCode, message: str, records: dict[int, str]) -> None:
        super().__init__(code, message)
        self.records = records


class Checked(NamedTuple):
    """A batch that the topic takes."""

    batch: Buffer
    header: BatchHeader
    """As sent, but for the largest timestamp, which is the records' own."""
    records: Buffer
    """Not compressed."""


def checked(
    batch: Buffer, config: TopicConfig, now_ms: int, *, is_sequenced: bool = True
) -> Checked:
    """The batch if the topic takes it; `now_ms` is the wall clock.

    Raises KafkaError: what `check_produced` says, INVALID_RECORD for what cannot be read,
    MESSAGE_TOO_LARGE for more than RECORDS_MAX records.
    Raises RecordsRefusedError: INVALID_TIMESTAMP for records too far from the broker's time,
    INVALID_RECORD for those without a key in a compacted topic.
    """
    header = record_batch.check_produced(batch, config.max_message_bytes, is_sequenced=is_sequenced)
    if header.codec not in NAMES:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"codec {header.codec} is not known")
    if header.record_count > RECORDS_MAX:
        # Clients in Java divide a batch that is too large, and send the parts.
        text = f"a batch of {header.record_count} records; at most {RECORDS_MAX} are taken at once"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    if header.attributes & DELETE_HORIZON:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not set a delete horizon")
    wanted = Scan(header.base_timestamp, keys_needed="compact" in config.cleanup_policy)
    if config.message_timestamp_type != _BROKER_TIME:
        if header.attributes & LOG_APPEND_TIME:
            text = "only the broker may put its own time in"
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, text)
        wanted.newest = min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX)
        if config.message_timestamp_before_max_ms != LONG_MAX:
            wanted.oldest = now_ms - config.message_timestamp_before_max_ms
    records = _unpacked(batch, header)
    scan(records, header.record_count, wanted)
    _refuse(wanted, config)
    return Checked(batch, header._replace(max_timestamp=wanted.max_timestamp), records)


def _unpacked(batch: Buffer, header: BatchHeader) -> Buffer:
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    if header.codec == LZ4 and has_linked_blocks(packed):
        raise KafkaError(ErrorCode.INVALID_RECORD, "LZ4 blocks must not depend on each other")
    try:
        return decompress(header.codec, packed)
    except KafkaError as error:
        # Its CRC held, so this is what the client meant to send.
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from None


def _refuse(found: Scan, config: TopicConfig) -> None:
    if not found.untimely and not found.keyless:
        return
    late, early = config.message_timestamp_after_max_ms, config.message_timestamp_before_max_ms
    time = f"the timestamp is more than {late} ms ahead of the broker's or {early} ms behind"
    key = "a compacted topic takes no record without a key"
    named = dict.fromkeys(found.keyless, key) | dict.fromkeys(found.untimely, time)
    code = ErrorCode.INVALID_TIMESTAMP if found.untimely else ErrorCode.INVALID_RECORD
    first = min(named)
    text = f"{len(named)} records are refused; the first is record {first}: {named[first]}"
    raise RecordsRefusedError(code, text, dict(sorted(named.items())))


def stored(taken: Checked, config: TopicConfig, now_ms: int) -> tuple[Buffer, BatchHeader]:
    """The batch as the topic stores it: its codec, and the broker's time if it puts that in.

    Raises KafkaError: MESSAGE_TOO_LARGE if the other codec needs more than `max.message.bytes`,
    for consumers must be able to take what is stored; RECORD_LIST_TOO_LARGE if no segment holds it.
    """
    batch, header, records = taken
    wanted = config.compression_type
    if wanted != _AS_PRODUCED and CODECS[wanted] != header.codec:
        batch, header = _packed_anew(header, records, config)
        if header.size > config.max_message_bytes:
            text = f"the batch has {header.size} bytes as {wanted}, over max.message.bytes"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    if header.size > config.segment_bytes:
        text = f"the batch has {header.size} bytes, over segment.bytes, {config.segment_bytes}"
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, text)
    if config.message_timestamp_type == _BROKER_TIME:
        return record_batch.stamped(batch, header, now_ms)
    if header.max_timestamp != record_batch.parse_header(batch).max_timestamp:
        return record_batch.assembled(header, memoryview(batch)[HEADER_BYTES:])
    return batch, header


def _packed_anew(
    header: BatchHeader, records: Buffer, config: TopicConfig
) -> tuple[bytes, BatchHeader]:
    codec = CODECS[config.compression_type]
    attributes = header.attributes & ~record_batch.CODEC_MASK | codec
    changed = header._replace(attributes=attributes)
    return record_batch.assembled(changed, compress(codec, records, config))
