"""The events that the quorum core takes, and the effects that it asks for: its table of contents.

`RaftCore.handle(event, now_ms) -> list[Effect]`; `RaftCore.deadline_ms()` says when to send `Tick`.

The order of the effect list is the contract: the driver performs it left to right. `AppendToLog`,
`TruncateLog` and `PersistQuorumState` only *start* a write, in order, on the log directory's one
worker; their completion comes back as `LogFlushed` or `QuorumStatePersisted`, and the core holds
back everything that depends on it (a vote leaves after its fsync; an own offset counts after its
fsync, rows Q1 and Q3).
"""

from __future__ import annotations

from dataclasses import dataclass

from raftctl.raft.batch import Batch
from raftctl.raft.messages import (
    Epoch,
    FetchResponse,
    FetchSnapshotResponse,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    Request,
    Response,
)
from raftctl.raft.voters import VoterSet

# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The driver is up; arms the first timers."""


@dataclass(frozen=True, slots=True)
class Tick:
    """`deadline_ms()` has come."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A peer asks; `request_id` comes back in exactly one `Reply` or `ReplyFetch`, now or later."""

    request_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """A peer answered one of our requests."""

    source: NodeId
    response: Response


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No answer: connection refused or lost, or the request timed out."""

    destination: NodeId
    request: Request


@dataclass(frozen=True, slots=True)
class Proposed:
    """The active controller appends records; legal only while this node is the leader."""

    payload: bytes
    count: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class LogFlushed:
    """Every batch below `end_offset` that was appended before is durable.

    Reported in the order of the writes; one report may stand for several appends. The core never
    truncates while an append is not yet reported, so no report can outlive what it speaks of.
    """

    end_offset: Offset


@dataclass(frozen=True, slots=True)
class QuorumStatePersisted:
    """The oldest `PersistQuorumState` not yet answered is durable."""


@dataclass(frozen=True, slots=True)
class ResignRequested:
    """The node shuts down or the operator asks: hand leadership over if this node holds it."""


@dataclass(frozen=True, slots=True)
class ReadRequested:
    """Someone wants to read what is committed by now; `request_id` comes back exactly once."""

    request_id: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The node has written a snapshot of committed records, durably."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class PrefixExpired:
    """Retention no longer keeps what stands before this snapshot, which is durable."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotChunkSaved:
    """The piece of the last `SaveSnapshotChunk` is written; not the last one of its snapshot."""


@dataclass(frozen=True, slots=True)
class SnapshotSaved:
    """The last piece is written: the whole snapshot is checked, read and durable."""

    voters: VoterSet | None = None
    """The voters at its end; None if they were those of the configuration."""


@dataclass(frozen=True, slots=True)
class SnapshotRefused:
    """The fetched snapshot is damaged, or its beginning is gone (row Q12): fetch it again."""

    why: str = ""
    """The reason for the node's log: the file, the place, and what is wrong with it."""


Event = (
    Started
    | Tick
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | Proposed
    | LogFlushed
    | QuorumStatePersisted
    | ResignRequested
    | ReadRequested
    | SnapshotTaken
    | PrefixExpired
    | SnapshotChunkSaved
    | SnapshotSaved
    | SnapshotRefused
)

# --- effects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuorumState:
    """State that must survive a crash: KRaft's `quorum-state` file."""

    epoch: Epoch
    leader_id: NodeId
    voted: ReplicaKey | None


@dataclass(frozen=True, slots=True)
class PersistQuorumState:
    """Replace the quorum-state file, durably."""

    state: QuorumState


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Append the batch; readable at once, durable when `LogFlushed` reaches its end offset."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Remove every record at or above `end_offset` (never below the high watermark)."""

    end_offset: Offset


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send to a peer; answered by `ResponseReceived` or `RequestFailed`."""

    destination: NodeId
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request with this request_id."""

    request_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class ReplyFetch:
    """Answer a Fetch with batches from `response.fetch_offset`, read by the driver.

    The driver fills `response.batches` with whole batches, at least one if any exists, and at most
    `max_bytes` otherwise.
    """

    request_id: int
    response: FetchResponse
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReplyFetchSnapshot:
    """Answer with a piece of the snapshot from `response.position`, read by the driver.

    The driver fills in `size` and `data`, at most `max_bytes`; or the error SNAPSHOT_NOT_FOUND or
    POSITION_OUT_OF_RANGE.
    """

    request_id: int
    response: FetchSnapshotResponse
    snapshot_id: OffsetAndEpoch
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SaveSnapshotChunk:
    """Write the piece into the unfinished file of the snapshot; position 0 begins the file again.

    Answered by `SnapshotChunkSaved`; for the last one, after the file is checked as a whole and
    renamed, by `SnapshotSaved` or `SnapshotRefused`.
    """

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class Warned:
    """Warning for the node's log: a message that no honest peer sends, or why this replica is
    stuck.
    """

    why: str


@dataclass(frozen=True, slots=True)
class DeleteLogPrefix:
    """Remove the records below the snapshot's end, as far as whole segments go."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class ResetLog:
    """Remove the whole log and go on from the end of the snapshot that was saved last.

    Listeners that apply records take the snapshot's state in place of what they have.
    """

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Every record below `high_watermark` is committed: apply it."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class ReadConfirmed:
    """Everything that was committed anywhere when the read was asked for is committed here now."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ReadRefused:
    """This replica does not lead, or not any more: ask the leader."""

    request_id: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Leader of this epoch, as far as this node knows; `leader_id` may be `NO_NODE`.

    For this node's own leadership it is emitted only once the high watermark has reached the start
    of the epoch, so that the controller starts from a complete committed image (Raft §8).
    """

    epoch: Epoch
    leader_id: NodeId


Effect = (
    PersistQuorumState
    | AppendToLog
    | TruncateLog
    | SendRequest
    | Reply
    | ReplyFetch
    | ReplyFetchSnapshot
    | SaveSnapshotChunk
    | DeleteLogPrefix
    | Warned
    | ResetLog
    | HighWatermarkAdvanced
    | ReadConfirmed
    | ReadRefused
    | LeaderChanged
)
