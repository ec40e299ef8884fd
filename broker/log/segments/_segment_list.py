"""The segments of one log, oldest first, and every look-up that crosses from one to the next.

The segment that holds an offset is found by bisection of the base offsets. A hole that compaction
left belongs to the segment before it, so a look-up may have to go on with the next one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from broker.log.batches import records
from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from broker.log.batches.records import Search, TimestampOffset
    from broker.log.segments._segment import BatchAt, Segment
    from broker.log.segments.aborted_index import AbortedTransaction


class Place(NamedTuple):
    """Bytes of a segment's file."""

    segment: Segment
    position: int
    size: int


class Limits(TypedDict):
    """The bounds of a read; see `PartitionLog.read`."""

    max_bytes: int
    up_to_offset: int
    min_one: bool


class SegmentList:
    """The segments of one log; there is at least one, and only the last is appended to."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        invariant(bool(segments), "a log has a segment")
        self._segments = list(segments)
        self._bases = [one.base_offset for one in segments]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def bases(self) -> Sequence[int]:
        """The base offsets."""
        return self._bases

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self._segments[-1]

    @property
    def sealed(self) -> Sequence[Segment]:
        """The segments before the active one."""
        return self._segments[:-1]

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return sum([one.size for one in self._segments])

    def invariants(self) -> None:
        """Check that the segments follow each other, and each of them."""
        invariant(self._bases == [one.base_offset for one in self._segments], "bases are segments'")
        joined = all(after.follows(one) for one, after in pairwise(self._segments))
        # Recovery takes a gap for a truncation that a crash undid in part, and cuts behind it.
        invariant(joined, "a segment begins where the one before it ends")
        invariant(all(one.size for one in self.sealed), "only the last segment may be empty")
        invariant(not self.active.is_durable, "the active segment still changes")
        for segment in self._segments:
            segment.invariants()

    # --- changes --------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Append a segment, which becomes the active one."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def pop(self, number: int) -> Segment:
        """Remove and return one segment; a caller that removes the last adds another at once."""
        self._bases.pop(number)
        return self._segments.pop(number)

    def replace(self, replaced: Sequence[Segment], new: Segment) -> None:
        """Put a segment in the place of others, which `run_of` found."""
        first = self._bases.index(replaced[0].base_offset)
        self._segments[first : first + len(replaced)] = [new]
        self._bases[first : first + len(replaced)] = [new.base_offset]

    def has_run(self, wanted: Sequence[Segment]) -> bool:
        """Return whether these very segments stand in the log, one after the other."""
        first = bisect_left(self._bases, wanted[0].base_offset)
        here = self._segments[first : first + len(wanted)]
        return len(here) == len(wanted) and self.has_all(wanted)

    def has_all(self, wanted: Sequence[Segment]) -> bool:
        """Return whether all of these very segments are part of the log."""
        here = {id(one) for one in self._segments}
        return all(id(one) in here for one in wanted)

    # --- by offset ------------------------------------------------------------------------------

    def count_up_to(self, offset: int) -> int:
        """Return how many segments begin at or below an offset, the first counted in any case."""
        return max(bisect_right(self._bases, offset), 1)

    def at(self, offset: int) -> Segment:
        """Return the segment that holds an offset, or the first."""
        return self._segments[self.count_up_to(offset) - 1]

    def _since(self, offset: int) -> list[Segment]:
        return self._segments[self.count_up_to(offset) - 1 :]

    def find(self, offset: int, limits: Limits) -> Place | None:
        """Return the bytes of a read from an offset; None if there is nothing to read.

        They are of one segment, so a read may return less than its limits allow.
        """
        up_to_offset = limits["up_to_offset"]
        for segment in self._since(offset):
            found = segment.find(offset)
            if found is None or found.header.base_offset >= up_to_offset:
                continue
            end = segment.size
            if up_to_offset < segment.next_offset:
                end = segment.position_of(up_to_offset)
            size = min(limits["max_bytes"], end - found.position)
            if limits["min_one"]:
                size = max(size, found.header.size)
            # Beyond the last whole batch may be the bytes of a write that failed.
            invariant(found.position + size <= segment.size, "a read ends within its segment")
            return Place(segment, found.position, size) if size > 0 else None
        return None

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Return the bytes of batches between two offsets, as far as the first one's segment."""
        segment = self.at(offset)
        if offset >= end_offset:
            return 0
        if end_offset >= segment.next_offset:
            return max(segment.size - segment.position_of(offset), 1)
        return segment.position_of(end_offset) - segment.position_of(offset)

    def batches(self, offset: int) -> Iterator[tuple[BatchAt, Segment]]:
        """Yield all batches from the one that holds an offset, each with its segment."""
        for segment in self._since(offset):
            for at in segment.batches(segment.position_of(offset)):
                yield at, segment

    # --- by time --------------------------------------------------------------------------------

    def first_at_or_after(
        self,
        timestamp: int,
        log_start_offset: int,
        search: Search = records.first_at_or_after,
    ) -> TimestampOffset | None:
        """Return the first record not older than `timestamp` (milliseconds) and not hidden."""
        for segment in self._segments:
            found = segment.first_at_or_after(
                timestamp=timestamp, offset=log_start_offset, search=search
            )
            if found is not None:
                return found
        return None

    def newest(self, search: Search = records.first_at_or_after) -> TimestampOffset | None:
        """Return the first record that has the largest timestamp."""
        return self._with_newest().newest(search)

    def warm_time(self, timestamp: int | None, log_start_offset: int) -> Callable[[], None] | None:
        """Return the call for a worker before `first_at_or_after`, or with None before `newest`.

        None if all that the look-up reads is in memory.
        """
        if timestamp is None:
            return self._with_newest().warm_newest()
        holding = (one for one in self._segments if one.newest_timestamp >= timestamp)
        segment = next(holding, None)
        return None if segment is None else segment.warm_time(timestamp, log_start_offset)

    def _with_newest(self) -> Segment:
        return max(self._segments, key=lambda segment: segment.newest_timestamp)

    # --- aborted transactions -------------------------------------------------------------------

    def aborted_between(self, offset: int, up_to_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have records between the offsets."""
        found = []
        for segment in self._since(offset):
            for one in segment.aborted.entries(offset):
                if one.first_offset < up_to_offset:
                    found.append(one)
                if one.last_stable_offset >= up_to_offset:
                    # Every transaction aborted later began at or above that offset.
                    return found
        return found

    def aborted_in(self, offset: int, limits: Limits) -> list[AbortedTransaction]:
        """Return those that may have records in the bytes that `find` returns."""
        if not any(one.aborted for one in self._since(offset)):
            return []
        place = self.find(offset, limits)
        if place is None:
            return []
        end = place.segment.offset_after(place.position + place.size)
        return self.aborted_between(offset, min(end, limits["up_to_offset"]))

    def aborted_damaged_from(self, otherwise: int) -> int:
        """Return the offset from which aborted transactions must be found again."""
        damaged = [one.base_offset for one in self._segments if one.aborted.is_damaged]
        return min(damaged, default=otherwise)
