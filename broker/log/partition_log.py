"""`PartitionLog`: the segments of one partition, with its leader epochs and producers.

Decides where a batch goes, what a read returns, what recovery keeps. It knows no leader, no
follower and no waiting: `high_watermark` is only kept here so that a checkpoint finds it.

Appends and reads use the page cache on the event loop; nothing here waits for the disk but
`recover` and the calls that `flush_plan` hands out, which run on the log directory's worker.
Leader epochs and producers are rebuilt from the batches' headers when the log is opened, so that
the log alone is the truth; `leader-epoch-checkpoint` is written for tools and for Apache Kafka.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker.log import checkpoints, record_batch
from broker.log.leader_epochs import LeaderEpochs
from broker.log.producer_state import ProducerStates
from broker.log.record_batch import NO_PRODUCER, BatchHeader
from broker.log.segment import Segment
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from broker.log.records import TimestampOffset
    from broker.types import EpochEndOffset, TopicPartition
    from raftctl.metadata.topic_config import TopicConfig
    from raftctl.runtime.api import Buffer, FileSystem

_LOG_SUFFIX = ".log"


class Appended(NamedTuple):
    """Where a produced batch stands now, or stood already if it is a repetition."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int
    """-1 unless the broker's time was put in."""
    duplicate: bool


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """What to make durable: call `run` on the worker, then give it to `PartitionLog.flushed`."""

    end_offset: int
    truncations: int
    """How often the log had been truncated when the plan was made."""
    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening a log found, for the operator."""

    segments_checked: int = 0
    bytes_cut: int = 0
    indexes_rebuilt: int = 0


class PartitionLog:
    """An open log. Made by `open_log` or `create_log`; `close` it."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        segments: list[Segment],
    ) -> None:
        invariant(bool(segments), "a log has a segment")
        self.partition = partition
        self.directory = directory
        self.config = config
        self.topic_id: UUID | None = None
        self.high_watermark = segments[0].base_offset
        self.log_start_offset = segments[0].base_offset
        self.recovery_point = segments[0].base_offset
        """Everything below is durable."""
        self.recovered = Recovered()
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self._files = files
        self._truncations = 0
        self._retired: list[Callable[[], None]] = []
        self._segments = segments
        self._bases = [s.base_offset for s in segments]

    # --- the log's bounds -----------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset of the next batch."""
        return self._segments[-1].next_offset

    @property
    def broker_time(self) -> bool:
        """Whether records get the broker's time rather than keep the producer's."""
        return self.config.message_timestamp_type == "LogAppendTime"

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return sum(s.size for s in self._segments)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """The largest known leader epoch up to this one, and where it ended."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # --- appending ------------------------------------------------------------------------------

    def append_as_leader(self, batch: Buffer, leader_epoch: int, now_ms: int) -> Appended:
        """Checks a produced batch, gives it the next offsets and appends it.

        `now_ms` is the wall clock, for LogAppendTime. Raises KafkaError: what `check_produced` and
        `ProducerStates.check` say, or KAFKA_STORAGE_ERROR.
        """
        header = record_batch.check_produced(batch, self.config.max_message_bytes)
        if header.producer_id != NO_PRODUCER:
            sent = self.producers.check(header)
            if sent is not None:
                time_ms = sent.timestamp if self.broker_time else -1
                return Appended(sent.base_offset, sent.last_offset + 1, time_ms, duplicate=True)
        time_ms = -1
        if self.broker_time:
            time_ms = now_ms
            batch, header = record_batch.stamped(batch, header, now_ms)
        base_offset = self.log_end_offset
        pieces, header = record_batch.placed(batch, header, base_offset, leader_epoch)
        self._append(pieces, header)
        return Appended(base_offset, header.next_offset, time_ms, duplicate=False)

    def append_as_follower(self, data: Buffer) -> int:
        """Appends what the leader sent, offsets and all; returns the bytes appended.

        Raises KafkaError: CORRUPT_MESSAGE, also for batches that do not continue this log, with
        the good ones before it appended; or KAFKA_STORAGE_ERROR.
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
        """Whether this empty log starts within the batch, as the leader's may: then realigns."""
        start = self.log_start_offset
        if self.size or first.next_offset <= start:
            return False
        self.restart_at(first.base_offset)
        self.log_start_offset = self.high_watermark = start
        return True

    def _append(self, pieces: list[Buffer], header: BatchHeader) -> None:
        try:
            if self._segments[-1].must_roll(header, self.config):
                self._roll(header.base_offset)
            self._segments[-1].append(pieces, header)
        except OSError as error:
            text = f"cannot append to {self.directory}: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
        self._note(header)

    def _note(self, header: BatchHeader) -> None:
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        self.producers.note(header)

    def _roll(self, base_offset: int) -> None:
        self._segments[-1].seal()
        self._add_segment(base_offset)

    def _add_segment(self, base_offset: int) -> None:
        segment = Segment(self._files, self.directory, base_offset, self.config)
        self._segments.append(segment)
        self._bases.append(base_offset)

    # --- reading --------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, up_to_offset: int, min_one: bool
    ) -> list[Buffer]:
        """Bytes from the batch that holds `offset`, of batches that begin below `up_to_offset`.

        At most `max_bytes`, where the last batch may be cut short, unless `min_one` and the first
        alone is larger. Raises KafkaError(OFFSET_OUT_OF_RANGE) outside the log.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            text = f"offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        if offset >= up_to_offset:
            return []
        at = bisect_right(self._bases, offset) - 1
        for segment in self._segments[at:]:
            found = segment.find(offset)
            if found is not None and found.header.base_offset < up_to_offset:
                end = segment.size
                if up_to_offset < segment.next_offset:
                    end = segment.position_of(up_to_offset)
                size = min(max_bytes, end - found.position)
                if min_one:
                    size = max(size, found.header.size)
                return [segment.read(found.position, size)] if size > 0 else []
        return []

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """How many bytes of batches lie between two offsets, as far as it is cheap to say.

        If they lie in different segments the answer is the rest of the first one's, at least 1.
        """
        if offset >= end_offset:
            return 0
        segment = self._segments[bisect_right(self._bases, offset) - 1]
        if end_offset >= segment.next_offset:
            return max(segment.size - segment.position_of(offset), 1)
        return segment.position_of(end_offset) - segment.position_of(offset)

    def first_at_or_after(self, timestamp: int) -> TimestampOffset | None:
        """The first record not older than `timestamp` (milliseconds)."""
        for segment in self._segments:
            found = segment.first_at_or_after(timestamp=timestamp, offset=self.log_start_offset)
            if found is not None:
                return found
        return None

    def newest(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp; None in an empty log."""
        best = max(self._segments, key=lambda segment: segment.newest_timestamp)
        return best.newest()

    def start_epoch(self, leader_epoch: int) -> None:
        """Notes that whatever comes next is of this leader epoch."""
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was written; -1 if unknown."""
        return next((e for e, start in reversed(self.epochs.entries) if start <= offset), -1)

    def headers(self, offset: int = 0) -> Iterator[BatchHeader]:
        """The headers of all batches from the segment that holds `offset`."""
        for segment in self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
            for at in segment.batches():
                yield at.header

    # --- truncation -----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Removes the batch that holds `offset` and all after it; returns whether there was one.

        Epochs that begin there are forgotten in any case: they may be the leader's of an epoch
        that wrote nothing, and are in conflict with whoever asks to truncate.
        """
        shorter = offset < self.log_end_offset
        self._truncations += 1
        if shorter and offset < self._bases[0]:
            self.restart_at(offset)
            return True
        if shorter:
            keep = max(bisect_right(self._bases, offset), 1)
            self._retire(keep)
            self._segments[-1].truncate_to(offset)
            if not self.producers.truncate_to(self.log_end_offset):
                self.producers.rebuild(self.headers())
        self.epochs.truncate_to(min(offset, self.log_end_offset))
        self._clamp()
        return shorter

    def restart_at(self, offset: int) -> None:
        """Removes everything and goes on at `offset`: for a follower that was left behind."""
        self._truncations += 1
        self._retire(0)
        self._add_segment(offset)
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self.log_start_offset = self.high_watermark = self.recovery_point = offset

    def advance_log_start(self, offset: int) -> None:
        """Hides everything below `offset`, and removes the segments that only hold such."""
        if offset <= self.log_start_offset:
            return
        invariant(offset <= self.log_end_offset, "a log starts before its end")
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.advance_start(offset)
        while len(self._segments) > 1 and self._bases[1] <= offset:
            self._retire_one(0)

    def _clamp(self) -> None:
        end = self.log_end_offset
        self.recovery_point = min(self.recovery_point, end)
        self.high_watermark = min(self.high_watermark, end)

    def _retire(self, keep: int) -> None:
        # From the newest, so that a crash in between leaves a log without a gap.
        while len(self._segments) > keep:
            self._retire_one(len(self._segments) - 1)

    def _retire_one(self, number: int) -> None:
        segment = self._segments.pop(number)
        self._bases.pop(number)
        paths = segment.retire()

        def finish() -> None:
            segment.close()
            for path in paths:
                self._files.remove(path)

        self._retired.append(finish)

    def take_retired(self) -> list[Callable[[], None]]:
        """Closing and removing of files that are no longer part of the log: for the worker."""
        retired, self._retired = self._retired, []
        return retired

    # --- durability -----------------------------------------------------------------------------

    def flush_plan(self, *, rolled_only: bool) -> FlushPlan | None:
        """What to sync beyond the recovery point: all, or only the segments that are complete."""
        count = len(self._segments) - (1 if rolled_only else 0)
        segments = [s for s in self._segments[:count] if s.next_offset > self.recovery_point]
        if not segments:
            return None
        for segment in segments:
            segment.flush_indexes()
        entries = self.epochs.entries
        path = f"{self.directory}/{checkpoints.LEADER_EPOCHS}"

        def run() -> None:
            for segment in segments:
                segment.sync()
            self._files.sync_directory(self.directory)
            checkpoints.write_epochs(self._files, path, entries)

        return FlushPlan(segments[-1].next_offset, self._truncations, run)

    def flushed(self, plan: FlushPlan) -> None:
        """The plan was carried out: it counts unless the log was truncated meanwhile."""
        if plan.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, plan.end_offset)

    def seal(self) -> None:
        """Completes the indexes of the last segment, before the last flush."""
        self._segments[-1].seal()

    def close(self) -> None:
        """Releases all files."""
        for segment in self._segments:
            segment.close()

    # --- opening --------------------------------------------------------------------------------

    def recover(self, recovery_point: int, *, clean: bool) -> None:
        """Makes a log that was on disk fit for use; blocks.

        After a crash the segments with bytes above `recovery_point` are checked batch by batch and
        what follows the first bad batch is cut.
        """
        checked = cut = rebuilt = 0
        for number, segment in enumerate(self._segments):
            last = number + 1 == len(self._segments)
            if clean or (not last and self._bases[number + 1] <= recovery_point):
                rebuilt += self._trust(segment)
                continue
            checked += 1
            # A gap or an overlap is a truncation of which the crash undid a part.
            follows = number == 0 or segment.base_offset == self._segments[number - 1].next_offset
            cut_here = segment.recover() if follows else segment.size
            if cut_here or not follows:
                keep = number + follows
                cut += cut_here + sum(s.size for s in self._segments[number + 1 :])
                self._retire(keep)
                break
        self.recovered = Recovered(checked, cut, rebuilt)
        for header in self.headers():
            self._note(header)
        self.recovery_point = min(recovery_point, self.log_end_offset)

    @staticmethod
    def _trust(segment: Segment) -> bool:
        """Loads a segment that is durable; returns whether its indexes had to be rebuilt."""
        damaged = segment.index_problem() is not None
        if damaged:
            segment.rebuild_indexes()
        else:
            segment.load()
        return damaged


def create_log(
    files: FileSystem, directory: str, partition: TopicPartition, config: TopicConfig
) -> PartitionLog:
    """A new empty log at offset 0. Does not block."""
    files.make_directories(directory)
    return PartitionLog(files, directory, partition, config, [Segment(files, directory, 0, config)])


def open_log(
    files: FileSystem,
    directory: str,
    partition: TopicPartition,
    config: TopicConfig,
    *,
    recovery_point: int,
    clean: bool,
) -> PartitionLog:
    """The log in a directory, recovered; blocks. `clean`: it was closed by `PartitionLog.close`."""
    bases = []
    for name in files.names(directory):
        if name.endswith(".deleted"):
            files.remove(f"{directory}/{name}")
        elif name.endswith(_LOG_SUFFIX) and name.removesuffix(_LOG_SUFFIX).isdigit():
            bases.append(int(name.removesuffix(_LOG_SUFFIX)))
    segments = [Segment(files, directory, base, config) for base in sorted(bases) or [0]]
    log = PartitionLog(files, directory, partition, config, segments)
    log.recover(recovery_point, clean=clean)
    for finish in log.take_retired():
        finish()
    log.topic_id = checkpoints.read_topic_id(files, directory)
    return log
