"""Which segments of a log are too old or too many (row L5): pure, decided from the oldest on.

A segment goes as a whole, and only if everything in it is below the high watermark. The active one
may go too: then a new one begins first, so that the log keeps its end. `log.config` says how long
and how much; a log that is only compacted keeps everything from its start on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.log.segments import NO_TIMESTAMP
from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.configs.topic import TopicConfig

UNLIMITED = -1


class SegmentFacts(NamedTuple):
    """Facts of a segment that retention uses."""

    base_offset: int
    next_offset: int
    size: int
    """Bytes of batches."""
    newest_timestamp: int
    """Milliseconds; where no batch has a timestamp, when the file was last written."""


def expired(
    segments: Sequence[SegmentFacts], config: TopicConfig, high_watermark: int, now_ms: int
) -> int:
    """Return how many segments, from the oldest on, must go."""
    if "delete" not in config.cleanup_policy:
        return 0
    too_many = sum(one.size for one in segments) - config.retention_bytes
    count = 0
    for one in segments:
        if one.size == 0 or one.next_offset > high_watermark:
            break
        too_many -= one.size
        by_size = config.retention_bytes != UNLIMITED and too_many >= 0
        if not by_size and not _too_old(one, config, now_ms):
            break
        count += 1
    committed = not count or segments[count - 1].next_offset <= high_watermark
    # A follower that lacks such a record would begin again at the log's start, and be empty.
    invariant(committed, "only committed records expire")
    return count


def _too_old(segment: SegmentFacts, config: TopicConfig, now_ms: int) -> bool:
    if config.retention_ms == UNLIMITED or segment.newest_timestamp == NO_TIMESTAMP:
        return False
    return now_ms - segment.newest_timestamp > config.retention_ms
