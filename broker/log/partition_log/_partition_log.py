"""`PartitionLog`: the segments of one partition, with its leader epochs and producers.

Decides where a batch goes, what a read returns, what recovery keeps. It knows no leader, no
follower and no waiting: `high_watermark` is only kept here so that a checkpoint finds it.

Appends and reads use the page cache on the event loop; nothing here waits for the disk but the
calls that `flush_plan` hands out, which run on the log directory's worker. How a log that was on
disk becomes one of these is `broker.log.partition_log._opening`.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Unpack

from broker.log.batches import markers, record_batch, records, validation
from broker.log.batches.record_batch import NO_PRODUCER, BatchHeader
from broker.log.partition_log._flush import Durability
from broker.log.partition_log.retention import SegmentFacts, expired
from broker.log.producers import ProducerStates
from broker.log.segments import Segment, SegmentList, swap
from broker.types import EpochEndOffset, Prepared
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from uuid import UUID

    from broker.log.batches.records import Search, TimestampOffset
    from broker.log.partition_log._flush import Flusher, FlushPlan
    from broker.log.segments import Limits, Place
    from broker.log.segments.aborted_index import AbortedTransaction
    from broker.types import EndMarker, TopicPartition
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.runtime.api import Buffer, FileSystem, Piece


UNKNOWN_EPOCH_END = EpochEndOffset(-1, -1)
UP_TO_HIGH_WATERMARK = -1
"""The offset of a DeleteRecords request that stands for the high watermark."""


class Appended(NamedTuple):
    """The place of a produced batch in the log; a repeated one has had it before."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int
    """The broker's time in the records; -1 if they keep the producer's."""
    duplicate: bool
    size: int
    """Bytes in the log; 0 of a repeated one."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The findings of opening a log, for the operator."""

    segments_checked: int = 0
    bytes_cut: int = 0
    indexes_rebuilt: int = 0
    batches_noted: int = 0
    """Batches whose headers were read because no snapshot of the producers covers them."""
    lost_from: int | None = None
    """The offset from which on records that had been durable are damaged or gone; None if none."""


