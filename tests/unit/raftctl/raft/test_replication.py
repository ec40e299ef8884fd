"""The pulling side: followers and observers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from raftctl.errors import ErrorCode
from raftctl.raft.events import (
    AppendToLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    Reply,
    RequestFailed,
    SendRequest,
    TruncateLog,
    Warned,
)
from raftctl.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Epoch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Offset,
    Request,
    VoteResponse,
)
from tests.unit.raftctl.raft.harness import (
    CONFIG,
    ME,
    OBSERVER,
    B,
    C,
    Node,
    batch_at,
    encoded,
    fetch_answer,
    fetch_request,
    key,
    log_of,
    only,
    position,
    refusal,
    vote_request,
)


def fetch_of(node: Node) -> FetchRequest:
    """The one Fetch that was just sent."""
    (request,) = node.sent()
    assert isinstance(request, FetchRequest)
    return request


def observer(*, epoch: int = 0, leader_id: int = NO_NODE) -> Node:
    return Node(node_id=OBSERVER, epoch=epoch, leader_id=leader_id)


# --- followers ----------------------------------------------------------------------------------


@pytest.mark.req("Q2")
def test_a_fetch_says_where_the_durable_log_ends_and_what_is_known_to_be_committed() -> None:
    node = Node(log=log_of(1, 1, 2), epoch=2)
    fetch = node.become_follower(epoch=3)
    assert (fetch.epoch, fetch.replica, fetch.fetch_from) == (3, key(ME), position(3, 2))
    assert fetch.max_bytes == CONFIG.fetch_max_bytes
    assert fetch.max_wait_ms == CONFIG.fetch_max_wait_ms
    node.answer(2, replace(fetch_answer(fetch), high_watermark=Offset(2)))
    assert fetch_of(node).high_watermark == 2


@pytest.mark.req("Q2", "Q3")
def test_fetched_batches_are_flushed_before_the_next_fetch() -> None:
    node = Node()
    fetch = node.become_follower()
    first, second = batch_at(0, 1, count=2), batch_at(2, 1)
    effects = node.answer(2, replace(fetch_answer(fetch, first, second), high_watermark=Offset(9)))
    assert effects == [AppendToLog(first), AppendToLog(second), HighWatermarkAdvanced(Offset(3))]
    assert node.flushed(2) == []
    node.flushed(3)
    assert fetch_of(node).fetch_from == position(3, 1)


def test_the_high_watermark_never_goes_back() -> None:
    node = Node(log=log_of(1, 1), epoch=1)
    fetch = node.become_follower(epoch=2)
    node.answer(2, replace(fetch_answer(fetch), high_watermark=Offset(2)))
    effects = node.answer(2, replace(fetch_answer(fetch_of(node)), high_watermark=Offset(1)))
    assert only(HighWatermarkAdvanced, effects) == []
    assert node.core.high_watermark == 2


@pytest.mark.req("Q2")
def test_a_diverging_log_is_cut_and_fetched_again() -> None:
    node = Node(log=log_of(1, 2, 2, 2), epoch=2)
    fetch = node.become_follower(epoch=3)
    node.answer(2, replace(fetch_answer(fetch), diverging=position(2, 2)))
    assert node.effects[0] == TruncateLog(Offset(2))
    again = fetch_of(node)
    assert again.fetch_from == position(2, 2)
    node.answer(2, replace(fetch_answer(again), diverging=position(5, 1)))
    assert node.effects[0] == TruncateLog(Offset(1))


@pytest.mark.req("Q2")
def test_logs_of_many_epochs_come_together_in_a_round_for_each_not_for_each_record() -> None:
    shared, rival_epochs, records = 10, 40, 50
    ours = [epoch for epoch in range(3, 2 * rival_epochs, 2) for _ in range(records)]
    theirs = [epoch for epoch in range(2, 2 * rival_epochs, 2) for _ in range(records)]
    leader = Node(log=log_of(*[1] * shared, *ours), epoch=2 * rival_epochs)
    leader.become_leader()
    leader.flushed()
    follower = Node(node_id=B, log=log_of(*[1] * shared, *theirs), epoch=2 * rival_epochs)
    fetch = follower.become_follower(leader_id=ME, epoch=leader.core.epoch)
    rounds = 0
    while isinstance(answer := leader.ask(fetch), FetchResponse) and answer.diverging is not None:
        rounds += 1
        follower.answer(ME, answer)
        fetch = fetch_of(follower)
    assert fetch.fetch_from == position(shared, 1)
    assert rounds <= rival_epochs


def test_a_log_is_never_cut_below_the_high_watermark() -> None:
    node = Node(log=log_of(1, 2, 2), epoch=2)
    fetch = node.become_follower(epoch=3)
    node.answer(2, replace(fetch_answer(fetch), high_watermark=Offset(3)))
    again = fetch_of(node)
    node.answer(2, replace(fetch_answer(again), diverging=position(2, 2)))
    assert only(TruncateLog, node.effects) == []
    assert "all below 3 is committed here" in only(Warned, node.effects)[0].why
    assert node.sent() == [], "not at once: the leader would say the same"
    node.wait(CONFIG.retry_backoff_ms)
    assert fetch_of(node).fetch_from == position(3, 2), "it asks on, in case the leader changes"


@pytest.mark.req("Q2")
def test_late_and_repeated_answers_are_harmless() -> None:
    node = Node(log=log_of(1, 1), epoch=1)
    fetch = node.become_follower(epoch=2)
    diverging = replace(fetch_answer(fetch), diverging=position(1, 1))
    records = fetch_answer(fetch, batch_at(2, 1))
    node.answer(2, diverging)
    again = fetch_of(node)
    assert node.answer(2, diverging) == []
    assert node.answer(2, records) == []
    assert node.answer(3, fetch_answer(again, leader_id=2)) == [], "not from the leader"
    node.answer(2, fetch_answer(again, batch_at(1, 1)))
    node.flushed()
    assert node.answer(2, diverging) == []
    assert node.core.log.end == position(2, 1)


@pytest.mark.req("Q12")
@pytest.mark.parametrize(
    "data",
    [
        encoded(batch_at(0, 1))[:-1],
        encoded(batch_at(0, 1))[:-1] + b"x",
        encoded(batch_at(1, 1)),
        encoded(batch_at(0, 2)),
        encoded(batch_at(0, 1), batch_at(2, 1)),
    ],
    ids=["torn", "flipped", "gap", "newer than the leader", "gap later"],
)
def test_unsound_batches_are_not_appended_but_fetched_again(data: bytes) -> None:
    node = Node()
    fetch = node.become_follower()
    (warned,) = node.answer(2, replace(fetch_answer(fetch), batches=data))
    assert warned == Warned("cannot follow 2: its batches do not fit here")
    assert node.core.log.end_offset == 0
    node.wait(CONFIG.retry_backoff_ms)
    assert fetch_of(node).fetch_from == position(0, 0)


def test_a_fetch_that_failed_is_sent_again_after_a_growing_pause() -> None:
    node = Node()
    fetch: Request = node.become_follower()
    for pause_ms in (20, 40, 80):
        node.do(RequestFailed(B, fetch))
        assert node.core.deadline_ms() == node.now_ms + pause_ms
        node.wait(pause_ms - 1)
        assert node.sent() == []
        node.wait(1)
        fetch = fetch_of(node)
    node.answer(2, fetch_answer(fetch))
    node.do(RequestFailed(B, fetch_of(node)))
    assert node.core.deadline_ms() == node.now_ms + 20
    node.do(RequestFailed(B, fetch))
    node.do(RequestFailed(B, vote_request(ME, 1)))
    assert node.core.deadline_ms() == node.now_ms + 20, "old requests do not matter"


def test_other_errors_and_answers_of_an_older_epoch_are_retried() -> None:
    node = Node(epoch=4)
    fetch = node.become_follower(epoch=5)
    node.answer(2, refusal(fetch, ErrorCode.OFFSET_OUT_OF_RANGE, 5, leader_id=2))
    node.wait(20)
    node.answer(2, refusal(fetch_of(node), ErrorCode.UNKNOWN_LEADER_EPOCH, 4))
    node.wait(40)
    assert fetch_of(node).epoch == 5


@pytest.mark.req("Q4")
@pytest.mark.parametrize("wrong", [{"high_watermark": Offset(-1)}, {"round": -1}])
def test_an_answer_that_says_nothing_is_as_none_told_and_asked_for_again(
    wrong: dict[str, Any],
) -> None:
    follower = Node(epoch=1)
    fetch = follower.become_follower(epoch=2)
    seeker = observer()
    seeker.wait()
    for node, asked, source in ((follower, fetch, 2), (seeker, fetch_of(seeker), None)):
        asked_of = source or only(SendRequest, node.effects)[0].destination
        effects = node.answer(asked_of, replace(fetch_answer(asked), **wrong))
        assert len(only(Warned, effects)) == 1
        assert node.sent() == [], "not at once"
        node.wait()
        assert fetch_of(node).fetch_from == asked.fetch_from
        assert only(SendRequest, node.effects)[0].destination == 2 or source is None


@pytest.mark.req("Q1")
def test_nobody_fetches_in_the_name_of_the_node_that_it_asks() -> None:
    node = Node(log=log_of(1), epoch=1)
    node.become_leader()
    node.flushed()
    for request in (
        fetch_request(ME, 1, 1, node.core.epoch),
        FetchSnapshotRequest(node.core.epoch, key(ME), position(1, 1), 0, 9),
    ):
        answer = node.ask(request)
        assert isinstance(answer, FetchResponse | FetchSnapshotResponse)
        assert answer.error is ErrorCode.INVALID_REQUEST
        assert len(only(Warned, node.effects)) == 1
    assert node.core.high_watermark == 0, "it counts for nothing"


@pytest.mark.req("Q4")
def test_a_silent_leader_is_given_up_after_the_fetch_timeout() -> None:
    node = Node(epoch=1)
    fetch = node.become_follower(epoch=2)
    node.wait(500)
    node.answer(2, fetch_answer(fetch))
    node.wait(CONFIG.fetch_timeout_ms - 1)
    assert node.core.role == "follower"
    node.wait(1)
    assert (node.core.role, node.core.epoch) == ("prospective", 2)
    assert node.effects[-1] == LeaderChanged(Epoch(2), NO_NODE)


def test_a_slow_disk_is_not_held_against_the_leader() -> None:
    node = Node()
    fetch = node.become_follower()
    node.answer(2, fetch_answer(fetch, batch_at(0, 1)))
    assert node.core.deadline_ms() is None
    node.wait(2 * CONFIG.fetch_timeout_ms)
    assert node.core.role == "follower"
    node.flushed()
    assert node.core.deadline_ms() == node.now_ms + CONFIG.fetch_timeout_ms


@pytest.mark.req("Q2")
def test_a_disk_that_writes_slowly_does_not_make_a_silent_leader_heard() -> None:
    node = Node()
    fetch = node.become_follower()
    node.answer(2, fetch_answer(fetch, batch_at(0, 1), batch_at(1, 1)))
    node.wait(CONFIG.fetch_timeout_ms // 2)
    node.flushed(1)
    node.wait(CONFIG.fetch_timeout_ms // 2)
    answer = node.ask(vote_request(3, 1, (2, 1), pre_vote=True))
    assert isinstance(answer, VoteResponse)
    assert answer.granted, "the leader was last heard a fetch timeout ago"


def test_a_former_leader_flushes_its_own_records_before_it_fetches() -> None:
    node = Node()
    node.become_leader()
    node.ask(BeginQuorumEpochRequest(Epoch(2), C))
    node.persisted()
    assert node.sent() == []
    node.flushed()
    assert fetch_of(node).fetch_from == position(1, 1)


def test_hints_of_newer_epochs_and_leaders_are_followed() -> None:
    node = Node(epoch=1)
    fetch = node.become_follower(epoch=2)
    node.answer(2, refusal(fetch, ErrorCode.FENCED_LEADER_EPOCH, 3, leader_id=C))
    assert (node.core.epoch, node.core.leader_id) == (3, C)
    assert node.sent() == [], "the new epoch first has to be durable"
    node.persisted()
    assert only(SendRequest, node.effects)[0].destination == C


def test_a_leader_that_says_it_is_none_any_more_is_left() -> None:
    node = Node()
    fetch = node.become_follower()
    node.answer(2, refusal(fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1))
    assert node.core.role == "unattached"
    assert (node.core.deadline_ms() or 0) >= node.now_ms + CONFIG.election_timeout_ms


def test_a_hint_at_oneself_names_no_leader() -> None:
    node = Node(epoch=1)
    node.answer(2, VoteResponse(Epoch(2), ME, False, True, key(2)))
    assert (node.core.role, node.core.epoch) == ("unattached", 2)


@pytest.mark.req("Q4", "Q7")
def test_a_hint_at_a_leader_that_the_configuration_lacks_is_believed() -> None:
    node = Node(epoch=1)
    node.answer(2, VoteResponse(Epoch(3), OBSERVER, False, True, key(2)))
    node.persisted()
    (send,) = only(SendRequest, node.effects)
    assert (node.core.role, node.core.leader_id, send.destination) == (
        "follower",
        OBSERVER,
        OBSERVER,
    )


def test_a_quick_fetch_timeout_shortens_the_long_poll() -> None:
    node = Node(config=replace(CONFIG, fetch_timeout_ms=400))
    assert node.become_follower().max_wait_ms == 100


# --- observers ----------------------------------------------------------------------------------


@pytest.mark.req("Q5")
def test_an_observer_finds_the_leader_through_any_voter_and_never_campaigns() -> None:
    node = observer()
    assert node.core.deadline_ms() == node.now_ms + CONFIG.retry_backoff_ms
    node.wait()
    fetch = fetch_of(node)
    (asked,) = only(SendRequest, node.effects)
    leader = next(voter for voter in (ME, B, C) if voter != asked.destination)
    answer = refusal(fetch, ErrorCode.FENCED_LEADER_EPOCH, 4, leader_id=leader)
    node.answer(asked.destination, answer)
    assert (node.core.role, node.core.leader_id) == ("follower", leader)
    node.persisted()
    fetch = fetch_of(node)
    node.answer(leader, fetch_answer(fetch, batch_at(0, 4), leader_id=leader))
    node.flushed()
    assert fetch_of(node).fetch_from == position(1, 4)
    while node.core.role == "follower":
        node.wait()
    assert node.core.role == "unattached"
    assert node.effects[-1] == LeaderChanged(Epoch(4), NO_NODE)


@pytest.mark.req("Q5")
def test_an_observer_asks_one_voter_after_the_other_with_growing_pauses() -> None:
    node = observer()
    asked = []
    for failure in range(6):
        node.wait()
        (send,) = only(SendRequest, node.effects)
        asked.append(send.destination)
        if failure % 2:
            node.do(RequestFailed(send.destination, send.request))
        else:
            hint = refusal(send.request, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
            node.answer(send.destination, hint)
    assert all(one != other for one, other in pairwise(asked))
    assert node.core.deadline_ms() == node.now_ms + CONFIG.election_backoff_max_ms


@pytest.mark.req("Q5")
def test_the_leader_itself_answers_an_observer_that_does_not_know_it() -> None:
    node = observer(epoch=4)
    node.wait()
    (send,) = only(SendRequest, node.effects)
    node.answer(send.destination, fetch_answer(send.request, leader_id=send.destination))
    assert (node.core.role, node.core.leader_id) == ("follower", send.destination)


def test_an_observer_of_one_voter_has_only_that_to_ask() -> None:
    node = Node(node_id=OBSERVER, voters=(1,))
    for _ in range(2):
        node.wait()
        (send,) = only(SendRequest, node.effects)
        assert send.destination == ME
        node.do(RequestFailed(ME, send.request))


@pytest.mark.req("Q5")
def test_an_observer_gives_its_vote_which_others_count_and_succeeds_nobody() -> None:
    node = observer(epoch=1)
    node.ask(vote_request(B, 1, pre_vote=False))
    (reply,) = only(Reply, node.persisted())
    assert isinstance(reply.response, VoteResponse)
    assert reply.response.granted, "the candidate's log may say that this node votes"
    node.ask(EndQuorumEpochRequest(Epoch(1), B, (key(OBSERVER),)))
    assert node.core.role == "unattached"


def test_an_observer_that_is_still_flushing_waits_for_that_before_it_asks_around() -> None:
    node = observer(epoch=1, leader_id=B)
    fetch = fetch_of(node)
    node.answer(2, fetch_answer(fetch, batch_at(0, 1)))
    node.answer(3, VoteResponse(Epoch(2), NO_NODE, False, True, key(3)))
    assert (node.core.role, node.core.deadline_ms()) == ("unattached", None)
    node.persisted()
    node.now_ms += 100
    node.flushed()
    assert fetch_of(node).epoch == 2
