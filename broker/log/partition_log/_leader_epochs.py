"""The start offset of each leader epoch in a log: the base of truncation by epoch (KIP-101).

A log's record of its own history. A leader notes its epoch when it takes over, a follower when it
copies a batch of a newer epoch. KIP-279 makes the answer name its epoch, so that two replicas that
diverged more than once find their common point step by step.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from broker.types import EpochEndOffset
from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Iterable

UNKNOWN = EpochEndOffset(-1, -1)


class LeaderEpochs:
    """(leader epoch, start offset) in order; both increase strictly."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(leader epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The newest leader epoch; -1 if there is none."""
        return self._epochs[-1] if self._epochs else -1

    def invariants(self, log_end_offset: int) -> None:
        """Check that epochs and their start offsets increase strictly, within the log.

        Equal start offsets would give an epoch no record, and a truncation by epoch no common
        point: KIP-101 needs the end of an epoch to be the start of the next one.
        """
        pairs = zip(self.entries, self.entries[1:], strict=False)
        ascend = all(one[0] < next_[0] and one[1] < next_[1] for one, next_ in pairs)
        invariant(ascend, "leader epochs and their start offsets increase")
        begins = not self._starts or self._starts[-1] <= log_end_offset
        invariant(begins, "no leader epoch begins above the log's end")

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` began at `start_offset`; return whether it is newer than all others."""
        if epoch <= self.latest:
            return False
        # Epochs that began here or later have no record left: a leader that wrote nothing.
        self.truncate_to(start_offset)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def truncate_to(self, end_offset: int) -> None:
        """Forget the epochs that began at or after `end_offset`."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()

    def advance_start(self, offset: int) -> None:
        """Forget the epochs that ended at or before `offset`, the log's new start."""
        keep = max(bisect_right(self._starts, offset) - 1, 0)
        del self._epochs[:keep], self._starts[:keep]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch in which the record at `offset` was written; -1 if unknown."""
        return next((e for e, start in reversed(self.entries) if start <= offset), -1)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the largest known epoch up to `epoch`, and its end; UNKNOWN if there is none.

        An epoch newer than all of this log is unknown, too: the caller has batches that this log
        lacks.
        """
        if not self._epochs or epoch == UNKNOWN.leader_epoch or epoch > self.latest:
            return UNKNOWN
        if epoch == self.latest:
            return EpochEndOffset(epoch, log_end_offset)
        at = bisect_right(self._epochs, epoch)
        if at == 0:
            # Older than all that is left: everything it wrote lies below the first epoch's start.
            return EpochEndOffset(epoch, self._starts[0])
        return EpochEndOffset(self._epochs[at - 1], self._starts[at])

    def truncation_point(self, diverging: EpochEndOffset, log_end_offset: int) -> int:
        """Return where a follower must cut when its leader's log agrees only up to `diverging`.

        If this log lacks that epoch, the follower cuts after its newest older one and asks again.
        """
        own = self.end_offset_for(diverging.leader_epoch, log_end_offset)
        if own == UNKNOWN or own.leader_epoch == diverging.leader_epoch:
            own_end = log_end_offset if own == UNKNOWN else own.end_offset
            return min(own_end, diverging.end_offset)
        return min(own.end_offset, log_end_offset)
