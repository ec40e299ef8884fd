"""Makes a log that was on disk fit for use (row L4), or makes a new one; blocks.

What was flushed, or closed cleanly, is trusted as far as its indexes are in order; damaged ones are
rebuilt. What may have been in flight when the node died is checked batch by batch and cut from the
first bad one on; after a flush that failed the rest of it is written again. Leader epochs and
producers come from their files as of the recovery point and from the batches after it, so a clean
start reads no batches but the last few of each segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log import checkpoints, producer_snapshot, swap
from broker.log.partition_log import PartitionLog
from broker.log.results import Recovered
from broker.log.segment import Segment
from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from broker.types import TopicPartition
    from raftctl.metadata.topic_config import TopicConfig
    from raftctl.runtime.api import FileSystem

_LOG_SUFFIX = ".log"


def create_log(
    files: FileSystem, directory: str, partition: TopicPartition, config: TopicConfig
) -> PartitionLog:
    """A new empty log at offset 0. Does not block."""
    files.make_directories(directory)
    return PartitionLog(files, directory, partition, config, [Segment(files, directory, 0, config)])


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
    """The log in a directory. `clean`: it was flushed with `closing`, then closed. `rewrite`: what
    a flush should have made durable may be in the page cache only, though that takes it for clean.

    Raises KafkaError(CORRUPT_MESSAGE) where what was durable is damaged, naming file and byte.
    """
    swap.finish(files, directory)
    for name in files.names(directory):
        if name.endswith((".deleted", ".tmp")):
            files.remove(f"{directory}/{name}")
    segments = [Segment(files, directory, base, config) for base in _bases(files, directory)]
    found = _recover(segments, recovery_point, clean=clean, rewrite=rewrite)
    log = PartitionLog(files, directory, partition, config, segments[: found.keep])
    for doomed in reversed(segments[found.keep :]):
        doomed.close()
        for path in doomed.retire():
            files.remove(path)
    epochs, rebuilt = _epochs(files, directory)
    point = log.log_end_offset if clean else recovery_point
    noted = log.adopt(epochs, producer_snapshot.offsets_in(files, directory), point, clean=clean)
    log.recovered = Recovered(found.checked, found.cut, found.rebuilt + rebuilt, noted)
    log.topic_id = checkpoints.read_topic_id(files, directory)
    return log


def _bases(files: FileSystem, directory: str) -> list[int]:
    names = [name for name in files.names(directory) if name.endswith(_LOG_SUFFIX)]
    stems = [name.removesuffix(_LOG_SUFFIX) for name in names]
    return sorted(int(stem) for stem in stems if stem.isdigit()) or [0]


class _Found:
    """What a look at the segments came to."""

    def __init__(self, segments: int) -> None:
        self.keep = segments
        """How many of them stay."""
        self.checked = self.cut = self.rebuilt = 0


def _recover(segments: list[Segment], recovery_point: int, *, clean: bool, rewrite: bool) -> _Found:
    found = _Found(len(segments))
    for number, segment in enumerate(segments):
        last = number + 1 == len(segments)
        if clean or (not last and segments[number + 1].base_offset <= recovery_point):
            found.rebuilt += _trust(segment)
            segment.is_durable = not last
            continue
        found.checked += 1
        # A gap or an overlap is a truncation of which the crash undid a part.
        follows = number == 0 or segment.base_offset == segments[number - 1].next_offset
        cut_here = segment.recover(recovery_point, rewrite=rewrite) if follows else segment.size
        if cut_here or not follows:
            found.keep = number + follows
            found.cut += cut_here + sum(s.size for s in segments[number + 1 :])
            break
    return found


def _trust(segment: Segment) -> bool:
    """Loads a segment that is durable; returns whether its indexes had to be rebuilt."""
    damaged = segment.index_problem() is not None
    if damaged:
        segment.rebuild_indexes()
    else:
        segment.load()
    return damaged


def _epochs(files: FileSystem, directory: str) -> tuple[list[tuple[int, int]], bool]:
    """The leader epochs on disk; none, and True, if their file is damaged."""
    try:
        return checkpoints.read_epochs(files, f"{directory}/{checkpoints.LEADER_EPOCHS}"), False
    except KafkaError:
        # The batches tell them too.
        return [], True
