"""Makes a log that was on disk fit for use (row L4), or makes a new one; blocks.

What was flushed, or closed cleanly, is trusted as far as its indexes are in order; damaged ones are
rebuilt. After a crash the segment of the recovery point and those after it are checked batch by
batch and cut from the first bad one on; after a flush that failed they are written again. Leader
epochs and producers come from their files as of the recovery point and from the batches after it,
so a clean start reads no batches but the last few of each segment.

Damage in what was trusted has the whole log checked, and cut in the same way: the broker serves its
other partitions, and copies what was cut from a leader. `Recovered.lost_from` says so, since this
replica must not pass for one that has all it had; what was cut stays beside the log, for a topic
without another replica. Apache Kafka cuts, too (LogSegment.recover), but keeps nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from broker.log import checkpoints
from broker.log.partition_log._partition_log import PartitionLog, Recovered
from broker.log.producers import producer_snapshot
from broker.log.segments import DAMAGED, OFFSET_MAX, Segment, swap
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.types import TopicPartition
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.runtime.api import FileSystem

_LOG_SUFFIX = ".log"


def create_log(
    files: FileSystem, directory: str, partition: TopicPartition, config: TopicConfig
) -> PartitionLog:
    """Create an empty log at offset 0 in a new directory. Does not block.

    Its files come with the first batch: without any, a directory is an empty log.
    """
    files.make_directories(directory)
    segment = Segment(files, directory, 0, config, names=())
    return PartitionLog(files, directory, partition, config, [segment])


def open_log(
    files: FileSystem,
    directory: str,
    partition: TopicPartition,
    config: TopicConfig,
    *,
    recovery_point: int,
    clean: bool,
    rewrite: bool = False,
) -> PartitionLog:
    """Open the log in a directory.

    `clean`: it was flushed with `closing`, then closed, so nothing needs a check. `rewrite`: a
    flush failed, so batches may exist only in the page cache, which takes them for written.
    """
    names = files.names(directory)
    if swap.finish(files, directory, names):
        names = files.names(directory)
    litter = [name for name in names if name.endswith((".deleted", ".tmp"))]
    for name in litter:
        files.remove(f"{directory}/{name}")
    names = [name for name in names if name not in litter]
    source = _Source(files, directory, partition, config, names)
    durable_end = OFFSET_MAX if clean else recovery_point
    try:
        log = _adopted(source, recovery_point, durable_end, clean=clean, rewrite=rewrite)
    except KafkaError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        # Indexes may have been made meanwhile.
        source = source._replace(names=files.names(directory))
        log = _adopted(source, 0, durable_end, clean=False, rewrite=rewrite)
    if log.recovered.lost_from is None and log.log_end_offset < recovery_point:
        log.recovered = replace(log.recovered, lost_from=log.log_end_offset)
    log.topic_id = checkpoints.read_topic_id(files, directory)
    return log


class _Source(NamedTuple):
    """The place of a log, and its partition."""

    files: FileSystem
    directory: str
    partition: TopicPartition
    config: TopicConfig
    names: Sequence[str]
    """The files in the directory, sorted."""


def _adopted(
    source: _Source, trusted_below: int, durable_end: int, *, clean: bool, rewrite: bool
) -> PartitionLog:
    """Return the log, with segments below the offset `trusted_below` unchecked; blocks.

    Raises KafkaError(CORRUPT_MESSAGE) for damage in an unchecked segment.
    """
    files, directory, partition, config, names = source
    segments = [
        Segment(files, directory, base, config, names=names) for base in _bases(names) or [0]
    ]
    try:
        found = _recover(segments, trusted_below, durable_end, clean=clean, rewrite=rewrite)
        segments, doomed = segments[: found.keep], segments[found.keep :]
        _remove(files, doomed, keep_batches=found.lost_from is not None)
        log = PartitionLog(files, directory, partition, config, segments)
        epochs, rebuilt = _epochs(files, directory)
        point = log.log_end_offset if clean else min(trusted_below, log.log_end_offset)
        snapshots = producer_snapshot.offsets_in(names)
        noted = log.adopt(epochs, snapshots, point, clean=clean)
    except KafkaError:
        for segment in segments:
            segment.close()
        raise
    log.recovered = Recovered(
        found.checked, found.cut, found.rebuilt + rebuilt, noted, found.lost_from
    )
    return log


def _remove(files: FileSystem, doomed: Sequence[Segment], *, keep_batches: bool) -> None:
    """Take segments out of the log, the newest first; `keep_batches` under another name."""
    for segment in reversed(doomed):
        name = segment.name
        segment.close()
        batches, *others = segment.retire()
        for path in others:
            files.remove(path)
        if keep_batches:
            files.rename(batches, name + DAMAGED)
        else:
            files.remove(batches)


def _bases(names: Sequence[str]) -> list[int]:
    stems = [name.removesuffix(_LOG_SUFFIX) for name in names if name.endswith(_LOG_SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


class _Found:
    """The findings in the segments."""

    def __init__(self, segments: int) -> None:
        self.keep = segments
        """The number of segments that stay."""
        self.checked = self.cut = self.rebuilt = 0
        self.lost_from: int | None = None


def _recover(
    segments: list[Segment], trusted_below: int, durable_end: int, *, clean: bool, rewrite: bool
) -> _Found:
    found = _Found(len(segments))
    for number, segment in enumerate(segments):
        last = number + 1 == len(segments)
        if clean or (not last and segments[number + 1].base_offset <= trusted_below):
            rebuilt = _trust(segment)
            found.rebuilt += rebuilt
            segment.is_durable = not last and not rebuilt
            continue
        found.checked += 1
        # A gap or an overlap is a truncation of which the crash undid a part.
        follows = number == 0 or segment.follows(segments[number - 1])
        cut_here = segment.recover(durable_end, rewrite=rewrite) if follows else segment.size
        if cut_here or not follows:
            found.keep = number + follows
            found.cut += cut_here + sum(s.size for s in segments[number + 1 :])
            end = segments[found.keep - 1].next_offset
            if end < durable_end:
                found.lost_from = end
            break
    return found


def _trust(segment: Segment) -> bool:
    """Load a durable segment; return whether its indexes had to be rebuilt."""
    if segment.index_problem() is None:
        segment.load()
        if not segment.is_shorter_than_its_index:
            return False
    segment.rebuild_indexes()
    return True


def _epochs(files: FileSystem, directory: str) -> tuple[list[tuple[int, int]], bool]:
    """Return the leader epochs on disk; none, and True, if their file is damaged."""
    try:
        return checkpoints.read_epochs(files, f"{directory}/{checkpoints.LEADER_EPOCHS}"), False
    except KafkaError:
        # The batches tell them too.
        return [], True
