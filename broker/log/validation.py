"""What a produced batch must be before a topic takes it, and what the topic makes of it.

The header is enough for most topics, and then the records stay as they came. They are opened only
where the topic asks for it: it is compacted and needs keys, it stores another codec, or it bounds
how old records may be. Source: Apache Kafka's validation of produced batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log import record_batch, records
from broker.log.compression import CODECS, NAMES, compress
from broker.log.record_batch import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.topic_config import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.log.records import Record
    from raftctl.metadata.topic_config import TopicConfig
    from raftctl.runtime.api import Buffer

_AS_PRODUCED = "producer"
_BROKER_TIME = "LogAppendTime"


def checked(
    batch: Buffer, config: TopicConfig, now_ms: int, *, is_sequenced: bool = True
) -> BatchHeader:
    """The header of a batch that the topic takes; `now_ms` is the wall clock.

    Raises KafkaError: what `check_produced` says, INVALID_TIMESTAMP for records too far from the
    broker's time, INVALID_RECORD for one without a key in a compacted topic.
    """
    header = record_batch.check_produced(batch, config.max_message_bytes, is_sequenced=is_sequenced)
    if header.codec not in NAMES:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"codec {header.codec} is not known")
    if header.attributes & DELETE_HORIZON:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not set a delete horizon")
    if config.message_timestamp_type != _BROKER_TIME:
        _check_time(batch, header, config, now_ms)
    if "compact" in config.cleanup_policy and any(
        record.key is None for record in _opened(batch, header)
    ):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a compacted topic takes no record without key")
    return header


def _check_time(batch: Buffer, header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    if header.attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker may put its own time in")
    after_ms, before_ms = (
        config.message_timestamp_after_max_ms,
        config.message_timestamp_before_max_ms,
    )
    if header.max_timestamp - now_ms > after_ms:
        text = f"timestamp {header.max_timestamp} is more than {after_ms} ms ahead of the broker's"
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, text)
    if before_ms == LONG_MAX:
        return
    oldest = min(record.timestamp for record in _opened(batch, header))
    if now_ms - oldest > before_ms:
        text = f"timestamp {oldest} is more than {before_ms} ms behind the broker's"
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, text)


def _opened(batch: Buffer, header: BatchHeader) -> Sequence[Record]:
    try:
        return records.opened(batch, header, is_new=True)
    except KafkaError as error:
        # Its CRC held, so this is what the client meant to send.
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from None


def stored(
    batch: Buffer, header: BatchHeader, config: TopicConfig, now_ms: int
) -> tuple[Buffer, BatchHeader]:
    """The batch as the topic stores it: its codec, and the broker's time if it puts that in.

    Raises KafkaError: INVALID_RECORD as `checked`, MESSAGE_TOO_LARGE if the other codec needs more
    than `max.message.bytes`: consumers must be able to take what is stored.
    """
    wanted = config.compression_type
    if wanted != _AS_PRODUCED and CODECS[wanted] != header.codec:
        batch, header = _packed_anew(batch, header, config)
        if header.size > config.max_message_bytes:
            text = f"the batch has {header.size} bytes as {wanted}, over max.message.bytes"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    if config.message_timestamp_type == _BROKER_TIME:
        return record_batch.stamped(batch, header, now_ms)
    return batch, header


def _packed_anew(
    batch: Buffer, header: BatchHeader, config: TopicConfig
) -> tuple[bytes, BatchHeader]:
    codec = CODECS[config.compression_type]
    data = b"".join(record.raw for record in _opened(batch, header))
    attributes = header.attributes & ~record_batch.CODEC_MASK | codec
    changed = header._replace(attributes=attributes)
    return record_batch.assembled(changed, compress(codec, data, config))
