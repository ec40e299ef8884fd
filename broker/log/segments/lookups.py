"""Where in a log's segments a time begins, and what a worker must read before that is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log.batches import records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.log.batches.records import Search, TimestampOffset
    from broker.log.segments._segment import Segment


def first_at_or_after(
    segments: Sequence[Segment],
    timestamp: int,
    log_start_offset: int,
    search: Search = records.first_at_or_after,
) -> TimestampOffset | None:
    """The first record not older than `timestamp` (milliseconds) and not hidden."""
    for segment in segments:
        found = segment.first_at_or_after(
            timestamp=timestamp, offset=log_start_offset, search=search
        )
        if found is not None:
            return found
    return None


def newest(
    segments: Sequence[Segment], search: Search = records.first_at_or_after
) -> TimestampOffset | None:
    """The first record that has the largest timestamp."""
    return _with_newest(segments).newest(search)


def warm(
    segments: Sequence[Segment], timestamp: int | None, log_start_offset: int
) -> Callable[[], None] | None:
    """What a worker must call before `first_at_or_after`, or with None before `newest`; None if
    all that it reads is there.
    """
    if timestamp is None:
        return _with_newest(segments).warm_newest()
    holding = (one for one in segments if one.newest_timestamp >= timestamp)
    segment = next(holding, None)
    return None if segment is None else segment.warm_time(timestamp, log_start_offset)


def _with_newest(segments: Sequence[Segment]) -> Segment:
    return max(segments, key=lambda segment: segment.newest_timestamp)
