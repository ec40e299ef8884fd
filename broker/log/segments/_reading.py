"""Where the bytes of a read stand in the segments of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.log.segments._segment import Segment


class Place(NamedTuple):
    """Bytes of a segment's file."""

    segment: Segment
    position: int
    size: int


class Limits(TypedDict):
    """What bounds a read; see `PartitionLog.read`."""

    max_bytes: int
    up_to_offset: int
    min_one: bool


def find(segments: Iterable[Segment], offset: int, limits: Limits) -> list[Place]:
    """What a read from `offset` reads, if `segments` begin with the one that may hold it.

    One place or, if there is nothing to read, none.
    """
    up_to_offset = limits["up_to_offset"]
    for segment in segments:
        found = segment.find(offset)
        if found is None or found.header.base_offset >= up_to_offset:
            continue
        end = segment.size
        if up_to_offset < segment.next_offset:
            end = segment.position_of(up_to_offset)
        size = min(limits["max_bytes"], end - found.position)
        if limits["min_one"]:
            size = max(size, found.header.size)
        return [Place(segment, found.position, size)] if size > 0 else []
    return []


def bytes_between(segment: Segment, offset: int, end_offset: int) -> int:
    """Bytes of the segment's batches between two offsets, the first of which it holds."""
    if offset >= end_offset:
        return 0
    if end_offset >= segment.next_offset:
        return max(segment.size - segment.position_of(offset), 1)
    return segment.position_of(end_offset) - segment.position_of(offset)
