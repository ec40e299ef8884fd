"""Elections: pre-vote, votes, what waits for the disk, resignation and succession."""

from __future__ import annotations

from random import Random

import pytest

from raftctl.errors import ErrorCode, InvariantViolation
from raftctl.raft import RaftCore
from raftctl.raft.events import (
    AppendToLog,
    LeaderChanged,
    PersistQuorumState,
    QuorumState,
    Reply,
    RequestFailed,
    ResignRequested,
    SendRequest,
    Started,
    Warned,
)
from raftctl.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Epoch,
    FetchRequest,
    NodeId,
    VoteRequest,
    VoteResponse,
)
from raftctl.raft.voters import VoterSet
from tests.unit.raftctl.raft.harness import (
    CONFIG,
    ME,
    OBSERVER,
    B,
    C,
    Node,
    fetch_answer,
    fetch_request,
    key,
    log_of,
    only,
    position,
    refusal,
    vote_request,
)

T = CONFIG.election_timeout_ms


def granted(response: object) -> bool:
    assert isinstance(response, VoteResponse)
    return response.granted


# --- the first election -------------------------------------------------------------------------


def test_a_new_quorum_elects_soon_but_one_with_a_past_waits_for_a_living_leader() -> None:
    fresh, old = Node(), Node(epoch=3)
    assert 0 <= (fresh.core.deadline_ms() or 0) - fresh.now_ms <= T // 2
    assert T <= (old.core.deadline_ms() or 0) - old.now_ms < 2 * T


def test_before_it_is_started_it_waits_for_nothing() -> None:
    assert Node(started=False).core.deadline_ms() is None


@pytest.mark.req("Q1")
def test_the_only_voter_elects_itself_at_once_but_not_before_its_vote_is_durable() -> None:
    node = Node(voters=(1,))
    assert node.core.deadline_ms() == node.now_ms
    node.wait()
    assert node.core.role == "candidate"
    node.persisted()
    assert node.core.role == "leader"


@pytest.mark.req("Q4")
def test_a_pre_vote_changes_no_epoch_and_nothing_on_disk() -> None:
    node = Node(epoch=3, log=log_of(1, 2))
    node.wait()
    assert node.core.role == "prospective"
    assert only(PersistQuorumState, node.effects) == []
    expected = VoteRequest(Epoch(3), key(ME), position(2, 2), pre_vote=True)
    assert node.effects == [SendRequest(B, expected), SendRequest(C, expected)]


@pytest.mark.req("Q4")
def test_without_a_majority_of_pre_votes_it_asks_again_in_the_same_epoch() -> None:
    node = Node(voters=(1, 2, 3, 4, 5), epoch=3)
    node.wait()
    node.grant(2, pre_vote=True)
    node.grant(2, pre_vote=True)
    assert node.core.role == "prospective", "each voter counts once"
    node.wait()
    assert (node.core.role, node.core.epoch, len(node.sent())) == ("prospective", 3, 4)


@pytest.mark.req("Q1")
def test_the_vote_for_itself_is_durable_before_anybody_is_asked_and_before_it_counts() -> None:
    node = Node(epoch=3)
    node.wait()
    node.grant(2, pre_vote=True)
    assert node.state() == QuorumState(Epoch(4), NO_NODE, key(ME))
    assert node.sent() == []
    node.grant(2, pre_vote=False, epoch=4)
    assert node.core.role == "candidate", "a stray answer and no own vote yet: no majority"
    node.persisted()
    assert node.core.role == "leader"


@pytest.mark.req("Q1")
def test_votes_make_a_leader_whose_first_record_says_so() -> None:
    node = Node(epoch=3, log=log_of(1))
    node.become_candidate()
    assert node.sent() == [vote_request(ME, 4, (1, 1)), vote_request(ME, 4, (1, 1))]
    effects = node.grant(3, pre_vote=False)
    assert node.core.is_leader
    assert node.state() == QuorumState(Epoch(4), ME, key(ME))
    (append,) = only(AppendToLog, effects)
    assert (append.batch.control, append.batch.count) == (True, 1)
    assert (append.batch.base_offset, append.batch.epoch) == (1, 4)
    assert append.batch.payload == repr((ME, (ME, B, C), (ME, C))).encode()
    assert node.sent() == [BeginQuorumEpochRequest(Epoch(4), ME)] * 2


