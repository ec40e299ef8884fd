"""`LogManager`: all partition logs of a broker, over its `log.dirs` (row L1).

Decides in which directory a new log goes and when offsets are checkpointed. What blocks (opening
and recovering, fsync, removing) runs on one worker for each directory, in order. It knows no
leader: who creates, deletes and truncates is the ReplicaManager.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from broker.log import checkpoints
from broker.log.partition_log import PartitionLog, create_log, open_log
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.runtime.api import Worker, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from raftctl.metadata.topic_config import TopicConfig
    from raftctl.runtime.api import FileSystem, Runtime

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CHECKPOINT_INTERVAL_MS = 5_000
_PARTITION_NAME = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_DELETED_NAME = re.compile(r".+\.[0-9a-f]{32}-delete")
_METADATA_LOG = "__cluster_metadata"


@dataclass(slots=True)
class _Directory:
    path: str
    worker: Worker
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    written: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """The content of each checkpoint as it was last written."""


class LogManager:
    """The logs by partition. `start`, then use, then `stop`; all on the event loop."""

    def __init__(
        self,
        runtime: Runtime,
        directories: Sequence[str],
        defaults: TopicConfig,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`fail` ends the node: a disk that does not take a write cannot be served from."""
        invariant(bool(directories), "log.dirs is not empty")
        self._runtime = runtime
        self._defaults = defaults
        self._fail = fail
        self._directories = [
            _Directory(path, runtime.worker(f"log-{number}"))
            for number, path in enumerate(directories)
        ]
        self._home: dict[TopicPartition, _Directory] = {}
        self._periodic: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Opens and recovers every log on disk, each directory on its worker.

        Raises KafkaError(KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE) naming the damaged file.
        """
        loading = [d.worker.submit(self._loader(d)) for d in self._directories]
        for directory, logs in zip(self._directories, await asyncio.gather(*loading), strict=True):
            for log in logs:
                self._adopt(directory, log)
        self._periodic = asyncio.get_running_loop().create_task(self._checkpoint_periodically())
        self._periodic.add_done_callback(self._report)

    async def stop(self) -> None:
        """Makes everything durable, writes the checkpoints and the clean-shutdown marker."""
        if self._periodic is not None:
            self._periodic.cancel()
        for directory in self._directories:
            for log in directory.logs.values():
                log.seal()
        await self._flush(rolled_only=False)
        await self._write_checkpoints()
        files = self._runtime.files
        for directory in self._directories:
            logs, path = list(directory.logs.values()), directory.path
            await directory.worker.submit(partial(_close, files, path, logs))
            directory.worker.close()

    # --- the logs -------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """Every partition that has a log, sorted."""
        return sorted(self._home)

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, if this broker has it."""
        home = self._home.get(partition)
        return None if home is None else home.logs[partition]

    def create(
        self, partition: TopicPartition, topic_id: UUID, config: TopicConfig
    ) -> PartitionLog:
        """A new log, in the directory with the fewest; its existence becomes durable soon."""
        invariant(partition not in self._home, "a partition has one log")
        home = min(self._directories, key=lambda directory: len(directory.logs))
        files, path = self._runtime.files, f"{home.path}/{partition}"
        try:
            log = create_log(files, path, partition, config)
        except OSError as error:
            text = f"cannot create the log {path}: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
        log.topic_id = topic_id
        self._adopt(home, log)
        self._submit(log, home, lambda: _make_durable(files, home.path, path, topic_id))
        return log

    def identify(self, log: PartitionLog, topic_id: UUID) -> None:
        """Gives a topic id to a log that a crash left without one."""
        home, files, path = self._home[log.partition], self._runtime.files, log.directory
        log.topic_id = topic_id
        self._submit(log, home, lambda: _make_durable(files, home.path, path, topic_id))

    def delete(self, partition: TopicPartition) -> None:
        """Forgets the log at once and removes its files soon; does nothing if there is none."""
        home = self._home.pop(partition, None)
        if home is None:
            return
        log, files = home.logs.pop(partition), self._runtime.files
        doomed = f"{log.directory}.{self._runtime.uuid().hex}-delete"
        files.rename(log.directory, doomed)

        def remove() -> None:
            log.close()
            files.remove_tree(doomed)
            files.sync_directory(home.path)

        home.worker.submit(remove).add_done_callback(self._report)

    def truncated(self, log: PartitionLog) -> None:
        """Makes a truncation durable soon, before anything that is flushed after it."""
        home, files = self._home[log.partition], self._runtime.files
        retired, entries, path = log.take_retired(), log.epochs.entries, log.directory
        points = self._offsets(home)[checkpoints.RECOVERY_POINTS]

        def settle() -> None:
            for finish in retired:
                finish()
            files.sync_directory(path)
            checkpoints.write_epochs(files, f"{path}/{checkpoints.LEADER_EPOCHS}", entries)
            checkpoints.write_offsets(files, f"{home.path}/{checkpoints.RECOVERY_POINTS}", points)

        self._submit(log, home, settle)

    def _adopt(self, home: _Directory, log: PartitionLog) -> None:
        if log.partition in self._home:
            text = f"{log.partition} is in {home.path} and in {self._home[log.partition].path}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)
        home.logs[log.partition] = log
        self._home[log.partition] = home

    def _submit(self, log: PartitionLog, home: _Directory, call: Callable[[], None]) -> None:
        """Runs a call on the worker; its failure ends the node unless the log is gone by then."""

        def done(future: asyncio.Future[None]) -> None:
            if home.logs.get(log.partition) is log:
                self._report(future)
            else:
                future.exception()

        home.worker.submit(call).add_done_callback(done)

    def _report(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._fail(error)

    # --- checkpoints ----------------------------------------------------------------------------

    async def _checkpoint_periodically(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_INTERVAL_MS / 1000)
            await self._flush(rolled_only=True)
            await self._write_checkpoints()

    async def _flush(self, *, rolled_only: bool) -> None:
        """Flushes what must be, log by log, so that other work of a directory comes between."""
        for partition in self.partitions:
            home = self._home.get(partition)
            log = home.logs[partition] if home else None
            plan = log.flush_plan(rolled_only=rolled_only) if log else None
            if home is None or log is None or plan is None:
                continue
            try:
                await home.worker.submit(plan.run)
            except OSError:
                if home.logs.get(partition) is log:
                    raise
            else:
                log.flushed(plan)

    async def _write_checkpoints(self) -> None:
        files = self._runtime.files
        for home in self._directories:
            for name, offsets in self._offsets(home).items():
                if home.written.get(name) == offsets:
                    continue
                home.written[name] = offsets
                path = f"{home.path}/{name}"
                write = partial(checkpoints.write_offsets, files, path, offsets)
                await home.worker.submit(write)

    @staticmethod
    def _offsets(home: _Directory) -> dict[str, dict[TopicPartition, int]]:
        logs = home.logs
        return {
            checkpoints.RECOVERY_POINTS: {key: log.recovery_point for key, log in logs.items()},
            checkpoints.LOG_STARTS: {key: log.log_start_offset for key, log in logs.items()},
            checkpoints.HIGH_WATERMARKS: {key: log.high_watermark for key, log in logs.items()},
        }

    # --- opening --------------------------------------------------------------------------------

    def _loader(self, directory: _Directory) -> Callable[[], list[PartitionLog]]:
        files, defaults, log = self._runtime.files, self._defaults, self._runtime.log

        def load() -> list[PartitionLog]:
            path = directory.path
            files.make_directories(path)
            clean = files.exists(f"{path}/{CLEAN_SHUTDOWN}")
            loaded = [
                _open(files, path, partition, defaults, clean=clean)
                for partition in _partitions_in(files, path)
            ]
            if clean:
                files.remove(f"{path}/{CLEAN_SHUTDOWN}")
                files.sync_directory(path)
            return loaded

        def load_and_tell() -> list[PartitionLog]:
            loaded = load()
            for one in loaded:
                found = one.recovered
                if found.bytes_cut or found.indexes_rebuilt:
                    log.warning(
                        "log_recovered",
                        partition=str(one.partition),
                        bytes_cut=found.bytes_cut,
                        indexes_rebuilt=found.indexes_rebuilt,
                        log_end_offset=one.log_end_offset,
                    )
            return loaded

        return load_and_tell


def _partitions_in(files: FileSystem, path: str) -> list[TopicPartition]:
    found = []
    for name in files.names(path):
        if not files.is_directory(f"{path}/{name}"):
            continue
        if _DELETED_NAME.fullmatch(name):
            files.remove_tree(f"{path}/{name}")
            continue
        match = _PARTITION_NAME.fullmatch(name)
        if match is not None and match[1] != _METADATA_LOG:
            found.append(TopicPartition(match[1], int(match[2])))
    return found


def _open(
    files: FileSystem, path: str, partition: TopicPartition, defaults: TopicConfig, *, clean: bool
) -> PartitionLog:
    def checkpoint(name: str) -> int:
        return checkpoints.read_offsets(files, f"{path}/{name}").get(partition, 0)

    log = open_log(
        files,
        f"{path}/{partition}",
        partition,
        defaults,
        recovery_point=checkpoint(checkpoints.RECOVERY_POINTS),
        clean=clean,
    )
    log_start = checkpoint(checkpoints.LOG_STARTS)
    if log_start > log.log_end_offset:
        log.restart_at(log_start)
    log.advance_log_start(log_start)
    high_watermark = checkpoint(checkpoints.HIGH_WATERMARKS)
    log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
    log.producers.settle(log.high_watermark)
    return log


def _make_durable(files: FileSystem, parent: str, path: str, topic_id: UUID) -> None:
    checkpoints.write_topic_id(files, path, topic_id)
    files.sync_directory(parent)


def _close(files: FileSystem, path: str, logs: list[PartitionLog]) -> None:
    for log in logs:
        log.close()
    marker = json.dumps({"version": 0, "brokerEpoch": -1})
    replace_file(files, f"{path}/{CLEAN_SHUTDOWN}", marker.encode())
