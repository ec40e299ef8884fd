"""The quorum's requests and responses: KRaft's, reduced to what one metadata partition needs.

Replicas pull: followers and observers send Fetch; the leader pushes only BeginQuorumEpoch and
EndQuorumEpoch. Every message carries the sender's epoch, so that a late or repeated one
is harmless.
Sources: Raft §5; KIP-595 (quorum), KIP-853 (directory ids), KIP-996 (pre-vote).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType
from uuid import UUID

from raftctl.errors import ErrorCode

NodeId = NewType("NodeId", int)
Epoch = NewType("Epoch", int)
Offset = NewType("Offset", int)

NO_NODE = NodeId(-1)
"""Stands where a leader or vote could be and is not."""


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """A replica is a node id and the id of its directory: a wiped disk is another replica."""

    node_id: NodeId
    directory_id: UUID | None
    """The directory; None only in a static configuration that does not know directory ids yet."""


@dataclass(frozen=True, slots=True)
class Voter:
    """A replica that votes, and where it listens."""

    replica: ReplicaKey
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class LeaderEndpoint:
    """Address of the leader that a message names; None if the sender does not know it (KIP-853).

    The core knows ids and leaves this to its driver, which fills it in and takes note of it.
    """

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """An end offset (exclusive) and the epoch of the last record before it."""

    offset: Offset
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A vote, or with `pre_vote` the question whether one would be given (KIP-996)."""

    epoch: Epoch
    candidate: ReplicaKey
    log_end: OffsetAndEpoch
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The voter's epoch and leader as it knows them, and whether it grants."""

    epoch: Epoch
    leader_id: NodeId
    granted: bool
    pre_vote: bool
    """Repeats the request's, so that a late pre-vote answer never counts as a vote."""
    voter: ReplicaKey
    leader_endpoint: LeaderEndpoint | None = None


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """A new leader asks voters to fetch from it."""

    epoch: Epoch
    leader_id: NodeId
    leader_endpoint: LeaderEndpoint | None = None


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    """Acknowledges, or names a newer epoch to the sender."""

    epoch: Epoch
    leader_id: NodeId
    error: ErrorCode
    leader_endpoint: LeaderEndpoint | None = None


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """The leader resigns; the first of `preferred_successors` campaigns at once."""

    epoch: Epoch
    leader_id: NodeId
    preferred_successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    """Acknowledges, or names a newer epoch to the sender."""

    epoch: Epoch
    leader_id: NodeId
    error: ErrorCode
    leader_endpoint: LeaderEndpoint | None = None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica asks for records after `fetch_from`, which also says what it has durably.

    `fetch_from.offset` is the replica's *durable* log end, so the leader may count it (row Q3);
    `fetch_from.epoch` is the epoch of the record before it, for divergence (Raft §5.3, KIP-595).
    """

    epoch: Epoch
    replica: ReplicaKey
    fetch_from: OffsetAndEpoch
    max_bytes: int
    max_wait_ms: int
    high_watermark: Offset = Offset(0)
    """The high watermark that the replica knows: if the leader's is higher it answers at once."""
    fetch_id: int = 0
    """Any number; the answer repeats it."""
    seen_round: int = 0
    """The newest round of reads that it has seen in this leader's answers."""


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Records, or a diverging epoch to truncate to, or a snapshot to fetch first.

    On an error (FENCED_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, ...) `epoch` and `leader_id` say what
    the answering node knows. `fetch_offset` and `fetch_id` repeat the request's; a late or repeated
    answer is recognised by its id, above all one that says where the logs diverged, which must not
    cut a log that has been repaired since. `batches` are encoded batches (`raftctl.raft.batch`), in
    offset order.
    """

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId
    fetch_offset: Offset
    high_watermark: Offset
    diverging: OffsetAndEpoch | None
    snapshot_id: OffsetAndEpoch | None
    log_start_offset: Offset
    batches: bytes
    fetch_id: int = 0
    round: int = 0
    """The newest round of reads (`raftctl.raft._leader.Reads`); the next Fetch repeats it."""
    leader_endpoint: LeaderEndpoint | None = None


def with_batches(response: FetchResponse, batches: bytes) -> FetchResponse:
    """Return the response with these batches. Spelled out: `replace` is several times slower."""
    return FetchResponse(
        response.error,
        response.epoch,
        response.leader_id,
        response.fetch_offset,
        response.high_watermark,
        response.diverging,
        response.snapshot_id,
        response.log_start_offset,
        batches,
        response.fetch_id,
        response.round,
        response.leader_endpoint,
    )


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """A replica that the log does not reach back to asks for a piece of a snapshot (KIP-630)."""

    epoch: Epoch
    replica: ReplicaKey
    snapshot_id: OffsetAndEpoch
    position: int
    """The offset in bytes; the replica has everything below."""
    max_bytes: int
    fetch_id: int = 0
    """Any number; the answer repeats it."""


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    """A piece of the snapshot's file; SNAPSHOT_NOT_FOUND sends the replica back to Fetch."""

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId
    position: int
    size: int
    """The size of the whole file, in bytes."""
    data: bytes
    fetch_id: int = 0
    leader_endpoint: LeaderEndpoint | None = None


@dataclass(frozen=True, slots=True)
class TransferLeadershipRequest:
    """The operator wants this voter to lead (Raft §3.10 of the thesis)."""

    target: NodeId
    seen: OffsetAndEpoch | None = None
    """The quorum as the operator saw it, as in `AddVoterRequest`; only its epoch counts."""


@dataclass(frozen=True, slots=True)
class TransferLeadershipResponse:
    """NONE once the target leads.

    VOTER_NOT_FOUND, REQUEST_TIMED_OUT if the target did not catch up, nobody is known to lead yet,
    or another transfer or change of voters is under way; NOT_LEADER_OR_FOLLOWER from a replica that
    does not lead or if another one won; ELECTION_NOT_NEEDED if the target leads already.
    """

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """The operator lets an observer vote, once it has caught up (KIP-853)."""

    voter: Voter
    seen: OffsetAndEpoch | None = None
    """The offset of the voters' record, and its epoch, as the operator decided. The leader refuses
    a decision on other voters, or of another epoch: it may have come late, after its repetition and
    the changes since (decision 0019). None: no condition."""


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """The operator takes the vote from this very replica; `seen` as in `AddVoterRequest`."""

    replica: ReplicaKey
    seen: OffsetAndEpoch | None = None


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """A voter listens somewhere else."""

    voter: Voter


@dataclass(frozen=True, slots=True)
class ChangeVotersResponse:
    """NONE once the change is committed.

    DUPLICATE_VOTER, VOTER_NOT_FOUND, INVALID_VOTER_KEY (no directory id, or another voter's),
    INVALID_REQUEST (the last voter); NOT_ENOUGH_REPLICAS: the voters that would be left could not
    commit now; REQUEST_TIMED_OUT, to be tried again: another change is under way, or was done since
    the operator looked, or the new voter does not catch up; NOT_LEADER_OR_FOLLOWER: not the leader,
    or not any more, and the change may yet come about.
    """

    error: ErrorCode
    epoch: Epoch
    leader_id: NodeId


ChangeVotersRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
OperatorRequest = ChangeVotersRequest | TransferLeadershipRequest
"""The requests to a leader that must not be carried out long after they were sent."""

Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | TransferLeadershipRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
)
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | TransferLeadershipResponse
    | ChangeVotersResponse
)