def test_late_pre_votes_and_votes_of_other_epochs_or_strangers_do_not_count() -> None:
    node = Node(epoch=3)
    node.become_candidate()
    node.grant(2, pre_vote=True)
    node.grant(2, pre_vote=False, epoch=3)
    node.grant(9, pre_vote=False)
    node.answer(3, VoteResponse(Epoch(4), NO_NODE, True, False, key(2)))
    node.answer(2, VoteResponse(Epoch(4), NO_NODE, False, False, key(2)))
    assert node.core.role == "candidate"


@pytest.mark.req("Q4")
def test_a_candidate_that_loses_goes_back_to_asking() -> None:
    node = Node(epoch=3)
    node.become_candidate()
    node.wait()
    assert (node.core.role, node.core.epoch) == ("prospective", 4)


def test_a_vote_request_that_failed_is_sent_again_after_a_growing_pause() -> None:
    node = Node(epoch=3)
    node.wait()
    (request, _) = node.sent()
    for pause_ms in (20, 40, 80):
        node.do(RequestFailed(C, request))
        assert node.core.deadline_ms() == node.now_ms + pause_ms
        node.wait(pause_ms - 1)
        assert node.effects == []
        node.wait(1)
        assert node.effects == [SendRequest(C, request)]
    other = vote_request(ME, 2)
    node.do(RequestFailed(C, other))
    assert node.core.deadline_ms() != node.now_ms + 160, "a request of an earlier campaign"


def test_a_prospective_that_hears_who_leads_follows() -> None:
    node = Node(epoch=3)
    node.wait()
    node.answer(2, VoteResponse(Epoch(3), C, False, True, key(2)))
    assert (node.core.role, node.core.leader_id) == ("follower", C)


def test_who_grants_a_pre_vote_does_not_send_back_to_the_leader_it_no_longer_hears() -> None:
    node = Node(voters=(1, 2, 3, 4, 5), epoch=3)
    node.wait()
    node.answer(2, VoteResponse(Epoch(3), C, True, True, key(2)))
    assert node.core.role == "prospective"


def test_a_newer_epoch_in_an_answer_ends_the_campaign() -> None:
    node = Node(epoch=3)
    node.wait()
    node.answer(2, VoteResponse(Epoch(7), NO_NODE, False, True, key(2)))
    assert (node.core.role, node.core.epoch) == ("unattached", 7)
    node.answer(2, VoteResponse(Epoch(8), C, False, True, key(2)))
    assert (node.core.role, node.core.leader_id) == ("follower", C)


# --- granting -----------------------------------------------------------------------------------


@pytest.mark.req("Q1")
def test_a_vote_leaves_after_its_fsync() -> None:
    node = Node(epoch=3)
    assert node.ask(vote_request(B, 4)) is None
    assert only(PersistQuorumState, node.effects) == [
        PersistQuorumState(QuorumState(Epoch(4), NO_NODE, None)),
        PersistQuorumState(QuorumState(Epoch(4), NO_NODE, key(B))),
    ]
    assert node.persisted() == []
    (reply,) = node.persisted()
    assert reply == Reply(1, VoteResponse(Epoch(4), NO_NODE, True, False, key(ME)))


@pytest.mark.req("Q1")
def test_messages_under_way_keep_their_order_behind_each_write() -> None:
    node = Node(epoch=3)
    node.ask(vote_request(B, 4))
    node.ask(vote_request(C, 4))
    node.ask(vote_request(C, 5))
    node.persisted()
    assert [r.request_id for r in only(Reply, node.persisted())] == [1, 2]
    node.persisted()
    assert [r.request_id for r in only(Reply, node.persisted())] == [3]
    with pytest.raises(InvariantViolation):
        node.persisted()


