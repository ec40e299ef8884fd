"""Which records of a compacted log stay (row L6): pure, batch by batch.

The newest record of each key stays; offsets never change. First an `OffsetMap` learns where each
key of the dirty part stands last, then every batch from the log's start on is filtered by it.
A record without a value, a tombstone, stays until the delete horizon of its batch, which the first
compaction that meets it sets, so that a consumer that began before has time to read it (KIP-534).
A batch that has lost all its records stays as a header if it is a producer's last, whose sequence
number must be known, or ends what is rewritten, so that a file says where it ends.
Records of aborted transactions go, whatever their keys. The marker of a transaction stays as long
as any of its batches was there, and then until a delete horizon of its own.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker.log.batches import records
from broker.log.batches.compression import NONE, compress
from broker.log.batches.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_PRODUCER,
    BatchHeader,
    assembled,
)
from broker.log.segments import NO_TIMESTAMP
from raftctl.errors import invariant
from raftctl.metadata.configs.topic import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.log.batches.records import Record
    from broker.log.partition_log.retention import SegmentFacts
    from broker.log.segments.aborted_index import AbortedTransaction
    from raftctl.runtime.api import Buffer

_DIGEST_BYTES = 16
_ENTRY_BYTES = _DIGEST_BYTES + 8
"""What a key costs by Apache Kafka's reckoning: see `log.cleaner.dedupe.buffer.size`."""
_RELATIVE_OFFSETS_MAX = 2**31 - 1
"""So far apart may the offsets of one segment be."""


