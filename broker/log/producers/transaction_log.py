"""What a partition's log keeps of transactions: open ones in memory, aborted ones in its segments.

One place notes what a batch says of its producer, whether it is appended, copied from the leader
or found when the log is opened, so that all replicas come to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log.batches import markers
from broker.log.segments import find

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.log.batches.record_batch import BatchHeader
    from broker.log.producers._producer_state import ProducerStates
    from broker.log.segments import Limits, Segment
    from broker.log.segments.aborted_index import AbortedTransaction
    from raftctl.runtime.api import Buffer


def note(
    producers: ProducerStates,
    segment: Segment,
    header: BatchHeader,
    read: Callable[[], Buffer],
) -> bool:
    """Notes a batch that the segment holds; `read` gives its bytes.

    Returns whether the segment has got a file for it.
    """
    if not header.is_control:
        producers.note(header)
        return False
    marker = markers.parse(read(), header)
    if marker is None:
        return False
    aborted = producers.note_marker(header, marker)
    if aborted is None:
        return False
    had_file = segment.aborted.exists
    segment.aborted.add(aborted)
    return not had_file


def collect(
    segments: Sequence[Segment], offset: int, up_to_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions that may have records between the offsets.

    `segments` begin with the one that holds `offset`.
    """
    found = []
    for segment in segments:
        for one in segment.aborted.entries(offset):
            if one.first_offset < up_to_offset:
                found.append(one)
            if one.last_stable_offset >= up_to_offset:
                # Whatever is aborted later began at or above that.
                return found
    return found


def in_read(segments: Sequence[Segment], offset: int, limits: Limits) -> list[AbortedTransaction]:
    """The same for what a read from `offset` returns."""
    if not any(one.aborted for one in segments):
        return []
    ends = [at.segment.offset_after(at.position + at.size) for at in find(segments, offset, limits)]
    return collect(segments, offset, min(ends[0], limits["up_to_offset"])) if ends else []


def damaged_from(segments: Sequence[Segment], otherwise: int) -> int:
    """From where on the aborted transactions must be found again."""
    damaged = [one.base_offset for one in segments if one.aborted.is_damaged]
    return min(damaged, default=otherwise)
