"""Flushes: what of a log is not durable yet, and when it becomes so.

`Durability` keeps account of what of a log is on disk besides its batches: names, leader epochs,
snapshots of the producers. The log turns what is missing into a `FlushPlan` on the event loop; the
worker of the log directory runs plans and removals in order; then the log moves its recovery
point. `Flusher` is the group commit of one log directory (row L8): all that wait for a log while a
flush of it is under way share the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from broker.log import checkpoints
from broker.log.partition_log import fsync_marker
from broker.log.producers import producer_snapshot
from broker.log.segments import Segment, segment_path
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metrics import Distribution, Meter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.log.producers import Producer
    from raftctl.runtime.api import FileSystem, Worker


_US = 1_000_000


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """The work of one flush: call `run` on the worker, then `PartitionLog.flushed`."""

    end_offset: int
    truncations: int
    """The log's count of truncations when the plan was made."""
    whole: tuple[Segment, ...]
    """The segments that are flushed with their indexes."""
    run: Callable[[], None]
    done: Callable[[], None]
    """Notes that the plan was carried out: for `PartitionLog.flushed`."""


class Flushable(Protocol):
    """The part of a log that a `Flusher` needs."""

    @property
    def directory(self) -> str:
        """The path of the log, for messages."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last batch; a truncation lowers it."""

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is durable."""

    @property
    def offline(self) -> str | None:
        """The reason why the log is no longer served, if there is one."""

    def flush_plan(self, *, rolled_only: bool) -> FlushPlan | None:
        """See `PartitionLog.flush_plan`."""

    def flushed(self, plan: FlushPlan) -> None:
        """See `PartitionLog.flushed`."""


class Durability:
    """The account of one partition's directory."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self.epochs: list[tuple[int, int]] = []
        """The leader epochs on disk."""
        self._files = files
        self._directory = directory
        self._names_changed = 1
        """The number of changes of file names, and below how many of them are durable."""
        self._names_durable = 0
        self._names_doubted = False
        """Whether a process that was killed may have left names that are not durable."""
        self._snapshots: list[int] = []
        """The offsets of the snapshots on disk, smallest first."""
        self._due: tuple[int, Mapping[int, Producer]] | None = None
        """The newest snapshot to write: an offset and the producers there."""
        self._obsolete: list[str] = []
        """The files of snapshots that no longer count."""

    def adopt(
        self, epochs: list[tuple[int, int]], snapshots: list[int], *, names_doubted: bool
    ) -> None:
        """Take over the findings of opening the log; the next flush syncs doubted names."""
        self.epochs = epochs
        self._snapshots = snapshots
        self._names_durable = self._names_changed
        self._names_doubted = names_doubted

    def moved_to(self, directory: str) -> None:
        """Note the new name of the log's directory."""
        self._directory = directory

    def renamed(self) -> None:
        """Note that files were created or renamed, so that the directory must be synced."""
        self._names_changed += 1

    @property
    def needs_sync(self) -> bool:
        """True if files were created or renamed since the directory was last synced."""
        return self._names_changed > self._names_durable

    def knows(self, epochs: list[tuple[int, int]]) -> bool:
        """Return whether epochs and producers are on disk as they are in memory."""
        return self._due is None and self.epochs == epochs

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, offset: int, producers: Mapping[int, Producer]) -> None:
        """Have the next flush write the producers as they are at an offset."""
        ascend = self._snapshots == sorted(set(self._snapshots))
        invariant(ascend, "snapshots are in the order of their offsets")
        if offset > max(self._snapshots, default=0):
            self._due = (offset, producers)

    def forget_snapshots(self, *, above: int) -> None:
        """Forget the snapshots above an offset, where the log was cut."""
        self._forget([offset for offset in self._snapshots if offset > above])
        if self._due is not None and self._due[0] > above:
            self._due = None

    def keep_snapshots_from(self, offset: int) -> None:
        """Forget the snapshots below the log's start, except the newest of them."""
        self._forget([one for one in self._snapshots if one <= offset][:-1])

    def newest_snapshot(self, below: int) -> tuple[int, Mapping[int, Producer]]:
        """Return the newest readable snapshot up to the offset `below`, with its offset.

        Returns (0, nothing) if there is none: the batches have it all.
        """
        for offset in reversed([one for one in self._snapshots if one <= below]):
            try:
                return offset, producer_snapshot.read(self._files, self._path(offset))
            except (KafkaError, FileNotFoundError):
                # An older one, or the batches, say the same.
                self._forget([offset])
        return 0, {}

    def _forget(self, doomed: Sequence[int]) -> None:
        # The next flush removes the files, before it writes others of the same names.
        self._snapshots = [offset for offset in self._snapshots if offset not in doomed]
        self._obsolete += [self._path(offset) for offset in doomed]

    def _path(self, offset: int) -> str:
        return segment_path(self._directory, offset, producer_snapshot.SUFFIX)

    # --- flushing -------------------------------------------------------------------------------

    def plan(
        self,
        whole: Sequence[Segment],
        active: Segment | None,
        epochs: list[tuple[int, int]],
        truncations: int,
    ) -> FlushPlan:
        """Return how to make segments durable, the `whole` ones with their indexes.

        Every plan must be run, and in the order in which plans were made: each removes or writes
        files that an earlier one knew.
        """
        due, self._due = self._due, None
        obsolete, self._obsolete = self._obsolete, []
        names, sync_names = self._names_changed, self.needs_sync or self._names_doubted
        new_epochs = epochs != self.epochs
        if due is not None:
            self._snapshots.append(due[0])

        def run() -> None:
            self._sync(whole, active)
            for path in obsolete:
                if self._files.exists(path):
                    self._files.remove(path)
            # A snapshot of what was truncated must not come back: below the recovery point it
            # would be trusted.
            if sync_names or obsolete:
                self._files.sync_directory(self._directory)
            if new_epochs:
                path = f"{self._directory}/{checkpoints.LEADER_EPOCHS}"
                checkpoints.write_epochs(self._files, path, epochs)
            if due is not None:
                producer_snapshot.write(self._files, self._path(due[0]), due[1])

        def done() -> None:
            self._names_durable = max(self._names_durable, names)
            self._names_doubted = False
            self.epochs = epochs

        flushed = [*whole, *([active] if active else [])]
        end_offset = flushed[-1].next_offset if flushed else 0
        return FlushPlan(end_offset, truncations, tuple(whole), run, done)

    def _sync(self, whole: Sequence[Segment], active: Segment | None) -> None:
        try:
            for segment in whole:
                segment.sync()
            if active is not None:
                active.sync_batches()
        except OSError:
            # At once: after a kill, the marker is all that the next process has.
            fsync_marker.remove(self._files, self._directory.rpartition("/")[0])
            raise


