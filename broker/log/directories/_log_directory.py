"""`LogDirectory`: one of `log.dirs` with its logs, its worker, its checkpoints.

Calls that block on a directory run on its worker, in order. A directory that fails once is offline
until the node restarts: its logs take and return nothing more, while others go on (KIP-112). After
one refused write nobody can say which of the earlier ones reached the disk.

`load` opens all logs of a directory, several at a time (`num.recovery.threads.per.data.dir`). A
clean-shutdown marker says that every log was flushed and closed, so nothing is checked. Without it,
each log is recovered from its recovery point. The absence of `fsync_marker` says that a flush
failed: then batches that may exist only in the page cache are written again.

`Removals` removes the files of deleted logs, a few at a time: a topic may take thousands of logs
with it. Each directory is first renamed on the event loop, where new logs are created, too, so that
its name is free for the next log at once. Between a few of them the loop must run other tasks:
without heartbeats the broker would be fenced. A crash leaves directories that the next start
removes, or logs without a replica.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.log import checkpoints
from broker.log.partition_log import Flusher, FlushTimes, fsync_marker, open_log
from broker.types import TopicPartition
from raftctl.errors import KafkaError, invariant
from raftctl.runtime import Slices
from raftctl.runtime.api import bind_log, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from broker.log.partition_log import PartitionLog
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.runtime.api import FileSystem, Runtime, Worker

Offsets = dict["TopicPartition", int]
NO_EPOCH = -1
"""The broker epoch of a directory whose last incarnation is not known to have stopped cleanly."""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_PARTITION_NAME = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_DELETED_NAME = re.compile(r".+\.[0-9a-f]{32}-delete")
METADATA_LOG = "__cluster_metadata"
"""The topic whose directory is the node's own replica of the metadata log, never a partition's."""
_CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_STARTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANED,
)
NAME_MAX = 255
"""The most bytes of a directory's name on common file systems."""


class LogDirectory:
    """One log directory, used on the event loop; `failed` is called with the disk's first error."""

    def __init__(
        self,
        files: FileSystem,
        path: str,
        worker: Worker,
        failed: Callable[[LogDirectory, BaseException], None],
        wall_ms: Callable[[], int],
        flush_times: FlushTimes,
    ) -> None:
        """`flush_times` counts the flushes of all directories."""
        self.path = path
        self.worker = worker
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.flusher = Flusher(worker, self.fail, flush_times)
        self.cleaned: Offsets = {}
        """The offset up to which each log is compacted."""
        self.leaving: dict[TopicPartition, None] = {}
        """The logs that are being copied to another directory, which are not compacted meanwhile.
        """
        self.clean_epoch = NO_EPOCH
        """The broker epoch in which the directory was closed cleanly before it was loaded."""
        self.offline: BaseException | None = None
        """The error for which the directory serves nothing; None while it is online."""
        self._flush_times = flush_times
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
        """Add a log, which from now on uses this directory's flusher and fails with it.

        A copy that has moved here brings none of its former directory's: a failure there must not
        take it offline.
        """
        invariant(log.partition not in self.logs, "a directory has one log of a partition")
        self.logs[log.partition] = log
        log.flusher = self.flusher
        log.failed = self.fail
        log.wall_ms = self._wall_ms

    def fail(self, error: BaseException) -> None:
        """Take the directory offline: the disk refused something, so nothing in it is reliable.

        All its logs stop at once, also those whose files still can be written. After a failed
        fsync another one may succeed without having written anything.
        """
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
        """Make everything durable that must be. An error takes the directory offline.

        `rolled_only` leaves out the active segment: it is flushed by `flush.ms`, or by the system.
        """
        try:
            plan = log.flush_plan(rolled_only=rolled_only, closing=closing)
            if plan is not None:
                begun_at = asyncio.get_running_loop().time()
                await (worker or self.worker).submit(plan.run)
                self._flush_times.add(asyncio.get_running_loop().time() - begun_at)
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
            # Most checkpoints of an idle broker are as they were; each write is two fsyncs.
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
            # One log may have been deleted meanwhile, which is no failure of the disk.
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