@pytest.mark.req("Q1")
def test_one_vote_an_epoch_also_after_a_crash() -> None:
    node = Node(epoch=4, voted=key(B))
    assert not granted(node.ask(vote_request(C, 4)))
    assert granted(node.ask(vote_request(B, 4))), "the same candidate asks again"


def test_a_vote_puts_the_own_election_off() -> None:
    node = Node(epoch=4)
    node.wait((node.core.deadline_ms() or 0) - node.now_ms - 1)
    node.ask(vote_request(B, 4))
    assert (node.core.deadline_ms() or 0) - node.now_ms >= T


def test_a_newer_epoch_without_a_vote_does_not_put_the_own_election_off() -> None:
    node = Node(epoch=4, log=log_of(2, 3))
    deadline_ms = node.core.deadline_ms()
    node.ask(vote_request(B, 9, (1, 2)))
    assert (node.core.epoch, node.core.deadline_ms()) == (9, deadline_ms)


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(
    ("log_end", "expected"),
    [((3, 2), True), ((4, 2), True), ((1, 3), True), ((2, 2), False), ((9, 1), False)],
)
def test_only_a_log_that_is_up_to_date_wins(
    log_end: tuple[int, int], expected: bool, pre_vote: bool
) -> None:
    node = Node(epoch=4, log=log_of(1, 2, 2))
    answer = node.ask(vote_request(B, 4, log_end, pre_vote=pre_vote))
    if answer is None:
        (reply,) = only(Reply, node.persisted())
        answer = reply.response
    assert granted(answer) is expected


@pytest.mark.req("Q4", "Q7")
@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_candidate_that_the_configuration_lacks_is_judged_by_its_log(*, pre_vote: bool) -> None:
    node = Node(epoch=4, log=log_of(1, 2))
    assert granted(node.ask(vote_request(7, 4, (2, 2), pre_vote=True)))
    outdated = node.ask(vote_request(7, 4, (1, 1), pre_vote=pre_vote))
    assert not granted(outdated)
    node.ask(vote_request(7, 9, (2, 2)))
    (reply,) = only(Reply, [*node.persisted(), *node.persisted()])
    assert granted(reply.response), "its own voters may have changed since this log ends"
    assert not granted(node.ask(vote_request(8, 9, (9, 9)))), "one vote an epoch, whoever asks"


@pytest.mark.req("Q1")
def test_nobody_gets_a_vote_under_this_nodes_own_id() -> None:
    node = Node(epoch=4)
    answer = node.ask(VoteRequest(Epoch(9), key(1, 7), position(9, 9), pre_vote=False))
    assert (granted(answer), node.core.epoch) == (False, 4)


def test_an_older_candidate_learns_the_epoch() -> None:
    node = Node(epoch=4)
    assert node.ask(vote_request(B, 3)) == VoteResponse(Epoch(4), NO_NODE, False, False, key(ME))


@pytest.mark.req("Q4")
def test_a_follower_that_hears_its_leader_grants_no_pre_vote() -> None:
    node = Node()
    fetch = node.become_follower()
    ask = vote_request(C, 1, pre_vote=True)
    assert granted(node.ask(ask)), "it never heard this leader"
    node.answer(2, fetch_answer(fetch))
    answer = node.ask(ask)
    assert isinstance(answer, VoteResponse)
    assert (answer.granted, answer.leader_id) == (False, B)
    node.now_ms += CONFIG.fetch_timeout_ms
    assert granted(node.ask(ask)), "not any more"


@pytest.mark.req("Q4")
def test_a_leader_grants_no_pre_vote_and_a_follower_no_second_leader() -> None:
    leader = Node()
    leader.become_leader()
    leader.flushed()
    assert not granted(leader.ask(vote_request(C, 1, (9, 1), pre_vote=True)))
    follower = Node()
    follower.become_follower()
    assert not granted(follower.ask(vote_request(C, 1)))


