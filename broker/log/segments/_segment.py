"""One segment of a partition: the file of batches, its offset index and its time index.

A segment holds the batches from its base offset, which names its files, to the next segment's.
Finding an offset is an index look-up, then a scan of at most `index.interval.bytes` and a batch.
It decides nothing about leaders, producers or retention. File formats are Apache Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from broker.log.batches import records
from broker.log.batches.record_batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    crc_matches,
    parse_header,
    shape_problem,
)
from broker.log.batches.records import TimestampOffset
from broker.log.segments import aborted_index
from broker.log.segments._index import OffsetIndex, TimeIndex
from broker.log.segments._lazy_file import LazyFile
from broker.log.segments.aborted_index import AbortedIndex
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from broker.log.batches.records import Search
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.runtime.api import Buffer, FileSystem, Piece

_SCAN_BYTES = 4096
RESIDENT_BYTES = 1 << 20
"""The bytes at the end of a segment that count as in memory, because they were just written."""
AHEAD_BYTES = 2 << 20
"""The distance from the end of what is in memory at which more is read ahead.

A reader of old batches soon reads on. It is less than a file reads ahead, see `File.warm`.
"""
_RECENT_MAX = 16
_RECOVERY_BYTES = 1 << 20
_LOOKUP_BYTES = 1 << 20
"""The index interval and the largest usual batch."""
_WARM_BYTES_MAX = 16 << 20
_RELATIVE_OFFSET_MAX = 2**31 - 1
"""The span of one segment's offsets, which its indexes keep relative to the base offset."""
DAMAGED = ".damaged"
"""Ends the name of a copy of batches of which recovery had to cut what had been durable."""
NO_TIMESTAMP = -1
OFFSET_MAX = 2**63 - 1


class BatchAt(NamedTuple):
    """A batch and the byte of the segment at which it begins."""

    position: int
    header: BatchHeader


FILES = ("log", "index", "timeindex")
"""The files of a segment; a log without the others is whole, since they can be rebuilt. There may
be one of aborted transactions too."""


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """Return the name of a segment's file; `suffix` is one of FILES, `txnindex` or `snapshot`."""
    return f"{directory}/{base_offset:020d}.{suffix}"


