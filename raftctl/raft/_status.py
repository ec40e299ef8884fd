"""What `quorum describe` shows of one replica's view. Times are the core's clock (`now_ms`)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from raftctl.raft.messages import Epoch, NodeId, Offset, Voter
from raftctl.raft.voters import NOT_IN_LOG


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica as the leader knows it."""

    node_id: NodeId
    log_end_offset: Offset
    """Its durable log end; -1 before its first Fetch in this epoch."""
    last_fetch_ms: int | None
    """When its last Fetch came; None before the first."""
    last_caught_up_ms: int | None
    """The last time at which it had all that the leader had."""
    directory_id: UUID | None = None
    """As it gave it itself; None before its first Fetch."""


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """The quorum as one replica sees it; only the leader knows `voters` and `observers`."""

    now_ms: int
    role: str
    leader_id: NodeId
    epoch: Epoch
    high_watermark: Offset
    log_end_offset: Offset
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]
    voter_set: tuple[Voter, ...] = ()
    """The voters in effect here, with their addresses."""
    voters_offset: Offset = NOT_IN_LOG
    """Where the record stands that names them; `NOT_IN_LOG` if no record does."""
