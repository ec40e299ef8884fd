"""The rules of the Raft paper's §6 to §8, and of the thesis where it changes §6 and §8.

As in `test_paper.py` one test for each. Of the two ways to change members, the core has that of
§4.1 of the thesis, one server at a time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftctl.errors import ErrorCode, InvariantViolation
from raftctl.raft.events import (
    DeleteLogPrefix,
    HighWatermarkAdvanced,
    PrefixExpired,
    ReadConfirmed,
    ReadRefused,
    ReadRequested,
    ResetLog,
    SnapshotSaved,
    SnapshotTaken,
)
from raftctl.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    Epoch,
    FetchResponse,
    NodeId,
    Offset,
    RemoveVoterRequest,
    VoteResponse,
)
from tests.unit.raftctl.raft.harness import (
    B,
    C,
    Node,
    batch_at,
    fetch_answer,
    fetch_request,
    key,
    log_of,
    only,
    position,
    vote_request,
)
from tests.unit.raftctl.raft.test_membership import answers, appended, asked, fetched, leader, voter
from tests.unit.raftctl.raft.test_operator import established
from tests.unit.raftctl.raft.test_snapshots import (
    SNAPSHOT,
    leader_with_snapshot,
    piece,
    told_to_fetch_a_snapshot,
)

# --- §6, and §4 of the thesis -------------------------------------------------------------------


@pytest.mark.req("Q7")
def test_6_a_server_uses_the_newest_configuration_in_its_log_committed_or_not() -> None:
    node = leader()
    asked(node, RemoveVoterRequest(key(3, 3)))
    assert node.core.high_watermark == 1, "nothing of it is committed"
    assert node.core.voters.ids == (1, 2)
    node.flushed()
    fetched(node, 2, 2)
    assert node.core.high_watermark == 2, "two of two, whatever the third has"


@pytest.mark.req("Q7")
def test_6_a_new_server_gets_the_log_before_it_votes() -> None:
    node = leader()
    asked(node, AddVoterRequest(voter(4)))
    assert appended(node) is None
    assert 4 not in node.core.voters.ids
    fetched(node, 4, 1)
    assert node.core.voters.ids == (1, 2, 3, 4)


@pytest.mark.req("Q7")
def test_6_a_leader_that_removes_itself_counts_others_only_and_steps_down_at_the_commit() -> None:
    node = leader()
    asked(node, RemoveVoterRequest(key(1, 1)))
    node.flushed()
    assert (node.core.high_watermark, node.core.is_leader) == (1, True)
    fetched(node, 2, 2)
    fetched(node, 3, 2)
    assert (node.core.high_watermark, node.core.is_leader) == (2, False)


@pytest.mark.req("Q7")
def test_4_1_the_next_change_begins_when_the_last_one_is_committed() -> None:
    node = leader()
    asked(node, RemoveVoterRequest(key(3, 3)))
    assert asked(node, AddVoterRequest(voter(4))) is ErrorCode.REQUEST_TIMED_OUT
    node.flushed()
    fetched(node, 2, 2)
    assert answers(node) == [ErrorCode.NONE]
    assert asked(node, AddVoterRequest(voter(4))) is None


@pytest.mark.req("Q4")
def test_6_a_server_that_hears_its_leader_neither_votes_nor_changes_its_term() -> None:
    """§4.2.3 of the thesis; asked first is always the pre-vote (§9.6)."""
    node = Node()
    fetch = node.become_follower()
    node.answer(2, fetch_answer(fetch, batch_at(0, 1)))
    answer = node.ask(vote_request(3, 1, (9, 1), pre_vote=True))
    assert isinstance(answer, VoteResponse)
    assert (answer.granted, node.core.epoch, node.core.role) == (False, 1, "follower")


# --- §7 -----------------------------------------------------------------------------------------


@pytest.mark.req("Q6")
def test_7_a_snapshot_covers_only_what_is_committed() -> None:
    node = established()
    node.propose()
    with pytest.raises(InvariantViolation):
        node.do(SnapshotTaken(position(2, 1)))
    node = established()
    node.do(SnapshotTaken(position(1, 1)))
    assert node.core.log.start_offset == 0, "the log stays until it is told to go"


@pytest.mark.req("Q2", "Q6")
def test_7_the_last_included_index_and_term_support_the_check_of_the_entry_after() -> None:
    node = leader_with_snapshot()
    assert node.effects == [DeleteLogPrefix(position(3, 1))]
    behind = node.ask(fetch_request(3, 3, 1, 2))
    assert isinstance(behind, FetchResponse)
    assert (behind.diverging, behind.snapshot_id) == (None, None)
    other = node.ask(fetch_request(3, 4, 0, 2))
    assert isinstance(other, FetchResponse)
    assert other.snapshot_id == position(3, 1)


@pytest.mark.req("Q2", "Q6")
def test_7_a_leader_sends_a_snapshot_only_where_it_has_discarded_the_next_entry() -> None:
    node = leader_with_snapshot()
    wants = {}
    for offset, epoch in ((0, 0), (2, 1), (3, 1), (5, 1)):
        answer = node.ask(fetch_request(3, offset, epoch, 2))
        assert isinstance(answer, FetchResponse)
        wants[offset] = answer.snapshot_id is not None
    assert wants == {0: True, 2: True, 3: False, 5: False}


@pytest.mark.req("Q6")
def test_7_a_follower_discards_its_log_for_a_snapshot_that_goes_beyond_it() -> None:
    node, request = told_to_fetch_a_snapshot()
    assert node.core.log.end == position(2, 1)
    node.answer(2, piece(request, b"abcdefghij"))
    effects = node.do(SnapshotSaved())
    assert effects[:2] == [ResetLog(SNAPSHOT), HighWatermarkAdvanced(Offset(50))]
    assert (node.core.log.start, node.core.log.end) == (SNAPSHOT, SNAPSHOT)


@pytest.mark.req("Q6")
def test_7_a_follower_keeps_its_log_where_the_snapshot_is_a_prefix_of_it() -> None:
    """As the next leader has told it meanwhile; what stands after the snapshot is still valid."""
    node, request = told_to_fetch_a_snapshot()
    node.answer(2, piece(request, b"abcdefghij"))
    core = node.core
    core._replica.log = log_of(*[1] * 2, *[4] * 48, 5, 5)
    assert only(ResetLog, node.do(SnapshotSaved())) == []
    assert core.log.end == position(52, 5)
    node.do(PrefixExpired(SNAPSHOT))
    assert (core.log.start, core.log.end) == (SNAPSHOT, position(52, 5))


# --- §8 -----------------------------------------------------------------------------------------


@pytest.mark.req("Q9")
def test_8_a_leader_reads_nothing_before_an_entry_of_its_own_term_is_committed() -> None:
    node = Node(epoch=1, log=log_of(1))
    node.become_leader()
    node.do(ReadRequested(1))
    node.ask(replace(fetch_request(B, 1, 1, 2), seen_round=1))
    assert only(ReadConfirmed, node.effects) == [], "whether offset 0 is committed it cannot know"
    node.flushed()
    node.ask(replace(fetch_request(B, 2, 2, 2), seen_round=1))
    assert only(ReadConfirmed, node.effects) == [ReadConfirmed(1)]
    assert node.core.high_watermark == 2


@pytest.mark.req("Q9")
def test_8_a_leader_asks_a_majority_whether_it_has_been_deposed_before_it_answers_a_read() -> None:
    node = established()
    node.do(ReadRequested(1))
    assert only(ReadConfirmed, node.effects) == []
    node.ask(replace(fetch_request(C, 1, 1, 1, known=1), seen_round=1))
    assert only(ReadConfirmed, node.effects) == [ReadConfirmed(1)]
    node.do(ReadRequested(2))
    node.ask(BeginQuorumEpochRequest(Epoch(2), NodeId(2)))
    assert only(ReadRefused, node.effects) == [ReadRefused(2)], "it has"
    assert node.do(ReadRequested(3)) == [ReadRefused(3)]
