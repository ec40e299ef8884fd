"""`LogDirectory`: one of `log.dirs` with its logs, its worker, its checkpoints.

Calls that block on a directory run on its worker, in order. A directory that fails once is offline
until the node restarts: its logs take and return nothing more, while others go on (KIP-112). After
one refused write nobody can say which of the earlier ones reached the disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from broker.log import checkpoints
from broker.log.partition_log import Flusher
from raftctl.errors import KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from broker.log.partition_log import PartitionLog
    from broker.types import TopicPartition
    from raftctl.runtime.api import FileSystem, Worker

Offsets = dict["TopicPartition", int]
NO_EPOCH = -1
"""The broker epoch of a directory whose last incarnation is not known to have stopped cleanly."""


class LogDirectory:
    """One log directory, used on the event loop; `failed` is called with the disk's first error."""

    def __init__(
        self,
        files: FileSystem,
        path: str,
        worker: Worker,
        failed: Callable[[LogDirectory, BaseException], None],
        wall_ms: Callable[[], int],
    ) -> None:
        self.path = path
        self.worker = worker
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.flusher = Flusher(worker, self.fail)
        self.cleaned: Offsets = {}
        """The offset up to which each log is compacted."""
        self.leaving: dict[TopicPartition, None] = {}
        """The logs that are being copied to another directory, which are not compacted meanwhile.
        """
        self.clean_epoch = NO_EPOCH
        """The broker epoch in which the directory was closed cleanly before it was loaded."""
        self.offline: BaseException | None = None
        """The error for which the directory serves nothing; None while it is online."""
        self._files = files
        self._failed = failed
        self._wall_ms = wall_ms
        self._unidentified: deque[tuple[PartitionLog, UUID]] = deque()
        self._written: dict[str, Offsets] = {}
        """The content of each checkpoint as it was last written."""

    def invariants(self) -> None:
        """Check that the logs know this directory, and fail with it.

        A log that misses the failure would go on acknowledging records on a disk that lost some.
        """
        for partition, log in self.logs.items():
            invariant(log.partition == partition, "a log is known by its partition")
            invariant(log.directory.startswith(f"{self.path}/"), "a log is in its directory")
            offline = self.offline is not None
            invariant((log.offline is not None) == offline, "logs fail with their directory")
            invariant(log.flusher is self.flusher, "a log is flushed by its directory")
            checkpointed = self._written.get(checkpoints.LOG_STARTS, {}).get(partition, 0)
            grows = checkpointed <= log.log_start_offset
            invariant(grows or log.truncations > 0, "a log's start moves on")
        self.flusher.invariants()

    def adopt(self, log: PartitionLog) -> None:
        """Add a log, which from now on uses this directory's flusher and fails with it."""
        invariant(log.partition not in self.logs, "a directory has one log of a partition")
        self.logs[log.partition] = log
        log.flusher = self.flusher
        log.failed = self.fail
        log.wall_ms = self._wall_ms

    def fail(self, error: BaseException) -> None:
        """Take the directory offline: the disk refused something, so nothing in it is reliable."""
        if self.offline is not None:
            return
        self.offline = error
        for log in self.logs.values():
            log.offline = f"log directory {self.path} is offline: {error}"
        self._failed(self, error)

    async def flush_to_close(self, more: Sequence[Worker]) -> None:
        """Make all logs durable, some on the directory's worker and some on each of `more`.

        A sync mostly waits for the disk, which performs several at once.
        """
        # What is under way for a log must not be overtaken by another flush of it.
        await self.worker.submit(_nothing)
        while self.flusher.is_busy:
            await self.worker.submit(_nothing)
        workers, logs = [self.worker, *more], list(self.logs.values())
        shares = [logs[number :: len(workers)] for number in range(len(workers))]
        await asyncio.gather(*map(self._flush_share, workers, shares))

    async def _flush_share(self, worker: Worker, logs: Sequence[PartitionLog]) -> None:
        for log in logs:
            if self.offline is None:
                await self.flush(log, rolled_only=False, closing=True, worker=worker)

    async def flush(
        self,
        log: PartitionLog,
        *,
        rolled_only: bool,
        closing: bool = False,
        worker: Worker | None = None,
    ) -> None:
        """Make everything durable that must be. An error takes the directory offline."""
        try:
            plan = log.flush_plan(rolled_only=rolled_only, closing=closing)
            if plan is not None:
                await (worker or self.worker).submit(plan.run)
                log.flushed(plan)
        except (OSError, KafkaError) as error:
            # The files of a log that was deleted meanwhile may be gone.
            if self.logs.get(log.partition) is log:
                self.fail(error)

    def offsets(self) -> dict[str, Offsets]:
        """Return the content of each checkpoint by its file name.

        The recovery point is not written beyond the high watermark. No truncation goes below that,
        so a crash in the middle of one never leaves a checkpoint that vouches for cut batches.
        """
        logs = self.logs
        return {
            checkpoints.RECOVERY_POINTS: {
                key: min(log.recovery_point, log.high_watermark) for key, log in logs.items()
            },
            checkpoints.LOG_STARTS: {key: log.log_start_offset for key, log in logs.items()},
            checkpoints.HIGH_WATERMARKS: {key: log.high_watermark for key, log in logs.items()},
            checkpoints.CLEANED: {key: end for key, end in self.cleaned.items() if key in logs},
        }

    async def write_checkpoints(self) -> None:
        """Write the checkpoints that changed. An error takes the directory offline."""
        for name, offsets in self.offsets().items():
            if self._written.get(name, {}) == offsets:
                continue
            self._written[name] = offsets
            try:
                await self.worker.submit(self.checkpoint_writer(name, offsets))
            except OSError as error:
                self.fail(error)
                return

    def checkpoint_writer(self, name: str, offsets: Offsets) -> Callable[[], None]:
        """Return the call that replaces one checkpoint: for the worker."""
        return partial(checkpoints.write_offsets, self._files, f"{self.path}/{name}", offsets)

    def identify(self, log: PartitionLog, topic_id: UUID) -> None:
        """Write a log's topic id into its directory soon, and make that durable.

        Logs that come together share their syncs: a topic may bring thousands.
        """
        self._unidentified.append((log, topic_id))
        if len(self._unidentified) == 1:
            self.worker.submit(self._write_topic_ids).add_done_callback(self._identified)

    def _write_topic_ids(self) -> list[tuple[PartitionLog, OSError]]:
        """Write the ids of all waiting logs, on the worker; return the failures."""
        waiting = []
        while self._unidentified:
            waiting.append(self._unidentified.popleft())
        try:
            self._write_together(waiting)
        except OSError:
            return self._write_alone(waiting)
        return []

    def _write_alone(
        self, waiting: list[tuple[PartitionLog, UUID]]
    ) -> list[tuple[PartitionLog, OSError]]:
        failures = []
        for log, topic_id in waiting:
            try:
                self._write_together([(log, topic_id)])
            except OSError as error:
                failures.append((log, error))
        return failures

    def _write_together(self, waiting: list[tuple[PartitionLog, UUID]]) -> None:
        if waiting:
            topic_ids = {log.directory: topic_id for log, topic_id in waiting}
            checkpoints.write_topic_ids(self._files, topic_ids)
            self._files.sync_directory(self.path)

    def _identified(self, future: asyncio.Future[list[tuple[PartitionLog, OSError]]]) -> None:
        if future.cancelled():
            return
        if (defect := future.exception()) is not None:
            self.fail(defect)
            return
        for log, error in future.result():
            # The directory of a log that was deleted meanwhile is gone.
            if self.logs.get(log.partition) is log:
                self.fail(error)

    def submit(self, call: Callable[[], None], log: PartitionLog | None = None) -> None:
        """Run a call on the worker. Its failure takes the directory offline, unless it is for a log
        that is gone by then: a deleted log has no files to work on.
        """

        def done(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is None or (log is not None and self.logs.get(log.partition) is not log):
                return
            self.fail(error)

        self.worker.submit(call).add_done_callback(done)


def _nothing() -> None:
    """Do nothing; complete once all earlier calls of a worker have."""