class Segment:
    """An open segment; only the last one of a log is appended to.

    One from disk must first be trusted (`load`) or checked (`recover`).
    """

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        *,
        ending: str = "",
        names: Collection[str] | None = None,
    ) -> None:
        """`ending` follows the usual names of the files, while they are not the log's yet.

        `names` are those in the directory. Files that are not there are created with the first
        batch; without `names` at once, since they tell where a new segment begins.
        """

        def exists(path: str) -> bool:
            return files.exists(path) if names is None else path[len(directory) + 1 :] in names

        self.base_offset = base_offset
        self.next_offset = base_offset
        """The offset after the last batch."""
        self._files = files
        self._directory = directory
        self._ending = ending
        self._interval_bytes = config.index_interval_bytes
        paths = [self._path(suffix) for suffix in FILES]
        self._files_held = [LazyFile(files, path, exists=exists(path)) for path in paths]
        if names is None:
            self._create_files()
        self._log, offsets, times = self._files_held
        index_bytes = config.segment_index_bytes
        self._offsets = OffsetIndex(offsets, base_offset, index_bytes)
        self._times = TimeIndex(times, base_offset, index_bytes)
        aborted = self._aborted_path
        self.aborted = AbortedIndex(files, aborted, base_offset, exists=exists(aborted))
        """The aborted transactions whose markers are here."""
        self.size = self._log.size()
        self._recent: dict[int, int] = {}
        """Where the newest batches begin, by their base offsets: that is what is read most."""
        self._indexed_to = 0
        """Where the batch of the last index entry begins."""
        self._newest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._first_timestamp: int | None = None
        self.opened_ms: int | None = None
        """By the wall clock: when it was begun, or the first batch came after it was loaded."""
        self._torn = False
        """Whether bytes of a failed write follow the last batch."""
        self.is_durable = False
        """Whether the batches and both indexes are on disk, and it is not appended to."""

    def invariants(self) -> None:
        """Check that the indexes point at batches of this segment, and are in order.

        An entry beyond the batches is worse than a missing one: the next batch written there would
        be found by it, at the wrong byte or with the wrong timestamp.
        """
        self._offsets.invariants()
        self._times.invariants()
        end, offsets, times = self.next_offset, self._offsets.last, self._times.last
        invariant(self.base_offset <= end, "a segment ends at or after its base offset")
        invariant((self.size == 0) == (self.base_offset == end), "only without bytes it is empty")
        within = offsets is None or (offsets.position < self.size and offsets.offset < end)
        invariant(within, "the offset index points at a batch of the segment")
        invariant(times is None or times.offset < end, "the time index ends within the segment")
        newest = self._newest
        known = newest.timestamp == NO_TIMESTAMP or newest.offset < end
        invariant(known, "the newest batch is in the segment")
        behind = times is None or times.timestamp <= newest.timestamp
        invariant(behind, "the time index knows nothing newer than the newest batch")
        aborted = [one.last_offset for one in self.aborted.entries()]
        invariant(aborted == sorted(set(aborted)), "aborted transactions are in order")
        invariant(not aborted or aborted[-1] < end, "the marker of an abort is in the segment")

    # --- writing --------------------------------------------------------------------------------

    def successor_base(self, header: BatchHeader) -> int:
        """Return the base offset of the segment that begins with this batch: the end of this one.

        Compaction leaves holes between the offsets of batches that a leader sends. A segment that
        began at the batch would lie apart from this one, which recovery takes for a truncation
        that a crash undid in part. Only a hole wider than a segment stays between two.
        """
        fits = header.last_offset - self.next_offset <= _RELATIVE_OFFSET_MAX
        return self.next_offset if fits else header.base_offset

    def follows(self, before: Segment) -> bool:
        """Return whether an earlier segment ends where this one begins; see `successor_base`."""
        hole = self.base_offset - before.next_offset
        return hole == 0 or hole > _RELATIVE_OFFSET_MAX // 2

    def append(self, pieces: Sequence[Buffer], header: BatchHeader) -> None:
        """Write one batch; after an OSError the segment is as before."""
        # One out of order would never be found: look-ups halve the index and scan on from there.
        invariant(header.base_offset >= self.next_offset, "offsets of batches ascend")
        position = self.size
        if position == 0:
            self._create_files()
        if self._torn:
            self._log.truncate(position)
        self._torn = True
        self._log.append(pieces)
        self._torn = False
        self.size = position + header.length + PREFIX_BYTES
        self._note(header, position)

    def must_roll(
        self, header: BatchHeader, config: TopicConfig, wall_ms: Callable[[], int]
    ) -> bool:
        """Return whether the next batch, whose offsets are set, needs a new segment (row L3).

        The age of a segment is that of its first batch, or counts from `opened_ms` where the batch
        has no timestamp.
        """
        if self.opened_ms is None:
            self.opened_ms = wall_ms()
        if self.size == 0:
            return False
        return (
            self.size + header.size > config.segment_bytes
            or self._age_ms(header, wall_ms) > self._lifetime_ms(config)
            or self._offsets.is_full
            or self._times.is_full
            or header.last_offset - self.base_offset > _RELATIVE_OFFSET_MAX
        )

    def _age_ms(self, header: BatchHeader, wall_ms: Callable[[], int]) -> int:
        if self._first_timestamp != NO_TIMESTAMP:
            first_ms = self._first_timestamp
            return 0 if first_ms is None else header.max_timestamp - first_ms
        return 0 if self.opened_ms is None else wall_ms() - self.opened_ms

    def _lifetime_ms(self, config: TopicConfig) -> int:
        """Return the age at which the segment is complete."""
        lifetime_ms = config.segment_ms
        if config.segment_jitter_ms:
            # From the name, not drawn: what spreads the segments of many logs over time need
            # only differ between them.
            jitter_ms = min(config.segment_jitter_ms, lifetime_ms)
            lifetime_ms -= crc32c(self.name.encode()) % jitter_ms
        if "compact" in config.cleanup_policy:
            # The active segment is never compacted, so it must not stay active for longer.
            lifetime_ms = min(lifetime_ms, config.max_compaction_lag_ms)
        return lifetime_ms

    @property
    def has_files(self) -> bool:
        """True if all files exist; one that never had a batch may lack them."""
        return all(one.exists for one in self._files_held)

    def _create_files(self) -> None:
        for one in self._files_held:
            one.create()

    def seal(self) -> None:
        """Add the last entry of the time index, when the segment is rolled or the log closed."""
        if self._newest.timestamp != NO_TIMESTAMP:
            self._times.add(*self._newest)
        self.flush_indexes()

    def flush_indexes(self) -> None:
        """Write the index entries that wait in memory to the page cache."""
        self._offsets.flush()
        self._times.flush()

    def sync(self) -> None:
        """Make the segment durable. Blocks: for workers."""
        self._log.sync()
        self._offsets.sync()
        self._times.sync()
        self.aborted.sync()

    def sync_batches(self) -> None:
        """Make the batches durable, whose indexes recovery would rebuild. Blocks: for workers.

        The index of aborted transactions is synced, too: recovery does not look for those below a
        snapshot of the producers.
        """
        self._log.sync()
        self.aborted.sync()

    def truncate_to(self, offset: int) -> None:
        """Cut the batch that holds `offset` and all after it."""
        at = self.find(offset) if offset < self.next_offset else None
        if at is None:
            return
        self._log.truncate(at.position)
        self.size = at.position
        self.is_durable = False
        self._offsets.truncate(at.header.base_offset)
        self._times.truncate(at.header.base_offset)
        self.aborted.truncate(at.header.base_offset)
        self.load()

    def close(self) -> None:
        """Release the files; index entries not sealed are lost."""
        self._log.close()
        self._offsets.close()
        self._times.close()
        self.aborted.close()

    def retire(self) -> list[str]:
        """Rename the files so that no log looks at them; return the paths, to be removed later."""
        self.rename(".deleted")
        return self.paths()

    def rename(self, ending: str) -> None:
        """Put another ending after the names of the files, that of the batches last."""
        before = self.paths()
        self._ending = ending
        for old, new in zip(reversed(before), reversed(self.paths()), strict=True):
            self._files.rename(old, new)
        self._tell_paths()

    def moved_to(self, directory: str) -> None:
        """Take up the new name of the log's directory."""
        self._directory = directory
        self._tell_paths()

    def _tell_paths(self) -> None:
        for suffix, file in zip(FILES, self._files_held, strict=True):
            file.moved(self._path(suffix))
        self.aborted.moved(self._aborted_path)

    def paths(self) -> list[str]:
        """Return the paths of the files that exist, that of the batches first."""
        held = zip(FILES, self._files_held, strict=True)
        paths = [self._path(suffix) for suffix, file in held if file.exists]
        return [*paths, self._aborted_path] if self.aborted.exists else paths

    def _path(self, suffix: str) -> str:
        return segment_path(self._directory, self.base_offset, suffix) + self._ending

    @property
    def _aborted_path(self) -> str:
        return self._path(aborted_index.SUFFIX)

    # --- reading --------------------------------------------------------------------------------

    def find(self, offset: int) -> BatchAt | None:
        """Return the first batch that ends at or after `offset`; None if the segment ends before.

        The index is a hint without a checksum. If it leads to no batch, or to one above the offset,
        its bytes have changed on disk: then the segment is scanned from its start.
        """
        near = self._near(offset)
        batches = self.batches(near)
        if near:
            try:
                first = next(batches, None)
            except KafkaError:
                first = None
            if first is None or first.header.base_offset > offset:
                batches = self.batches()
            elif first.header.last_offset >= offset:
                return first
        for at in batches:
            if at.header.last_offset >= offset:
                return at
        return None

    def position_of(self, offset: int) -> int:
        """Return the byte at which that batch begins, or the end."""
        at = self.find(offset)
        return self.size if at is None else at.position

    def offset_after(self, position: int) -> int:
        """Return an offset above all batches that begin before `position`, and not far above."""
        entry = self._offsets.from_position(position)
        return self.next_offset if entry is None else entry.offset + 1

    def read(self, position: int, size: int) -> bytes:
        """Return bytes as they stand in the file."""
        return self._log.read_at(position, size)

    def read_batch(self, at: BatchAt) -> bytes:
        """Return one batch, for a caller that opens its records.

        Bytes may change on a disk after they were checked. Raises KafkaError(CORRUPT_MESSAGE) if
        the CRC32C is wrong, or the offsets, which it does not cover, are outside the segment.
        """
        header = at.header
        batch = self.read(at.position, header.size)
        if header.base_offset < self.base_offset or header.next_offset > self.next_offset:
            raise self._damaged(at.position, f"offset {header.base_offset} cannot be here")
        if len(batch) < header.size or not crc_matches(batch, header):
            raise self._damaged(at.position, "CRC32C does not match")
        return batch

    def region(self, position: int, size: int) -> Piece:
        """Return bytes as they stand in the file, to be sent; see `File.region`."""
        return self._log.region(position, size)

    def warm(self, offset: int, size: int) -> Callable[[], None] | None:
        """Return the call for a worker before `size` bytes from `offset` are read; None if they are
        in memory.
        """
        if self.size <= RESIDENT_BYTES or not self.base_offset <= offset < self.next_offset:
            return None
        index = None if offset in self._recent else self._offsets.warm()
        if index is not None:
            return index
        return self._warm(self._near(offset), size + _SCAN_BYTES)

    def warm_ahead(self, offset: int, size: int) -> Callable[[], None] | None:
        """Return a call that reads ahead, for a worker, after `size` bytes from `offset`."""
        if self.size <= RESIDENT_BYTES or not self.base_offset <= offset < self.next_offset:
            return None
        return self._warm(self._near(offset) + size + AHEAD_BYTES, 1)

    def _warm(self, position: int, size: int) -> Callable[[], None] | None:
        if position >= self.size - RESIDENT_BYTES:
            return None
        return self._log.warm(position, size)

    def _near(self, offset: int) -> int:
        recent = self._recent.get(offset)
        if recent is not None:
            return recent
        entry = self._offsets.floor(offset)
        return entry.position if entry else 0

    def batches(self, position: int = 0) -> Iterator[BatchAt]:
        """Yield the headers of the batches from the one that begins at `position`.

        Raises KafkaError(CORRUPT_MESSAGE) at bytes that cannot be a header.
        """
        start, chunk = 0, b""
        while position + HEADER_BYTES <= self.size:
            if position < start or position + HEADER_BYTES > start + len(chunk):
                start, chunk = position, self._log.read_at(position, _SCAN_BYTES)
            header = parse_header(chunk, position - start)
            problem = shape_problem(header)
            if problem is not None or position + header.size > self.size:
                raise self._damaged(position, problem or "the file ends early")
            yield BatchAt(position, header)
            position += header.size
        if position != self.size:
            raise self._damaged(position, "the file ends within the batch's header")

    def first_at_or_after(
        self, *, timestamp: int, offset: int, search: Search = records.first_at_or_after
    ) -> TimestampOffset | None:
        """Return the first record not older than `timestamp` and not before `offset`."""
        if self._newest.timestamp < timestamp:
            return None
        for at in self.batches(self.position_of(self._older_below(timestamp, offset))):
            if at.header.max_timestamp >= timestamp:
                batch = self.read_batch(at)
                found = search(batch, at.header, timestamp, offset)
                if found is not None:
                    return found
        return None

    def _older_below(self, timestamp: int, offset: int) -> int:
        """An offset, not below `offset`, before which all is older than `timestamp`."""
        older = self._times.floor(timestamp - 1)
        return max(offset, older.offset + 1 if older else self.base_offset)

    def warm_time(self, timestamp: int, offset: int) -> Callable[[], None] | None:
        """Return what a worker must call before `first_at_or_after`; see `File.warm`."""
        if self.size <= RESIDENT_BYTES or self._newest.timestamp < timestamp:
            return None
        index = self._times.warm() or self._offsets.warm()
        if index is not None:
            return index
        begin = self._older_below(timestamp, offset)
        # By the next entry there is one that is not older.
        entry = self._times.above(timestamp - 1)
        first, last = (self._offsets.floor(at) for at in (begin, entry.offset if entry else begin))
        span = last.position - (first.position if first else 0) if last else 0
        return self.warm(begin, min(max(span, 0) + _LOOKUP_BYTES, _WARM_BYTES_MAX))

    def warm_newest(self) -> Callable[[], None] | None:
        """Return what a worker must call before `newest`; see `File.warm`."""
        return self.warm(self._newest.offset, _LOOKUP_BYTES)

    @property
    def newest_timestamp(self) -> int:
        """The largest timestamp of a batch, or NO_TIMESTAMP."""
        return self._newest.timestamp

    def age_from_ms(self) -> int:
        """Return the largest timestamp of a batch; without any, when the file was written."""
        if self._newest.timestamp != NO_TIMESTAMP or self.size == 0:
            return self._newest.timestamp
        return self._files.modified_ms(self.name)

    def newest(self, search: Search = records.first_at_or_after) -> TimestampOffset | None:
        """Return the first record of the batch of the largest timestamp that has this timestamp."""
        if self._newest.timestamp == NO_TIMESTAMP:
            return None
        at = self.find(self._newest.offset)
        if at is None:
            return None
        return records.newest(self.read_batch(at), at.header, search)

    @property
    def name(self) -> str:
        """The path of the file of batches, for messages."""
        return segment_path(self._directory, self.base_offset, "log")

    # --- recovery -------------------------------------------------------------------------------

    def index_problem(self) -> str | None:
        """Return the fault of an index; None if both can be trusted."""
        if self.size and not self.has_files:
            return "an index is missing"
        if self._offsets.last is not None and self._offsets.last.position >= self.size:
            return "the offset index points past the end"
        return self._offsets.problem() or self._times.problem()

    @property
    def is_shorter_than_its_index(self) -> bool:
        """True if a loaded segment ends before an entry of its time index.

        A crash may keep the truncation of the batches and lose that of the index. The entry would
        vouch for batches to come, and hide those that are older than its timestamp.
        """
        last = self._times.last
        return last is not None and last.offset >= self.next_offset

    def recover(self, durable_below: int = 0, *, rewrite: bool = False) -> int:
        """Check every batch, cut from the first bad one, rebuild the indexes; return the bytes cut.
        Blocks.

        Cut batches below the offset `durable_below` are damage and not a torn tail: a copy of the
        file stays beside, see `DAMAGED`. `rewrite`: write the good ones again, as they were
        checked, so that the next sync has them to write.
        """
        end = self._reindex(self._valid_batches(durable_below if rewrite else None), strict=False)
        cut = self.size - end
        if cut and self.next_offset < durable_below:
            self._set_aside()
        if cut or rewrite:
            self._log.truncate(end)
            self.size = end
        return cut

    def _set_aside(self) -> None:
        """Copy the batches' file: its good part stays in the log, the rest may be of use."""
        copy = self._files.open(self.name + DAMAGED, create=True)
        try:
            copy.truncate(0)
            for position in range(0, self.size, _RECOVERY_BYTES):
                copy.append([self._log.read_at(position, _RECOVERY_BYTES)])
            copy.sync()
        finally:
            copy.close()

    def rebuild_indexes(self) -> None:
        """Rebuild the indexes from batches that are known to be durable; blocks.

        Raises KafkaError(CORRUPT_MESSAGE) if the batches are damaged.
        """
        self._reindex(self.batches(), strict=True)

    def _reindex(self, batches: Iterator[BatchAt], *, strict: bool) -> int:
        if self.size:
            self._create_files()
        self._offsets.clear()
        self._times.clear()
        self._forget_marks()
        end = 0
        for at in batches:
            offset = at.header.base_offset
            if not self.next_offset <= offset <= self.base_offset + _RELATIVE_OFFSET_MAX:
                if strict:
                    raise self._damaged(at.position, f"offset {offset} cannot be here")
                break
            self._note(at.header, at.position)
            end = at.position + at.header.size
        self.seal()
        return end

    def _valid_batches(self, rewrite_from: int | None) -> Iterator[BatchAt]:
        position, start, chunk = 0, 0, b""
        while position + HEADER_BYTES <= self.size:
            if position + HEADER_BYTES > start + len(chunk):
                start, chunk = position, self._log.read_at(position, _RECOVERY_BYTES)
            header = parse_header(chunk, position - start)
            if shape_problem(header) is not None or position + header.size > self.size:
                return
            if position + header.size > start + len(chunk):
                size = max(_RECOVERY_BYTES, header.size)
                start, chunk = position, self._log.read_at(position, size)
            if not crc_matches(chunk, header, position - start):
                return
            if rewrite_from is not None and header.next_offset > rewrite_from:
                # These very bytes: the cache may have let go of them since they were read.
                begin = position - start
                self._log.write_at(position, memoryview(chunk)[begin : begin + header.size])
            yield BatchAt(position, header)
            position += header.size

    def load(self) -> None:
        """Take over the files: read the ends of the indexes, and the batches after their last
        entries.
        """
        self._forget_marks()
        last, newest = self._offsets.last, self._times.last
        if last is not None:
            self._indexed_to = last.position
        if newest is not None:
            self._newest = TimestampOffset(newest.timestamp, newest.offset)
        if self.size >= HEADER_BYTES:
            first = parse_header(self._log.read_at(0, HEADER_BYTES))
            self._first_timestamp = first.max_timestamp
        for at in self.batches(self._indexed_to):
            self._note_newest(at.header)
            self.next_offset = at.header.next_offset

    def _damaged(self, position: int, why: str) -> KafkaError:
        text = f"{self.name} is damaged at byte {position}: {why}"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, text)

    # --- bookkeeping ----------------------------------------------------------------------------

    def _note(self, header: BatchHeader, position: int) -> None:
        self._recent[header.base_offset] = position
        if len(self._recent) > _RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        self.next_offset = header.next_offset
        self._note_newest(header)
        if self._first_timestamp is None:
            self._first_timestamp = header.max_timestamp
        if position - self._indexed_to > self._interval_bytes:
            self._offsets.add(header.last_offset, position)
            self._times.add(*self._newest)
            self._indexed_to = position

    def _note_newest(self, header: BatchHeader) -> None:
        if header.max_timestamp > self._newest.timestamp:
            self._newest = TimestampOffset(header.max_timestamp, header.last_offset)

    def _forget_marks(self) -> None:
        self._recent.clear()
        self.next_offset = self.base_offset
        self._indexed_to = 0
        self._newest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None