async def load(
    runtime: Runtime, directory: LogDirectory, defaults: TopicConfig, threads: int
) -> list[PartitionLog]:
    """Open and recover the logs of a directory, and log what recovery changed. Raises OSError.

    Damage costs only what is damaged, not the directory. Records are cut, for a leader to send
    again; a damaged checkpoint counts as missing; a log whose topic id cannot be read is set aside.
    """
    files, path = runtime.files, directory.path
    found = await directory.worker.submit(
        partial(_look, files, path, f".{runtime.uuid().hex}-stray")
    )
    for why in found.damaged:
        bind_log(runtime, logger="broker.log").warning(
            "checkpoint_damaged", why=why, remedy="none is needed: it is rebuilt"
        )
    directory.cleaned = found.offsets[checkpoints.CLEANED]
    more = [runtime.worker(f"recovery-{number}") for number in range(1, threads)]
    workers = [directory.worker, *more]
    shares = [found.partitions[number :: len(workers)] for number in range(len(workers))]
    calls = [
        worker.submit(partial(_open_share, files, path, share, defaults, found))
        for worker, share in zip(workers, shares, strict=True)
        if share
    ]
    try:
        loaded = [log for share in await asyncio.gather(*calls) for log in share]
    finally:
        for worker in more:
            worker.close()
    unreadable = [one for one in loaded if isinstance(one, _SetAside)]
    for one in unreadable:
        bind_log(runtime, logger="broker.log").error(
            "log_set_aside", partition=str(one.partition), path=one.path, why=one.why
        )
    logs = [one for one in loaded if not isinstance(one, _SetAside)]
    # What is not here any more must not be taken for all that the broker had (KIP-966).
    is_whole = not unreadable and all(log.recovered.lost_from is None for log in logs)
    directory.clean_epoch = found.clean_epoch if is_whole else NO_EPOCH
    await directory.worker.submit(partial(_mark_started, files, path, clean=found.clean))
    if found.rewrite and logs:
        bind_log(runtime, logger="broker.log").warning(
            "unflushed_written_again", directory=path, logs=len(logs)
        )
    for log in logs:
        _log_recovery(runtime, log)
    return logs


class _SetAside(NamedTuple):
    """A log that could not be opened; its directory has another name now."""

    partition: TopicPartition
    path: str
    why: str


class _Looked:
    """The state of a directory before its logs are opened.

    Taken on the worker in one go, since every question of it blocks.
    """

    def __init__(
        self,
        clean_epoch: int | None,
        partitions: Sequence[TopicPartition],
        offsets: Mapping[str, Offsets],
        damaged: Sequence[str],
        stray: str,
        *,
        flush_failed: bool,
    ) -> None:
        self.clean = clean_epoch is not None
        self.clean_epoch = NO_EPOCH if clean_epoch is None else clean_epoch
        self.partitions = partitions
        self.offsets = offsets
        self.damaged = damaged
        """The complaints about checkpoints that count as missing."""
        self.stray = stray
        """The ending of the names of directories that are set aside."""
        self.rewrite = clean_epoch is None and flush_failed
        """Whether batches that may not be durable have to be written again."""


def _look(files: FileSystem, path: str, stray: str) -> _Looked:
    files.make_directories(path)
    offsets: dict[str, Offsets] = {}
    damaged: list[str] = []
    for name in _CHECKPOINTS:
        try:
            offsets[name] = checkpoints.read_offsets(files, f"{path}/{name}")
        except KafkaError as error:
            # Without recovery points everything is checked; the others only spare work.
            offsets[name] = {}
            damaged.append(error.message)
    failed = not fsync_marker.exists(files, path)
    partitions = _partitions_in(files, path)
    clean_epoch = _clean_epoch(files, path)
    return _Looked(clean_epoch, partitions, offsets, damaged, stray, flush_failed=failed)


