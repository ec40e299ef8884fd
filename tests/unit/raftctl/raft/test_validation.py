"""Where the bounds of a peer's numbers lie: the last that may be is taken, the next one is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.errors import ErrorCode
from raftctl.raft import claimed_sender, is_endpoint
from raftctl.raft._validation import (
    EPOCH_JUMP_MAX,
    EPOCH_MAX,
    HOST_CHARACTERS_MAX,
    NODE_ID_MAX,
    OFFSET_MAX,
    complaint_of,
    names_other_leader,
)
from raftctl.raft.messages import (
    NO_NODE,
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVotersResponse,
    EndQuorumEpochRequest,
    Epoch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderEndpoint,
    NodeId,
    Offset,
    OffsetAndEpoch,
    RemoveVoterRequest,
    ReplicaKey,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    Voter,
    VoteRequest,
)
from tests.unit.raftctl.raft.harness import key, position

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.raft.messages import Request, Response

EPOCH = Epoch(7)
VOTE = VoteRequest(EPOCH, key(2), position(9, 7), pre_vote=False)
FETCH = FetchRequest(EPOCH, key(2), position(9, 7), 1, 1)
PIECE = FetchSnapshotRequest(EPOCH, key(2), position(9, 7), 0, 1)
ANSWER = FetchResponse(
    ErrorCode.NONE, EPOCH, NodeId(2), Offset(9), Offset(9), None, None, Offset(0), b""
)
SNAPSHOT = FetchSnapshotResponse(ErrorCode.NONE, EPOCH, NodeId(2), 0, 1, b"")


def at(offset: int, epoch: int = 7) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), Epoch(epoch))


BOUNDS: list[tuple[int, int, Callable[[Any], Request | Response]]] = [
    (0, EPOCH + EPOCH_JUMP_MAX, lambda it: replace(VOTE, epoch=it)),
    (0, EPOCH + EPOCH_JUMP_MAX, lambda it: replace(ANSWER, epoch=it)),
    (NO_NODE, NODE_ID_MAX, lambda it: replace(ANSWER, leader_id=it)),
    (NO_NODE, NODE_ID_MAX, lambda it: BeginQuorumEpochRequest(EPOCH, it)),
    (0, NODE_ID_MAX, lambda it: replace(VOTE, candidate=key(it))),
    (0, NODE_ID_MAX, lambda it: replace(FETCH, replica=key(it))),
    (0, NODE_ID_MAX, lambda it: replace(PIECE, replica=key(it))),
    (0, NODE_ID_MAX, lambda it: AddVoterRequest(Voter(key(it), "host", 1))),
    (0, OFFSET_MAX, lambda it: replace(VOTE, log_end=at(it))),
    (0, OFFSET_MAX, lambda it: replace(FETCH, fetch_from=at(it))),
    (0, OFFSET_MAX, lambda it: replace(PIECE, snapshot_id=at(it))),
    (0, OFFSET_MAX, lambda it: replace(ANSWER, diverging=at(it))),
    (0, OFFSET_MAX, lambda it: replace(ANSWER, diverging=at(0), snapshot_id=at(it))),
    (0, EPOCH_MAX, lambda it: replace(VOTE, log_end=at(9, it))),
    (0, EPOCH_MAX, lambda it: replace(ANSWER, snapshot_id=at(9, it))),
    (0, OFFSET_MAX, lambda it: replace(SNAPSHOT, position=it, size=1)),
    (0, OFFSET_MAX, lambda it: replace(SNAPSHOT, size=it)),
    (1, (1 << 16) - 1, lambda it: UpdateVoterRequest(Voter(key(2), "host", it))),
    (1, HOST_CHARACTERS_MAX, lambda it: UpdateVoterRequest(Voter(key(2), "h" * it, 9))),
]


@pytest.mark.req("Q1")
@pytest.mark.parametrize(("least", "most", "message"), BOUNDS)
def test_the_last_that_may_be_is_taken_and_the_next_is_not(
    least: int, most: int, message: Callable[[int], Request | Response]
) -> None:
    assert [complaint_of(message(it), EPOCH) for it in (least, most)] == [None, None]
    assert complaint_of(message(least - 1), EPOCH) is not None
    assert complaint_of(message(most + 1), EPOCH) is not None


@pytest.mark.req("Q1")
@pytest.mark.parametrize(
    "message",
    [
        lambda it: replace(FETCH, high_watermark=Offset(it), seen_round=5),
        lambda it: replace(FETCH, high_watermark=Offset(5), seen_round=it),
        lambda it: replace(PIECE, position=it),
        lambda it: replace(ANSWER, high_watermark=Offset(it), round=5),
        lambda it: replace(ANSWER, high_watermark=Offset(5), round=it),
    ],
)
def test_no_count_is_below_nothing(message: Callable[[int], Request | Response]) -> None:
    assert [complaint_of(message(it), EPOCH) for it in (0, 5)] == [None, None]
    assert complaint_of(message(-1), EPOCH) is not None


@pytest.mark.req("Q1")
def test_the_last_epoch_leaves_one_for_a_candidate() -> None:
    for told, sound in ((EPOCH_MAX, True), (EPOCH_MAX + 1, False)):
        message = replace(VOTE, epoch=Epoch(told))
        assert (complaint_of(message, Epoch(EPOCH_MAX - 1)) is None) is sound


@pytest.mark.parametrize("host", ["a b", " ", "a\nb", "\x00", ""])
def test_nobody_listens_at_a_name_that_cannot_be(host: str) -> None:
    assert not is_endpoint(LeaderEndpoint(host, 9093))
    assert is_endpoint(LeaderEndpoint("[::1]", 9093))


@pytest.mark.parametrize(
    ("request_", "sender"),
    [
        (VOTE, 2),
        (FETCH, 2),
        (PIECE, 2),
        (BeginQuorumEpochRequest(EPOCH, NodeId(3)), 3),
        (EndQuorumEpochRequest(EPOCH, NodeId(3), (key(2),)), 3),
        (UpdateVoterRequest(Voter(key(4), "host", 1)), 4),
        (AddVoterRequest(Voter(key(4), "host", 1)), None),
        (RemoveVoterRequest(ReplicaKey(NodeId(4), None)), None),
        (TransferLeadershipRequest(NodeId(4)), None),
    ],
)
def test_who_a_request_says_that_it_is_from(request_: Request, sender: int | None) -> None:
    """What an operator asks for may come from anybody; what replicas say comes from themselves."""
    assert claimed_sender(request_) == sender


@pytest.mark.req("Q1")
def test_an_epoch_has_no_second_leader() -> None:
    for epoch, leader_id, recorded, is_other in (
        (EPOCH, 3, 2, True),
        (EPOCH, 2, 2, False),
        (EPOCH, NO_NODE, 2, False),
        (EPOCH, 3, NO_NODE, False),
        (EPOCH - 1, 3, 2, False),
        (EPOCH + 1, 3, 2, False),
    ):
        message = BeginQuorumEpochResponse(Epoch(epoch), NodeId(leader_id), ErrorCode.NONE)
        assert names_other_leader(message, EPOCH, NodeId(recorded)) is is_other
    answer = ChangeVotersResponse(ErrorCode.NONE, EPOCH, NodeId(3))
    assert names_other_leader(answer, EPOCH, NodeId(2))
    assert not names_other_leader(TransferLeadershipRequest(NodeId(3)), EPOCH, NodeId(2))
