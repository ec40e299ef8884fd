"""One node of the world of quorum cores: its disk, which survives a crash, and its process."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from raftctl.raft.batch import Batch
from raftctl.raft.core import RaftCore
from raftctl.raft.events import Effect, QuorumState
from raftctl.raft.messages import NO_NODE, Epoch, NodeId, Offset, OffsetAndEpoch, Request


@dataclass
class Machine:
    """A node's disk, which survives a crash, and the process, which does not."""

    node_id: NodeId
    disk_base: list[Batch] = field(default_factory=list)
    """What stands before the log on disk: a snapshot holds it."""
    disk: list[Batch] = field(default_factory=list)
    snapshots: dict[OffsetAndEpoch, list[Batch]] = field(default_factory=dict)
    """On disk, the oldest first."""
    disk_state: QuorumState = field(default=QuorumState(Epoch(0), NO_NODE, None))
    core: RaftCore | None = None
    base: list[Batch] = field(default_factory=list)
    log: list[Batch] = field(default_factory=list)
    part: bytes = b""
    """Of a snapshot that is being fetched."""
    writes: deque[Effect] = field(default_factory=deque)
    calls: dict[int, tuple[NodeId, Request]] = field(default_factory=dict)
    tokens: dict[int, tuple[NodeId, int]] = field(default_factory=dict)
    incarnation: int = 0
    tick_at_ms: int | None = None
    """On its own clock."""
    ahead_ms: int = 0
    """By how much its clock is ahead, another in each life."""

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
        return batch in self.disk or batch in self.disk_base or batch in newest

    def recover(self) -> None:
        """What opening the log does: a log without the end of the newest snapshot is replaced."""
        newest = self.snapshot_id
        if newest is not None and end_of(self.snapshots[newest]) not in (
            OffsetAndEpoch(batch.end_offset, batch.epoch) for batch in self.disk_base + self.disk
        ):
            self.disk_base, self.disk = list(self.snapshots[newest]), []
        self.base, self.log = list(self.disk_base), list(self.disk)


def end_of(batches: list[Batch]) -> OffsetAndEpoch:
    """Where the records end."""
    if not batches:
        return OffsetAndEpoch(Offset(0), Epoch(0))
    return OffsetAndEpoch(batches[-1].end_offset, batches[-1].epoch)
