"""One node of the world of quorum cores: its disk, which survives a crash, and its process."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from math import ceil
from operator import attrgetter

from raftctl.raft import RaftCore
from raftctl.raft.batch import Batch
from raftctl.raft.events import Effect, Event, QuorumState
from raftctl.raft.messages import (
    NO_NODE,
    Epoch,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    Request,
)
from raftctl.raft.voters import VoterSet

EVEN_RATE = 1000
"""Milliseconds that a clock counts in a second, if it is right."""


@dataclass
class Machine:
    """A node's disk, which survives a crash, and the process, which does not."""

    local: ReplicaKey
    """The node and the directory that it has now."""
    initial: VoterSet
    """Whom it believes to vote while its log is empty."""
    disk_base: list[Batch] = field(default_factory=list)
    """What stands before the log on disk: a snapshot holds it."""
    disk: list[Batch] = field(default_factory=list)
    snapshots: dict[OffsetAndEpoch, list[Batch]] = field(default_factory=dict)
    """On disk, the oldest first."""
    disk_state: QuorumState = field(default=QuorumState(Epoch(0), NO_NODE, None))
    retired: dict[ReplicaKey, tuple[list[Batch], ...]] = field(default_factory=dict)
    """What was on each disk that is gone."""
    core: RaftCore | None = None
    base: list[Batch] = field(default_factory=list)
    log: list[Batch] = field(default_factory=list)
    part: bytes = b""
    """Of a snapshot that is being fetched."""
    writes: deque[Effect] = field(default_factory=deque)
    calls: dict[int, tuple[NodeId, Request]] = field(default_factory=dict)
    request_ids: dict[int, tuple[NodeId, int]] = field(default_factory=dict)
    incarnation: int = 0
    tick_at_ms: int | None = None
    """On its own clock."""
    ahead_ms: int = 0
    """By how much its clock was ahead when it began to run, another in each life."""
    rate: int = EVEN_RATE
    """Milliseconds that its clock counts in a second."""
    begun_ms: int = 0
    hangs_until_ms: int = 0
    """Until when the disk takes nothing."""
    paused: bool = False
    held: list[Event] = field(default_factory=list)
    """What came while it was paused."""

    @property
    def node_id(self) -> NodeId:
        """The node's, whatever its disk."""
        return self.local.node_id

    def own_ms(self, now_ms: int) -> int:
        """The time on its own clock."""
        return self.begun_ms + self.ahead_ms + (now_ms - self.begun_ms) * self.rate // EVEN_RATE

    def delay_ms(self, own_ms: int, deadline_ms: int) -> int:
        """How long it is until its clock says so."""
        return max(0, ceil((deadline_ms - own_ms) * EVEN_RATE / self.rate))

    @property
    def history(self) -> list[Batch]:
        """All records, as the process sees them."""
        return self.base + self.log

    @property
    def snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest snapshot."""
        return next(reversed(self.snapshots), None)

    def has_durably(self, batch: Batch) -> bool:
        """Whether the batch survives a crash, in the log or in a snapshot."""
        newest = self.snapshots[self.snapshot_id] if self.snapshot_id else []
        return any(_holds(part, batch) for part in (self.disk, self.disk_base, newest))

    def had_durably(self, key: ReplicaKey, batch: Batch) -> bool:
        """Whether this voter has it, or had it when its disk was lost: no other disk counts."""
        if key.directory_id in (None, self.local.directory_id):
            return self.has_durably(batch)
        return any(_holds(part, batch) for part in self.retired.get(key, ()))

    def lose_disk(self, directory: ReplicaKey) -> None:
        """An empty disk takes the place of the one it had."""
        newest = self.snapshots[self.snapshot_id] if self.snapshot_id else []
        self.retired[self.local] = self.disk_base, self.disk, newest
        self.local, self.initial = directory, VoterSet((), dynamic=True)
        self.disk_base, self.disk, self.snapshots = [], [], {}
        self.disk_state, self.part = QuorumState(Epoch(0), NO_NODE, None), b""

    def recover(self) -> None:
        """What opening the log does: a log without the end of the newest snapshot is replaced."""
        newest = self.snapshot_id
        if newest is not None and end_of(self.snapshots[newest]) not in (
            OffsetAndEpoch(batch.end_offset, batch.epoch) for batch in self.disk_base + self.disk
        ):
            self.disk_base, self.disk = list(self.snapshots[newest]), []
        self.base, self.log = list(self.disk_base), list(self.disk)


def _holds(batches: list[Batch], batch: Batch) -> bool:
    """Whether the batch is among these, which are in order."""
    at = bisect_left(batches, batch.end_offset, key=attrgetter("end_offset"))
    return at < len(batches) and batches[at] == batch


def end_of(batches: list[Batch]) -> OffsetAndEpoch:
    """Where the records end."""
    if not batches:
        return OffsetAndEpoch(Offset(0), Epoch(0))
    return OffsetAndEpoch(batches[-1].end_offset, batches[-1].epoch)
