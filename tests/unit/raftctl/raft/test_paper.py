"""One test for each rule of the Raft paper (extended version, 2014) that the core has to keep.

Where the paper's leader pushes AppendEntries, replicas here fetch (KIP-595); the rule is the same.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftctl.errors import ErrorCode
from raftctl.raft.events import (
    AppendToLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    PersistQuorumState,
    Reply,
    TruncateLog,
)
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    Epoch,
    FetchRequest,
    FetchResponse,
    Offset,
    OffsetAndEpoch,
    VoteResponse,
)
from tests.unit.raftctl.raft.harness import (
    CONFIG,
    ME,
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
    refusal,
    vote_request,
)


def vote_of(node: Node, candidate: int, epoch: int, log_end: tuple[int, int] = (0, 0)) -> bool:
    """What the node answers once everything it has to write is durable."""
    node.ask(vote_request(candidate, epoch, log_end))
    replies = only(Reply, node.effects)
    for _ in only(PersistQuorumState, node.effects):
        replies += only(Reply, node.persisted())
    (response,) = [reply.response for reply in replies if isinstance(reply.response, VoteResponse)]
    return response.granted


# --- §5.1 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["follower", "candidate", "leader"])
def test_5_1_a_server_updates_its_smaller_term_and_a_leader_or_candidate_steps_down(
    role: str,
) -> None:
    node = Node()
    if role == "follower":
        node.become_follower()
    elif role == "candidate":
        node.become_candidate()
    else:
        node.become_leader()
    assert node.core.role == role
    node.ask(vote_request(3, 9))
    assert (node.core.role, node.core.epoch) == ("unattached", 9)


def test_5_1_a_request_with_a_stale_term_is_rejected() -> None:
    node = Node(epoch=5)
    assert not vote_of(node, 2, 4)
    begin = node.ask(BeginQuorumEpochRequest(Epoch(4), B))
    assert isinstance(begin, BeginQuorumEpochResponse)
    assert begin.error is ErrorCode.FENCED_LEADER_EPOCH
    fetch = node.ask(fetch_request(2, 0, 0, 4))
    assert isinstance(fetch, FetchResponse)
    assert fetch.error is ErrorCode.FENCED_LEADER_EPOCH


# --- §5.2 ---------------------------------------------------------------------------------------


def test_5_2_servers_start_up_without_being_leader_or_candidate() -> None:
    assert Node().core.role == "unattached"
    assert Node(epoch=3, leader_id=2).core.role == "follower"


def test_5_2_a_follower_that_hears_nothing_over_the_timeout_begins_an_election() -> None:
    node = Node()
    node.become_follower()
    node.wait(CONFIG.fetch_timeout_ms)
    assert node.core.role == "prospective"


def test_5_2_to_begin_an_election_it_increments_its_term_and_asks_the_others() -> None:
    node = Node(epoch=2)
    node.become_candidate()
    assert node.core.epoch == 3
    assert node.sent() == [vote_request(ME, 3)] * 2


@pytest.mark.parametrize(
    ("voters", "granting", "wins"),
    [
        ((1, 2), (), False),
        ((1, 2), (2,), True),
        ((1, 2, 3), (3,), True),
        ((1, 2, 3, 4, 5), (2,), False),
        ((1, 2, 3, 4, 5), (2, 2, 2), False),
        ((1, 2, 3, 4, 5), (2, 5), True),
    ],
)
def test_5_2_a_candidate_wins_with_votes_from_a_majority_in_the_same_term(
    voters: tuple[int, ...], granting: tuple[int, ...], wins: bool
) -> None:
    node = Node(voters=voters)
    node.wait()
    for voter in voters[1:]:
        node.grant(voter, pre_vote=True)
    node.persisted()
    for voter in granting:
        node.grant(voter, pre_vote=False)
    assert node.core.is_leader is wins


@pytest.mark.req("Q1")
def test_5_2_each_server_votes_for_at_most_one_candidate_in_a_term_first_come_first_served() -> (
    None
):
    node = Node()
    assert vote_of(node, 2, 1)
    assert not vote_of(node, 3, 1)
    assert vote_of(node, 2, 1)
    assert vote_of(node, 3, 2)


def test_5_2_a_new_leader_tells_all_others_to_prevent_new_elections() -> None:
    node = Node()
    node.become_candidate()
    node.grant(3, pre_vote=False)
    assert node.sent() == [BeginQuorumEpochRequest(Epoch(1), ME)] * 2


def test_5_2_a_candidate_that_hears_a_leader_of_its_term_follows_and_of_an_older_one_does_not() -> (
    None
):
    node = Node(epoch=2)
    node.become_candidate()
    node.ask(BeginQuorumEpochRequest(Epoch(2), C))
    assert node.core.role == "candidate"
    node.ask(BeginQuorumEpochRequest(Epoch(3), C))
    assert (node.core.role, node.core.leader_id) == ("follower", C)


def test_5_2_a_split_vote_ends_with_a_timeout_and_a_new_term() -> None:
    node = Node()
    node.become_candidate()
    node.become_candidate()
    assert node.core.epoch == 2


def test_5_2_election_timeouts_are_chosen_at_random_from_an_interval() -> None:
    node = Node(epoch=1)
    waits = set()
    for _ in range(50):
        node.wait()
        waits.add((node.core.deadline_ms() or 0) - node.now_ms)
    least = CONFIG.election_timeout_ms
    assert all(least <= wait < 2 * least for wait in waits)
    assert len(waits) > 25


# --- §5.3 ---------------------------------------------------------------------------------------


def test_5_3_the_leader_appends_a_command_and_offers_it_to_the_others() -> None:
    node = Node()
    node.become_leader()
    node.ask(fetch_request(2, 1, 1, 1))
    node.propose()
    (append,) = only(AppendToLog, node.effects)
    assert append.batch.base_offset == 1


@pytest.mark.req("Q3")
def test_5_3_an_entry_is_committed_once_a_majority_has_it_and_so_are_all_before_it() -> None:
    node = Node(epoch=1, log=log_of(1, 1))
    node.become_leader()
    node.propose()
    node.flushed()
    node.ask(fetch_request(3, 4, 2, 2))
    assert node.effects[0] == HighWatermarkAdvanced(Offset(4))


def test_5_3_followers_learn_what_is_committed_and_no_more_than_they_have() -> None:
    node = Node()
    fetch = node.become_follower()
    answer = fetch_answer(fetch, batch_at(0, 1, count=2))
    effects = node.answer(2, replace(answer, high_watermark=Offset(7)))
    assert effects[-1] == HighWatermarkAdvanced(Offset(2))


@pytest.mark.req("Q2")
@pytest.mark.parametrize(
    ("end", "diverging"),
    [
        (position(3, 2), None),
        (position(2, 1), None),
        (position(0, 0), None),
        (position(3, 1), position(2, 1)),
        (position(5, 2), position(4, 2)),
        (position(4, 3), position(4, 2)),
    ],
)
def test_5_3_the_consistency_check_compares_index_and_term_of_the_entry_before(
    end: OffsetAndEpoch, diverging: OffsetAndEpoch | None
) -> None:
    node = Node(epoch=4, log=log_of(1, 1, 2, 2))
    node.become_leader()
    request = replace(fetch_request(2, 0, 0, 5), fetch_from=end)
    answer = node.ask(request)
    assert isinstance(answer, FetchResponse)
    assert answer.diverging == diverging


@pytest.mark.req("Q2")
@pytest.mark.parametrize(
    "follower",
    [
        (1, 1, 1, 4, 4, 5, 5, 6, 6),
        (1, 1, 1, 4),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
        (1, 1, 1, 4, 4, 4, 4),
        (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
    ],
    ids="abcdef",
)
def test_5_3_figure_7_every_follower_is_brought_to_the_leaders_log(
    follower: tuple[int, ...],
) -> None:
    leader_epochs: tuple[int, ...] = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    leader = Node(epoch=7, log=log_of(*leader_epochs))
    leader.become_leader()
    leader_epochs += (8,)
    node = Node(node_id=2, epoch=7, log=log_of(*follower))
    request = node.become_follower(leader_id=ME, epoch=8)
    for _ in range(20):
        answer = leader.ask(request)
        if answer is None:
            break
        assert isinstance(answer, FetchResponse)
        base = answer.fetch_offset
        batches = [batch_at(i, leader_epochs[i]) for i in range(base, len(leader_epochs))]
        data = b"" if answer.diverging else fetch_answer(request, *batches).batches
        node.answer(ME, replace(answer, batches=data))
        if not only(AppendToLog, node.effects):
            assert len(only(TruncateLog, node.effects)) == (answer.diverging is not None)
        else:
            node.flushed()
        (sent,) = node.sent()
        assert isinstance(sent, FetchRequest)
        request = sent
    assert node.core.log.epoch_starts == leader.core.log.epoch_starts
    assert node.core.log.end == leader.core.log.end


def test_5_3_a_leader_never_overwrites_or_deletes_entries_of_its_own_log() -> None:
    node = Node()
    node.become_leader()
    node.propose()
    stray = fetch_answer(fetch_request(ME, 2, 1, 1), leader_id=ME)
    node.answer(2, replace(stray, diverging=position(0, 0)))
    node.ask(fetch_request(2, 9, 1, 1))
    assert node.core.log.end_offset == 2


# --- §5.4 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ((1,), (1, 1), True),
        ((1,), (2, 1), True),
        ((1,), (1, 2), True),
        ((1, 1), (1, 1), False),
        ((2,), (2, 1), False),
        ((2,), (3, 1), False),
        ((2, 2), (1, 3), True),
    ],
)
def test_5_4_1_a_voter_denies_its_vote_if_its_own_log_is_more_up_to_date(
    mine: tuple[int, ...], theirs: tuple[int, int], expected: bool
) -> None:
    assert vote_of(Node(epoch=3, log=log_of(*mine)), 2, 4, theirs) is expected


@pytest.mark.req("Q3")
def test_5_4_2_figure_8_an_entry_of_an_older_term_is_not_committed_by_counting_replicas() -> None:
    node = Node(voters=(1, 2, 3), epoch=3, log=log_of(1, 2))
    node.become_leader()
    node.flushed()
    node.ask(fetch_request(2, 2, 2, 4))
    assert node.core.high_watermark == 0
    node.ask(fetch_request(2, 3, 4, 4))
    assert node.core.high_watermark == 3


# --- §5.5, §5.6, §8, §9.6 -----------------------------------------------------------------------


def test_5_5_a_request_that_failed_is_retried_and_repeating_one_does_no_harm() -> None:
    node = Node()
    node.become_leader()
    node.flushed()
    for _ in range(3):
        node.ask(fetch_request(2, 1, 1, 1))
    assert node.core.high_watermark == 1
    voter = Node()
    assert [vote_of(voter, 2, 1) for _ in range(3)] == [True] * 3


@pytest.mark.req("Q1")
def test_5_6_and_figure_2_term_and_vote_are_durable_before_an_answer() -> None:
    node = Node()
    node.ask(vote_request(2, 1))
    assert only(Reply, node.effects) == []
    writes = only(PersistQuorumState, node.effects)
    assert writes[-1].state.voted == key(2)
    assert only(Reply, node.persisted()) == []
    assert len(only(Reply, node.persisted())) == 1


def test_8_a_leader_commits_an_entry_of_its_own_at_the_start_of_its_term() -> None:
    node = Node(epoch=1, log=log_of(1))
    node.become_candidate()
    node.grant(2, pre_vote=False)
    (append,) = only(AppendToLog, node.effects)
    assert (append.batch.epoch, append.batch.control) == (2, True)
    assert only(LeaderChanged, node.effects) == []
    node.flushed()
    node.ask(fetch_request(2, 2, 2, 2))
    assert node.effects[-1] == LeaderChanged(Epoch(2), ME)


@pytest.mark.req("Q4")
def test_9_6_a_server_that_cannot_win_does_not_increase_its_term() -> None:
    node = Node(epoch=3)
    for _ in range(20):
        node.wait()
        node.answer(2, VoteResponse(Epoch(3), B, False, True, key(2)))
        if node.core.role == "follower":
            (request,) = node.sent()
            node.answer(2, refusal(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, 3))
    assert node.core.epoch == 3
