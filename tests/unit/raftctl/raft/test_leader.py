"""The leader: commits, answers to fetches, the long poll, and what it tells the operator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from raftctl.errors import ErrorCode, InvariantViolation
from raftctl.raft import ReplicaStatus
from raftctl.raft import _tracker as tracker_module
from raftctl.raft.events import (
    AppendToLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    Proposed,
    Reply,
    ReplyFetch,
    ResignRequested,
    Warned,
)
from raftctl.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    Epoch,
    FetchResponse,
    Offset,
    Response,
)
from tests.unit.raftctl.raft.harness import (
    CONFIG,
    ME,
    B,
    C,
    Node,
    fetch_request,
    key,
    leader_of,
    log_of,
    only,
    position,
    vote_request,
)

if TYPE_CHECKING:
    from raftctl.raft import ReplicaLog


def leader(
    *, epoch: int = 0, log: ReplicaLog | None = None, voters: tuple[int, ...] = (1, 2, 3)
) -> Node:
    """A leader whose own log is durable; unless it is alone, its first record is not committed."""
    node = Node(epoch=epoch, log=log, voters=voters)
    node.become_leader()
    node.flushed()
    return node


def fetched(response: Response | None) -> FetchResponse:
    assert isinstance(response, FetchResponse)
    return response


# --- commits ------------------------------------------------------------------------------------


@pytest.mark.req("Q3")
def test_the_only_voter_commits_after_its_fsync_and_not_before() -> None:
    node = Node(voters=(1,))
    node.become_leader()
    assert node.core.high_watermark == 0
    assert node.flushed() == [HighWatermarkAdvanced(Offset(1)), LeaderChanged(Epoch(1), ME)]
    node.propose(2)
    assert node.core.high_watermark == 1
    assert node.flushed() == [HighWatermarkAdvanced(Offset(3))]


@pytest.mark.req("Q3")
def test_a_majority_of_durable_logs_commits() -> None:
    node = leader()
    node.propose(2)
    node.flushed()
    node.ask(fetch_request(2, 1, 1, 1))
    assert node.core.high_watermark == 1
    node.ask(fetch_request(3, 3, 1, 1))
    assert node.core.high_watermark == 3


@pytest.mark.req("Q3")
def test_followers_alone_may_commit_what_the_leader_has_not_flushed() -> None:
    node = leader()
    node.propose()
    node.ask(fetch_request(2, 2, 1, 1))
    assert node.core.high_watermark == 1
    node.ask(fetch_request(3, 2, 1, 1))
    assert node.core.high_watermark == 2


@pytest.mark.req("Q3")
def test_own_leadership_is_announced_once_the_epoch_has_a_committed_record() -> None:
    node = Node(epoch=1, log=log_of(1, 1))
    node.become_candidate()
    assert only(LeaderChanged, node.grant(2, pre_vote=False)) == []
    node.flushed()
    node.ask(fetch_request(2, 2, 1, 2))
    assert (node.core.high_watermark, only(LeaderChanged, node.effects)) == (0, [])
    node.ask(fetch_request(2, 3, 2, 2))
    assert node.effects[0] == HighWatermarkAdvanced(Offset(3))
    assert node.effects[-1] == LeaderChanged(Epoch(2), ME)
    node.do(ResignRequested())
    assert node.effects[-1] == LeaderChanged(Epoch(2), NO_NODE)


def test_the_high_watermark_does_not_go_back_with_a_voter_that_lost_records() -> None:
    node = leader()
    node.ask(fetch_request(2, 1, 1, 1))
    node.ask(fetch_request(2, 0, 0, 1))
    assert node.core.high_watermark == 1


def test_only_a_leader_appends_and_not_nothing() -> None:
    with pytest.raises(InvariantViolation):
        Node().propose()
    with pytest.raises(InvariantViolation):
        leader().do(Proposed(b"", 0, 0))


def test_proposals_get_the_next_offsets() -> None:
    node = leader()
    (append,) = only(AppendToLog, node.propose(3))
    assert (append.batch.base_offset, append.batch.count, append.batch.timestamp_ms) == (1, 3, 5)
    (append,) = only(AppendToLog, node.propose())
    assert append.batch.base_offset == 4


# --- fetches ------------------------------------------------------------------------------------


@pytest.mark.req("Q2")
def test_records_are_sent_at_once_with_what_is_committed() -> None:
    node = leader()
    answer = fetched(node.ask(fetch_request(2, 0, 0, 1)))
    assert (answer.error, answer.fetch_offset, answer.diverging) == (ErrorCode.NONE, 0, None)
    (reply,) = only(ReplyFetch, node.effects)
    assert reply.max_bytes == 1000
    node.ask(fetch_request(2, 1, 1, 1))
    node.propose()
    (reply,) = only(ReplyFetch, node.effects)
    assert reply.response.high_watermark == 1


@pytest.mark.req("Q2")
def test_a_fetch_waits_for_records() -> None:
    node = leader()
    assert node.ask(fetch_request(2, 1, 1, 1, known=1)) is None
    effects = node.propose()
    assert isinstance(effects[0], AppendToLog), "readable before the answer is filled"
    assert only(ReplyFetch, effects)[0].request_id == node.request_id
    assert node.propose()[1:] == []


@pytest.mark.req("Q2")
def test_an_observers_fetch_waits_for_news_of_commits() -> None:
    node = leader()
    node.propose()
    node.flushed()
    node.ask(fetch_request(4, 2, 1, 1, known=0))
    waiting = node.request_id
    node.ask(fetch_request(2, 2, 1, 1))
    assert node.core.high_watermark == 2
    (reply,) = only(ReplyFetch, node.effects)
    assert (reply.request_id, reply.response.high_watermark) == (waiting, 2)
    node.ask(fetch_request(4, 2, 1, 1, known=2))
    assert only(ReplyFetch, node.effects) == [], "it knows"


@pytest.mark.req("Q2")
def test_voters_hear_of_commits_with_the_next_records() -> None:
    node = leader()
    node.propose()
    node.flushed()
    node.ask(fetch_request(2, 2, 1, 1, known=0))
    assert node.core.high_watermark == 2
    assert only(ReplyFetch, node.effects) == []
    node.propose()
    (reply,) = only(ReplyFetch, node.effects)
    assert reply.response.high_watermark == 2


@pytest.mark.req("Q2")
def test_voters_hear_of_commits_soon_if_no_records_come() -> None:
    node = leader()
    node.propose()
    node.flushed()
    node.ask(fetch_request(2, 2, 1, 1, known=0))
    waiting = node.request_id
    node.ask(fetch_request(3, 2, 1, 1, known=2))
    committed_ms = node.now_ms
    node.wait()
    assert node.now_ms == committed_ms + CONFIG.commit_delay_ms
    (reply,) = only(ReplyFetch, node.effects)
    assert (reply.request_id, reply.response.high_watermark) == (waiting, 2), "the other knows"


@pytest.mark.req("Q2")
def test_a_fetch_waits_no_longer_than_asked_nor_than_allowed() -> None:
    node = leader()
    node.ask(fetch_request(2, 1, 1, 1, known=1, wait_ms=100))
    node.ask(fetch_request(3, 1, 1, 1, known=1, wait_ms=60_000))
    began_ms = node.now_ms
    node.wait()
    assert node.now_ms == began_ms + 100
    assert [reply.request_id for reply in only(ReplyFetch, node.effects)] == [node.request_id - 1]
    node.wait()
    assert node.now_ms == began_ms + CONFIG.fetch_max_wait_ms
    assert [reply.request_id for reply in only(ReplyFetch, node.effects)] == [node.request_id]
    assert fetched(node.ask(fetch_request(2, 1, 1, 1, known=1, wait_ms=0))).batches == b""


def test_of_one_replica_only_the_newest_fetch_waits() -> None:
    node = leader()
    node.ask(fetch_request(2, 1, 1, 1, known=1))
    node.ask(fetch_request(2, 1, 1, 1, known=1))
    (reply,) = only(Reply, node.effects)
    assert reply.request_id == node.request_id - 1
    assert [r.request_id for r in only(ReplyFetch, node.propose())] == [node.request_id]


@pytest.mark.req("Q2")
def test_a_diverging_replica_is_told_where_and_is_not_counted() -> None:
    node = leader(epoch=3, log=log_of(1, 1, 3))
    answer = fetched(node.ask(fetch_request(2, 4, 2, 4)))
    assert answer.diverging == position(2, 1)
    answer = fetched(node.ask(fetch_request(2, 9, 4, 4)))
    assert answer.diverging == position(4, 4)
    assert node.core.high_watermark == 0


def test_epochs_of_fetches_are_fenced() -> None:
    node = leader(epoch=3)
    assert fetched(node.ask(fetch_request(2, 0, 0, 3))).error is ErrorCode.FENCED_LEADER_EPOCH
    answer = fetched(node.ask(fetch_request(9, 0, 0, 6)))
    assert (answer.error, node.core.role) == (ErrorCode.UNKNOWN_LEADER_EPOCH, "leader")


def test_a_voter_of_a_newer_epoch_ends_the_leadership() -> None:
    node = leader(epoch=3)
    node.ask(fetch_request(3, 1, 4, 4, known=1))
    node.ask(fetch_request(2, 0, 0, 6))
    assert (node.core.role, node.core.epoch) == ("unattached", 6)
    waiting, late = only(Reply, node.persisted())
    assert fetched(waiting.response).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched(late.response).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_does_not_lead_says_who_does() -> None:
    node = Node()
    node.become_follower(leader_id=C)
    answer = fetched(node.ask(fetch_request(9, 0, 0, 1)))
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, C)


def test_voters_are_reminded_until_they_have_fetched() -> None:
    node = leader()
    node.ask(fetch_request(2, 1, 1, 1, known=1))
    node.wait(CONFIG.fetch_timeout_ms // 2)
    assert node.sent() == [BeginQuorumEpochRequest(Epoch(1), ME)]
    node.ask(fetch_request(3, 1, 1, 1, known=1))
    node.wait(CONFIG.fetch_timeout_ms // 2)
    assert node.sent() == []


# --- observers and status -----------------------------------------------------------------------


@pytest.mark.req("Q5")
def test_observers_are_answered_but_never_counted() -> None:
    node = leader()
    node.ask(fetch_request(9, 1, 1, 1))
    node.ask(fetch_request(8, 1, 1, 1))
    assert node.core.high_watermark == 0
    node.ask(fetch_request(2, 1, 1, 1))
    assert fetched(node.ask(fetch_request(9, 0, 0, 1))).error is ErrorCode.NONE


@pytest.mark.req("Q5")
def test_observers_get_records_with_their_commit_and_not_before() -> None:
    node = leader()
    assert node.ask(fetch_request(9, 0, 0, 1)) is None
    waiting = node.request_id
    node.propose()
    node.flushed()
    assert only(ReplyFetch, node.effects) == []
    node.ask(fetch_request(2, 2, 1, 1))
    (reply,) = only(ReplyFetch, node.effects)
    assert (reply.request_id, reply.response.fetch_offset, reply.response.high_watermark) == (
        waiting,
        0,
        2,
    )


@pytest.mark.req("Q5")
def test_an_observer_is_not_kept_waiting_for_ever_where_nothing_commits() -> None:
    node = leader()
    node.ask(fetch_request(9, 0, 0, 1, wait_ms=100))
    waiting = node.request_id
    node.wait(100)
    (reply,) = only(ReplyFetch, node.effects)
    assert (reply.request_id, reply.response.high_watermark) == (waiting, 0)


@pytest.mark.req("Q5")
def test_status_shows_each_replicas_lag_and_when_it_was_last_caught_up() -> None:
    node = leader()
    start_ms = node.now_ms
    node.ask(fetch_request(9, 1, 1, 1))
    node.ask(fetch_request(2, 0, 0, 1))
    node.now_ms += 10
    node.propose(5)
    node.flushed()
    node.ask(fetch_request(2, 1, 1, 1))
    status = node.core.status(node.now_ms)
    assert (status.role, status.leader_id, status.epoch) == ("leader", ME, 1)
    assert (status.high_watermark, status.log_end_offset) == (1, 6)
    assert status.voters == (
        ReplicaStatus(ME, Offset(6), node.now_ms, node.now_ms),
        ReplicaStatus(B, Offset(1), node.now_ms, start_ms),
        ReplicaStatus(C, Offset(-1), None, None),
    )
    (observer,) = status.observers
    assert (observer.log_end_offset, observer.last_caught_up_ms) == (1, start_ms)


@pytest.mark.req("Q5")
def test_who_has_now_what_the_leader_had_at_its_last_fetch_was_caught_up_then() -> None:
    """Else a replica that follows a busy leader closely would never count as caught up."""
    node = leader()
    node.ask(fetch_request(2, 1, 1, 1))
    node.now_ms += 10
    node.propose(2)
    node.ask(fetch_request(2, 1, 1, 1))
    asked_ms = node.now_ms
    node.now_ms += 10
    node.propose()
    node.ask(fetch_request(2, 2, 1, 1))
    assert node.core.status(node.now_ms).voters[1].last_caught_up_ms == asked_ms - 10, "it had less"
    node.now_ms += 10
    node.propose()
    node.ask(fetch_request(2, 4, 1, 1))
    assert node.core.status(node.now_ms).voters[1].last_caught_up_ms == node.now_ms - 10


@pytest.mark.req("Q5", "Q7")
def test_status_tells_the_directory_with_which_a_static_voter_fetches() -> None:
    node = leader()
    node.ask(replace(fetch_request(2, 1, 1, 1), replica=key(2, 7)))
    assert [one.directory_id for one in node.core.status(node.now_ms).voters] == [
        None,
        key(2, 7).directory_id,
        None,
    ]


@pytest.mark.req("Q5")
def test_an_observer_that_asks_again_is_answered_and_stays_the_same() -> None:
    node = leader()
    node.ask(fetch_request(2, 1, 1, 1))
    node.ask(fetch_request(9, 1, 1, 1, known=1))
    first, caught_up_ms = node.request_id, node.now_ms
    node.now_ms += 10
    node.propose(2)
    node.ask(fetch_request(9, 1, 1, 1, known=1))
    assert [reply.request_id for reply in only(Reply, node.effects)] == [first]
    (observer,) = node.core.status(node.now_ms).observers
    assert observer.last_caught_up_ms == caught_up_ms


def test_others_know_only_themselves() -> None:
    status = Node().core.status(7)
    assert (status.now_ms, status.role, status.leader_id) == (7, "unattached", NO_NODE)
    assert status.voters == status.observers == ()


def test_idle_observers_are_forgotten() -> None:
    node = leader(voters=(1,))
    node.ask(fetch_request(9, 1, 1, 1, known=1))
    node.now_ms += tracker_module.OBSERVER_SESSION_MS + 1
    node.ask(fetch_request(9, 1, 1, 1, known=1))
    assert [o.node_id for o in node.core.status(node.now_ms).observers] == [9]
    node.now_ms += tracker_module.OBSERVER_SESSION_MS + 1
    node.ask(fetch_request(8, 1, 1, 1, known=1))
    assert [reply.request_id for reply in only(Reply, node.effects)] == [2], (
        "nothing stays unanswered"
    )
    assert [o.node_id for o in node.core.status(node.now_ms).observers] == [8]


def test_observers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "OBSERVERS_MAX", 3)
    node = leader()
    for observer in (11, 12, 13, 11, 14):
        node.ask(fetch_request(observer, 0, 0, 1))
    known = [o.node_id for o in node.core.status(node.now_ms).observers]
    assert known == [11, 13, 14], "the one idle for longest had to go"


def test_who_fetches_under_the_leaders_own_id_is_not_counted() -> None:
    node = leader()
    node.ask(fetch_request(ME, 1, 1, 1))
    assert node.core.high_watermark == 0


def test_losing_leadership_is_announced_with_the_new_epoch() -> None:
    node = leader()
    node.ask(fetch_request(2, 1, 1, 1))
    node.ask(vote_request(3, 7, (9, 1)))
    assert node.effects[-1] == LeaderChanged(Epoch(7), NO_NODE)


@pytest.mark.req("Q2")
def test_a_fetch_that_waits_is_answered_once_when_leadership_is_lost() -> None:
    node = leader()
    node.ask(fetch_request(2, 1, 1, 1, known=1))
    waiting = node.request_id
    node.do(ResignRequested())
    told = [reply.request_id for reply in only(Reply, node.effects)]
    node.ask(vote_request(3, 7, (9, 1)))
    told += [reply.request_id for reply in only(Reply, node.persisted())]
    assert told.count(waiting) == 1


@pytest.mark.req("Q2", "Q5")
def test_the_own_flush_tells_what_it_commits_as_the_last_voters_does() -> None:
    """An observer at once, a voter that waits for records a little later."""
    node = leader()
    node.ask(fetch_request(2, 1, 1, 1, known=1))
    node.propose()
    node.ask(fetch_request(9, 1, 1, 1, known=1))
    observers = node.request_id
    node.ask(fetch_request(2, 2, 1, 1, known=1))
    voters = node.request_id
    assert node.core.high_watermark == 1
    node.flushed()
    assert node.core.high_watermark == 2
    assert [reply.request_id for reply in only(ReplyFetch, node.effects)] == [observers]
    node.wait(CONFIG.commit_delay_ms)
    (reply,) = only(ReplyFetch, node.effects)
    assert (reply.request_id, reply.response.high_watermark) == (voters, 2)


# --- a disk that hangs ------------------------------------------------------------------------


@pytest.mark.req("Q3", "Q4")
def test_a_leader_whose_disk_hangs_resigns_while_others_commit() -> None:
    node = Node()
    node.become_leader()
    node.flushed()
    for voter in (2, 3):
        node.ask(fetch_request(voter, 1, 1, 1, known=1))
    node.propose()
    began_ms = node.now_ms
    for voter in (2, 3):
        node.ask(fetch_request(voter, 2, 1, 1, known=1))
    assert node.core.high_watermark == 2, "two other disks are a majority"
    while node.core.is_leader:
        for voter in (2, 3):
            node.ask(fetch_request(voter, 2, 1, 1, known=2))
        node.wait(min(200, (node.core.deadline_ms() or 0) - node.now_ms))
        assert node.now_ms <= began_ms + 2 * CONFIG.disk_hangs_ms
    assert node.now_ms >= began_ms + CONFIG.disk_hangs_ms
    assert "nothing from offset 1 on has come to the disk" in only(Warned, node.effects)[0].why


@pytest.mark.req("Q3", "Q4")
def test_a_leader_whose_disk_is_slow_but_gets_on_leads_on() -> None:
    node = Node()
    node.become_leader()
    node.flushed()
    for voter in (2, 3):
        node.ask(fetch_request(voter, 1, 1, 1, known=1))
    for end in range(2, 40):
        node.propose()
        for voter in (2, 3):
            node.ask(fetch_request(voter, end, 1, 1, known=end - 1))
        node.wait(CONFIG.disk_hangs_ms // 4)
        node.flushed(max(end - 2, 1))
    assert node.core.is_leader
    assert node.core.log.durable_end_offset < node.core.high_watermark


@pytest.mark.req("Q3", "Q4")
def test_a_disk_that_has_caught_up_is_no_longer_held_against_the_leader() -> None:
    node = Node()
    node.become_leader()
    node.flushed()
    for end in (1, 2):
        for voter in (2, 3):
            node.ask(fetch_request(voter, end, 1, 1, known=end - 1))
        if end == 1:
            node.propose()
    assert node.core.high_watermark == 2 > node.core.log.durable_end_offset
    node.flushed()
    until_ms = node.now_ms + 3 * CONFIG.disk_hangs_ms
    while node.now_ms < until_ms:
        for voter in (2, 3):
            node.ask(fetch_request(voter, 2, 1, 1, known=2))
        node.wait(100)
    assert node.core.is_leader


# --- whom a leader counts ---------------------------------------------------------------------


@pytest.mark.req("Q4")
@pytest.mark.parametrize("size", [3, 5])
def test_check_quorum_needs_a_majority_with_the_leader(size: int) -> None:
    """With one follower fewer than a majority needs, the leader resigns; with just enough, not."""
    for heard in range(size):
        node = leader_of(size)
        began_ms = node.now_ms
        while node.core.is_leader and node.now_ms < began_ms + 10 * CONFIG.check_quorum_ms:
            for voter in range(2, heard + 2):
                node.ask(fetch_request(voter, 1, 1, 1, known=1))
            node.wait(100)
        assert node.core.is_leader is (heard >= size // 2), f"{heard} of {size - 1} followers"


@pytest.mark.req("Q4")
def test_check_quorum_goes_by_the_second_follower_of_five() -> None:
    """The first alone, however lively, is no majority with the leader."""
    node = leader_of(5)
    node.ask(fetch_request(3, 1, 1, 1, known=1))
    last_ms = node.now_ms
    while node.core.is_leader:
        node.ask(fetch_request(2, 1, 1, 1, known=1))
        node.wait(100)
        assert node.now_ms <= last_ms + CONFIG.check_quorum_ms + 200
    assert node.now_ms >= last_ms + CONFIG.check_quorum_ms