class LeaderEpochs:
    """The start offset of each leader epoch in a log: the base of truncation by epoch (KIP-101).

    A log's record of its own history: (leader epoch, start offset) in order; both increase
    strictly. A leader notes its epoch when it takes over, a follower when it copies a batch of a
    newer epoch. KIP-279 makes the answer name its epoch, so that two replicas that diverged more
    than once find their common point step by step.
    """

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(leader epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The newest leader epoch; -1 if there is none."""
        return self._epochs[-1] if self._epochs else -1

    def invariants(self, log_end_offset: int) -> None:
        """Check that epochs and their start offsets increase strictly, within the log.

        Equal start offsets would give an epoch no record, and a truncation by epoch no common
        point: KIP-101 needs the end of an epoch to be the start of the next one.
        """
        pairs = zip(self.entries, self.entries[1:], strict=False)
        ascend = all(one[0] < next_[0] and one[1] < next_[1] for one, next_ in pairs)
        invariant(ascend, "leader epochs and their start offsets increase")
        begins = not self._starts or self._starts[-1] <= log_end_offset
        invariant(begins, "no leader epoch begins above the log's end")

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` began at `start_offset`; return whether it is newer than all others."""
        if epoch <= self.latest:
            return False
        # Epochs that began here or later have no record left: a leader that wrote nothing.
        self.truncate_to(start_offset)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def truncate_to(self, end_offset: int) -> None:
        """Forget the epochs that began at or after `end_offset`."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()

    def advance_start(self, offset: int) -> None:
        """Forget the epochs that ended at or before `offset`, the log's new start."""
        keep = max(bisect_right(self._starts, offset) - 1, 0)
        del self._epochs[:keep], self._starts[:keep]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch in which the record at `offset` was written; -1 if unknown."""
        return next((e for e, start in reversed(self.entries) if start <= offset), -1)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the largest known epoch up to `epoch`, and its end.

        UNKNOWN_EPOCH_END if there is none.

        An epoch newer than all of this log is unknown, too: the caller has batches that this log
        lacks.
        """
        if not self._epochs or epoch == UNKNOWN_EPOCH_END.leader_epoch or epoch > self.latest:
            return UNKNOWN_EPOCH_END
        if epoch == self.latest:
            return EpochEndOffset(epoch, log_end_offset)
        at = bisect_right(self._epochs, epoch)
        if at == 0:
            # Older than all that is left: everything it wrote lies below the first epoch's start.
            return EpochEndOffset(epoch, self._starts[0])
        return EpochEndOffset(self._epochs[at - 1], self._starts[at])

    def truncation_point(self, diverging: EpochEndOffset, log_end_offset: int) -> int:
        """Return where a follower must cut when its leader's log agrees only up to `diverging`.

        If this log lacks that epoch, the follower cuts after its newest older one and asks again.
        """
        own = self.end_offset_for(diverging.leader_epoch, log_end_offset)
        if own == UNKNOWN_EPOCH_END or own.leader_epoch == diverging.leader_epoch:
            own_end = log_end_offset if own == UNKNOWN_EPOCH_END else own.end_offset
            return min(own_end, diverging.end_offset)
        return min(own.end_offset, log_end_offset)


class PartitionLog:
    """An open log, made by `open_log` or `create_log`; to be closed with `close`."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        segments: Sequence[Segment],
    ) -> None:
        self.partition = partition
        self.directory = directory
        self.config = config
        self.topic_id: UUID | None = None
        self.high_watermark = segments[0].base_offset
        self.log_start_offset = segments[0].base_offset
        self.recovery_point = segments[0].base_offset
        """The offset below which everything is durable."""
        self.recovered = Recovered()
        self.flusher: Flusher | None = None
        """The log directory's, for `flush_through`."""
        self.failed: Callable[[OSError], None] = lambda _error: None
        """Called with the error of a disk that refused."""
        self.wall_ms: Callable[[], int] = lambda: 0
        """The wall clock, for batches without timestamps."""
        self.offline: str | None = None
        """The reason why the log is no longer served; None while it is."""
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self._files = files
        self.truncations = 0
        """The number of truncations; a decision from before the last one may be wrong now."""
        self._durability = Durability(files, directory)
        self._retired: list[Callable[[], None]] = []
        self._segments = SegmentList(segments)

    # --- the log's bounds -----------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset of the next batch."""
        return self._segments.active.next_offset

    @property
    def broker_time(self) -> bool:
        """True if records get the broker's time rather than keep the producer's."""
        return self.config.message_timestamp_type == "LogAppendTime"

    @property
    def is_dirty(self) -> bool:
        """True if the log has batches that are not known to be durable."""
        return self.log_end_offset > self.recovery_point

    @property
    def needs_upkeep(self) -> bool:
        """True if there is a file to remove, or more to flush than the active segment."""
        if self._retired or self.log_end_offset == 0:
            return bool(self._retired)
        return self._durability.needs_sync or not all(s.is_durable for s in self._segments.sealed)

    @property
    def is_flush_due(self) -> bool:
        """True if `flush.messages` records or more are not durable: none is acknowledged before."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return self._segments.size

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which all transactions have ended; at most the high watermark."""
        first, end = self.producers.first_unstable_offset, self.high_watermark
        return end if first is None else min(end, max(first, self.log_start_offset))

    def invariants(self) -> None:
        """Check the bounds of the log, its segments, leader epochs and producers."""
        end, bases = self.log_end_offset, self._segments.bases
        self._segments.invariants()
        begun = bases[0] <= self.log_start_offset
        invariant(begun, "the first segment begins at or below the log's start")
        needed = len(bases) == 1 or bases[1] >= self.log_start_offset
        invariant(needed, "a segment below the log's start is removed")
        committed = self.log_start_offset <= self.high_watermark
        invariant(committed, "what is below the log's start was committed")
        invariant(self.high_watermark <= end, "what is committed is in the log")
        invariant(self.recovery_point <= end, "what is durable is in the log")
        self.epochs.invariants(end)
        self.producers.invariants(end)

    def segment_facts(self) -> list[SegmentFacts]:
        """Return the input of retention and compaction, oldest first.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        with self._disk():
            return [
                SegmentFacts(s.base_offset, s.next_offset, s.size, s.age_from_ms())
                for s in self._segments
            ]

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Return the largest known leader epoch up to this one, and its end."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # --- appending ------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: Buffer | Prepared,
        leader_epoch: int,
        now_ms: int,
        *,
        is_sequenced: bool = True,
    ) -> Appended:
        """Append a produced batch at the next offsets, prepared first unless it is a `Prepared`.

        `now_ms` is the wall clock. A repeated batch is not appended; the result has its first
        place. Raises KafkaError: the errors of `validation.prepared` and `ProducerStates.check`,
        and KAFKA_STORAGE_ERROR.
        """
        if not isinstance(batch, Prepared):
            batch = validation.prepared(batch, self.config, now_ms, is_sequenced=is_sequenced)
        stored: Buffer = batch.batch
        header: BatchHeader = batch.header
        if header.producer_id != NO_PRODUCER:
            sent = self.producers.check(header)
            if sent is not None:
                time_ms = sent.timestamp if self.broker_time else -1
                end = sent.last_offset + 1
                return Appended(sent.base_offset, end, time_ms, duplicate=True, size=0)
        time_ms = -1
        if self.broker_time:
            stored, header = record_batch.stamped(stored, header, now_ms)
            time_ms = now_ms
        base_offset = self.log_end_offset
        pieces, header = record_batch.placed(stored, header, base_offset, leader_epoch)
        self._append(pieces, header)
        end = header.next_offset
        return Appended(base_offset, end, time_ms, duplicate=False, size=header.size)

    def append_marker(self, marker: EndMarker, leader_epoch: int, now_ms: int) -> Appended:
        """End a producer's transaction here, unless the same marker has done so before.

        Raises KafkaError: the errors of `ProducerStates.check_marker`, and KAFKA_STORAGE_ERROR.
        """
        end = self.log_end_offset
        if self.producers.check_marker(marker):
            return Appended(end, end, -1, duplicate=True, size=0)
        pieces, header = record_batch.placed(*markers.encoded(marker, now_ms), end, leader_epoch)
        self._append(pieces, header)
        return Appended(end, header.next_offset, -1, duplicate=False, size=header.size)

    def append_as_follower(self, data: Buffer) -> int:
        """Append a leader's batches at their own offsets; return the bytes appended.

        Raises KafkaError: CORRUPT_MESSAGE for a damaged batch, or one that does not continue this
        log, after the good ones before it were appended; KAFKA_STORAGE_ERROR if the disk refuses.
        """
        appended = 0
        for header, batch in record_batch.split_fetched(data):
            if header.base_offset < self.log_end_offset and not self._begins_within(header):
                text = f"fetched offset {header.base_offset}, log end is {self.log_end_offset}"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
            self._append([batch], header)
            appended += header.size
        return appended

    def _begins_within(self, first: BatchHeader) -> bool:
        """Realign this empty log with a batch that holds its start; return whether it does.

        DeleteRecords and retention hide records without cutting a batch, so the leader sends all of
        it.
        """
        start = self.log_start_offset
        if self.size or first.next_offset <= start:
            return False
        self.restart_at(first.base_offset)
        self.log_start_offset = self.high_watermark = start
        return True

    def _append(self, pieces: list[Buffer], header: BatchHeader) -> None:
        if self.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)
        try:
            active = self._segments.active
            if active.must_roll(header, self.config, self.wall_ms):
                self.roll(active.successor_base(header))
            self._segments.active.append(pieces, header)
            self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.is_control:
                self._note_marker(header, self._segments.active, b"".join(pieces))
            else:
                self.producers.note(header)
        except OSError as error:
            raise self._broken(error) from error
        invariant(self.log_end_offset == header.next_offset, "the log ends with the new batch")
        if self.is_flush_due:
            self.flush_through(self.log_end_offset)

    def _broken(self, error: OSError) -> KafkaError:
        """Report a disk that refused to the log directory; return the error to raise."""
        self.failed(error)
        text = f"{self.directory}: {error}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Around what uses the disk: KafkaError(KAFKA_STORAGE_ERROR) if it is or goes offline."""
        if self.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)
        try:
            yield
        except OSError as error:
            raise self._broken(error) from error

    def _note_marker(self, at: BatchHeader, segment: Segment, batch: Buffer) -> None:
        """Note a control batch in the producer states and the index of aborted transactions.

        Appending, copying from a leader and recovery note the same batches in the same order, so
        that every replica derives the same states.
        """
        marker = markers.parse(batch, at)
        aborted = None if marker is None else self.producers.note_marker(at, marker)
        if aborted is not None:
            if not segment.aborted.exists:
                self._durability.renamed()
            segment.aborted.add(aborted)
            # In recovery the segment may be one that counts as durable. A second loss of power
            # could keep the cut of its index and lose the entries, and the snapshot of producers
            # that is written meanwhile would have nobody look for them again.
            segment.is_durable = False

    def roll(self, base_offset: int) -> None:
        """Begin a new segment, whose first batch is not below `base_offset`."""
        with self._disk():
            self.seal()
            self._snapshot(base_offset)
            self._add_segment(base_offset)

    def _snapshot(self, offset: int) -> None:
        # It could not tell of transactions whose marker may still be cut off.
        if self.producers.markers_are_final:
            self._durability.snapshot(offset, self.producers.snapshot())

    def _add_segment(self, base_offset: int) -> None:
        self._durability.renamed()
        segment = Segment(self._files, self.directory, base_offset, self.config)
        segment.opened_ms = self.wall_ms()
        self._segments.add(segment)

    # --- reading --------------------------------------------------------------------------------

    def read(self, offset: int, **limits: Unpack[Limits]) -> list[Buffer]:
        """Return bytes from the batch that holds `offset`, of batches that begin below
        `up_to_offset`.

        At most `max_bytes`, where the last batch may be cut short, unless `min_one` and the first
        alone is larger. Raises KafkaError(OFFSET_OUT_OF_RANGE) outside the log.
        """
        with self._disk():
            at = self._find(offset, limits)
            return [] if at is None else [at.segment.read(at.position, at.size)]

    def to_send(self, offset: int, **limits: Unpack[Limits]) -> list[Piece]:
        """Return the same bytes to be sent without being read; see `File.region`."""
        with self._disk():
            at = self._find(offset, limits)
            return [] if at is None else [at.segment.region(at.position, at.size)]

    def _find(self, offset: int, limits: Limits) -> Place | None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            text = f"offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        if offset >= limits["up_to_offset"]:
            return None
        return self._segments.find(offset, limits)

    def aborted_between(self, offset: int, up_to_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have records from `offset` to below
        `up_to_offset`.
        """
        return self._segments.aborted_between(offset, up_to_offset)

    def aborted_in(self, offset: int, **limits: Unpack[Limits]) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have records in a read with these limits."""
        with self._disk():
            return self._segments.aborted_in(offset, limits)

    def segment_at(self, offset: int) -> Segment:
        """Return the segment that holds `offset`, or the first."""
        return self._segments.at(offset)

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Return bytes of batches between two offsets; if they lie in two segments, of the first
        only.
        """
        try:
            return self._segments.bytes_between(offset, end_offset)
        except OSError as error:
            # A read of these bytes will raise.
            self._broken(error)
            return 1

    def first_at_or_after(
        self, timestamp: int, search: Search = records.first_at_or_after
    ) -> TimestampOffset | None:
        """Return the first record not older than `timestamp` (milliseconds)."""
        with self._disk():
            return self._segments.first_at_or_after(timestamp, self.log_start_offset, search)

    def newest(self, search: Search = records.first_at_or_after) -> TimestampOffset | None:
        """Return the first record that has the largest timestamp; None in an empty log."""
        with self._disk():
            return self._segments.newest(search)

    def warm_lookup(self, timestamp: int | None) -> Callable[[], None] | None:
        """Return what a worker must call before `first_at_or_after`, with None before `newest`."""
        return self._segments.warm_time(timestamp, self.log_start_offset)

    # --- truncation -----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove the batch that holds `offset` and all after it; return whether there was one.

        Epochs that begin there are forgotten in any case: they may be the leader's of an epoch
        that wrote nothing, and are in conflict with the leader that asks to truncate.
        """
        shorter = offset < self.log_end_offset
        self.truncations += 1
        if shorter and offset < self._segments.bases[0]:
            self.restart_at(offset)
            return True
        if shorter:
            with self._disk():
                self._retire(self._segments.count_up_to(offset))
                self._segments.active.truncate_to(offset)
                self._durability.forget_snapshots(above=self.log_end_offset)
                if not self.producers.truncate_to(self.log_end_offset):
                    self._rebuild(self.log_end_offset)
        if self.log_end_offset < self.log_start_offset:
            # The batch that was cut began below the log's start, or so did the cut itself. What of
            # it is agreed upon, the leader sends again: from here on nothing may be missing.
            self.restart_at(min(offset, self.log_start_offset))
            return True
        self.epochs.truncate_to(min(offset, self.log_end_offset))
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        return shorter

    def restart_at(self, offset: int) -> None:
        """Remove everything and go on at `offset`: for a follower that was left behind."""
        self.truncations += 1
        with self._disk():
            self._retire(0)
            self._durability.forget_snapshots(above=-1)
            self._add_segment(offset)
        self.epochs, self.producers = LeaderEpochs(), ProducerStates()
        self.log_start_offset = self.high_watermark = self.recovery_point = offset

    def advance_log_start(self, offset: int) -> None:
        """Hide everything below `offset`, and remove the segments that only hold such."""
        if offset <= self.log_start_offset:
            return
        invariant(offset <= self.log_end_offset, "a log starts before its end")
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.advance_start(offset)
        self._retire_hidden()

    def _retire_hidden(self) -> int:
        """Remove the segments that end at or below the log's start; return how many."""
        count = 0
        with self._disk():
            # A segment ends where the next one begins: holes that compaction left belong to it.
            while len(self._segments) > 1 and self._segments.bases[1] <= self.log_start_offset:
                self._retire_one(0)
                count += 1
        self._durability.keep_snapshots_from(self._segments.bases[0])
        return count

    def delete_records(self, offset: int) -> int:
        """Hide the records below `offset`, -1 for all that are committed; return the log start.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) for an offset that is negative or not committed
        (row L7), KAFKA_STORAGE_ERROR if the disk refuses. Source: KIP-107.
        """
        target = self.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
        if not 0 <= target <= self.high_watermark:
            text = f"records can be deleted up to offset {self.high_watermark}, not {offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        self.advance_log_start(target)
        return self.log_start_offset

    def expire(self, now_ms: int) -> int:
        """Remove the segments that retention no longer keeps; return how many. Does not block.

        The active segment may go too: a new one begins first, so that the log keeps its end.

        So do segments all of whose records are hidden, whatever the configuration. There is one
        when DeleteRecords hid the whole active segment: it could only go once another was begun.
        Apache Kafka removes it likewise, as breaching the log start.

        Raises KafkaError(KAFKA_STORAGE_ERROR) if the disk refuses.
        """
        hidden = self._retire_hidden()
        facts = self.segment_facts()
        count = expired(facts, self.config, self.high_watermark, now_ms)
        if count == 0:
            return hidden
        if count == len(facts):
            self.roll(self.log_end_offset)
        self.advance_log_start(facts[count - 1].next_offset)
        return hidden + count

    def _retire(self, keep: int) -> None:
        # From the newest, so that a crash in between leaves a log without a gap.
        while len(self._segments) > keep:
            self._retire_one(len(self._segments) - 1)

    def _retire_one(self, number: int) -> None:
        segment = self._segments.pop(number)
        self._retire_files([segment], segment.retire())

    def _retire_files(self, segments: Sequence[Segment], paths: list[str]) -> None:
        self._durability.renamed()

        def finish() -> None:
            for segment in segments:
                segment.close()
            for path in paths:
                # The whole log may have been deleted meanwhile.
                if self._files.exists(path):
                    self._files.remove(path)

        self._retired.append(finish)

    def take_retired(self) -> list[Callable[[], None]]:
        """Closing and removing of files that are no longer part of the log: for the worker."""
        retired, self._retired = self._retired, []
        return retired

    # --- compaction -----------------------------------------------------------------------------

    def complete_segments(self, end_offset: int) -> list[Segment]:
        """Return the segments that end at or below an offset and are not appended to any more."""
        return [one for one in self._segments.sealed if one.next_offset <= end_offset]

    def has_segments(self, segments: Sequence[Segment]) -> bool:
        """Return whether all of these are part of the log."""
        return self._segments.has_all(segments)

    def replace_segments(self, replaced: Sequence[Segment], new: Segment) -> bool:
        """Put a durable segment in the place of others; False if they are no longer the log's."""
        if not self._segments.has_run(replaced):
            return False
        active = self._segments.active
        # A batch that is appended meanwhile would be in the old file only.
        invariant(active not in replaced, "the active segment is not compacted")
        span = new.base_offset, new.next_offset
        whole = span == (replaced[0].base_offset, replaced[-1].next_offset)
        # A shorter one would leave a gap, which the next recovery takes for a torn truncation.
        invariant(whole, "a compacted segment spans those whose place it takes")
        with self._disk():
            paths = swap.perform(replaced, new)
        self._segments.replace(replaced, new)
        new.is_durable = True
        self._retire_files(replaced, paths)
        return True

    # --- durability -----------------------------------------------------------------------------

    def flush_plan(self, *, rolled_only: bool, closing: bool = False) -> FlushPlan | None:
        """Return what to sync: all, or only the segments that are complete; None if it is durable.

        With `closing` also what opening the log would else have to find out.
        """
        if self.log_end_offset == 0:
            # An empty file may as well be missing, and opening forgets leader epochs without a
            # record. Thousands of new replicas would keep the disk busy with syncs for minutes.
            return None
        if closing:
            with self._disk():
                self.seal()
            self._snapshot(self.log_end_offset)
        complete = self._segments if closing else self._segments.sealed
        whole = [one for one in complete if not one.is_durable]
        active = None if rolled_only or closing or not self.is_dirty else self._segments.active
        epochs = self.epochs.entries
        rest = self._durability.needs_sync or (closing and not self._durability.knows(epochs))
        if not whole and active is None and not rest:
            return None
        with self._disk():
            for segment in whole:
                segment.flush_indexes()
        return self._durability.plan(whole, active, epochs, self.truncations)

    def flushed(self, plan: FlushPlan) -> None:
        """Note that the plan was carried out, unless the log was truncated or failed meanwhile."""
        if plan.truncations == self.truncations and self.offline is None:
            invariant(plan.end_offset <= self.log_end_offset, "what is flushed is in the log")
            plan.done()
            for segment in plan.whole:
                segment.is_durable = segment is not self._segments.active
            self.recovery_point = max(self.recovery_point, plan.end_offset)

    def flush_through(self, offset: int) -> Future[None]:
        """Return a future that is done when everything below `offset` is durable.

        Callers that wait at the same time share a flush.

        KafkaError(KAFKA_STORAGE_ERROR) if the disk refuses. Only for logs of a LogManager.
        """
        invariant(self.flusher is not None, "the log belongs to a LogManager")
        assert self.flusher is not None
        return self.flusher.through(self, offset)

    def seal(self) -> None:
        """Complete the indexes of the last segment."""
        self._segments.active.seal()

    def moved_to(self, directory: str) -> None:
        """Take up the new name of the log's directory."""
        self.directory = directory
        self._durability.moved_to(directory)
        for segment in self._segments:
            segment.moved_to(directory)

    def close(self) -> None:
        """Release all files."""
        for segment in self._segments:
            segment.close()

    def adopt(
        self, epochs: list[tuple[int, int]], snapshots: list[int], point: int, *, clean: bool
    ) -> int:
        """Take over what opening found beside the segments, and fill in what is missing; blocks.

        `epochs` is the content of the checkpoint, of which what began below the recovery `point`
        counts; so do the `snapshots` not above it. Returns how many batches had to be read.
        """
        self.recovery_point = min(point, self.log_end_offset)
        self._durability.adopt(epochs, snapshots, names_doubted=not clean)
        if not self._segments.active.has_files:
            # The first batch will create them.
            self._durability.renamed()
        self._durability.forget_snapshots(above=self.recovery_point)
        known = [(e, start) for e, start in epochs if start < self.recovery_point]
        self.epochs = LeaderEpochs(known)
        return self._rebuild(self.recovery_point if known else self._segments.bases[0])

    def _rebuild(self, epochs_from: int) -> int:
        """Find the producers again, from the newest snapshot on, and the epochs; blocks."""
        damaged_from = self._segments.aborted_damaged_from(self.log_end_offset)
        base_offset, base = self._durability.newest_snapshot(damaged_from)
        for segment in self._segments:
            segment.aborted.truncate(base_offset)
        self.producers.rebuild((), base, base_offset)
        begin, noted = min(base_offset, epochs_from), 0
        for at, segment in self._segments.batches(begin):
            noted += 1
            self.epochs.assign(at.header.leader_epoch, at.header.base_offset)
            if at.header.base_offset < base_offset:
                # The snapshot has it already, and newer batches of the same producer.
                continue
            if at.header.is_control:
                self._note_marker(at.header, segment, segment.read(at.position, at.header.size))
            else:
                self.producers.note(at.header)
        self.producers.prune_undo(self.high_watermark)
        return noted
