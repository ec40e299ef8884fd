"""The records of a compacted log that remain (row L6): pure, batch by batch.

The newest record of each key remains; offsets never change. First an `OffsetMap` learns the last
offset of each key in the dirty part. Then every batch from the log's start on is filtered by it.

A tombstone, a record without a value, remains until the delete horizon of its batch. The first
compaction that meets the batch sets the horizon, so that a consumer that began before has time to
read the tombstone (KIP-534).

A batch without records remains as a header in two cases. It is a producer's last, whose sequence
number must be known; or it ends a rewritten segment, so that the file shows where it ends.

Records of aborted transactions are removed, whatever their keys. A transaction's marker remains
while any of its batches does, and then until a delete horizon of its own.
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
"""The cost of a key by Apache Kafka's reckoning: see `log.cleaner.dedupe.buffer.size`."""
_RELATIVE_OFFSETS_MAX = 2**31 - 1
"""The largest span of the offsets of one segment."""


class OffsetMap:
    """The last offset of each key. Keys are kept as digests, so that their size does not count."""

    def __init__(self, buffer_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = max(buffer_bytes // _ENTRY_BYTES, 1)
        self.end_offset = 0
        """The offset from which on the map contains no key."""

    @property
    def is_full(self) -> bool:
        """Whether no batch with new keys may be learnt."""
        return len(self._offsets) >= self._keys_max

    def learn(self, header: BatchHeader, found: Sequence[Record]) -> None:
        """Add the records of a batch; batches must come in the order of the log."""
        for record in found:
            if record.key is not None:
                self._offsets[_digest(record.key)] = record.offset
        invariant(header.base_offset >= self.end_offset, "batches are learnt in the log's order")
        self.end_offset = header.next_offset

    def is_latest(self, record: Record) -> bool:
        """Return whether no later record of the same key is known."""
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
    """The parameters of one compaction."""

    config: TopicConfig
    now_ms: int
    """Wall clock."""
    kept_ends: frozenset[int]
    """The last offsets of batches that remain even without records."""
    kept_markers: frozenset[tuple[int, int]] = frozenset()
    """(producer id, epoch) whose markers remain, because nothing else in the log has the epoch."""


class Transactions:
    """The transactions that are open while a log's batches are read in order.

    Says which batches belong to aborted transactions, and which markers end a transaction of which
    no batch is left.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: the transactions that may have batches from the first one read on."""
        self._coming = deque(sorted(aborted, key=lambda one: one.first_offset))
        self._aborted: set[int] = set()
        """The producers whose currently open transaction was aborted."""
        self._seen: set[int] = set()
        """The producers with a batch in their currently open transaction."""

    def is_dropped(self, header: BatchHeader) -> bool:
        """Return whether a batch belongs to an aborted transaction, or is a marker of an empty one.

        To be called once for each batch, in the order of the log.
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
    """A batch after compaction."""

    data: Buffer
    header: BatchHeader


def filtered(
    batch: Buffer,
    header: BatchHeader,
    latest: OffsetMap,
    rules: Rules,
    transactions: Transactions,
) -> Filtered | None:
    """Return the batch with the records that remain; None if nothing does.

    Raises KafkaError(CORRUPT_MESSAGE) if the records cannot be read.
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
    """Return a marker, rewritten with a delete horizon, or None.

    Without its transaction's batches it still has the producer's epoch, which a replica that copies
    the log must learn. So it is removed as slowly as a tombstone.
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
    """The share of uncompacted bytes in those that may be compacted."""
    overdue: bool
    """Whether a record has waited for longer than `max.compaction.lag.ms`."""


def dirt(
    segments: Sequence[SegmentFacts],
    config: TopicConfig,
    *,
    cleaned_to: int,
    stable_offset: int,
    now_ms: int,
) -> Dirt:
    """Return what may be compacted: complete segments below the last stable offset, old enough.

    `cleaned_to` is the offset at which the last compaction ended.
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
    """Return how many segments go into each new one, in order.

    `sizes` has (base offset, end offset, bytes) of each.
    """
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
