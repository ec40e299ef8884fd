"""The log cleaner: compacts the logs whose topics ask for it, the dirtiest first (row L6).

The newest record of each key remains; offsets never change. First an `OffsetMap` learns the last
offset of each key in the dirty part. Then every batch from the log's start on is filtered by it:
`filtered` is pure, batch by batch.

A tombstone, a record without a value, remains until the delete horizon of its batch. The first
compaction that meets the batch sets the horizon, so that a consumer that began before has time to
read the tombstone (KIP-534).

A batch without records remains as a header in two cases. It is a producer's last, whose sequence
number must be known; or it ends a rewritten segment, so that the file shows where it ends.

Records of aborted transactions are removed, whatever their keys. A transaction's marker remains
while any of its batches does, and then until a delete horizon of its own.

`Cleaning` is the compaction of one log, in steps of bounded size for a worker. `LogCleaner` decides
on the event loop which log is next. It puts each finished segment in the place of those that it
replaces, in one turn of the loop, unless the log has changed meanwhile. `broker.log.segments.swap`
makes a crash at any step harmless.

Invariants:

- the newest record of each key remains, and no record changes its offset;
- the active segment and everything above the last stable offset stay untouched;
- a tombstone or a transaction marker remains until its delete horizon has passed;
- the last batch of a producer remains at least as a header, for its sequence number;
- a rewritten segment is durable before it replaces the old ones, and ends at the same offset.

It must not know leaders or followers: the last stable offset of the log bounds what it may compact.

Source: Apache Kafka's LogCleaner and Cleaner, KIP-534 (delete horizon), KIP-58 (compaction lag).
"""

from __future__ import annotations

import asyncio
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
from broker.log.segments import NO_TIMESTAMP, Segment, swap
from raftctl.errors import KafkaError, invariant
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.runtime.api import bind_log

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from broker.log.batches.records import Record
    from broker.log.directories import LogDirectory
    from broker.log.partition_log import PartitionLog
    from broker.log.partition_log.retention import SegmentFacts
    from broker.log.segments.aborted_index import AbortedTransaction
    from broker.log.settings import LogSettings
    from raftctl.runtime.api import Buffer, FileSystem, Runtime

_DIGEST_BYTES = 16
_ENTRY_BYTES = _DIGEST_BYTES + 8
"""The cost of a key by Apache Kafka's reckoning: see `log.cleaner.dedupe.buffer.size`."""
_RELATIVE_OFFSETS_MAX = 2**31 - 1
"""The largest span of the offsets of one segment."""
_STEP_BYTES = 256 << 10
"""The bytes of a log that are read before the worker, and the interpreter, is released."""
_COMPACT = "compact"
_DONE = object()