class FlushTimes:
    """How many flushes there were, and how long they took."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.durations = Distribution()
        """Microseconds."""

    def add(self, seconds: float) -> None:
        """Count a flush that was carried out."""
        self.meter.count += 1
        self.durations.add(int(seconds * _US))


class Flusher:
    """Makes logs durable up to an offset, one flush at a time for each log."""

    def __init__(
        self, worker: Worker, failed: Callable[[BaseException], None], times: FlushTimes
    ) -> None:
        """`failed` is called when the disk refuses; waiting callers get KAFKA_STORAGE_ERROR."""
        self._worker = worker
        self._failed = failed
        self._times = times
        self._waiting: dict[Flushable, deque[tuple[int, asyncio.Future[None]]]] = {}

    def through(self, log: Flushable, offset: int) -> asyncio.Future[None]:
        """Return a future that is done when `log` is durable below `offset`, or was truncated.

        It raises KafkaError(KAFKA_STORAGE_ERROR) if the disk refuses: the batches may be lost.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if log.recovery_point >= offset:
            future.set_result(None)
            return future
        queue = self._waiting.get(log)
        if queue is not None:
            queue.append((offset, future))
        else:
            self._waiting[log] = deque([(offset, future)])
            self._flush(log)
        return future

    def invariants(self) -> None:
        """Check that every queue waits for something that is not durable yet."""
        for log, queue in self._waiting.items():
            invariant(bool(queue), "a flush that is under way has somebody waiting")
            undone = any(offset > log.recovery_point for offset, _ in queue)
            invariant(undone or log.offline is not None, "a flush under way is waited for")

    @property
    def is_busy(self) -> bool:
        """True if a flush of any log is under way."""
        return bool(self._waiting)

    def is_flushing(self, log: Flushable) -> bool:
        """Return whether a flush of the log is under way."""
        return log in self._waiting

    def _flush(self, log: Flushable) -> None:
        plan = log.flush_plan(rolled_only=False)
        if plan is None:
            self._resolve(log, log.log_end_offset)
            return
        try:
            running = self._worker.submit(plan.run)
        except KafkaError as error:
            self._refuse(log, error)
            return
        begun_at = asyncio.get_running_loop().time()
        running.add_done_callback(lambda done: self._flushed(log, plan, begun_at, done))

    def _flushed(
        self, log: Flushable, plan: FlushPlan, begun_at: float, done: asyncio.Future[None]
    ) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            text = f"cannot flush {log.directory}: {error or 'stopped'}"
            self._refuse(log, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text))
            if error is not None:
                self._failed(error)
            return
        self._times.add(asyncio.get_running_loop().time() - begun_at)
        if log.offline is not None:
            # Another flush failed before: what this one synced may have been lost by then.
            self._refuse(log, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.offline))
            return
        log.flushed(plan)
        self._resolve(log, log.recovery_point)

    def _resolve(self, log: Flushable, durable: int) -> None:
        """Resolve the futures whose offsets are durable; the others wait for the next flush."""
        queue = self._waiting.pop(log)
        # A truncation may have taken away what somebody waits for: there is nothing left to flush.
        reached = min(log.log_end_offset, durable)
        left = deque[tuple[int, "asyncio.Future[None]"]]()
        for offset, future in queue:
            if offset > reached and offset <= log.log_end_offset:
                left.append((offset, future))
            elif not future.done():
                future.set_result(None)
        if left:
            self._waiting[log] = left
            self._flush(log)

    def _refuse(self, log: Flushable, error: KafkaError) -> None:
        for _, future in self._waiting.pop(log):
            if not future.done():
                future.set_exception(error)
                # The caller may be gone: an exception that nobody retrieves is no defect here.
                future.exception()