@pytest.mark.req("Q4")
def test_a_candidate_grants_pre_votes_but_gives_its_own_vote_to_nobody_else() -> None:
    node = Node(epoch=3)
    node.become_candidate()
    assert granted(node.ask(vote_request(B, 4, pre_vote=True)))
    assert not granted(node.ask(vote_request(B, 4)))
    assert node.core.role == "candidate"


# --- restarts -----------------------------------------------------------------------------------


def test_a_restarted_follower_asks_its_leader_at_once() -> None:
    node = Node(epoch=4, leader_id=C, log=log_of(1, 4))
    assert node.core.role == "follower"
    (send,) = only(SendRequest, node.effects)
    assert send.destination == C
    assert node.effects[-1] == LeaderChanged(Epoch(4), C)


def test_a_restarted_leader_does_not_go_on_in_its_epoch() -> None:
    node = Node(epoch=4, leader_id=ME, voted=key(ME), log=log_of(1, 4))
    assert node.core.role == "unattached"
    assert not granted(node.ask(vote_request(B, 4, (9, 4))))
    node.answer(2, VoteResponse(Epoch(4), ME, False, True, key(2)))
    assert node.core.role == "unattached"


def test_a_lost_quorum_state_does_not_fall_behind_the_log() -> None:
    node = Node(epoch=0, log=log_of(1, 4))
    assert node.core.epoch == 4
    assert node.state().epoch == 4


def test_timeouts_are_random_but_repeatable() -> None:
    def first_deadline(seed: int) -> int | None:
        core = RaftCore(
            CONFIG,
            key(ME),
            VoterSet([key(ME), key(B)]),
            QuorumState(Epoch(1), NO_NODE, None),
            log_of(),
            Random(seed),
            lambda *_: b"",
        )
        core.handle(Started(), 0)
        return core.deadline_ms()

    deadlines = [first_deadline(seed) for seed in range(20)]
    assert deadlines == [first_deadline(seed) for seed in range(20)]
    assert len(set(deadlines)) > 10
    assert all(deadline is not None and T <= deadline < 2 * T for deadline in deadlines)


# --- begin and end of an epoch --------------------------------------------------------------------


def test_begin_quorum_epoch_makes_a_follower() -> None:
    node = Node(epoch=3)
    assert node.ask(BeginQuorumEpochRequest(Epoch(4), C)) is None
    assert node.state() == QuorumState(Epoch(4), C, None)
    assert node.effects[-1] == LeaderChanged(Epoch(4), C)
    fetch, reply = node.persisted()
    assert isinstance(fetch, SendRequest)
    assert reply == Reply(1, BeginQuorumEpochResponse(Epoch(4), C, ErrorCode.NONE))
    node.ask(BeginQuorumEpochRequest(Epoch(4), C))
    assert node.sent() == [], "said again: one Fetch is under way already"


@pytest.mark.parametrize("nobody", [ME, NO_NODE])
def test_begin_of_an_older_epoch_or_by_nobody_else_is_refused(nobody: NodeId) -> None:
    node = Node(epoch=3)
    old = node.ask(BeginQuorumEpochRequest(Epoch(2), C))
    assert old == BeginQuorumEpochResponse(Epoch(3), NO_NODE, ErrorCode.FENCED_LEADER_EPOCH)
    refused = node.ask(BeginQuorumEpochRequest(Epoch(4), nobody))
    error = ErrorCode.INCONSISTENT_VOTER_SET
    assert refused == BeginQuorumEpochResponse(Epoch(3), NO_NODE, error)


