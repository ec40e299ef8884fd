"""Metrics of the log directories: flushes, compaction, failures and space (row O1).

The names are those of Apache Kafka's LogFlushStats, LogCleaner and LogManager. Metrics of a single
log stand with those of its replica, in `broker.replication`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftctl.metrics import Family, Sample, gauge, single, summary

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from broker.log._log_manager import LogManager
    from broker.log.directories import LogDirectory
    from raftctl.metrics import Metrics
    from raftctl.runtime.api import FileSystem

FLUSH_TIMES = summary(
    "kafka_log_logflushstats_logflushrateandtimems",
    "Milliseconds a flush took, with its wait for the directory's other work.",
)
FLUSH_RATES = gauge(
    "kafka_log_logflushstats_logflushespersec",
    "Flushes a second, averaged over some minutes.",
    "minutes",
)
OFFLINE_DIRECTORIES = gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed."
)
OFFLINE = gauge(
    "kafka_log_logmanager_logdirectoryoffline",
    "1 if the log directory has failed.",
    "logDirectory",
)
AVAILABLE = gauge(
    "raftctl_log_directory_available_bytes", "Bytes that its disk still has room for.", "path"
)
CAPACITY = gauge("raftctl_log_directory_capacity_bytes", "Bytes of its whole disk.", "path")
SINCE_LAST_CLEANING = gauge(
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "Milliseconds since logs were last looked at for compaction.",
)
DIRTIEST = gauge(
    "kafka_log_logcleanermanager_max_dirty_percent",
    "Percent of the dirtiest log that waits for compaction.",
)
UNCLEANABLE = gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Logs that cannot be compacted, since records are damaged.",
    "logDirectory",
)
CLEAN_TIME = gauge(
    "kafka_log_logcleaner_max_clean_time_secs", "Seconds that the last compaction took."
)
RECOPIED = gauge(
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "Percent of its bytes that the last compaction left.",
)

_MS_OF_US = 0.001
_MS = 1_000


class LogMetrics:
    """What a `LogManager` is asked at a scrape."""

    def __init__(self, logs: LogManager, files: FileSystem, metrics: Metrics) -> None:
        self._logs = logs
        self._files = files
        self._space: dict[LogDirectory, tuple[int, int]] = {}
        """Bytes of its disk, and those available, when last asked."""
        self._asked: set[LogDirectory] = set()
        """Those whose disk has not answered yet."""
        metrics.keep(logs.flush_times.durations, logs.flush_times.meter, self)
        metrics.add(self._collect)

    def tick(self) -> None:
        """Ask each disk for its space, on its own worker: a disk that hangs delays no scrape."""
        for directory in self._logs.directories:
            if directory.offline is not None:
                self._space.pop(directory, None)
            elif directory not in self._asked:
                self._asked.add(directory)
                call = partial(self._files.space, directory.path)
                asked = directory.worker.submit(call)
                asked.add_done_callback(partial(self._answered, directory))

    def _answered(self, directory: LogDirectory, asked: asyncio.Future[tuple[int, int]]) -> None:
        self._asked.discard(directory)
        # What a disk does not say is no reason to take it offline: nothing was written.
        if not asked.cancelled() and asked.exception() is None:
            self._space[directory] = asked.result()

    def _collect(self) -> Iterator[Family]:
        logs, flushes, cleaner = self._logs, self._logs.flush_times, self._logs.housekeeping.cleaner
        yield Family(FLUSH_TIMES, [Sample((), flushes.durations.summary(_MS_OF_US))])
        rates = flushes.meter.rates.items()
        yield Family(FLUSH_RATES, [Sample((str(minutes),), rate) for minutes, rate in rates])
        yield single(OFFLINE_DIRECTORIES, len(logs.offline_directories))
        directories = logs.directories
        yield Family(OFFLINE, [Sample((d.path,), int(d.offline is not None)) for d in directories])
        space = [(directory.path, found) for directory, found in self._space.items()]
        yield Family(AVAILABLE, [Sample((path,), usable) for path, (_, usable) in space])
        yield Family(CAPACITY, [Sample((path,), total) for path, (total, _) in space])
        yield single(SINCE_LAST_CLEANING, cleaner.seconds_since_last_run * _MS)
        yield single(DIRTIEST, 100 * cleaner.last_dirtiest)
        yield Family(UNCLEANABLE, [Sample((d.path,), cleaner.uncleanable(d)) for d in directories])
        yield single(CLEAN_TIME, cleaner.last_seconds)
        yield single(RECOPIED, 100 * cleaner.last_kept)
