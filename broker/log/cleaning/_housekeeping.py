"""The periodic work on all logs: checkpoints, flushes by time, retention, compaction.

One task for each, on the event loop. Decisions are made there, blocking calls run on workers, and
between two logs other tasks run. Files of removed segments remain for `file.delete.delay.ms` under
another name, since a reader may still be sending them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from broker.log.cleaning._cleaner import LogCleaner
from raftctl.errors import KafkaError
from raftctl.integers import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from broker.log.directories import FutureLogs, LogDirectory, Removals
    from broker.log.partition_log import PartitionLog
    from broker.log.settings import LogSettings
    from broker.types import TopicPartition
    from raftctl.runtime.api import Runtime

_LOGS_A_TURN = 100
"""The number of logs that are looked at before other tasks run on the event loop."""


class Housekeeping:
    """The periodic tasks: `start`, then `stop`. Each round may also be called out of turn."""

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
        """Flush complete segments, write checkpoints, and remove the files of removed segments."""
        for number, (directory, log) in enumerate(self._logs()):
            if number % _LOGS_A_TURN == _LOGS_A_TURN - 1:
                await asyncio.sleep(0)
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
        for directory, log in self._logs():
            if not log.is_dirty or log.config.flush_ms == LONG_MAX:
                continue
            # The time counts from when the log was first seen with something to flush.
            since_ms = before.get(log, now_ms)
            if now_ms - since_ms >= log.config.flush_ms:
                await directory.flush(log, rolled_only=False)
            else:
                self._flushed_ms[log] = since_ms

    async def retain(self) -> None:
        """Remove segments that are too old or too many, and forget expired producers."""
        now_ms = self._runtime.wall_ms()
        silent_ms = now_ms - self._settings.producer_id_expiration_ms
        for number, (_, log) in enumerate(self._logs()):
            if number % _LOGS_A_TURN == 0:
                await asyncio.sleep(0)
            log.producers.expire(silent_ms)
            start = log.log_start_offset
            try:
                count = log.expire(now_ms)
            except KafkaError:
                continue  # The log has taken its directory offline.
            if count:
                self._log_start_moved(log.partition)
                self._runtime.log.info(
                    "segments_expired",
                    partition=str(log.partition),
                    segments=count,
                    log_start_offset=log.log_start_offset,
                    before=start,
                )

    # --- what they share ------------------------------------------------------------------------

    def _logs(self) -> Iterator[tuple[LogDirectory, PartitionLog]]:
        """Yield the logs that are online, each only if it still is at its turn."""
        for directory in self._directories:
            for partition in sorted(directory.logs):
                log = directory.logs.get(partition)
                if log is not None and directory.offline is None:
                    yield directory, log

    def _remove_later(
        self, directory: LogDirectory, retired: list[Callable[[], None]], delay_ms: int
    ) -> None:
        self._doomed.setdefault(directory, []).extend(retired)

        def remove() -> None:
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
