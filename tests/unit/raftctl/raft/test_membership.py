"""Changing the voters one at a time: in effect when appended, committed by the new set."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from raftctl.errors import ErrorCode
from raftctl.ids import ZERO_UUID
from raftctl.raft.batch import Batch
from raftctl.raft.events import AppendToLog, Reply, SnapshotSaved
from raftctl.raft.messages import (
    NO_NODE,
    AddVoterRequest,
    ChangeVotersRequest,
    ChangeVotersResponse,
    EndQuorumEpochRequest,
    Epoch,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    NodeId,
    Offset,
    OffsetAndEpoch,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
    UpdateVoterRequest,
    Voter,
    VoteResponse,
)
from raftctl.raft.voters import NOT_IN_LOG, VoterHistory, VoterSet, decode_voters, encode_voters
from tests.unit.raftctl.raft.harness import (
    Node,
    batch_at,
    fetch_answer,
    fetch_request,
    key,
    only,
    position,
    vote_request,
)


def voter(node_id: int, directory: int | None = None) -> Voter:
    return Voter(key(node_id, directory or node_id), "host", 9093)


def record(offset: int, *node_ids: int, epoch: int = 1) -> Batch:
    voters = VoterSet((voter(n) for n in node_ids), dynamic=True)
    return Batch(Offset(offset), Epoch(epoch), 1, -1, True, encode_voters(voters))


def fetched(node: Node, node_id: int, offset: int, last_epoch: int = 1) -> None:
    request = fetch_request(node_id, offset, last_epoch, 1, known=offset)
    node.ask(replace(request, replica=key(node_id, node_id)))


def leader() -> Node:
    """Leads epoch 1 of the static voters 1, 2 and 3; its first record is committed."""
    node = Node()
    node.core._replica.local = key(1, 1)
    node.become_leader()
    node.flushed()
    fetched(node, 2, 1)
    fetched(node, 3, 1)
    assert node.core.high_watermark == 1
    return node


def asked(node: Node, request: ChangeVotersRequest) -> ErrorCode | None:
    answer = node.ask(request)
    assert answer is None or isinstance(answer, ChangeVotersResponse)
    return None if answer is None else answer.error


def appended(node: Node) -> VoterSet | None:
    """The voters that the last effects append."""
    batches = [effect.batch for effect in only(AppendToLog, node.effects)]
    return decode_voters(batches[0].payload) if batches else None


def answers(node: Node) -> list[ErrorCode]:
    responses = [effect.response for effect in only(Reply, node.effects)]
    return [r.error for r in responses if isinstance(r, ChangeVotersResponse)]


@pytest.mark.req("Q7")
def test_a_new_voter_joins_when_it_has_caught_up_and_the_new_majority_commits() -> None:
    node = leader()
    assert asked(node, AddVoterRequest(voter(4))) is None
    assert appended(node) is None
    fetched(node, 4, 0, 0)
    assert appended(node) is None, "it has not caught up"
    fetched(node, 4, 1)
    voters = appended(node)
    assert voters is not None
    assert voters.voters == (Voter(key(1, 1), "", 0), *voters.voters[1:])
    assert [v.replica.directory_id for v in voters.voters] == [
        key(n, n).directory_id for n in (1, 2, 3, 4)
    ]
    assert node.core.voters.ids == (1, 2, 3, 4), "it is in effect at once"
    node.flushed()
    fetched(node, 2, 2)
    assert node.core.high_watermark == 1, "two of four are no majority"
    fetched(node, 4, 2)
    assert node.core.high_watermark == 2
    assert answers(node) == [ErrorCode.NONE]


@pytest.mark.req("Q7")
def test_a_voter_that_does_not_catch_up_does_not_join() -> None:
    node = leader()
    asked(node, AddVoterRequest(voter(4)))
    node.wait(1_000)
    fetched(node, 2, 1)
    fetched(node, 3, 1)
    node.wait(1_000)
    assert answers(node) == [ErrorCode.REQUEST_TIMED_OUT]
    assert node.core.voters.ids == (1, 2, 3)


@pytest.mark.req("Q7")
def test_a_removed_leader_counts_itself_no_more_and_resigns_after_the_commit() -> None:
    node = leader()
    assert asked(node, RemoveVoterRequest(key(1, 1))) is None
    assert node.core.voters.ids == (2, 3)
    node.flushed()
    fetched(node, 2, 2)
    assert node.core.high_watermark == 1, "one of two: the leader's own log does not count"
    assert node.core.is_leader
    fetched(node, 3, 2)
    assert node.core.high_watermark == 2
    assert answers(node) == [ErrorCode.NONE]
    assert node.core.role == "resigned"


@pytest.mark.req("Q7")
def test_one_change_at_a_time_and_none_that_makes_no_sense() -> None:
    node = leader()
    assert asked(node, AddVoterRequest(voter(3))) is ErrorCode.DUPLICATE_VOTER
    for unknown in (None, ZERO_UUID):
        nobody = Voter(replace(key(4), directory_id=unknown), "host", 1)
        assert asked(node, AddVoterRequest(nobody)) is ErrorCode.INVALID_VOTER_KEY
    assert asked(node, RemoveVoterRequest(key(4, 4))) is ErrorCode.VOTER_NOT_FOUND
    wiped = RemoveVoterRequest(key(3, 33))
    assert asked(node, wiped) is ErrorCode.VOTER_NOT_FOUND, "another directory, another replica"
    assert asked(node, UpdateVoterRequest(voter(3, 33))) is ErrorCode.VOTER_NOT_FOUND
    assert asked(node, RemoveVoterRequest(key(3, 3))) is None
    assert asked(node, RemoveVoterRequest(key(2, 2))) is ErrorCode.REQUEST_TIMED_OUT
    assert asked(Node(), RemoveVoterRequest(key(2, 2))) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.req("Q7")
@pytest.mark.parametrize("owner", [1, 2, 3])
def test_no_two_voters_have_one_directory(owner: int) -> None:
    """A copied disk would count twice for a majority."""
    node = leader()
    copied = AddVoterRequest(voter(4, owner))
    assert asked(node, copied) is ErrorCode.INVALID_VOTER_KEY
    node.ask(replace(fetch_request(4, 1, 1, 1), replica=key(4, owner)))
    assert appended(node) is None
    assert asked(node, AddVoterRequest(voter(4))) is None


@pytest.mark.req("Q7")
def test_a_change_that_comes_late_is_not_carried_out() -> None:
    """It hung on the way; the operator has asked again, and undone it since."""
    node = leader()
    late = AddVoterRequest(voter(4), OffsetAndEpoch(NOT_IN_LOG, Epoch(1)))
    assert asked(node, late) is None
    fetched(node, 4, 1)
    node.flushed()
    for node_id in (2, 3, 4):
        fetched(node, node_id, 2)
    added = OffsetAndEpoch(Offset(1), Epoch(1))
    assert node.core.status(0).voters_offset == added.offset
    assert asked(node, RemoveVoterRequest(key(4, 4), added)) is None
    node.flushed()
    for node_id in (2, 3, 4):
        fetched(node, node_id, 3)
    assert node.core.voters.ids == (1, 2, 3)
    for seen in (late.seen, added, OffsetAndEpoch(Offset(2), Epoch(0))):
        request = AddVoterRequest(voter(4), seen)
        assert asked(node, request) is ErrorCode.REQUEST_TIMED_OUT, seen
        removal = RemoveVoterRequest(key(3, 3), seen)
        assert asked(node, removal) is ErrorCode.REQUEST_TIMED_OUT, seen
    assert asked(node, AddVoterRequest(voter(4), OffsetAndEpoch(Offset(2), Epoch(1)))) is None


@pytest.mark.req("Q7")
def test_a_transfer_that_was_asked_for_in_another_epoch_is_not_done() -> None:
    node = leader()
    late = TransferLeadershipRequest(NodeId(2), OffsetAndEpoch(NOT_IN_LOG, Epoch(0)))
    answer = node.ask(late)
    assert isinstance(answer, TransferLeadershipResponse)
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.core.role == "leader"
    node.ask(TransferLeadershipRequest(NodeId(2), OffsetAndEpoch(NOT_IN_LOG, Epoch(1))))
    assert node.core.role == "resigned"


@pytest.mark.req("Q7")
def test_no_change_before_the_leaders_own_epoch_has_a_commit() -> None:
    """Else two sets without a shared majority could both commit (the known flaw of Raft §4.1)."""
    node = Node()
    node.become_leader()
    assert asked(node, RemoveVoterRequest(key(3, 3))) is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.req("Q7")
def test_no_change_before_the_own_epoch_has_a_commit_though_that_of_the_voters_is_known() -> None:
    node = Node(epoch=1)
    node.core._replica.local = key(1, 1)
    fetch = node.become_follower(epoch=2)
    known = fetch_answer(fetch, record(0, 1, 2, 3), batch_at(1, 2))
    node.answer(2, replace(known, high_watermark=Offset(2)))
    node.flushed()
    assert node.core.high_watermark == 2
    node.wait()
    node.answer(2, VoteResponse(node.core.epoch, NO_NODE, True, True, key(2, 2)))
    node.persisted()
    node.answer(2, VoteResponse(node.core.epoch, NO_NODE, True, False, key(2, 2)))
    node.persisted()
    assert node.core.is_leader
    node.flushed()
    epoch = node.core.epoch
    for node_id in (2, 3):
        request = fetch_request(node_id, 2, 2, epoch, known=2)
        node.ask(replace(request, replica=key(node_id, node_id)))
    assert asked(node, RemoveVoterRequest(key(3, 3))) is ErrorCode.REQUEST_TIMED_OUT
    request = fetch_request(2, 3, epoch, epoch, known=2)
    node.ask(replace(request, replica=key(2, 2)))
    assert node.core.high_watermark == 3
    assert asked(node, RemoveVoterRequest(key(3, 3))) is None


@pytest.mark.req("Q7")
def test_a_change_that_waits_for_its_voter_is_not_given_up_for_another() -> None:
    node = leader()
    assert asked(node, AddVoterRequest(voter(4))) is None
    assert asked(node, RemoveVoterRequest(key(3, 3))) is ErrorCode.REQUEST_TIMED_OUT
    fetched(node, 4, 1)
    assert node.core.voters.ids == (1, 2, 3, 4)
    node.flushed()
    fetched(node, 2, 2)
    fetched(node, 4, 2)
    assert answers(node) == [ErrorCode.NONE]


@pytest.mark.req("Q7")
def test_a_change_that_is_truncated_never_was() -> None:
    node = Node(epoch=1)
    fetch = node.become_follower(epoch=2)
    node.answer(2, fetch_answer(fetch, batch_at(0, 1), record(1, 1, 2, 3, 4)))
    assert node.core.voters.ids == (1, 2, 3, 4)
    node.flushed()
    (again,) = node.sent()
    node.answer(2, replace(fetch_answer(again), diverging=position(1, 1)))
    assert len(node.core.voters) == 3


@pytest.mark.req("Q7")
def test_a_voter_votes_for_a_candidate_that_its_log_does_not_know_yet() -> None:
    node = Node(epoch=1)
    fetch = node.become_follower(epoch=2)
    node.answer(2, fetch_answer(fetch, record(0, 1, 2, 3)))
    node.flushed()
    node.now_ms += 10_000
    node.ask(vote_request(5, 3, (1, 1)))
    assert node.core.epoch == 3


@pytest.mark.req("Q7")
def test_a_voter_that_was_never_heard_may_leave_but_nobody_else_while_it_is_unknown() -> None:
    """Its disk may be gone for good: the operator names it, whatever its directory was."""
    node = Node()
    node.core._replica.local = key(1, 1)
    node.become_leader()
    node.flushed()
    fetched(node, 2, 1)
    assert node.core.high_watermark == 1
    assert asked(node, RemoveVoterRequest(key(2, 2))) is ErrorCode.REQUEST_TIMED_OUT
    assert asked(node, RemoveVoterRequest(key(3, 3))) is None
    assert node.core.voters == VoterSet([key(1, 1), key(2, 2)], dynamic=True)


@pytest.mark.req("Q1", "Q7")
def test_votes_of_those_who_vote_no_more_make_no_leader() -> None:
    """A snapshot that is saved during the campaign may tell of other voters."""
    node = Node(voters=(1, 2, 3, 4, 5), epoch=1)
    fetch = node.become_follower(epoch=2)
    node.answer(2, replace(fetch_answer(fetch), snapshot_id=position(9, 1)))
    (piece,) = node.sent()
    assert isinstance(piece, FetchSnapshotRequest)
    response = FetchSnapshotResponse(
        ErrorCode.NONE, Epoch(2), NodeId(2), 0, 4, b"data", piece.fetch_id
    )
    node.answer(2, response)
    node.ask(EndQuorumEpochRequest(Epoch(2), NodeId(2), (key(1),)))
    assert node.core.role == "candidate"
    node.persisted()
    node.grant(2, pre_vote=False)
    others = VoterSet([key(1), key(3), key(4), key(5)], dynamic=True)
    node.do(SnapshotSaved(others))
    assert node.core.voters == others
    node.grant(3, pre_vote=False)
    assert node.core.role == "candidate", "1 and 3 are two of four"
    node.grant(4, pre_vote=False)
    assert node.core.is_leader


@pytest.mark.req("Q7")
@pytest.mark.parametrize("pre_vote", [True, False])
def test_who_has_the_record_of_its_own_removal_does_not_count_itself(*, pre_vote: bool) -> None:
    """It campaigns, since nobody else may win, but only for the votes of those who stay."""
    node = Node(epoch=1)
    node.core._replica.local = key(1, 1)
    fetch = node.become_follower(epoch=2)
    node.answer(2, fetch_answer(fetch, record(0, 1, 2, 3), record(1, 2, 3)))
    node.flushed()
    node.wait()
    for phase, role in ((True, "prospective"), (False, "candidate")):
        if not phase:
            node.persisted()
        assert node.core.role == role
        for voter_id in (2, 3):
            assert node.core.role == role, "two of two are needed"
            epoch = node.core.epoch
            node.answer(
                voter_id, VoteResponse(epoch, NO_NODE, True, phase, key(voter_id, voter_id))
            )
        if phase is pre_vote:
            break
    assert node.core.role == ("candidate" if pre_vote else "leader")


@pytest.mark.req("Q7")
def test_the_records_of_a_leader_that_tell_who_leads_and_votes_are_one_each() -> None:
    history = VoterSet([voter(1, 1), voter(2, 2), voter(3, 3)], dynamic=True)
    node = Node()
    node.core._replica.local = key(1, 1)
    node.core._replica._voters = VoterHistory(history)
    node.wait()
    for phase in (True, False):
        node.answer(2, VoteResponse(node.core.epoch, NO_NODE, True, phase, key(2, 2)))
        if phase:
            node.persisted()
    first, second = [effect.batch for effect in only(AppendToLog, node.effects)]
    assert (first.control, first.count, second.control, second.count) == (True, 1, True, 1)
    assert decode_voters(second.payload) == history
    assert node.core.log.end_offset == 2


@pytest.mark.req("Q7")
def test_the_voters_along_the_log() -> None:
    history = VoterHistory(VoterSet([key(1), key(2)]))
    assert history.newest_offset == NOT_IN_LOG
    assert not history.appended(batch_at(0, 1))
    assert history.appended(record(5, 1, 2, 3))
    assert history.appended(record(8, 1, 2, 3, 4))
    assert [len(v) for v in history.since(Offset(6))] == [3, 4]
    assert [len(history.at(Offset(end))) for end in (0, 5, 6, 8, 9)] == [2, 2, 3, 3, 4]
    history.started(position(6, 1))
    assert len(history.at(Offset(0))) == 3
    history.truncated(Offset(8))
    assert len(history.newest) == 3


@pytest.mark.req("Q7")
def test_the_last_voter_stays_and_who_votes_no_more_is_not_found() -> None:
    node = Node(voters=(1,))
    node.core._replica.local = key(1, 1)
    node.wait()
    node.persisted()
    node.flushed()
    assert node.core.high_watermark == 1
    last = node.ask(RemoveVoterRequest(key(1, 1)))
    assert cast("ChangeVotersResponse", last).error is ErrorCode.INVALID_REQUEST
    removed = node.ask(RemoveVoterRequest(key(2, 2)))
    assert cast("ChangeVotersResponse", removed).error is ErrorCode.VOTER_NOT_FOUND


@pytest.mark.req("Q7")
def test_no_voter_leaves_whom_the_others_need_for_a_majority() -> None:
    """With 3 silent, {1, 3} could commit nothing, not even the removal of 2."""
    node = leader()
    for _ in range(20):
        node.wait(200)
        fetched(node, 2, 1)
    assert node.core.is_leader
    assert asked(node, RemoveVoterRequest(key(2, 2))) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert len(node.core.voters) == 3
    assert asked(node, RemoveVoterRequest(key(3, 3))) is None, "the silent one may leave"
    assert node.core.voters.ids == (1, 2)


@pytest.mark.req("Q7")
def test_who_joins_counts_for_the_majority_that_its_own_joining_needs() -> None:
    """With 3 silent, 1, 2 and 4 are three of four: so a lost voter is replaced by adding first."""
    node = leader()
    for _ in range(20):
        node.wait(200)
        fetched(node, 2, 1)
    assert asked(node, AddVoterRequest(voter(4))) is None
    fetched(node, 4, 1)
    assert node.core.voters.ids == (1, 2, 3, 4)
    node.flushed()
    for node_id in (2, 4):
        fetched(node, node_id, 2)
    assert answers(node) == [ErrorCode.NONE]


@pytest.mark.req("Q7")
def test_an_observer_that_fell_silent_is_not_taken_for_one_that_has_everything() -> None:
    node = leader()
    fetched(node, 4, 1)
    for _ in range(20):
        node.wait(200)
        fetched(node, 2, 1)
        fetched(node, 3, 1)
    assert asked(node, AddVoterRequest(voter(4))) is None
    assert appended(node) is None, "it may be gone"
    fetched(node, 4, 1)
    assert node.core.voters.ids == (1, 2, 3, 4)
