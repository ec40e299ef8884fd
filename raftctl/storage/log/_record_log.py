"""The metadata log on disk: segments of batches, written by one worker, readable at once.

The event loop owns the log's shape: offsets, which batch stands where, what is still to be written.
`append` and `truncate` change the shape at once and queue the work; `flush` hands all queued work
to the log directory's worker, which writes and syncs it in order. Batches that are appended during
a flush share the next one, so a slow disk makes larger writes, not more of them (group commit).

The newest batches stay in memory, those not yet on disk always, so that followers who keep up and
the controller never read the file. What is read from the file has its CRC checked.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.raft.batch import CorruptBatchError, decode_batches, encode_batch
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch
from raftctl.raft.voters import decode_voters
from raftctl.storage.log._recovery_point import RecoveryPoint
from raftctl.storage.log._segment import CorruptLogError, Segment, batch_bytes, scan, why_not_torn

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence

    from raftctl.raft.batch import Batch
    from raftctl.runtime.api import File, FileSystem, Worker

SEGMENT_BYTES = 64 * 1024 * 1024
RECENT_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of batches kept in memory after they are on disk."""
RECENT_OVERHEAD_BYTES = 256
"""Memory that a kept batch costs besides its bytes."""
READ_CHUNK_BYTES = 256 * 1024
LOG_START = OffsetAndEpoch(Offset(0), Epoch(0))
_SEGMENT_NAME = re.compile(r"[0-9]{20}\.log")


class _Recent(NamedTuple):
    """A batch in memory, and where it stands on disk or will stand."""

    base_offset: Offset
    end_offset: Offset
    segment: Segment
    position: int
    data: bytes


_base_offset = attrgetter("base_offset")
_end_offset = attrgetter("end_offset")


# --- what the worker does to the files ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Append the buffers to the segment's file, creating it if there is none."""

    segment: Segment
    buffers: list[bytes]


