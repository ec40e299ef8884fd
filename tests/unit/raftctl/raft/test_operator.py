"""What operators and readers ask of a leader: to hand over, and to be sure that it still leads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftctl.errors import ErrorCode, InvariantViolation
from raftctl.raft import _leader as leader_module
from raftctl.raft.events import (
    ReadConfirmed,
    ReadRefused,
    ReadRequested,
    Reply,
    ReplyFetch,
    ResignRequested,
)
from raftctl.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Epoch,
    FetchRequest,
    NodeId,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
    Voter,
)
from tests.unit.raftctl.raft.harness import (
    CONFIG,
    ME,
    B,
    C,
    D,
    Node,
    batch_at,
    fetch_answer,
    fetch_request,
    key,
    leader_of,
    only,
)


def established() -> Node:
    """Leads epoch 1; everything is committed and known to both others."""
    node = Node()
    node.become_leader()
    node.flushed()
    for voter in (B, C):
        node.ask(fetch_request(voter, 1, 1, 1, known=1))
    assert node.core.high_watermark == 1
    return node


def error_of(response: object) -> ErrorCode:
    assert isinstance(response, TransferLeadershipResponse)
    return response.error


@pytest.mark.req("Q4")
def test_leadership_is_handed_over_when_the_target_has_everything() -> None:
    node = established()
    node.propose()
    assert node.ask(TransferLeadershipRequest(C)) is None
    assert node.core.is_transferring
    with pytest.raises(InvariantViolation):
        node.propose()
    node.ask(fetch_request(B, 2, 1, 1))
    assert node.core.is_leader, "another voter that has everything is not the target"
    node.ask(fetch_request(C, 2, 1, 1))
    assert node.core.role == "resigned"
    ends = [r for r in node.sent() if isinstance(r, EndQuorumEpochRequest)]
    assert [key.node_id for key in ends[0].preferred_successors] == [C, B]
    assert transferred(node) == [], "the target may die before it wins"


def transferred(node: Node) -> list[ErrorCode]:
    answers = [e.response for e in only(Reply, node.effects)]
    return [a.error for a in answers if isinstance(a, TransferLeadershipResponse)]


@pytest.mark.req("Q4")
@pytest.mark.parametrize(
    ("winner", "error"), [(C, ErrorCode.NONE), (B, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_a_transfer_is_done_when_the_target_leads(winner: NodeId, error: ErrorCode) -> None:
    node = established()
    node.ask(TransferLeadershipRequest(C))
    assert node.core.role == "resigned"
    node.ask(BeginQuorumEpochRequest(Epoch(2), winner))
    told = transferred(node)
    node.persisted()
    assert [*told, *transferred(node)] == [error]


@pytest.mark.req("Q4")
def test_a_transfer_of_which_nobody_hears_the_end_is_not_said_to_be_done() -> None:
    node = established()
    node.ask(TransferLeadershipRequest(C))
    until_ms = node.now_ms + CONFIG.fetch_timeout_ms
    told: list[ErrorCode] = []
    while not told:
        node.wait()
        told = transferred(node)
        assert node.now_ms <= until_ms
    assert told == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.req("Q4")
def test_a_target_that_does_not_catch_up_leaves_the_leader_leading() -> None:
    node = established()
    node.propose()
    node.ask(TransferLeadershipRequest(C))
    node.wait(1_000)
    node.ask(fetch_request(B, 2, 1, 1))
    node.wait(1_000)
    assert [error_of(e.response) for e in only(Reply, node.effects)] == [
        ErrorCode.REQUEST_TIMED_OUT
    ]
    assert node.core.is_leader
    node.propose()


@pytest.mark.req("Q4")
def test_a_transfer_that_cannot_be_is_refused() -> None:
    node = established()
    assert error_of(node.ask(TransferLeadershipRequest(NodeId(8)))) is ErrorCode.VOTER_NOT_FOUND
    assert error_of(node.ask(TransferLeadershipRequest(ME))) is ErrorCode.ELECTION_NOT_NEEDED
    node.propose()
    node.ask(TransferLeadershipRequest(C))
    assert error_of(node.ask(TransferLeadershipRequest(B))) is ErrorCode.REQUEST_TIMED_OUT
    node.do(ResignRequested())
    answers = [e.response for e in only(Reply, node.effects)]
    assert error_of(answers[-1]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(Node().ask(TransferLeadershipRequest(C))) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.req("Q9")
def test_a_read_waits_for_a_fetch_that_was_sent_after_it() -> None:
    node = established()
    node.do(ReadRequested(7))
    told = [effect.response.round for effect in only(ReplyFetch, node.effects)]
    assert told == [1, 1], "waiting fetches are answered at once, so that the next ones come"
    node.ask(fetch_request(B, 1, 1, 1, known=1))
    assert only(ReadConfirmed, node.effects) == [], "it may have been sent before the question"
    node.ask(replace(fetch_request(B, 1, 1, 1, known=1), seen_round=1))
    assert only(ReadConfirmed, node.effects) == [ReadConfirmed(7)]


@pytest.mark.req("Q9")
def test_observers_confirm_nothing() -> None:
    node = established()
    node.do(ReadRequested(7))
    node.ask(replace(fetch_request(9, 1, 1, 1, known=1), seen_round=1))
    assert only(ReadConfirmed, node.effects) == []


@pytest.mark.req("Q9")
def test_a_read_in_a_new_epoch_waits_for_its_first_commit() -> None:
    node = Node()
    node.become_leader()
    node.do(ReadRequested(1))
    node.flushed()
    node.ask(replace(fetch_request(B, 0, 0, 1), seen_round=1))
    assert only(ReadConfirmed, node.effects) == []
    node.ask(replace(fetch_request(B, 1, 1, 1), seen_round=1))
    assert only(ReadConfirmed, node.effects) == [ReadConfirmed(1)]


@pytest.mark.req("Q9")
def test_reads_are_refused_without_leadership() -> None:
    assert Node().do(ReadRequested(3)) == [ReadRefused(3)]
    node = established()
    node.do(ReadRequested(4))
    node.do(ResignRequested())
    assert only(ReadRefused, node.effects) == [ReadRefused(4)]


@pytest.mark.req("Q9")
def test_the_only_voter_confirms_at_once() -> None:
    node = Node(voters=(1,))
    node.become_leader()
    node.flushed()
    assert node.do(ReadRequested(1)) == [ReadConfirmed(1)]


@pytest.mark.req("Q9")
def test_only_a_voter_that_a_read_waits_for_is_answered_at_once() -> None:
    """Any other would ask again at once, and again, for as long as the read waits."""
    node = leader_of(5)
    for voter in (B, C):
        fetched(node, voter, seen_round=0)
    node.do(ReadRequested(7))
    assert fetched(node, B, seen_round=0), "it has not seen the round"
    assert not fetched(node, B, seen_round=1), "it has, but no majority yet"
    assert fetched(node, C, seen_round=0)
    assert not fetched(node, C, seen_round=1)
    assert only(ReadConfirmed, node.effects) == [ReadConfirmed(7)]
    assert not fetched(node, D, seen_round=0), "no read waits any more"


def fetched(node: Node, voter: NodeId, *, seen_round: int) -> bool:
    """Whether a Fetch of somebody who has everything is answered at once."""
    request = fetch_request(voter, node.core.log.end_offset, 1, 1, known=node.core.high_watermark)
    return node.ask(replace(request, seen_round=seen_round)) is not None


@pytest.mark.req("Q9")
def test_a_leader_that_is_being_removed_confirms_no_read_by_itself() -> None:
    node = established()
    for voter in (B, C):
        node.ask(replace(fetch_request(voter, 1, 1, 1, known=1), replica=key(voter, voter)))
    node.ask(RemoveVoterRequest(key(ME)))
    assert node.core.voters.ids == (B, C)
    node.do(ReadRequested(7))
    seen = replace(fetch_request(B, 1, 1, 1, known=1), replica=key(B, B), seen_round=1)
    node.ask(seen)
    assert only(ReadConfirmed, node.effects) == [], "one of two voters is no majority"
    node.ask(replace(seen, replica=key(C, C)))
    assert only(ReadConfirmed, node.effects) == [ReadConfirmed(7)]


@pytest.mark.req("Q9")
def test_reads_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_module, "READS_MAX", 3)
    node = established()
    for request_id in range(3):
        assert only(ReadRefused, node.do(ReadRequested(request_id))) == []
    assert only(ReadRefused, node.do(ReadRequested(3))) == [ReadRefused(3)]
    node.ask(replace(fetch_request(B, 1, 1, 1, known=1), seen_round=3))
    assert only(ReadConfirmed, node.effects) == [
        ReadConfirmed(request_id) for request_id in range(3)
    ]


@pytest.mark.req("Q9")
def test_who_diverges_has_seen_the_round_all_the_same() -> None:
    """Its word that it is in this epoch counts, whatever its log holds."""
    node = established()
    node.do(ReadRequested(7))
    node.ask(replace(fetch_request(B, 9, 1, 1, known=1), seen_round=1))
    assert only(ReadConfirmed, node.effects) == [ReadConfirmed(7)]


@pytest.mark.req("Q4", "Q7")
def test_no_transfer_while_voters_change() -> None:
    node = established()
    for voter in (B, C):
        node.ask(replace(fetch_request(voter, 1, 1, 1, known=1), replica=key(voter, voter)))
    node.ask(AddVoterRequest(Voter(key(D, D), "host", 9)))
    assert error_of(node.ask(TransferLeadershipRequest(C))) is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.req("Q9")
def test_a_follower_repeats_the_round_it_was_told() -> None:
    node = Node()
    fetch = node.become_follower()
    assert fetch.seen_round == 0
    node.answer(2, replace(fetch_answer(fetch, batch_at(0, 1)), round=5))
    node.flushed()
    (fetch,) = [r for r in node.sent() if isinstance(r, FetchRequest)]
    assert fetch.seen_round == 5