@pytest.mark.req("Q4", "Q7")
@pytest.mark.parametrize("node_id", [1, OBSERVER])
def test_a_leader_that_the_configuration_lacks_is_followed(node_id: int) -> None:
    node = Node(epoch=3, node_id=node_id)
    node.ask(BeginQuorumEpochRequest(Epoch(4), NodeId(7)))
    (reply,) = only(Reply, node.persisted())
    assert reply.response == BeginQuorumEpochResponse(Epoch(4), NodeId(7), ErrorCode.NONE)
    (send,) = only(SendRequest, node.effects)
    assert send.destination == 7
    assert isinstance(send.request, FetchRequest)
    again = Node(epoch=4, leader_id=7, node_id=node_id)
    assert again.core.leader_id == 7, "also after a restart"


@pytest.mark.req("Q1")
def test_a_second_leader_of_an_epoch_is_refused_and_told_to_the_log() -> None:
    node = Node()
    node.become_follower(leader_id=B)
    answer = node.ask(BeginQuorumEpochRequest(Epoch(1), C))
    assert answer == BeginQuorumEpochResponse(Epoch(1), B, ErrorCode.INVALID_REQUEST)
    assert "3 says that it leads epoch 1, which 2 leads" in only(Warned, node.effects)[0].why
    ended = node.ask(EndQuorumEpochRequest(Epoch(1), C, (key(1),)))
    assert ended == EndQuorumEpochResponse(Epoch(1), B, ErrorCode.INVALID_REQUEST)
    assert (node.core.role, node.core.leader_id) == ("follower", B)
    restarted = Node(epoch=4, leader_id=1)
    restarted.ask(BeginQuorumEpochRequest(Epoch(4), C))
    assert restarted.core.leader_id == NO_NODE, "it led that epoch itself"


@pytest.mark.req("Q1", "Q4")
def test_who_was_told_of_a_wrong_leader_goes_on_to_the_right_one() -> None:
    node = Node(epoch=3)
    node.ask(BeginQuorumEpochRequest(Epoch(4), C))
    node.persisted()
    (fetch,) = node.sent()
    node.answer(3, refusal(fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER, 4, leader_id=B))
    assert (node.core.role, node.core.leader_id) == ("follower", B)


def test_a_refused_begin_tells_the_leader_of_a_newer_epoch() -> None:
    node = Node()
    node.become_leader()
    answer = BeginQuorumEpochResponse(Epoch(5), C, ErrorCode.FENCED_LEADER_EPOCH)
    node.answer(2, answer)
    assert (node.core.role, node.core.epoch) == ("follower", 5)


def resignation(*successors: int, epoch: int = 1) -> EndQuorumEpochRequest:
    return EndQuorumEpochRequest(Epoch(epoch), B, tuple(key(s) for s in successors))


@pytest.mark.req("Q4")
def test_the_first_successor_campaigns_at_once_and_without_pre_vote() -> None:
    node = Node()
    node.become_follower()
    node.ask(resignation(1, 3))
    assert (node.core.role, node.core.epoch) == ("candidate", 2)
    node.persisted()
    assert node.sent() == [vote_request(ME, 2)] * 2


@pytest.mark.req("Q4")
def test_later_successors_wait_their_turn_and_others_their_timeout() -> None:
    second, none = Node(), Node()
    second.become_follower()
    none.become_follower()
    assert isinstance(second.ask(resignation(3, 1)), EndQuorumEpochResponse)
    none.ask(resignation(3))
    assert second.core.role == none.core.role == "unattached"
    assert second.core.deadline_ms() == second.now_ms + CONFIG.election_backoff_max_ms // 2
    assert (none.core.deadline_ms() or 0) >= none.now_ms + T


@pytest.mark.req("Q4")
def test_the_resignation_counts_also_where_a_refused_fetch_told_of_it_first() -> None:
    node = Node()
    fetch = node.become_follower()
    node.answer(2, refusal(fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1))
    assert node.core.role == "unattached"
    node.ask(resignation(1, 3))
    assert node.core.role == "candidate"


def test_a_resignation_of_an_older_epoch_is_refused() -> None:
    node = Node(epoch=3)
    answer = node.ask(resignation(1, epoch=2))
    assert answer == EndQuorumEpochResponse(Epoch(3), NO_NODE, ErrorCode.FENCED_LEADER_EPOCH)


