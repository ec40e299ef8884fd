"""`LogManager`: all partition logs of a broker, over its `log.dirs` (row L1).

Decides in which directory a new log goes, and which of two logs of one partition stays. Calls that
block (opening and recovering, fsync, removing) run on one worker for each directory, in order. It
knows no leader: the ReplicaManager creates, deletes and truncates logs.

`Housekeeping` is the periodic work on all logs: checkpoints, flushes by time, retention,
compaction, removals and moves.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING

from broker.log import checkpoints
from broker.log._cleaner import LogCleaner
from broker.log.directories import (
    CLEAN_SHUTDOWN,
    METADATA_LOG,
    NO_EPOCH,
    FutureLogs,
    LogDirectory,
    Removals,
    load,
    recover_moves,
)
from broker.log.partition_log import FlushTimes, create_log
from broker.log.settings import LogSettings
from broker.types import LogDirectoryFacts, LogFacts
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.integers import LONG_MAX
from raftctl.runtime import Slices
from raftctl.runtime.api import bind_log, replace_file

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from uuid import UUID

    from broker.log.directories import FutureLog
    from broker.log.partition_log import PartitionLog
    from broker.types import TopicPartition
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.runtime.api import FileSystem, Runtime

_WISHES_MAX = 10_000
"""The number of partitions for which a directory may be chosen before they are here. The oldest
choices are forgotten first, since a client may name partitions that never come.
"""


class LogListener:
    """Methods that a LogManager calls when a log changes by itself; here they do nothing."""

    def directory_failed(self, path: str, partitions: Sequence[TopicPartition]) -> None:
        """Take the partitions of a directory offline that failed while others serve."""

    def log_moved(self, log: PartitionLog) -> None:
        """This log, another object in another directory, has taken its partition's place.

        Called in the turn of the loop in which the old one stops taking batches. A listener that
        kept the old object would append to files that are about to be removed.
        """

    def log_start_moved(self, partition: TopicPartition) -> None:
        """Retention removed segments of this partition.

        Readers below the new start get OFFSET_OUT_OF_RANGE from now on.
        """

    def log_copied(self, size: int) -> bool:
        """So many bytes went to another directory; returns whether copying must pause now.

        `size` is 0 when a copy that pauses asks again. The rate is bounded by
        `replica.alter.log.dirs.io.max.bytes.per.second` (KIP-113).
        """
        return False


class Housekeeping:
    """The periodic tasks: `start`, then `stop`. Each round may also be called out of turn.

    One task for each, on the event loop. Decisions are made there, blocking calls run on workers,
    and between two logs other tasks run. Files of removed segments remain for
    `file.delete.delay.ms` under another name, since a reader may still be sending them.
    """

    def __init__(
        self,
        runtime: Runtime,
        directories: Sequence[LogDirectory],
        settings: LogSettings,
        fail: Callable[[BaseException], None],
        removals: Removals,
        moves: FutureLogs,
        log_start_moved: Callable[[TopicPartition], None],
    ) -> None:
        """`fail` ends the node for a defect; `log_start_moved` is called after retention."""
        self._runtime = runtime
        self._directories = directories
        self._settings = settings
        self._fail = fail
        self._tasks: list[asyncio.Task[None]] = []
        self._removals = removals
        self._moves = moves
        self._log_start_moved = log_start_moved
        self._doomed: dict[LogDirectory, list[Callable[[], None]]] = {}
        """The removals of each directory that wait for their time."""
        self._flushed_ms: dict[PartitionLog, int] = {}
        """When each dirty log was first seen so: milliseconds of the loop's clock."""
        self.cleaner = LogCleaner(runtime, directories, settings)
        """Compacts logs."""

    def start(self) -> None:
        """Start the periodic tasks."""
        settings = self._settings
        rounds = [
            (settings.checkpoint_interval_ms, self.checkpoint),
            (settings.flush_scheduler_interval_ms, self.flush_due),
            (settings.retention_check_interval_ms, self.retain),
        ]
        if settings.cleaner_enable:
            rounds.append((settings.cleaner_backoff_ms, self.cleaner.clean))
        repeated = [self._repeat(*one) for one in rounds]
        for run in (*repeated, self._removals.run(), self._moves.run()):
            task = asyncio.get_running_loop().create_task(run)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        """End the tasks. A compaction that is under way is dropped, to be started again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cleaner.close()

    def take_retired(self, directory: LogDirectory) -> list[Callable[[], None]]:
        """Return the removals of a directory that still wait; the caller performs them now."""
        waiting = self._doomed.get(directory, [])
        self._doomed[directory] = []
        return waiting

    # --- rounds ---------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Flush complete segments, write checkpoints, and remove the files of removed segments.

        In this order: a recovery point is written once the segments below it are durable, so that
        a start after a crash checks the active segment and no other.
        """
        for directory, log in self._logs(lambda log: log.needs_upkeep):
            await directory.flush(log, rolled_only=True)
            retired = log.take_retired()
            if retired:
                self._remove_later(directory, retired, log.config.file_delete_delay_ms)
        for directory in self._directories:
            if directory.offline is None:
                await directory.write_checkpoints()

    async def flush_due(self) -> None:
        """Flush the logs that had unflushed batches for `flush.ms`."""
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        before, self._flushed_ms = self._flushed_ms, {}
        # Hardly any topic has a `flush.ms`, and there may be tens of thousands of logs each second.
        for directory, log in self._logs(lambda log: log.config.flush_ms != LONG_MAX):
            if not log.is_dirty:
                continue
            # The time counts from when the log was first seen with something to flush. A clock
            # for each batch would be exact, but `flush.ms` is a bound of about a second.
            since_ms = before.get(log, now_ms)
            if now_ms - since_ms >= log.config.flush_ms:
                await directory.flush(log, rolled_only=False)
            else:
                self._flushed_ms[log] = since_ms

    async def retain(self) -> None:
        """Remove segments that are too old or too many, and forget expired producers.

        A producer with an open transaction never expires: its end would find no beginning.
        """
        now_ms = self._runtime.wall_ms()
        silent_ms = now_ms - self._settings.producer_id_expiration_ms
        slices = Slices()
        for _, log in self._logs():
            await slices.rest()
            log.producers.expire(silent_ms)
            start = log.log_start_offset
            try:
                count = log.expire(now_ms)
            except KafkaError:
                continue  # The log has taken its directory offline.
            if count:
                self._log_start_moved(log.partition)
                bind_log(self._runtime, logger="broker.log").info(
                    "segments_expired",
                    partition=str(log.partition),
                    segments=count,
                    log_start_offset=log.log_start_offset,
                    before=start,
                )

    # --- what they share ------------------------------------------------------------------------

    def _logs(
        self, wanted: Callable[[PartitionLog], bool] = lambda _: True
    ) -> Iterator[tuple[LogDirectory, PartitionLog]]:
        """Yield the wanted logs that are online, each only if it still is at its turn.

        The caller waits between two of them. Meanwhile topics are deleted, logs move, directories
        fail; a log from before would be flushed into files that are gone.
        """
        for directory in self._directories:
            for partition in sorted(key for key, log in directory.logs.items() if wanted(log)):
                log = directory.logs.get(partition)
                if log is not None and directory.offline is None:
                    yield directory, log

    def _remove_later(
        self, directory: LogDirectory, retired: list[Callable[[], None]], delay_ms: int
    ) -> None:
        self._doomed.setdefault(directory, []).extend(retired)

        def remove() -> None:
            # At a stop `take_retired` may have handed them out already.
            waiting = self._doomed[directory]
            due = [finish for finish in retired if finish in waiting]
            if due and directory.offline is None:
                self._doomed[directory] = [finish for finish in waiting if finish not in due]
                directory.submit(partial(_run_all, due))

        asyncio.get_running_loop().call_later(delay_ms / 1000, remove)

    async def _repeat(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await work()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


def _run_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


class LogManager:
    """The logs by partition. `start`, then use, then `stop`; all on the event loop."""

    def __init__(
        self,
        runtime: Runtime,
        directories: Sequence[str],
        defaults: TopicConfig,
        fail: Callable[[BaseException], None],
        settings: LogSettings | None = None,
    ) -> None:
        """`fail` ends the node: when the last directory is offline, or for a defect."""
        invariant(bool(directories), "log.dirs is not empty")
        self._runtime = runtime
        self._defaults = defaults
        self._fail = fail
        self._settings = settings or LogSettings()
        self._listener = LogListener()
        self.flush_times = FlushTimes()
        self._directories = [
            LogDirectory(
                runtime.files,
                path,
                runtime.worker(f"log-{number}"),
                self._went_offline,
                runtime.wall_ms,
                self.flush_times,
            )
            for number, path in enumerate(directories)
        ]
        self._home: dict[TopicPartition, LogDirectory] = {}
        self._twins: dict[TopicPartition, list[LogDirectory]] = {}
        """The other directories of a partition that has logs in several, until `keep_one`.

        Which log is the right one depends on the topic id, which only an image knows.
        """
        self._is_open = False
        """Whether every log on disk has been opened, and recovered where necessary."""
        self.removals = Removals(runtime)
        """Removes the files of logs whose partitions are gone."""
        self.moves = FutureLogs(
            runtime, self.removals, self._take_moved, lambda size: self._listener.log_copied(size)
        )
        """Moves logs from one directory to another."""
        self.housekeeping = Housekeeping(
            runtime,
            self._directories,
            self._settings,
            fail,
            self.removals,
            self.moves,
            lambda partition: self._listener.log_start_moved(partition),
        )
        """The periodic work on all logs."""
        self._wishes: dict[TopicPartition, str] = {}
        """The directory chosen for partitions that are still to come (KIP-113)."""

    async def start(self, listener: LogListener | None = None) -> None:
        """Open and recover every log on disk, each directory on its workers.

        `listener` is called from now on, until `stop`. A directory that cannot be read or written
        is offline from the start (KIP-112), and its logs are not known. Raises the OSError of the
        last directory if no other is left. Where a partition has logs in two directories,
        `keep_one` keeps one.
        """
        if listener is not None:
            self._listener = listener
        files, readable = self._runtime.files, []
        for directory in self._directories:
            looked = await asyncio.gather(
                directory.worker.submit(partial(_look, files, directory.path)),
                return_exceptions=True,
            )
            if self._is_online(directory, looked[0]):
                readable.append(directory)
        # A move that a crash broke off left two copies in two directories. Which one stays must be
        # known before either is opened, for opening repairs what it finds.
        paths = [directory.path for directory in readable]
        await self._directories[0].worker.submit(partial(recover_moves, files, paths))
        loaded = await asyncio.gather(
            *(self._load(directory) for directory in readable), return_exceptions=True
        )
        for directory, logs in zip(readable, loaded, strict=True):
            if self._is_online(directory, logs) and not isinstance(logs, BaseException):
                for log in logs:
                    if log.partition in self._home:
                        directory.adopt(log)
                        self._twins.setdefault(log.partition, []).append(directory)
                    else:
                        self._adopt(directory, log)
        self._is_open = True
        self.housekeeping.start()

    def _is_online(self, directory: LogDirectory, outcome: object) -> bool:
        """Return whether a directory can be used. Raises its error if it was the last one."""
        if not isinstance(outcome, BaseException):
            return True
        if not isinstance(outcome, OSError):
            raise outcome
        directory.fail(outcome)
        if all(one.offline is not None for one in self._directories):
            raise outcome
        return False

    async def stop(self, broker_epoch: int = NO_EPOCH) -> None:
        """Make everything durable, write the checkpoints and the clean-shutdown marker.

        The marker bears the epoch of the broker's incarnation, NO_EPOCH if it had none. After a
        `start` that failed or was cancelled the disk stays as it is. A marker would vouch for logs
        that were never recovered, and the next start would trust them.
        """
        await self.housekeeping.stop()
        self.removals.finish_all()
        for directory in self._directories:
            if self._is_open:
                await self._close(directory, broker_epoch)
            directory.worker.close()

    def invariants(self) -> None:
        """Check that a partition has one log, in the directory that is its home.

        A second log would be recovered at the next start, and might win against the newer one.
        """
        for partition, home in self._home.items():
            invariant(partition in home.logs, "a log is in its home")
        twins = sum(len(others) for others in self._twins.values())
        come = self._wishes.keys() & self._home.keys()
        invariant(not come, "only a log that is to come waits for its directory")
        invariant(len(self._wishes) <= _WISHES_MAX, "clients cannot fill the memory with choices")
        held = sum(len(directory.logs) for directory in self._directories)
        invariant(held == len(self._home) + twins, "a partition has one log")
        for directory in self._directories:
            directory.invariants()

    @property
    def clean_epoch(self) -> int:
        """The broker epoch of the last clean stop; NO_EPOCH unless all directories agree."""
        epochs = {directory.clean_epoch for directory in self._directories}
        return epochs.pop() if len(epochs) == 1 else NO_EPOCH

    # --- the logs -------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """Every partition that has a log, sorted."""
        return sorted(self._home)

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """Those of `log.dirs`, in their order."""
        return self._directories

    @property
    def offline_directories(self) -> list[str]:
        """The paths of `log.dirs` that failed."""
        return [one.path for one in self._directories if one.offline is not None]

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """Return a partition's log, also from an offline directory; None if there is none."""
        home = self._home.get(partition)
        return None if home is None else home.logs[partition]

    def directory_of(self, partition: TopicPartition) -> str | None:
        """Return the path of the directory of a partition's log; None if there is none."""
        home = self._home.get(partition)
        return None if home is None else home.path

    async def describe(self) -> list[LogDirectoryFacts]:
        """Return the contents of each of `log.dirs`, in their order (DescribeLogDirs)."""
        return [await self._describe(directory) for directory in self._directories]

    async def _describe(self, directory: LogDirectory) -> LogDirectoryFacts:
        path, files = directory.path, self._runtime.files
        total = usable = -1
        if directory.offline is None:
            try:
                total, usable = await directory.worker.submit(partial(files.space, path))
            except OSError as error:
                directory.fail(error)
        if directory.offline is not None:
            return LogDirectoryFacts(ErrorCode.KAFKA_STORAGE_ERROR, path)
        facts = [
            LogFacts(partition, log.size, max(log.high_watermark - log.log_end_offset, 0))
            for partition, log in directory.logs.items()
        ]
        facts += self.moves.facts(directory)
        facts.sort(key=lambda one: one.partition)
        return LogDirectoryFacts(ErrorCode.NONE, path, tuple(facts), total, usable)

    def create(
        self, partition: TopicPartition, topic_id: UUID, config: TopicConfig
    ) -> PartitionLog:
        """Create an empty log in the directory with the fewest; its existence becomes durable soon.

        Raises KafkaError(KAFKA_STORAGE_ERROR) if no directory takes it, or if its path exists
        already: the metadata log, or files that an operator put there.
        """
        invariant(partition not in self._home, "a partition has one log")
        self.removals.finish(partition)
        home, log = self._created(partition, config)
        log.topic_id = topic_id
        self._wishes.pop(partition, None)
        self._adopt(home, log)
        self.identify(log, topic_id)
        return log

    def _created(
        self, partition: TopicPartition, config: TopicConfig
    ) -> tuple[LogDirectory, PartitionLog]:
        problem: OSError | None = None
        # Each failure takes a directory offline, so the loop ends with the last of them.
        while online := [one for one in self._directories if one.offline is None]:
            wished = [one for one in online if one.path == self._wishes.get(partition)]
            home = min(wished or online, key=lambda directory: len(directory.logs))
            try:
                path = f"{home.path}/{partition}"
                if partition.topic == METADATA_LOG or self._runtime.files.is_directory(path):
                    text = f"{path} is no directory of this broker's logs: move it away"
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)
                return home, create_log(self._runtime.files, path, partition, config)
            except OSError as error:
                problem = error
                home.fail(error)
        text = f"no log directory takes {partition}: {problem or 'all are offline'}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)

    def identify(self, log: PartitionLog, topic_id: UUID) -> None:
        """Give a topic id to a log that is new, or that a crash left without one."""
        log.topic_id = topic_id
        self._home[log.partition].identify(log, topic_id)

    def delete(self, partition: TopicPartition, *, aside: bool = False) -> None:
        """Forget the log at once and remove its files soon; do nothing if there is none.

        `aside`: keep the files, with `-stray` after the name of their directory.
        """
        home = self._home.pop(partition, None)
        if home is None:
            return
        self.moves.forget(partition)
        home.cleaned.pop(partition, None)
        self.removals.add(home, home.logs.pop(partition), aside=aside)

    def keep_one(self, topic_id_of: Callable[[TopicPartition], UUID | None]) -> list[str]:
        """Keep one log of each partition that had logs in several directories at the start.

        A replica that moved away and came back while a directory was offline has its old log there.
        Of the logs of the current topic, the one stays for whose owner a voter would vote: the
        later last epoch, then the longer log. It has every record that was committed to either
        (Raft §5.4.1). Returns the paths of the others, which are set aside as `delete` does.
        """
        gone = []
        for partition, more in self._twins.items():
            homes, topic_id = [self._home[partition], *more], topic_id_of(partition)
            homes.sort(key=lambda home: _rank(home.logs[partition], topic_id))
            for home in homes:
                self._home[partition] = home
                if home is not homes[-1]:
                    gone.append(home.logs[partition].directory)
                    self.delete(partition, aside=True)
                    self.removals.finish(partition)
        self._twins.clear()
        return gone

    def truncated(self, log: PartitionLog) -> None:
        """Make a truncation durable soon, before anything that is flushed after it.

        Until then a crash may bring back what was cut. The checkpoint of recovery points is written
        last, so that it never vouches for an epoch that is still to be removed.
        """
        home, files = self._home[log.partition], self._runtime.files
        retired, entries, path = log.take_retired(), log.epochs.entries, log.directory
        end = log.log_end_offset
        if home.cleaned.get(log.partition, 0) > end:
            home.cleaned[log.partition] = end
        points = home.offsets()[checkpoints.RECOVERY_POINTS]
        invariant(points[log.partition] <= end, "no checkpoint vouches for what was cut")
        write_points = home.checkpoint_writer(checkpoints.RECOVERY_POINTS, points)

        def persist() -> None:
            # Files first: a crash after the checkpoint alone would bring back what was cut, below
            # a recovery point that says it is whole.
            for finish in retired:
                finish()
            files.sync_directory(path)
            checkpoints.write_epochs(files, f"{path}/{checkpoints.LEADER_EPOCHS}", entries)
            write_points()

        home.submit(persist, log)

    # --- moving ---------------------------------------------------------------------------------

    def move(self, partition: TopicPartition, path: str) -> None:
        """Have a log move to another of `log.dirs`, or be made there if it is still to come.

        Raises KafkaError: LOG_DIR_NOT_FOUND for a path that is not one of `log.dirs`,
        KAFKA_STORAGE_ERROR if one of the two directories is offline, REPLICA_NOT_AVAILABLE if the
        log is still to come, INVALID_TOPIC_EXCEPTION if its name leaves no room for that of a copy.
        """
        target = next((one for one in self._directories if one.path == path), None)
        if target is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not one of log.dirs")
        home = self._home.get(partition)
        for directory in (target, home or target):
            if directory.offline is not None:
                text = f"log directory {directory.path} is offline: {directory.offline}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)
        if home is None:
            self._wish(partition, path)
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition} has no log here")
        self.moves.request(home, target, home.logs[partition])

    def _wish(self, partition: TopicPartition, path: str) -> None:
        self._wishes.pop(partition, None)
        self._wishes[partition] = path
        if len(self._wishes) > _WISHES_MAX:
            del self._wishes[next(iter(self._wishes))]

    def _take_moved(self, future: FutureLog) -> None:
        partition, home, target = future.partition, future.home, future.target
        invariant(self._home.get(partition) is home, "a copy replaces the log that was copied")
        ends = future.copy.log_end_offset, home.logs[partition].log_end_offset
        # A shorter copy would pass for a replica that has all that was acknowledged.
        invariant(ends[0] == ends[1], "a copy ends where its log ends")
        del home.logs[partition]
        # Without it the cleaner would compact the whole copy again.
        if partition in home.cleaned:
            target.cleaned[partition] = home.cleaned.pop(partition)
        target.adopt(future.copy)
        self._home[partition] = target
        self._listener.log_moved(future.copy)

    # --- directories ----------------------------------------------------------------------------

    def _load(self, directory: LogDirectory) -> asyncio.Future[list[PartitionLog]]:
        threads = self._settings.recovery_threads
        return asyncio.ensure_future(load(self._runtime, directory, self._defaults, threads))

    def _adopt(self, home: LogDirectory, log: PartitionLog) -> None:
        home.adopt(log)
        self._home[log.partition] = home

    def _went_offline(self, directory: LogDirectory, error: BaseException) -> None:
        bind_log(self._runtime, logger="broker.log").error(
            "log_dir_offline", directory=directory.path, why=str(error), logs=len(directory.logs)
        )
        # A defect in this code would strike the next directory, too, and lose one after the other.
        defect = not isinstance(error, OSError | KafkaError)
        if defect or all(one.offline is not None for one in self._directories):
            self._fail(error)
        else:
            self._listener.directory_failed(directory.path, sorted(directory.logs))

    async def _flush_to_close(self, directory: LogDirectory) -> None:
        """Flush all logs of a directory, on as many threads as opened them."""
        threads = min(self._settings.recovery_threads, len(directory.logs))
        more = [self._runtime.worker(f"closing-{number}") for number in range(1, threads)]
        try:
            await directory.flush_to_close(more)
        finally:
            for worker in more:
                worker.close()

    async def _close(self, directory: LogDirectory, broker_epoch: int) -> None:
        """Flush and close the logs; leave out the marker if the disk refuses anything."""
        if directory.offline is None:
            await self._flush_to_close(directory)
        if directory.offline is None:
            await directory.write_checkpoints()
        logs, retired = list(directory.logs.values()), self.housekeeping.take_retired(directory)
        for log in logs:
            retired += log.take_retired()
        epoch = broker_epoch if directory.offline is None else None
        closing = partial(_close, self._runtime.files, directory.path, logs, retired, epoch)
        try:
            await directory.worker.submit(closing)
        except OSError as error:
            directory.fail(error)


def _rank(log: PartitionLog, topic_id: UUID | None) -> tuple[bool, int, int]:
    """Order two logs of one partition: of the current topic, then the later epoch, then longer."""
    return log.topic_id == topic_id, log.epochs.latest, log.log_end_offset


def _look(files: FileSystem, path: str) -> None:
    """Raise OSError unless the directory can be made and read."""
    files.make_directories(path)
    files.names(path)


def _close(
    files: FileSystem,
    path: str,
    logs: Sequence[PartitionLog],
    retired: Sequence[Callable[[], None]],
    clean_epoch: int | None,
) -> None:
    for log in logs:
        log.close()
    # The marker comes last: whatever it vouches for is on disk and closed by now.
    if clean_epoch is not None:
        for finish in retired:
            finish()
        marker = json.dumps({"version": 0, "brokerEpoch": clean_epoch})
        replace_file(files, f"{path}/{CLEAN_SHUTDOWN}", marker.encode())
