"""Opens all logs of a directory, several at a time (`num.recovery.threads.per.data.dir`)."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from typing import TYPE_CHECKING

from broker.log import checkpoints, flush_note
from broker.log.log_directory import NO_EPOCH
from broker.log.opening import open_log
from broker.types import TopicPartition
from raftctl.runtime.api import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.log.log_directory import LogDirectory, Offsets
    from broker.log.partition_log import PartitionLog
    from raftctl.metadata.topic_config import TopicConfig
    from raftctl.runtime.api import FileSystem, Runtime

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_PARTITION_NAME = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_DELETED_NAME = re.compile(r".+\.[0-9a-f]{32}-delete")
_METADATA_LOG = "__cluster_metadata"
_CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_STARTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANED,
)


async def load(
    runtime: Runtime, directory: LogDirectory, defaults: TopicConfig, threads: int
) -> list[PartitionLog]:
    """The logs of a directory, recovered; what recovery changed is told to the operator.

    Raises OSError, or KafkaError(KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE) naming the damaged file.
    """
    files, path = runtime.files, directory.path
    found = await directory.worker.submit(partial(_look, files, path))
    directory.cleaned = found.offsets[checkpoints.CLEANED]
    directory.clean_epoch = found.clean_epoch
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
    await directory.worker.submit(partial(_settle, files, path, clean=found.clean))
    if found.rewrite and loaded:
        runtime.log.warning("unflushed_written_again", directory=path, logs=len(loaded))
    for log in loaded:
        _tell(runtime, log)
    return loaded


class _Looked:
    """What stands in a directory before its logs are opened."""

    def __init__(
        self,
        clean_epoch: int | None,
        partitions: Sequence[TopicPartition],
        offsets: Mapping[str, Offsets],
        *,
        flush_failed: bool,
    ) -> None:
        self.clean = clean_epoch is not None
        self.clean_epoch = NO_EPOCH if clean_epoch is None else clean_epoch
        self.partitions = partitions
        self.offsets = offsets
        self.rewrite = clean_epoch is None and flush_failed
        """Whether what may not be durable has to be written again."""


def _look(files: FileSystem, path: str) -> _Looked:
    files.make_directories(path)
    offsets = {name: checkpoints.read_offsets(files, f"{path}/{name}") for name in _CHECKPOINTS}
    failed = not flush_note.stands(files, path)
    partitions = _partitions_in(files, path)
    return _Looked(_clean_epoch(files, path), partitions, offsets, flush_failed=failed)


def _clean_epoch(files: FileSystem, path: str) -> int | None:
    """What the clean-shutdown marker says; NO_EPOCH if only that it is there, None if it is not."""
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
        if match is not None and match[1] != _METADATA_LOG:
            found.append(TopicPartition(match[1], int(match[2])))
    return found


def _open_share(
    files: FileSystem,
    path: str,
    share: Sequence[TopicPartition],
    defaults: TopicConfig,
    found: _Looked,
) -> list[PartitionLog]:
    return [_open(files, path, partition, defaults, found) for partition in share]


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
    log.producers.settle(log.high_watermark)
    return log


def _settle(files: FileSystem, path: str, *, clean: bool) -> None:
    """From here on it is another life; names that a killed process left become durable, too."""
    flush_note.put_up(files, path)
    if clean:
        files.remove(f"{path}/{CLEAN_SHUTDOWN}")
    files.sync_directory(path)


def _tell(runtime: Runtime, log: PartitionLog) -> None:
    found = log.recovered
    if found.bytes_cut or found.indexes_rebuilt:
        runtime.log.warning(
            "log_recovered",
            partition=str(log.partition),
            bytes_cut=found.bytes_cut,
            indexes_rebuilt=found.indexes_rebuilt,
            log_end_offset=log.log_end_offset,
        )