@pytest.mark.req("Q4")
def test_a_leader_asked_to_resign_names_the_voters_with_the_longest_logs_first() -> None:
    node = Node(voters=(1, 2, 3, 4))
    node.wait()
    node.grant(2, pre_vote=True)
    node.grant(3, pre_vote=True)
    node.persisted()
    node.grant(2, pre_vote=False)
    node.grant(3, pre_vote=False)
    node.persisted()
    node.propose(3)
    node.flushed()
    node.ask(fetch_request(4, 4, 1, 1))
    node.ask(fetch_request(3, 1, 1, 1))
    node.do(ResignRequested())
    assert node.core.role == "resigned"
    expected = EndQuorumEpochRequest(Epoch(1), ME, (key(4), key(3), key(2)))
    assert node.sent() == [expected] * 3
    assert node.effects[-1] == LeaderChanged(Epoch(1), NO_NODE)
    node.answer(4, EndQuorumEpochResponse(Epoch(2), NO_NODE, ErrorCode.FENCED_LEADER_EPOCH))
    assert (node.core.role, node.core.epoch) == ("unattached", 2)


def test_a_resigned_leader_campaigns_again_if_nobody_else_does() -> None:
    node = Node()
    node.become_leader()
    node.do(ResignRequested())
    node.wait()
    assert (node.core.role, node.core.epoch) == ("prospective", 1)


def test_only_a_leader_resigns() -> None:
    node = Node()
    assert node.do(ResignRequested()) == []


@pytest.mark.req("Q4")
def test_a_leader_that_no_majority_fetches_from_resigns() -> None:
    node = Node()
    node.become_leader()
    node.flushed()
    began_ms = node.now_ms
    node.wait(1000)
    node.ask(fetch_request(2, 0, 0, 1))
    while node.core.is_leader:
        node.wait()
    assert node.now_ms == began_ms + 1000 + CONFIG.check_quorum_ms
    assert node.core.role == "resigned"


@pytest.mark.req("Q4")
def test_the_only_voter_never_resigns_for_want_of_a_quorum() -> None:
    node = Node(voters=(1,))
    node.become_leader()
    node.flushed()
    assert node.core.deadline_ms() is None


@pytest.mark.req("Q1")
def test_a_resignation_in_a_newer_epoch_tells_of_that_epoch() -> None:
    """Also where this node is none of the successors: else it would campaign in an old epoch."""
    node = Node(epoch=3)
    answer = node.ask(EndQuorumEpochRequest(Epoch(5), B, (key(C),)))
    node.persisted()
    assert answer is None, "it waits for the epoch to be durable"
    assert (node.core.epoch, node.core.leader_id) == (5, NO_NODE)


@pytest.mark.req("Q6")
def test_what_a_snapshot_holds_is_committed_from_the_start() -> None:
    node = Node(log=log_of(1, 1, 1), epoch=1, started=False)
    core = node.core
    restarted = RaftCore(
        core._replica.config,
        key(ME),
        core.voters,
        core._replica.state,
        log_of(1, 1, 1),
        Random(1),
        lambda *_: b"",
        snapshot=position(2, 1),
    )
    assert (core.high_watermark, restarted.high_watermark) == (0, 2)


@pytest.mark.req("Q4")
def test_only_what_the_leader_of_this_epoch_or_a_newer_one_may_say_is_believed() -> None:
    node = Node(epoch=3)
    begin = BeginQuorumEpochRequest(Epoch(3), B)
    assert node.core.believes(begin)
    node.ask(begin)
    node.persisted()
    for epoch, leader_id, believed in (
        (3, B, True),
        (4, C, True),
        (3, C, False),
        (2, B, False),
        (4, ME, False),
        (4, -2, False),
    ):
        told = BeginQuorumEpochRequest(Epoch(epoch), NodeId(leader_id))
        assert node.core.believes(told) is believed, told