class OffsetMap:
    """The last offset of each key. Keys are kept as digests, so that their size does not count.

    Two keys with one digest would lose a record. With 128 bits that takes some 2^64 keys, and the
    digest cannot be aimed at, unlike Apache Kafka's MD5.
    """

    def __init__(self, buffer_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = max(buffer_bytes // _ENTRY_BYTES, 1)
        self.end_offset = 0
        """The offset from which on the map contains no key."""

    @property
    def is_full(self) -> bool:
        """True if no batch with new keys may be learnt."""
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
        # A record without a key can never be replaced, nor asked for: it goes. Such records are
        # from before the topic was compacted, since produced ones are refused.
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
    # A tombstone without a horizon stays: a consumer that has read the older record of its key may
    # be just before it, and would keep the key for ever.
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
        # The very bytes, so that a compaction that changes nothing is known, and dropped.
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
    spans = header.base_offset <= kept[0].offset and kept[-1].offset <= header.last_offset
    invariant(spans, "the records that remain keep their offsets, which the batch covers")
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
    """Part of a log that waits for compaction.

    A log is compacted from `first_dirty_offset` on when the dirty share of its bytes reaches
    `min.cleanable.dirty.ratio`, or when a record is overdue.
    """

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
    # A checkpoint beyond the log's end is of a log that was cut, or began again: all is dirty.
    if first_dirty > segments[-1].next_offset:
        first_dirty = segments[0].base_offset
    end_offset, overdue = segments[0].base_offset, False
    for one in segments[:-1]:
        too_young = now_ms - one.newest_timestamp < config.min_compaction_lag_ms
        # The first segment that must not be compacted ends the search: with a gap the newer record
        # of a key could go, and an older one beyond the gap remain.
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
    invariant(end_offset <= segments[-1].base_offset, "the active segment is not compacted")
    # The newer record of a key may be cut off again; then the older one would be gone, too.
    stable = end_offset <= max(stable_offset, segments[0].base_offset)
    invariant(stable, "records that may be cut or aborted are not compacted")
    ratio = dirty_bytes / (clean_bytes + dirty_bytes) if dirty_bytes else 0.0
    return Dirt(first_dirty, end_offset, ratio, overdue)


def grouped(sizes: Sequence[tuple[int, int, int]], config: TopicConfig) -> list[int]:
    """Return how many segments go into each new one, in order.

    `sizes` has (base offset, end offset, bytes) of each, before compaction. Small neighbours are
    put together, as Apache Kafka does: else a log whose records are all replaced would keep a file
    for each of its former segments.
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
    invariant(sum(groups) == len(sizes), "each segment is rewritten once")
    return groups


class Rewritten(NamedTuple):
    """A new segment, durable under other names, and those whose place it takes."""

    replaced: tuple[Segment, ...]
    segment: Segment


class Cleaning:
    """The compaction of one log. `steps` runs on a worker, to which the rest belongs meanwhile."""

    def __init__(
        self,
        files: FileSystem,
        log: PartitionLog,
        dirt: Dirt,
        *,
        now_ms: int,
        buffer_bytes: int,
    ) -> None:
        self._files = files
        self._directory = log.directory
        self._first_dirty = dirt.first_dirty_offset
        self.segments = log.complete_segments(dirt.end_offset)
        """The segments that must remain part of the log until they are replaced."""
        self._all = tuple(self.segments)
        self.truncations = log.truncations
        self._latest = OffsetMap(buffer_bytes)
        self._config = log.config
        self._now_ms = now_ms
        self._last_of_producers = log.producers.last_offsets()
        self._markers_of_producers = log.producers.without_batches()
        self._aborted = (
            log.aborted_between(self._all[0].base_offset, dirt.end_offset) if self._all else []
        )
        self.end_offset = dirt.first_dirty_offset
        """The offset up to which the log is compacted after all steps."""

    def steps(self) -> Generator[Rewritten | None, None, None]:
        """Yield each finished segment, and None wherever other work may run."""
        yield from self._learn()
        self.end_offset = self._latest.end_offset
        affected = [s for s in self._all if s.base_offset < self.end_offset and s.size]
        transactions = Transactions(self._aborted)
        sizes = [(s.base_offset, s.next_offset, s.size) for s in affected]
        first = 0
        for count in grouped(sizes, self._config):
            yield from self._rewrite(affected[first : first + count], transactions)
            first += count

    def _learn(self) -> Iterator[None]:
        transactions = Transactions(
            one for one in self._aborted if one.last_offset >= self._first_dirty
        )
        for segment in self._all:
            if segment.next_offset <= self._first_dirty:
                continue
            done = 0
            # A full map ends the dirty part at a batch. What lies above waits for the next
            # compaction, so a log of any size is compacted with bounded memory.
            for at in segment.batches(segment.position_of(self._first_dirty)):
                if self._latest.is_full:
                    return
                found = []
                if not transactions.is_dropped(at.header) and not at.header.is_control:
                    found = records.opened(segment.read_batch(at), at.header)
                self._latest.learn(at.header, found)
                if at.position - done >= _STEP_BYTES:
                    done = at.position
                    yield None

    def _rewrite(
        self, group: Sequence[Segment], transactions: Transactions
    ) -> Iterator[Rewritten | None]:
        # The last batch of each producer has its sequence number: without it the producer's next
        # batch would be out of order, or a repeated one would be stored twice.
        kept_ends = self._last_of_producers | {group[-1].next_offset - 1}
        rules = Rules(self._config, self._now_ms, kept_ends, self._markers_of_producers)
        base, ending = group[0].base_offset, swap.CLEANED
        # A compaction that was dropped, or that a crash broke off, may have left some of these.
        for path in swap.paths(self._directory, base, ending):
            if self._files.exists(path):
                self._files.remove(path)
        new = Segment(self._files, self._directory, base, self._config, ending=ending)
        done = False
        try:
            changed = yield from self._copy(group, new, rules, transactions)
            spans = new.next_offset == group[-1].next_offset
            invariant(spans, "compaction keeps the last batch of what it rewrites")
            if changed or len(group) > 1:
                new.sync()
                yield Rewritten(tuple(group), new)
                # Who asks for the next step has put the segment in its place.
                done = True
        finally:
            if not done:
                discard(self._files, new)

    def _copy(
        self, group: Sequence[Segment], new: Segment, rules: Rules, transactions: Transactions
    ) -> Generator[None, None, bool]:
        """Copy the records that remain; return whether any batch differs from before."""
        changed = False
        for segment in group:
            done = 0
            for at in segment.batches():
                # A repacked batch gets a correct CRC, so check the old one first.
                batch = segment.read_batch(at)
                kept = filtered(batch, at.header, self._latest, rules, transactions)
                changed |= kept is None or kept.data is not batch
                if kept is not None:
                    new.append([kept.data], kept.header)
                if at.position - done >= _STEP_BYTES:
                    done = at.position
                    yield None
        new.seal()
        return changed


def discard(files: FileSystem, segment: Segment) -> None:
    """Remove a segment that is not needed after all; blocks."""
    segment.close()
    for path in segment.paths():
        if files.exists(path):
            files.remove(path)


class LogCleaner:
    """Compacts the logs of all directories, one log at a time."""

    def __init__(
        self, runtime: Runtime, directories: Sequence[LogDirectory], settings: LogSettings
    ) -> None:
        self._runtime = runtime
        self._directories = directories
        self._settings = settings
        self._worker = runtime.worker("cleaner")
        self._refused: dict[PartitionLog, int] = {}
        """The logs that cannot be compacted, with the offset beyond which another attempt is made.
        """
        self._last_run_at: float | None = None
        """When logs were last looked at, by the loop's clock."""
        self.last_dirtiest = 0.0
        """The largest share of a log that waited for compaction then."""
        self.last_seconds = 0.0
        """How long the last compaction took."""
        self.last_kept = 0.0
        """The share of its bytes that it left."""

    @property
    def seconds_since_last_run(self) -> float:
        """The time since logs were last looked at; 0 before the first time."""
        last = self._last_run_at
        return 0.0 if last is None else asyncio.get_running_loop().time() - last

    def uncleanable(self, directory: LogDirectory) -> int:
        """Return how many logs of a directory cannot be compacted."""
        return sum(directory.logs.get(log.partition) is log for log in self._refused)

    async def clean(self) -> None:
        """Compact until no log is dirty enough.

        The next one is chosen again after each, since a compaction may take minutes.
        """
        while (found := self._dirtiest()) is not None:
            await self._compact(*found)

    async def close(self) -> None:
        """End the worker; wait for the step that is under way, which still reads files."""
        await self._worker.submit(lambda: None)
        self._worker.close()

    def _dirtiest(self) -> tuple[LogDirectory, PartitionLog, Dirt] | None:
        best: tuple[LogDirectory, PartitionLog, Dirt] | None = None
        now_ms = self._runtime.wall_ms()
        self._last_run_at = asyncio.get_running_loop().time()
        self.last_dirtiest = 0.0
        for directory in self._directories:
            for partition in sorted(directory.logs) if directory.offline is None else ():
                log = directory.logs[partition]
                if _COMPACT not in log.config.cleanup_policy or partition in directory.leaving:
                    continue
                try:
                    dirt = self._dirt(directory, log, now_ms)
                except KafkaError:
                    continue  # The log has taken its directory offline.
                self.last_dirtiest = max(self.last_dirtiest, dirt.ratio)
                due = dirt.overdue or dirt.ratio >= log.config.min_cleanable_dirty_ratio
                if dirt.ratio == 0 or not due or self._refused.get(log) == dirt.end_offset:
                    continue
                if best is None or (dirt.overdue, dirt.ratio) > (best[2].overdue, best[2].ratio):
                    best = directory, log, dirt
        return best

    @staticmethod
    def _dirt(directory: LogDirectory, log: PartitionLog, now_ms: int) -> Dirt:
        return dirt(
            log.segment_facts(),
            log.config,
            cleaned_to=directory.cleaned.get(log.partition, 0),
            stable_offset=log.last_stable_offset,
            now_ms=now_ms,
        )

    async def _compact(self, directory: LogDirectory, log: PartitionLog, dirt: Dirt) -> None:
        buffer_bytes = self._settings.cleaner_dedupe_buffer_bytes
        now_ms, before = self._runtime.wall_ms(), log.size
        begun_at = asyncio.get_running_loop().time()
        cleaning = Cleaning(
            self._runtime.files, log, dirt, now_ms=now_ms, buffer_bytes=buffer_bytes
        )
        cleaning.steps()
        try:
            done = await self._perform(cleaning, directory, log)
        except KafkaError as error:
            # Damaged records. The same attempt would fail in every round, and as the dirtiest log
            # it would keep all others from theirs: wait until there is more to compact.
            self._refused[log] = dirt.end_offset
            bind_log(self._runtime, logger="broker.log").error(
                "log_not_compacted", partition=str(log.partition), why=str(error)
            )
            return
        except OSError as error:
            # The files of a log that was deleted or cut meanwhile may be gone.
            if self._is_current(cleaning, directory, log):
                directory.fail(error)
            return
        if not done:
            return
        invariant(cleaning.end_offset <= dirt.end_offset, "no more is compacted than was decided")
        directory.cleaned[log.partition] = cleaning.end_offset
        self.last_seconds = asyncio.get_running_loop().time() - begun_at
        self.last_kept = log.size / before if before else 1.0
        bind_log(self._runtime, logger="broker.log").info(
            "log_compacted",
            partition=str(log.partition),
            to_offset=cleaning.end_offset,
            bytes_before=before,
            bytes_after=log.size,
        )

    async def _perform(
        self, cleaning: Cleaning, directory: LogDirectory, log: PartitionLog
    ) -> bool:
        """Run the steps; return False if the log changed so that they are no longer right.

        Compaction reads segments without a lock. A truncation meanwhile makes its decisions wrong:
        a key whose newest record was cut would lose the older one, too.
        """
        steps = cleaning.steps()
        try:
            while (step := await self._worker.submit(lambda: next(steps, _DONE))) is not _DONE:
                # What a step read from files that were closed meanwhile would be anything.
                if not self._is_current(cleaning, directory, log):
                    return False
                # In this very turn: the log cannot change between the check and the swap.
                if isinstance(step, Rewritten):
                    log.replace_segments(step.replaced, step.segment)
                    cleaning.segments = [s for s in cleaning.segments if s not in step.replaced]
            return True
        finally:
            await self._worker.submit(steps.close)

    @staticmethod
    def _is_current(cleaning: Cleaning, directory: LogDirectory, log: PartitionLog) -> bool:
        is_served = directory.logs.get(log.partition) is log and directory.offline is None
        whole = log.truncations == cleaning.truncations and log.has_segments(cleaning.segments)
        return is_served and whole and log.partition not in directory.leaving
