"""Opening all logs of a directory, several at a time (`num.recovery.threads.per.data.dir`).

A clean-shutdown marker says that every log was flushed and closed, so nothing is checked. Without
it, each log is recovered from its recovery point. The absence of `fsync_marker` says that a flush
failed: then batches that may exist only in the page cache are written again.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.log import checkpoints
from broker.log.directories._log_directory import NO_EPOCH
from broker.log.directories._removals import NAME_MAX
from broker.log.partition_log import fsync_marker, open_log
from broker.types import TopicPartition
from raftctl.errors import KafkaError
from raftctl.runtime.api import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.log.directories._log_directory import LogDirectory, Offsets
    from broker.log.partition_log import PartitionLog
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.runtime.api import FileSystem, Runtime

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
        runtime.log.warning("checkpoint_damaged", why=why, remedy="none is needed: it is rebuilt")
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
        runtime.log.error("log_set_aside", partition=str(one.partition), path=one.path, why=one.why)
    logs = [one for one in loaded if not isinstance(one, _SetAside)]
    # What is not here any more must not be taken for all that the broker had (KIP-966).
    is_whole = not unreadable and all(log.recovered.lost_from is None for log in logs)
    directory.clean_epoch = found.clean_epoch if is_whole else NO_EPOCH
    await directory.worker.submit(partial(_mark_started, files, path, clean=found.clean))
    if found.rewrite and logs:
        runtime.log.warning("unflushed_written_again", directory=path, logs=len(logs))
    for log in logs:
        _log_recovery(runtime, log)
    return logs


class _SetAside(NamedTuple):
    """A log that could not be opened; its directory has another name now."""

    partition: TopicPartition
    path: str
    why: str


class _Looked:
    """The state of a directory before its logs are opened."""

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
    log_start = checkpoint(checkpoints.LOG_STARTS)
    if log_start > log.log_end_offset:
        log.restart_at(log_start)
    log.advance_log_start(log_start)
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
        runtime.log.error(
            "log_damaged",
            partition=str(log.partition),
            lost_from_offset=found.lost_from,
            bytes_cut=found.bytes_cut,
            directory=log.directory,
            remedy="what was cut is fetched from the leader; a copy of it is in *.log.damaged",
        )
    if found.bytes_cut or found.indexes_rebuilt:
        runtime.log.warning(
            "log_recovered",
            partition=str(log.partition),
            bytes_cut=found.bytes_cut,
            indexes_rebuilt=found.indexes_rebuilt,
            log_end_offset=log.log_end_offset,
        )
