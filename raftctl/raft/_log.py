"""The core's model of the log: offsets and epochs, no bytes.

It answers the three questions of replication: what is durable, where an epoch ends, and where
another log leaves this one. Batches have one epoch each and are never split, so every offset it
names is a batch boundary. Raft §5.3; KIP-101 and KIP-595 for truncation by epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import lt
from typing import TYPE_CHECKING

from raftctl.errors import invariant
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from raftctl.raft.batch import Batch

BEFORE_ALL = Epoch(0)
"""The epoch before the first leader."""


class ReplicaLog:
    """Offsets `start_offset` .. `end_offset - 1`, of which those below `durable_end_offset` are
    on disk. What it is constructed with must be durable already.

    What stood before `start_offset` is in a snapshot, whose last record is of `start_epoch`.
    """

    __slots__ = (
        "_epochs",
        "_starts",
        "durable_end_offset",
        "end_offset",
        "start_epoch",
        "start_offset",
    )

    def __init__(
        self,
        start_offset: Offset,
        end_offset: Offset,
        epoch_starts: Iterable[tuple[Epoch, Offset]],
        start_epoch: Epoch = BEFORE_ALL,
    ) -> None:
        self.start_offset = start_offset
        self.start_epoch = start_epoch
        self.end_offset = end_offset
        self.durable_end_offset = end_offset
        self._epochs: list[Epoch] = []
        self._starts: list[Offset] = []
        for epoch, start in epoch_starts:
            self._begin_epoch(epoch, start)

    def _begin_epoch(self, epoch: Epoch, start: Offset) -> None:
        grows = not self._epochs or (epoch > self._epochs[-1] and start > self._starts[-1])
        invariant(grows, "epochs and their start offsets grow along the log")
        self._epochs.append(epoch)
        self._starts.append(start)

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record, be it in a snapshot; 0, which none has, without any."""
        return self._epochs[-1] if self._epochs else self.start_epoch

    @property
    def end(self) -> OffsetAndEpoch:
        """The end offset and the last epoch: how up to date the log is (Raft §5.4.1)."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def start(self) -> OffsetAndEpoch:
        """Start of the log, and the epoch of the record before it."""
        return OffsetAndEpoch(self.start_offset, self.start_epoch)

    @property
    def epoch_starts(self) -> tuple[tuple[Epoch, Offset], ...]:
        """Each epoch that has records, with the offset of its first."""
        return tuple(zip(self._epochs, self._starts, strict=True))

    @property
    def durable(self) -> bool:
        """True if the whole log is on disk."""
        return self.durable_end_offset == self.end_offset

    def invariants(self) -> None:
        """Check that offsets are in order, and that epochs and their starts grow along the log."""
        # Not: the start is durable. A leader whose disk is slow commits by the others' disks, takes
        # a snapshot of that, and may drop records before its own log has them on disk.
        invariant(self.start_offset <= self.end_offset, "a log ends after its start")
        invariant(self.durable_end_offset <= self.end_offset, "only what was appended is durable")
        empty = self.start_offset == self.end_offset
        invariant(empty == (not self._starts), "a log with records knows their epochs")
        invariant(empty or self._starts[0] == self.start_offset, "its first epoch is the start's")
        invariant(empty or self._starts[-1] < self.end_offset, "its last epoch has a record")
        grows = all(map(lt, self._starts, self._starts[1:]))
        grows = grows and all(map(lt, self._epochs, self._epochs[1:]))
        invariant(grows, "epochs and their start offsets grow along the log")

    def append(self, batch: Batch) -> None:
        """Add the batch at the end; it is not durable yet."""
        invariant(batch.base_offset == self.end_offset, "the log has no gap")
        invariant(batch.epoch >= self.last_epoch, "epochs do not shrink along the log")
        if not self._epochs or batch.epoch > self._epochs[-1]:
            self._begin_epoch(batch.epoch, batch.base_offset)
        self.end_offset = batch.end_offset

    def flushed(self, end_offset: Offset) -> None:
        """Note that everything below `end_offset` is durable."""
        invariant(end_offset <= self.end_offset, "only what was appended is flushed")
        self.durable_end_offset = max(self.durable_end_offset, end_offset)

    def truncate(self, end_offset: Offset) -> None:
        """Drop all at or above `end_offset`.

        Legal only while nothing waits for its flush: a report of a flush that was under way would
        otherwise be taken for one of the records that come in the place of the dropped ones.
        """
        invariant(self.durable, "no truncation while an append is being flushed")
        invariant(self.start_offset <= end_offset <= self.end_offset, "truncation within the log")
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = self.durable_end_offset = end_offset

    def delete_prefix(self, start: OffsetAndEpoch) -> None:
        """Drop all below `start`, which a snapshot holds."""
        invariant(self.start_offset <= start.offset <= self.end_offset, "the prefix is in the log")
        invariant(self.divergence(start) is None, "the snapshot is a prefix of the log")
        first = bisect_right(self._starts, start.offset) - 1
        if first >= 0:
            del self._epochs[:first], self._starts[:first]
            self._starts[0] = start.offset
        if start.offset == self.end_offset:
            self._epochs.clear()
            self._starts.clear()
        self.start_offset, self.start_epoch = start.offset, start.epoch

    def reset(self, start: OffsetAndEpoch) -> None:
        """Drop everything and go on from the end of a snapshot, which is durable."""
        self._epochs.clear()
        self._starts.clear()
        self.start_offset, self.start_epoch = start.offset, start.epoch
        self.end_offset = self.durable_end_offset = start.offset

    def contains(self, end: OffsetAndEpoch) -> bool:
        """Return whether the record before `end.offset` is of `end.epoch` here, as a snapshot has
        it.
        """
        return end.offset <= self.start_offset or self.divergence(end) is None

    def starts_after(self, fetch_from: OffsetAndEpoch) -> bool:
        """Return whether a log that ends there leaves this one before its start, so needs a
        snapshot.
        """
        return fetch_from.offset < self.start_offset or fetch_from.epoch < self.start_epoch

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the end and the epoch of the last epoch not after `epoch`; else the start."""
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return OffsetAndEpoch(self.start_offset, self.start_epoch)
        end = self._starts[index] if index < len(self._starts) else self.end_offset
        return OffsetAndEpoch(end, self._epochs[index - 1])

    def divergence(self, fetch_from: OffsetAndEpoch) -> OffsetAndEpoch | None:
        """Return None if a log that ends at `fetch_from` is a prefix of this one.

        Otherwise a position that they may still share, at or below which the other log has to be
        cut; each answer leaves at least one epoch behind, so it ends after O(epochs) questions.
        """
        ours = self.end_offset_for_epoch(fetch_from.epoch)
        shared = ours.epoch == fetch_from.epoch and fetch_from.offset <= ours.offset
        return None if shared else ours

    def truncation_point(self, diverging: OffsetAndEpoch) -> Offset:
        """Return the offset at which to cut this log when its leader named `diverging`.

        Only within one epoch are the batches of both logs the same. Where this log has an older
        epoch, the leader's offset may be in the middle of a batch of it, so all of that epoch
        stays and the next Fetch asks again.
        """
        ours = self.end_offset_for_epoch(diverging.epoch)
        same_epoch = ours.epoch == diverging.epoch
        return min(ours.offset, diverging.offset) if same_epoch else ours.offset