def _clean_epoch(files: FileSystem, path: str) -> int | None:
    """Return the epoch in the clean-shutdown marker; NO_EPOCH if it cannot be read, None if there
    is no marker.
    """
    marker = f"{path}/{CLEAN_SHUTDOWN}"
    if not files.exists(marker):
        return None
    try:
        epoch = json.loads(read_file(files, marker))["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return NO_EPOCH
    return epoch if isinstance(epoch, int) else NO_EPOCH


def _partitions_in(files: FileSystem, path: str) -> list[TopicPartition]:
    found = []
    for name in files.names(path):
        if not files.is_directory(f"{path}/{name}"):
            continue
        # A crash came between the new name and the removal: no log must be opened from it.
        if _DELETED_NAME.fullmatch(name):
            files.remove_tree(f"{path}/{name}")
            continue
        match = _PARTITION_NAME.fullmatch(name)
        if match is not None and match[1] != METADATA_LOG:
            found.append(TopicPartition(match[1], int(match[2])))
    return found


def _open_share(
    files: FileSystem,
    path: str,
    share: Sequence[TopicPartition],
    defaults: TopicConfig,
    found: _Looked,
) -> list[PartitionLog | _SetAside]:
    return [_open_or_set_aside(files, path, partition, defaults, found) for partition in share]


def _open_or_set_aside(
    files: FileSystem, path: str, partition: TopicPartition, defaults: TopicConfig, found: _Looked
) -> PartitionLog | _SetAside:
    try:
        return _open(files, path, partition, defaults, found)
    except KafkaError as error:
        aside = f"{path}/{str(partition)[: NAME_MAX - len(found.stray)]}{found.stray}"
        files.rename(f"{path}/{partition}", aside)
        return _SetAside(partition, aside, error.message)


def _open(
    files: FileSystem, path: str, partition: TopicPartition, defaults: TopicConfig, found: _Looked
) -> PartitionLog:
    def checkpoint(name: str) -> int:
        return found.offsets[name].get(partition, 0)

    log = open_log(
        files,
        f"{path}/{partition}",
        partition,
        defaults,
        recovery_point=checkpoint(checkpoints.RECOVERY_POINTS),
        clean=found.clean,
        rewrite=found.rewrite,
    )
    # Segments do not show which of their records DeleteRecords has hidden.
    log_start = checkpoint(checkpoints.LOG_STARTS)
    if log_start > log.log_end_offset:
        log.restart_at(log_start)
    log.advance_log_start(log_start)
    # The checkpoint may be older than the log's start, or newer than what a crash left of its end.
    high_watermark = checkpoint(checkpoints.HIGH_WATERMARKS)
    log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
    log.producers.prune_undo(log.high_watermark)
    return log


def _mark_started(files: FileSystem, path: str, *, clean: bool) -> None:
    """Start a new incarnation: create the fsync marker, remove the clean-shutdown marker, sync.

    The sync also makes renames durable that a killed process left in the cache.
    """
    fsync_marker.create(files, path)
    if clean:
        files.remove(f"{path}/{CLEAN_SHUTDOWN}")
    files.sync_directory(path)


def _log_recovery(runtime: Runtime, log: PartitionLog) -> None:
    found = log.recovered
    if found.lost_from is not None:
        bind_log(runtime, logger="broker.log").error(
            "log_damaged",
            partition=str(log.partition),
            lost_from_offset=found.lost_from,
            bytes_cut=found.bytes_cut,
            directory=log.directory,
            remedy="what was cut is fetched from the leader; a copy of it is in *.log.damaged",
        )
    if found.bytes_cut or found.indexes_rebuilt:
        bind_log(runtime, logger="broker.log").warning(
            "log_recovered",
            partition=str(log.partition),
            bytes_cut=found.bytes_cut,
            indexes_rebuilt=found.indexes_rebuilt,
            log_end_offset=log.log_end_offset,
        )


class Removals:
    """Logs that are in no directory's `logs` any more, but whose files exist."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[TopicPartition, tuple[LogDirectory, PartitionLog, bool]] = {}
        self._more = asyncio.Event()

    def add(self, directory: LogDirectory, log: PartitionLog, *, aside: bool = False) -> None:
        """Remove the log's files soon, and durably.

        `aside`: only rename them, so that an operator finds them and no broker does.
        """
        is_served = directory.logs.get(log.partition) is log
        invariant(not is_served, "a log that is removed serves nobody")
        served = directory.logs.get(log.partition) is log
        invariant(not served, "no log is removed that is still served")
        self._waiting[log.partition] = (directory, log, aside)
        self._more.set()

    def finish(self, partition: TopicPartition) -> None:
        """Remove the log of a partition now, to make room for another one."""
        waiting = self._waiting.pop(partition, None)
        if waiting is not None:
            self._remove(*waiting)

    def finish_all(self) -> None:
        """Remove all logs now, because the broker stops."""
        for partition in list(self._waiting):
            self.finish(partition)

    async def run(self) -> None:
        """Remove the waiting logs, a few in each turn of the loop; until cancelled."""
        while True:
            await self._more.wait()
            slices = Slices()
            while self._waiting:
                self.finish(next(iter(self._waiting)))
                await slices.rest()
            self._more.clear()

    def _remove(self, home: LogDirectory, log: PartitionLog, aside: bool) -> None:
        if home.offline is not None:
            return
        files = self._runtime.files
        retired = log.take_retired()
        ending = f".{self._runtime.uuid().hex}-{'stray' if aside else 'delete'}"
        # A topic may have a name that leaves no room for more. What comes behind says enough.
        doomed = f"{home.path}/{str(log.partition)[: NAME_MAX - len(ending)]}{ending}"
        try:
            files.rename(log.directory, doomed)
        except OSError as error:
            home.fail(error)
            return
        # The next log of this name may be there before this one is closed.
        log.moved_to(doomed)

        def remove() -> None:
            for finish in retired:
                finish()
            log.close()
            if not aside:
                files.remove_tree(doomed)
            files.sync_directory(home.path)

        home.submit(remove)
