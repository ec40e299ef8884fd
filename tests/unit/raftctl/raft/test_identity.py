"""A replica is a node id and a directory: what a wiped disk says counts for nothing it replaced."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from raftctl.raft import RaftCore, ReplicaLog
from raftctl.raft.batch import Batch
from raftctl.raft.events import QuorumState, ReadConfirmed, ReadRequested, Started
from raftctl.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    Epoch,
    FetchRequest,
    NodeId,
    Offset,
    Voter,
    VoteResponse,
)
from raftctl.raft.voters import VoterSet, encode_voters
from tests.unit.raftctl.raft.harness import (
    CONFIG,
    B,
    C,
    Node,
    fetch_answer,
    fetch_request,
    key,
    only,
)

WIPED = 99
"""The directory of a disk that has taken the place of another."""


def named(size: int) -> Node:
    """Node 1 of a quorum whose log names the voters by directory: node n has directory n."""
    node = Node(voters=range(1, size + 1), started=False)
    voters = VoterSet((Voter(key(n, n), "host", n) for n in range(1, size + 1)), dynamic=True)
    record = Batch(Offset(0), Epoch(1), 1, -1, True, encode_voters(voters))
    node.core = RaftCore(
        CONFIG,
        key(1, 1),
        VoterSet((), dynamic=True),
        QuorumState(Epoch(1), NO_NODE, None),
        ReplicaLog(Offset(0), Offset(1), [(Epoch(1), Offset(0))]),
        Random(1),
        lambda leader, voters, granting: repr((leader, voters, granting)).encode(),
        None,
        [record],
    )
    node.do(Started())
    return node


def vote(node: Node, voter: int, directory: int, *, pre_vote: bool) -> None:
    response = VoteResponse(node.core.epoch, NO_NODE, True, pre_vote, key(voter, directory))
    node.answer(voter, response)


def leading(size: int = 3) -> Node:
    node = named(size)
    node.wait()
    for pre_vote, role in ((True, "prospective"), (False, "candidate")):
        for voter in range(2, size + 1):
            if node.core.role == role:
                vote(node, voter, voter, pre_vote=pre_vote)
        node.persisted()
    assert node.core.is_leader
    node.flushed()
    return node


def fetched(node: Node, voter: int, directory: int, *, seen_round: int = 0) -> None:
    end = node.core.log.end
    request = fetch_request(voter, end.offset, end.epoch, node.core.epoch, known=end.offset)
    node.ask(replace(request, replica=key(voter, directory), seen_round=seen_round))


@pytest.mark.req("Q1", "Q7")
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("pre_vote", [True, False])
def test_votes_of_wiped_disks_do_not_count(size: int, *, pre_vote: bool) -> None:
    node = named(size)
    node.wait()
    if not pre_vote:
        for voter in range(2, size + 1):
            if node.core.role == "prospective":
                vote(node, voter, voter, pre_vote=True)
        node.persisted()
    role = node.core.role
    for voter in range(2, size + 1):
        vote(node, voter, WIPED, pre_vote=pre_vote)
    assert node.core.role == role, "the disk that voted before may have voted for another"
    for voter in range(2, size // 2 + 2):
        vote(node, voter, voter, pre_vote=pre_vote)
    assert node.core.role != role


@pytest.mark.req("Q3", "Q7")
@pytest.mark.parametrize("size", [3, 5])
def test_what_a_wiped_disk_has_is_not_committed(size: int) -> None:
    node = leading(size)
    before = node.core.high_watermark
    for voter in range(2, size + 1):
        fetched(node, voter, WIPED)
    assert node.core.high_watermark == before
    for voter in range(2, size // 2 + 2):
        fetched(node, voter, voter)
    assert node.core.high_watermark == node.core.log.end_offset


@pytest.mark.req("Q4", "Q7")
def test_a_wiped_disk_keeps_no_leader() -> None:
    node = leading()
    until_ms = node.now_ms + 2 * CONFIG.check_quorum_ms
    while node.core.is_leader:
        assert node.now_ms < until_ms
        fetched(node, 2, WIPED)
        fetched(node, 3, WIPED)
        node.wait(100)


@pytest.mark.req("Q7", "Q9")
def test_a_wiped_disk_confirms_no_read() -> None:
    node = leading()
    fetched(node, 2, 2)
    node.do(ReadRequested(7))
    for voter in (2, 3):
        fetched(node, voter, WIPED, seen_round=1)
        assert only(ReadConfirmed, node.effects) == []
    fetched(node, 2, 2, seen_round=1)
    assert only(ReadConfirmed, node.effects) == [ReadConfirmed(7)]


@pytest.mark.req("Q9")
def test_the_round_of_one_leader_says_nothing_to_the_next() -> None:
    """Else a Fetch that says nothing of its own time would confirm the next leader's reads."""
    node = Node()
    fetch = node.become_follower(leader_id=B)
    node.answer(B, replace(fetch_answer(fetch), round=5))
    (again,) = node.sent()
    assert isinstance(again, FetchRequest)
    assert again.seen_round == 5
    node.ask(BeginQuorumEpochRequest(Epoch(2), C))
    node.persisted()
    (first,) = node.sent()
    assert isinstance(first, FetchRequest)
    assert first.seen_round == 0


@pytest.mark.req("Q9")
def test_a_round_that_the_leader_has_not_begun_confirms_no_later_read() -> None:
    node = leading()
    fetched(node, 2, 2)
    fetched(node, 2, 2, seen_round=9)
    node.do(ReadRequested(7))
    assert only(ReadConfirmed, node.effects) == []
    fetched(node, 2, 2)
    assert only(ReadConfirmed, node.effects) == []


@pytest.mark.req("Q7")
def test_a_wiped_disk_under_the_own_node_id_neither_votes_for_itself_nor_leads() -> None:
    node = named(3)
    node.core._replica.local = key(1, WIPED)
    assert not node.core._replica.is_voter
    node.do(Started())
    for _ in range(20):
        node.wait(1_000)
        assert node.core.role in ("unattached", "follower")
    assert node.core.leader_id in (NO_NODE, NodeId(2), NodeId(3))