class OffsetMap:
    """The last offset of each key. Keys are kept as digests, so that their size does not count."""

    def __init__(self, buffer_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = max(buffer_bytes // _ENTRY_BYTES, 1)
        self.end_offset = 0
        """The map says nothing about what is at or above this offset."""

    @property
    def is_full(self) -> bool:
        """Whether no batch with new keys may be learnt."""
        return len(self._offsets) >= self._keys_max

    def learn(self, header: BatchHeader, found: Sequence[Record]) -> None:
        """Takes in a batch; they must come in the order of the log."""
        for record in found:
            if record.key is not None:
                self._offsets[_digest(record.key)] = record.offset
        invariant(header.base_offset >= self.end_offset, "batches are learnt in the log's order")
        self.end_offset = header.next_offset

    def is_latest(self, record: Record) -> bool:
        """Whether no later record of the same key is known."""
        if record.offset >= self.end_offset:
            return True
        # A record without a key can never be replaced, nor asked for: it goes.
        return record.key is not None and record.offset >= self._offsets.get(
            _digest(record.key), -1
        )


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Rules:
    """What one compaction goes by."""

    config: TopicConfig
    now_ms: int
    """Wall clock."""
    kept_ends: frozenset[int]
    """Last offsets of batches that stay even without records."""
    kept_markers: frozenset[tuple[int, int]] = frozenset()
    """(producer id, epoch) whose markers stay: nothing else in the log tells the epoch."""


class Transactions:
    """Goes through a log beside who reads its batches: which belong to aborted transactions, and
    which markers end a transaction of which no batch is left.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are those that may have batches where the reading begins, and after it."""
        self._coming = deque(sorted(aborted, key=lambda one: one.first_offset))
        self._aborted: set[int] = set()
        """The producers whose transaction, open where the reading is, was aborted."""
        self._seen: set[int] = set()
        """The producers with a batch in the transaction that is open where the reading is."""

    def is_dropped(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to an aborted transaction, or a marker to none.

        Of each batch this is asked once, in the order of the log.
        """
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            self._aborted.add(self._coming.popleft().producer_id)
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER:
            return False
        if header.is_control:
            self._aborted.discard(producer_id)
            has_batches = producer_id in self._seen
            self._seen.discard(producer_id)
            return not has_batches
        if not header.is_transactional:
            return False
        self._seen.add(producer_id)
        return producer_id in self._aborted


class Filtered(NamedTuple):
    """What is left of a batch."""

    data: Buffer
    header: BatchHeader


def filtered(
    batch: Buffer,
    header: BatchHeader,
    latest: OffsetMap,
    rules: Rules,
    transactions: Transactions,
) -> Filtered | None:
    """The batch with the records that stay; None if nothing stays.

    KafkaError(CORRUPT_MESSAGE) if the records cannot be read.
    """
    dropped = transactions.is_dropped(header)
    found = records.opened(batch, header)
    offsets = [record.offset for record in found]
    invariant(offsets == sorted(set(offsets)), "offsets of records increase")
    if header.is_control:
        return _marker(Filtered(batch, header), found, rules, dropped=dropped)
    if dropped:
        found = []
    horizon = header.delete_horizon_ms
    drop_tombstones = horizon is not None and rules.now_ms >= horizon
    kept = [
        record
        for record in found
        if latest.is_latest(record) and (record.has_value or not drop_tombstones)
    ]
    if not kept:
        return _empty(header) if header.last_offset in rules.kept_ends else None
    sets_horizon = horizon is None and not all(record.has_value for record in kept)
    if len(kept) == len(found) and not sets_horizon:
        return Filtered(batch, header)
    if sets_horizon:
        horizon = rules.now_ms + rules.config.delete_retention_ms
    return _rebuilt(header, kept, horizon, rules.config)


def _marker(
    whole: Filtered, found: Sequence[Record], rules: Rules, *, dropped: bool
) -> Filtered | None:
    """What becomes of a marker. Without its transaction's batches it still tells the epoch to who
    copies the log, so it goes as slowly as a tombstone.
    """
    header, horizon = whole.header, whole.header.delete_horizon_ms
    if not dropped or (header.producer_id, header.producer_epoch) in rules.kept_markers:
        return whole
    if found and horizon is None:
        later = rules.now_ms + rules.config.delete_retention_ms
        return _rebuilt(header, found, later, rules.config)
    if found and horizon is not None and rules.now_ms < horizon:
        return whole
    return _empty(header) if header.last_offset in rules.kept_ends else None


def _rebuilt(
    header: BatchHeader, kept: Sequence[Record], horizon_ms: int | None, config: TopicConfig
) -> Filtered:
    changed = header._replace(record_count=len(kept))
    if not header.attributes & LOG_APPEND_TIME:
        changed = changed._replace(max_timestamp=max(record.timestamp for record in kept))
    if horizon_ms is not None and header.delete_horizon_ms is None:
        # The horizon has no field of its own: it takes the base timestamp's, from which the
        # records' own are counted.
        attributes = header.attributes | DELETE_HORIZON
        changed = changed._replace(attributes=attributes, base_timestamp=horizon_ms)
        data = b"".join(records.encoded(record, changed) for record in kept)
    else:
        data = b"".join(record.raw for record in kept)
    return Filtered(*assembled(changed, compress(header.codec, data, config)))


def _empty(header: BatchHeader) -> Filtered:
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON) | NONE
    changed = header._replace(attributes=attributes, record_count=0, base_timestamp=NO_TIMESTAMP)
    return Filtered(*assembled(changed, b""))


# --- which logs, how much of them -----------------------------------------------------------------


class Dirt(NamedTuple):
    """How much of a log waits for compaction."""

    first_dirty_offset: int
    end_offset: int
    """The first offset that must not be compacted yet."""
    ratio: float
    """Uncompacted bytes by all that may be compacted."""
    overdue: bool
    """Whether `max.compaction.lag.ms` is over."""


def dirt(
    segments: Sequence[SegmentFacts],
    config: TopicConfig,
    *,
    cleaned_to: int,
    stable_offset: int,
    now_ms: int,
) -> Dirt:
    """What may be compacted: complete segments below the last stable offset, old enough.

    `cleaned_to` is where the last compaction ended.
    """
    clean_bytes = dirty_bytes = 0
    first_dirty = max(cleaned_to, segments[0].base_offset)
    if first_dirty > segments[-1].next_offset:
        first_dirty = segments[0].base_offset
    end_offset, overdue = segments[0].base_offset, False
    for one in segments[:-1]:
        too_young = now_ms - one.newest_timestamp < config.min_compaction_lag_ms
        if one.next_offset > stable_offset or (config.min_compaction_lag_ms and too_young):
            break
        end_offset = one.next_offset
        if one.next_offset <= first_dirty:
            clean_bytes += one.size
            continue
        dirty_bytes += one.size
        age_ms = now_ms - one.newest_timestamp
        if one.newest_timestamp != NO_TIMESTAMP and age_ms > config.max_compaction_lag_ms:
            overdue = True
    ratio = dirty_bytes / (clean_bytes + dirty_bytes) if dirty_bytes else 0.0
    return Dirt(first_dirty, end_offset, ratio, overdue)


def grouped(sizes: Sequence[tuple[int, int, int]], config: TopicConfig) -> list[int]:
    """How many segments of (base offset, end offset, bytes) go into each new one, in order."""
    groups: list[int] = []
    group_bytes = group_base = 0
    for base_offset, end_offset, size in sizes:
        fits = groups and group_bytes + size <= config.segment_bytes
        if fits and end_offset - group_base <= _RELATIVE_OFFSETS_MAX:
            groups[-1] += 1
            group_bytes += size
        else:
            groups.append(1)
            group_bytes, group_base = size, base_offset
    return groups
