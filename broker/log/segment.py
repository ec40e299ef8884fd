"""One segment of a partition: the file of batches, its offset index and its time index.

A segment holds the batches from its base offset, which names its files, to the next segment's.
Finding an offset is an index look-up, then a scan of at most `index.interval.bytes` and a batch.
It decides nothing about leaders, producers or retention. File formats are Apache Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.log import records
from broker.log.index import OffsetIndex, TimeIndex
from broker.log.record_batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    crc_matches,
    parse_header,
    shape_problem,
)
from broker.log.records import TimestampOffset
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from raftctl.metadata.topic_config import TopicConfig
    from raftctl.runtime.api import Buffer, File, FileSystem

_SCAN_BYTES = 4096
_RECOVERY_BYTES = 1 << 20
_RELATIVE_OFFSET_MAX = 2**31 - 1
NO_TIMESTAMP = -1


class BatchAt(NamedTuple):
    """A batch and the byte of the segment at which it begins."""

    position: int
    header: BatchHeader


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """The name of a segment's file; `suffix` is log, index or timeindex."""
    return f"{directory}/{base_offset:020d}.{suffix}"


class Segment:
    """An open segment; only the last one of a log is appended to.

    One that was on disk must be told first whether to trust it (`load`) or not (`recover`).
    """

    def __init__(
        self, files: FileSystem, directory: str, base_offset: int, config: TopicConfig
    ) -> None:
        def opened(suffix: str) -> File:
            path = segment_path(directory, base_offset, suffix)
            self._missing |= not files.exists(path)
            return files.open(path, create=True)

        self._missing = False
        self.base_offset = base_offset
        self.next_offset = base_offset
        """The offset after the last batch."""
        self._files = files
        self._directory = directory
        self._interval_bytes = config.index_interval_bytes
        self._log = opened("log")
        self._offsets = OffsetIndex(opened("index"), base_offset, config.segment_index_bytes)
        self._times = TimeIndex(opened("timeindex"), base_offset, config.segment_index_bytes)
        self.size = self._log.size()
        self._indexed_to = 0
        """Where the batch of the last index entry begins."""
        self._newest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._first_timestamp: int | None = None
        self._torn = False
        """Whether bytes of a failed write follow the last batch."""

    # --- writing --------------------------------------------------------------------------------

    def append(self, pieces: Sequence[Buffer], header: BatchHeader) -> None:
        """Writes one batch; after an OSError the segment is as before."""
        position = self.size
        if self._torn:
            self._log.truncate(position)
        self._torn = True
        self._log.append(pieces)
        self._torn = False
        self.size = position + header.length + PREFIX_BYTES
        self._note(header, position)

    def must_roll(self, header: BatchHeader, config: TopicConfig) -> bool:
        """Whether the next batch, whose offsets are set, belongs into a new segment (row L3)."""
        if self.size == 0:
            return False
        first_ms = self._first_timestamp
        return (
            self.size + header.size > config.segment_bytes
            or (first_ms is not None and header.max_timestamp - first_ms > config.segment_ms)
            or self._offsets.is_full
            or self._times.is_full
            or header.last_offset - self.base_offset > _RELATIVE_OFFSET_MAX
        )

    def seal(self) -> None:
        """The last entry of the time index, when the segment is rolled or the log closed."""
        if self._newest.timestamp != NO_TIMESTAMP:
            self._times.add(*self._newest)
        self.flush_indexes()

    def flush_indexes(self) -> None:
        """Hands the index entries that wait in memory to the operating system."""
        self._offsets.flush()
        self._times.flush()

    def sync(self) -> None:
        """Makes the segment durable. Blocks: for workers."""
        self._log.sync()
        self._offsets.sync()
        self._times.sync()

    def truncate_to(self, offset: int) -> None:
        """Cuts the batch that holds `offset` and all after it."""
        at = self.find(offset) if offset < self.next_offset else None
        if at is None:
            return
        self._log.truncate(at.position)
        self.size = at.position
        self._offsets.truncate(at.header.base_offset)
        self._times.truncate(at.header.base_offset)
        self.load()

    def close(self) -> None:
        """Releases the files; index entries not sealed are lost."""
        self._log.close()
        self._offsets.close()
        self._times.close()

    def retire(self) -> list[str]:
        """Gives the files names that no log looks at; returns them, to be removed later."""
        retired = []
        for suffix in ("log", "index", "timeindex"):
            path = segment_path(self._directory, self.base_offset, suffix)
            self._files.rename(path, path + ".deleted")
            retired.append(path + ".deleted")
        return retired

    # --- reading --------------------------------------------------------------------------------

    def find(self, offset: int) -> BatchAt | None:
        """The first batch that ends at or after `offset`; None if the segment ends before."""
        entry = self._offsets.floor(offset)
        for at in self.batches(entry.position if entry else 0):
            if at.header.last_offset >= offset:
                return at
        return None

    def position_of(self, offset: int) -> int:
        """Where the first batch that ends at or after `offset` begins, or the end."""
        at = self.find(offset)
        return self.size if at is None else at.position

    def read(self, position: int, size: int) -> bytes:
        """Bytes as they stand in the file."""
        return self._log.read_at(position, size)

    def batches(self, position: int = 0) -> Iterator[BatchAt]:
        """The headers of the batches from the one that begins at `position`.

        Raises KafkaError(CORRUPT_MESSAGE) at bytes that cannot be a header.
        """
        start, chunk = 0, b""
        while position + HEADER_BYTES <= self.size:
            if position < start or position + HEADER_BYTES > start + len(chunk):
                start, chunk = position, self._log.read_at(position, _SCAN_BYTES)
            header = parse_header(chunk, position - start)
            problem = shape_problem(header)
            if problem is not None or position + header.size > self.size:
                text = f"{self.name} is damaged at byte {position}: {problem or 'it ends early'}"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
            yield BatchAt(position, header)
            position += header.size
        if position != self.size:
            text = f"{self.name} ends within a batch that begins at byte {position}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)

    def first_at_or_after(self, *, timestamp: int, offset: int) -> TimestampOffset | None:
        """The first record not older than `timestamp` and not before `offset`."""
        if self._newest.timestamp < timestamp:
            return None
        older = self._times.floor(timestamp - 1)
        from_offset = max(offset, older.offset + 1 if older else self.base_offset)
        for at in self.batches(self.position_of(from_offset)):
            if at.header.max_timestamp >= timestamp:
                batch = self.read(at.position, at.header.size)
                found = records.first_at_or_after(
                    batch, at.header, timestamp=timestamp, offset=offset
                )
                if found is not None:
                    return found
        return None

    @property
    def newest_timestamp(self) -> int:
        """The largest timestamp of a batch, or NO_TIMESTAMP."""
        return self._newest.timestamp

    def newest(self) -> TimestampOffset | None:
        """The first record of the batch of the largest timestamp that has this timestamp."""
        if self._newest.timestamp == NO_TIMESTAMP:
            return None
        at = self.find(self._newest.offset)
        return records.newest(self.read(at.position, at.header.size), at.header) if at else None

    @property
    def name(self) -> str:
        """The path of the file of batches, for messages."""
        return segment_path(self._directory, self.base_offset, "log")

    # --- recovery -------------------------------------------------------------------------------

    def index_problem(self) -> str | None:
        """What is wrong with an index; None if both can be trusted."""
        if self._missing:
            return "an index is missing"
        if self._offsets.last is not None and self._offsets.last.position >= self.size:
            return "the offset index points past the end"
        return self._offsets.problem() or self._times.problem()

    def recover(self) -> int:
        """Checks every batch, cuts from the first bad one, rebuilds the indexes; blocks.

        Returns how many bytes were cut.
        """
        end = self._reindex(self._valid_batches())
        cut = self.size - end
        if cut:
            self._log.truncate(end)
            self.size = end
        return cut

    def rebuild_indexes(self) -> None:
        """Makes the indexes anew from batches that are known to be durable; blocks.

        Raises KafkaError(CORRUPT_MESSAGE) if they are damaged: a flushed batch is never cut.
        """
        self._reindex(self.batches())

    def _reindex(self, batches: Iterator[BatchAt]) -> int:
        self._offsets.clear()
        self._times.clear()
        self._forget_marks()
        end = 0
        for at in batches:
            if at.header.base_offset < self.next_offset:
                break
            self._note(at.header, at.position)
            end = at.position + at.header.size
        self.seal()
        return end

    def _valid_batches(self) -> Iterator[BatchAt]:
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
            yield BatchAt(position, header)
            position += header.size

    def load(self) -> None:
        """Takes over what is on disk: reads the indexes' ends and the batches after them."""
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

    # --- bookkeeping ----------------------------------------------------------------------------

    def _note(self, header: BatchHeader, position: int) -> None:
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
        self.next_offset = self.base_offset
        self._indexed_to = 0
        self._newest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None
