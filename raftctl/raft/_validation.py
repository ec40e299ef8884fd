"""Checks of messages that no honest peer sends: numbers out of bounds, impossible names.

A message comes from the network, and nothing authenticates who sent it. What fails here is refused
or dropped and logged, and changes nothing. The codec has checked the types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.raft.messages import (
    NO_NODE,
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderEndpoint,
    NodeId,
    UpdateVoterRequest,
    VoteRequest,
)

if TYPE_CHECKING:
    from raftctl.raft.messages import Epoch, OffsetAndEpoch, ReplicaKey, Request, Response, Voter

EPOCH_MAX = (1 << 31) - 2
"""A batch has 32 bits for its epoch, and a candidate needs the next one."""
EPOCH_JUMP_MAX = 1 << 24
"""The bound on how far a peer's epoch may be ahead: no quorum elects as often while a replica is
away, and one forged message must not use up the epochs that there are."""
OFFSET_MAX = (1 << 62) - 1
NODE_ID_MAX = (1 << 31) - 1
HOST_CHARACTERS_MAX = 255


def complaint_of(message: Request | Response, epoch: Epoch) -> str | None:
    """Return the fault of a message that reaches a replica of this epoch; None if it has none."""
    named = getattr(message, "epoch", epoch)
    if not 0 <= named <= min(EPOCH_MAX, epoch + EPOCH_JUMP_MAX):
        return f"epoch {named} is out of bounds for a replica of epoch {epoch}"
    leader_id = getattr(message, "leader_id", NO_NODE)
    if not NO_NODE <= leader_id <= NODE_ID_MAX:
        return f"leader {leader_id} is no node"
    match message:
        case FetchRequest() | FetchSnapshotRequest() | VoteRequest():
            return _of_request(message)
        case FetchResponse() | FetchSnapshotResponse():
            return _of_answer(message)
        case AddVoterRequest(voter=voter) | UpdateVoterRequest(voter):
            return _of_voter(voter)
    return None


def _of_request(message: FetchRequest | FetchSnapshotRequest | VoteRequest) -> str | None:
    match message:
        case FetchRequest(replica=replica, fetch_from=position):
            least = min(message.high_watermark, message.seen_round)
        case FetchSnapshotRequest(replica=replica, snapshot_id=position):
            least = message.position
        case VoteRequest(candidate=replica, log_end=position):
            least = 0
    if not _is_node(replica):
        return f"{replica.node_id} is no node"
    if not _is_position(position) or least < 0:
        return f"{position} and {least} are no positions in a log"
    return None


def _of_answer(message: FetchResponse | FetchSnapshotResponse) -> str | None:
    if isinstance(message, FetchSnapshotResponse):
        sound = 0 <= message.position <= OFFSET_MAX and 0 <= message.size <= OFFSET_MAX
        return None if sound else f"position {message.position} of {message.size} is in no file"
    positions = (message.diverging, message.snapshot_id)
    sound = all(one is None or _is_position(one) for one in positions)
    if not sound or min(message.high_watermark, message.round) < 0:
        return f"{positions}, {message.high_watermark} are no positions in a log"
    return None


def _of_voter(voter: Voter) -> str | None:
    if not _is_node(voter.replica) or not is_endpoint(LeaderEndpoint(voter.host, voter.port)):
        return f"node {voter.replica.node_id} at {voter.host!r:.80}:{voter.port} cannot vote"
    return None


def is_endpoint(endpoint: LeaderEndpoint) -> bool:
    """Return whether a node may listen there."""
    host = endpoint.host
    named = 0 < len(host) <= HOST_CHARACTERS_MAX and host.isprintable() and " " not in host
    return named and 0 < endpoint.port < 1 << 16


def claimed_sender(request: Request) -> NodeId | None:
    """Return the node that a request claims to come from; None if any client may send it."""
    match request:
        case VoteRequest(candidate=replica):
            return replica.node_id
        case FetchRequest(replica=replica) | FetchSnapshotRequest(replica=replica):
            return replica.node_id
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            return request.leader_id
        case UpdateVoterRequest(voter):
            return voter.replica.node_id
    return None


def names_other_leader(message: Request | Response, epoch: Epoch, recorded: NodeId) -> bool:
    """Return whether it names a second leader of an epoch whose leader is known."""
    leader_id = getattr(message, "leader_id", NO_NODE)
    same_epoch = getattr(message, "epoch", None) == epoch
    return same_epoch and recorded != NO_NODE and leader_id not in (NO_NODE, recorded)


def _is_node(replica: ReplicaKey) -> bool:
    return 0 <= replica.node_id <= NODE_ID_MAX


def _is_position(position: OffsetAndEpoch) -> bool:
    return 0 <= position.offset <= OFFSET_MAX and 0 <= position.epoch <= EPOCH_MAX