@dataclass(frozen=True, slots=True)
class Cut:
    """Remove segments and shorten the last one that stays."""

    end_offset: Offset
    removed: tuple[Segment, ...]
    kept: Segment
    size: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove segments; `end_offset` is where the log ends then, if nothing of it is left."""

    segments: tuple[Segment, ...]
    end_offset: Offset | None


Operation = Write | Cut | Remove


class LogWriter:
    """Changes the files of one log. All methods block."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        """The directory exists."""
        self._files = files
        self._directory = directory
        self._point = RecoveryPoint(files, directory)
        self.fsyncs = 0
        """Number of flushes: times that appended batches were made durable."""
        self.recovery_point = self._point.offset
        """Up to where the log was durable when this process began; None if nobody noted it."""

    def perform(self, operations: Sequence[Operation], end_offset: Offset) -> None:
        """Do the work in order, after which everything below `end_offset` is durable.

        Each step is durable before the next one begins: else a crash could leave a damaged segment
        with a whole one after it.
        """
        for operation in operations:
            if isinstance(operation, Write):
                file = self._file(operation.segment)
                file.append(operation.buffers)
                file.sync()
                self.fsyncs += 1
            elif isinstance(operation, Cut):
                self._cut(operation)
            else:
                self._remove(operation)
        self._point.note(end_offset)

    def recovered(self, end_offset: Offset) -> None:
        """Everything that recovery has found is durable now."""
        self._point.note(end_offset)

    def close(self) -> None:
        """Make the note durable."""
        self._point.close()

    def _file(self, segment: Segment) -> File:
        if segment.file is None:
            segment.file = self._files.open(segment.path, create=True)
            self._files.sync_directory(self._directory)
        return segment.file

    def _cut(self, cut: Cut) -> None:
        self._point.lower(cut.end_offset)
        for segment in reversed(cut.removed):
            self._delete(segment)
        file = self._file(cut.kept)
        file.truncate(cut.size)
        file.sync()

    def _remove(self, remove: Remove) -> None:
        """From the front for a prefix, from the back for all: so that no gap is ever left."""
        whole = remove.end_offset is not None
        if whole:
            self._point.lower(Offset(0))
        for segment in reversed(remove.segments) if whole else remove.segments:
            self._delete(segment)

    def _delete(self, segment: Segment) -> None:
        self._file(segment).close()
        self._files.remove(segment.path)
        self._files.sync_directory(self._directory)


# --- the log as the event loop sees it ------------------------------------------------------------


class RecordLog:
    """The log of one replica. `open` and `close` block; the rest is called on the event loop."""

    def __init__(
        self, files: FileSystem, directory: str, *, segment_bytes: int, start: OffsetAndEpoch
    ) -> None:
        """Use `open`."""
        self._files = files
        self._directory = directory
        self._writer = LogWriter(files, directory)
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
        self._recent: list[_Recent] = []
        self._recent_bytes = 0
        self._queued_bytes = self._flushing_bytes = 0
        self._pending: list[Operation] = []
        self._flushing = False
        self._epoch_starts: list[tuple[Epoch, Offset]] = []
        self.start = start
        """Start offset of the log, and the epoch of the record before it."""
        self.end_offset = start.offset
        self.flushed_end_offset = start.offset
        """Everything below is durable."""
        self.torn_bytes = 0
        """Bytes of an unfinished write that `open` cut off."""
        self.voter_batches: list[Batch] = []
        """The control batches that `open` found to change the voters, in order."""

    @classmethod
    def open(
        cls,
        files: FileSystem,
        directory: str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        start: OffsetAndEpoch = LOG_START,
    ) -> RecordLog:
        """Read and check every batch in the log's directory, which is made if it is not there.

        `start` says where the log starts: at the end of a snapshot, in or before the first segment.
        A torn tail of the last segment is cut off, and what stays is made durable. Raises
        CorruptLogError for any other damage, without changing the log. Blocks.
        """
        if not files.is_directory(directory):
            files.make_directories(directory)
            files.sync_directory(directory.rpartition("/")[0])
        log = cls(files, directory, segment_bytes=segment_bytes, start=start)
        bases = segment_bases(files, directory)
        if bases:
            log.end_offset = min(bases[0], start.offset)
        for base_offset in bases:
            log._recover(base_offset, last=base_offset == bases[-1])
        log._check_end()
        # A process that was killed may have left what it wrote and named in the page cache only,
        # and from here on all of it counts as durable.
        files.sync_directory(directory)
        if log.end_offset < start.offset:
            # The rest came with a snapshot, and the node crashed before it had removed these.
            log.reset(start)
            log.flush_now()
        log.flushed_end_offset = log.end_offset
        log._writer.recovered(log.end_offset)
        log._forget_epochs_before(start)
        log.voter_batches = [b for b in log.voter_batches if b.base_offset >= log.start_offset]
        return log

    def close(self) -> None:
        """Close the files; what is queued and not flushed is lost. Blocks."""
        self._writer.close()
        for segment in self._segments:
            if segment.file is not None:
                segment.file.close()

    # --- recovery -----------------------------------------------------------------------------

    def _recover(self, base_offset: Offset, *, last: bool) -> None:
        segment = Segment(self._directory, base_offset)
        if base_offset != self.end_offset:
            why = f"begins with offset {base_offset}, expected {self.end_offset}"
            raise CorruptLogError(segment.path, 0, why)
        segment.file = file = self._files.open(segment.path)
        self._segments.append(segment)
        end = file.size()
        try:
            for position, batch in scan(file, 0, end):
                self._check_order(batch, segment.path, position)
                self._note(segment, batch, batch_bytes(batch))
                if batch.control and decode_voters(batch.payload) is not None:
                    self.voter_batches.append(batch)
        except CorruptBatchError as error:
            durable = self._writer.recovery_point
            damage = why_not_torn(file, error, self.end_offset, last=last, recovery_point=durable)
            if damage is not None:
                raise CorruptLogError(segment.path, error.position, damage) from None
            file.truncate(error.position)
            self.torn_bytes = end - error.position
        if last:
            self._make_durable(segment, file)

    def _make_durable(self, segment: Segment, file: File) -> None:
        """Sync what a process that was killed had not.

        What may never have been synced is written again: after a sync that failed, the system takes
        the pages in its cache for clean, and another sync would succeed without writing them.
        """
        durable = self._writer.recovery_point
        if durable is not None and durable < self.end_offset:
            position = self._position_above(segment, durable)
            file.write_at(position, file.read_at(position, segment.size - position))
        file.sync()

    def _position_above(self, segment: Segment, offset: Offset) -> int:
        """Return the position of the first batch that is not wholly below the offset."""
        start = segment.floor(offset)
        for position, batch in self._scan(segment, offset):
            if batch.end_offset > offset:
                return position
        return start

    def _check_end(self) -> None:
        """Batches that are missing as a whole are found by the note alone."""
        durable = self._writer.recovery_point
        if durable is not None and self.end_offset < durable:
            why = f"ends with offset {self.end_offset}, though all below {durable} was durable"
            newest = self._segments[-1] if self._segments else None
            path, size = (newest.path, newest.size) if newest else (self._directory, 0)
            raise CorruptLogError(path, size, why)

    def _check_order(self, batch: Batch, path: str, position: int) -> None:
        if batch.base_offset != self.end_offset:
            why = f"offset {batch.base_offset}, expected {self.end_offset}"
            raise CorruptLogError(path, position, why)
        if batch.epoch < self.last_epoch:
            why = f"epoch {batch.epoch} after epoch {self.last_epoch}"
            raise CorruptLogError(path, position, why)

    # --- writing ------------------------------------------------------------------------------

    @property
    def fsyncs(self) -> int:
        """Number of flushes: times that appended batches were made durable."""
        return self._writer.fsyncs

    @property
    def start_offset(self) -> Offset:
        """The offset of the first record."""
        return self.start.offset

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record; that of the snapshot before it for an empty log."""
        if self._epoch_starts:
            return self._epoch_starts[-1][0]
        return self.start.epoch if self.end_offset >= self.start.offset else Epoch(0)

    @property
    def epoch_starts(self) -> tuple[tuple[Epoch, Offset], ...]:
        """Each epoch that has records, with the offset of its first."""
        return tuple(self._epoch_starts)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of batches that are kept in memory because they are not on disk yet."""
        return self._queued_bytes + self._flushing_bytes

    @property
    def dirty(self) -> bool:
        """True if work is queued for the next flush."""
        return bool(self._pending)

    def append(self, batch: Batch) -> None:
        """Add the batch at the end: readable at once, durable after the next flush."""
        invariant(batch.base_offset == self.end_offset, "batches are appended at the end")
        invariant(batch.epoch >= self.last_epoch, "epochs never go back along the log")
        data = encode_batch(batch)
        segment = self._segment_for(len(data))
        self._recent.append(
            _Recent(batch.base_offset, batch.end_offset, segment, segment.size, data)
        )
        self._recent_bytes += len(data) + RECENT_OVERHEAD_BYTES
        self._queued_bytes += len(data)
        self._note(segment, batch, len(data))
        newest = self._pending[-1] if self._pending else None
        if isinstance(newest, Write) and newest.segment is segment:
            newest.buffers.append(data)
        else:
            self._pending.append(Write(segment, [data]))

    def _segment_for(self, size: int) -> Segment:
        """Return the last segment, or a new one if `size` more bytes would make that too large."""
        newest = self._segments[-1] if self._segments else None
        if newest is not None and (not newest.size or newest.size + size <= self._segment_bytes):
            return newest
        self._segments.append(Segment(self._directory, self.end_offset))
        return self._segments[-1]

    def _note(self, segment: Segment, batch: Batch, size: int) -> None:
        if not self._epoch_starts or batch.epoch > self._epoch_starts[-1][0]:
            self._epoch_starts.append((batch.epoch, batch.base_offset))
        segment.note(batch.base_offset, size)
        self.end_offset = batch.end_offset

    def truncate(self, end_offset: Offset) -> None:
        """Remove every record at or above `end_offset`, a batch boundary, in order with appends.

        The records are gone for readers at once and from disk after the next flush. Should the
        node crash before that, they are back as if this had not been called.
        """
        invariant(self.start_offset <= end_offset, "truncation stays within the log")
        if end_offset >= self.end_offset:
            return
        index = max(bisect_left(self._segments, end_offset, key=_base_offset) - 1, 0)
        kept, removed = self._segments[index], tuple(self._segments[index + 1 :])
        position = self._position(kept, end_offset)
        del self._segments[index + 1 :]
        kept.cut(position)
        first_gone = bisect_left(self._recent, end_offset, key=_base_offset)
        self._forget(first_gone, len(self._recent))
        while self._epoch_starts and self._epoch_starts[-1][1] >= end_offset:
            self._epoch_starts.pop()
        self.end_offset = end_offset
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)
        self._pending.append(Cut(end_offset, removed, kept, position))

    def _position(self, segment: Segment, offset: Offset) -> int:
        """Return the position in the segment of the batch that begins with `offset`."""
        if self._recent and offset >= self._recent[0].base_offset:
            recent = self._recent[bisect_right(self._recent, offset, key=_base_offset) - 1]
            invariant(recent.base_offset == offset, "truncation does not split a batch")
            # A batch that opens a later segment: all of this one stays.
            return recent.position if recent.segment is segment else segment.size
        for position, batch in self._scan(segment, offset):
            if batch.end_offset > offset:
                invariant(batch.base_offset == offset, "truncation does not split a batch")
                return position
        return segment.size

    def delete_prefix(self, start: OffsetAndEpoch) -> None:
        """Move the start up to the end of a snapshot, in order with appends.

        The segments that are wholly below it are removed by the next flush.
        """
        invariant(self.start.offset <= start.offset <= self.end_offset, "the prefix is in the log")
        self.start = start
        index = bisect_right(self._segments, start.offset, key=_base_offset) - 1
        removed = tuple(self._segments[: max(index, 0)])
        if removed:
            del self._segments[: len(removed)]
            first_kept = self._segments[0].base_offset
            self._forget(0, bisect_left(self._recent, first_kept, key=_base_offset))
            self._pending.append(Remove(removed, None))
        self._forget_epochs_before(start)

    def _forget_epochs_before(self, start: OffsetAndEpoch) -> None:
        starts = [at for _, at in self._epoch_starts]
        first = max(bisect_right(starts, start.offset) - 1, 0)
        kept = [(epoch, max(at, start.offset)) for epoch, at in self._epoch_starts[first:]]
        self._epoch_starts = kept if start.offset < self.end_offset else []

    def reset(self, start: OffsetAndEpoch) -> None:
        """Remove everything and go on from the end of a snapshot, which is durable.

        Should the node crash before the next flush is done, `open` with that snapshot's end as
        the start does it again.
        """
        removed = tuple(self._segments)
        self._segments.clear()
        self._forget(0, len(self._recent))
        self._epoch_starts.clear()
        self.voter_batches.clear()
        self.start = start
        self.end_offset = self.flushed_end_offset = start.offset
        self._pending.append(Remove(removed, start.offset))

    def flush_now(self) -> None:
        """Make durable what is queued, when it returns; while no flush is under way. Blocks."""
        self._writer.perform(self._take_pending(), self.end_offset)
        self._flushing_bytes = 0

    def bytes_from(self, offset: Offset) -> int:
        """About how many bytes stand at and above the offset."""
        index = max(bisect_right(self._segments, offset, key=_base_offset) - 1, 0)
        segments = self._segments[index:]
        below = segments[0].floor(offset) if segments else 0
        return sum(segment.size for segment in segments) - below

    def contains(self, end: OffsetAndEpoch) -> bool:
        """Return whether the record before `end.offset` is in the log, and of `end.epoch`."""
        if not self.start.offset < end.offset <= self.end_offset:
            return end == self.start
        index = bisect_left([at for _, at in self._epoch_starts], end.offset) - 1
        return self._epoch_starts[index][0] == end.epoch

    def flush(self, worker: Worker) -> asyncio.Future[None]:
        """Make durable what is queued; at most one flush may be under way.

        The future is resolved when `flushed_end_offset` has risen, or with the OSError of the disk,
        after which nothing more can be flushed: what is on disk is then unknown, and only opening
        the log again shows.
        """
        invariant(not self._flushing, "one flush at a time, and none after one has failed")
        self._flushing = True
        perform = partial(self._writer.perform, self._take_pending(), self.end_offset)
        work = worker.submit(perform)
        if work.done():  # a quick disk: the caller need not wait for a turn of the event loop
            self._performed(self.end_offset, work)
        else:
            # Called before what the caller adds: one turn reports both.
            work.add_done_callback(partial(self._performed, self.end_offset))
        return work

    def _take_pending(self) -> list[Operation]:
        operations, self._pending = self._pending, []
        self._queued_bytes, self._flushing_bytes = 0, self._queued_bytes
        return operations

    def _performed(self, end_offset: Offset, work: asyncio.Future[None]) -> None:
        if work.cancelled() or work.exception() is not None:
            return
        self._flushing = False
        self._flushing_bytes = 0
        # What was truncated meanwhile may have been appended again: that is not on disk yet.
        for operation in self._pending:
            if isinstance(operation, Cut):
                end_offset = min(end_offset, operation.end_offset)
            elif isinstance(operation, Remove) and operation.end_offset is not None:
                end_offset = operation.end_offset
        self.flushed_end_offset = end_offset
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Drop old batches that are on disk, a quarter of the limit at a time."""
        if self._recent_bytes <= RECENT_BYTES_MAX:
            return
        durable = bisect_right(self._recent, self.flushed_end_offset, key=_end_offset)
        excess = self._recent_bytes - RECENT_BYTES_MAX * 3 // 4
        count = 0
        while count < durable and excess > 0:
            excess -= len(self._recent[count].data) + RECENT_OVERHEAD_BYTES
            count += 1
        self._forget(0, count)

    def _forget(self, start: int, end: int) -> None:
        for recent in self._recent[start:end]:
            self._recent_bytes -= len(recent.data) + RECENT_OVERHEAD_BYTES
        del self._recent[start:end]

    # --- reading ------------------------------------------------------------------------------

    def read(self, offset: Offset, max_bytes: int) -> bytes:
        """Return whole encoded batches from the one with `offset`; none at the end of the log.

        At least one batch, then as many as fit into `max_bytes`, perhaps fewer. Raises
        KafkaError(OFFSET_OUT_OF_RANGE) below the start, CorruptLogError for damage on disk.
        """
        if offset < self.start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"log starts at {self.start_offset}")
        if offset >= self.end_offset:
            return b""
        if self._recent and offset >= self._recent[0].base_offset:
            return self._read_recent(offset, max_bytes)
        return self._read_file(offset, max_bytes)

    def batches(self, offset: Offset, max_bytes: int) -> list[Batch]:
        """Return the batches of `read`, decoded."""
        return [batch for _, batch in decode_batches(self.read(offset, max_bytes))]

    def _read_recent(self, offset: Offset, max_bytes: int) -> bytes:
        start = bisect_right(self._recent, offset, key=_base_offset) - 1
        size = 0
        end = start
        while end < len(self._recent):
            size += len(self._recent[end].data)
            if size > max_bytes and end > start:
                break
            end += 1
        return b"".join([recent.data for recent in self._recent[start:end]])

    def _read_file(self, offset: Offset, max_bytes: int) -> bytes:
        index = bisect_right(self._segments, offset, key=_base_offset) - 1
        segment = self._segments[index]
        start = end = -1
        for position, batch in self._scan(segment, offset):
            if batch.end_offset <= offset:
                continue
            after = position + batch_bytes(batch)
            if start < 0:
                start = position
            elif after - start > max_bytes:
                break
            end = after
            if end - start >= max_bytes:
                break
        file = segment.file
        if start < 0 or file is None:
            raise CorruptLogError(segment.path, segment.size, f"offset {offset} is missing")
        return file.read_at(start, end - start)

    def _scan(self, segment: Segment, offset: Offset) -> Iterator[tuple[int, Batch]]:
        """Batches of the segment's file from a little before `offset` to those kept in memory."""
        end = segment.size
        if self._recent and self._recent[0].segment is segment:
            end = self._recent[0].position
        if segment.file is None:
            return
        try:
            yield from scan(segment.file, segment.floor(offset), end, READ_CHUNK_BYTES)
        except CorruptBatchError as error:
            raise CorruptLogError(segment.path, error.position, error.why) from None


def segment_bases(files: FileSystem, directory: str) -> list[Offset]:
    """Return the offsets with which the segments in the directory begin, in order. Blocks."""
    names = [name for name in files.names(directory) if _SEGMENT_NAME.fullmatch(name)]
    return [Offset(int(name[:20])) for name in names]
