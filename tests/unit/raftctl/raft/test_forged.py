"""Messages of every kind that say what no honest peer says, into a replica of every role.

Each is refused or taken, and answered once; none ends the replica, nor takes it where it could not
go on: afterwards it follows an honest leader.
"""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from raftctl.errors import ErrorCode
from raftctl.raft._validation import EPOCH_JUMP_MAX, complaint_of
from raftctl.raft.batch import Batch, encode_batch
from raftctl.raft.events import (
    LogFlushed,
    PersistQuorumState,
    QuorumStatePersisted,
    Reply,
    ReplyFetch,
    ReplyFetchSnapshot,
    RequestReceived,
    ResponseReceived,
    SaveSnapshotChunk,
    SendRequest,
    SnapshotRefused,
)
from raftctl.raft.messages import (
    NO_NODE,
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVotersResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    Epoch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    NodeId,
    Offset,
    OffsetAndEpoch,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
    UpdateVoterRequest,
    Voter,
    VoteRequest,
    VoteResponse,
)
from raftctl.raft.voters import VoterSet, encode_voters
from tests.unit.raftctl.raft.harness import Node, fetch_request, key, log_of, only, position

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.raft.events import Effect

NUMBERS = (-(1 << 63), -2, -1, 0, 1, 2, 3, 4, 5, 9, 1 << 24, (1 << 31) - 1, 1 << 40, (1 << 63) - 1)
SMALL = (-1, 0, 1, 2, 3, 4, 5)
TEXTS = ("", "host", "a host", "h" * 300, "\n", "\x00", "[::1]")
REQUESTS = (
    VoteRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    TransferLeadershipRequest,
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
)
RESPONSES = (
    VoteResponse,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    TransferLeadershipResponse,
    ChangeVotersResponse,
)
ROUNDS = 400


class Forger:
    """Makes messages of the right types with any content."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def make(self, kind: type, node: Node) -> Any:
        """A message of this kind; often near to what the node would take."""
        return kind(**{f.name: self._value(kind, f.name, node) for f in fields(kind)})

    def _value(self, kind: type, name: str, node: Node) -> Any:
        chance = self.chance
        if name == "epoch" and chance.random() < 0.7:
            return Epoch(node.core.epoch + chance.choice((0, 0, 0, 1, -1)))
        if name == "voter" and kind in (AddVoterRequest, UpdateVoterRequest):
            return Voter(self._key(), chance.choice(TEXTS), self._number())
        if name == "seen" or (name in ("diverging", "snapshot_id") and kind is FetchResponse):
            return chance.choice((None, self._position()))
        makers: dict[str, Callable[[], Any]] = {
            "candidate": self._key,
            "replica": self._key,
            "voter": self._key,
            "log_end": self._position,
            "fetch_from": self._position,
            "snapshot_id": self._position,
            "preferred_successors": lambda: tuple(self._key() for _ in range(chance.randrange(4))),
            "pre_vote": lambda: chance.random() < 0.5,
            "granted": lambda: chance.random() < 0.5,
            "error": lambda: chance.choice(tuple(ErrorCode)),
            "leader_endpoint": lambda: None,
            "batches": lambda: self._batches(node),
            "data": lambda: chance.randbytes(chance.randrange(4)),
            "fetch_id": lambda: self._fetch_id(node),
        }
        return makers.get(name, self._number)()

    def _fetch_id(self, node: Node) -> int:
        """Of the request under way, if there is one: else the answer would go unheard."""
        fetcher = node.core._fetcher()
        in_flight = fetcher.in_flight if fetcher else None
        return in_flight.fetch_id if in_flight else self._number()

    def _number(self) -> int:
        return self.chance.choice(NUMBERS if self.chance.random() < 0.4 else SMALL)

    def _key(self) -> ReplicaKey:
        directory = self.chance.choice((None, UUID(int=1), UUID(int=2)))
        return ReplicaKey(NodeId(self._number()), directory)

    def _position(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(Offset(self._number()), Epoch(self._number()))

    def _batches(self, node: Node) -> bytes:
        chance, end = self.chance, node.core.log.end
        if chance.random() < 0.3:
            return chance.randbytes(50)
        twice = VoterSet([key(2)], dynamic=True)
        voters = chance.choice(
            (encode_voters(twice), b"\x92\x04\xc0", b"\x92\x04\x90", b"\x92\x04")
        )
        batch = Batch(end.offset, Epoch(chance.choice((end.epoch, 1, 9))), 1, 0, True, voters)
        return encode_batch(batch)


def follower() -> Node:
    node = Node(log=log_of(1, 1), epoch=1)
    node.become_follower(epoch=2)
    return node


def candidate() -> Node:
    node = Node(log=log_of(1, 1), epoch=1)
    node.become_candidate()
    return node


def leader() -> Node:
    node = Node(log=log_of(1, 1), epoch=1)
    node.become_leader()
    node.flushed()
    node.ask(fetch_request(2, 3, 2, 2))
    return node


def restarted_leader() -> Node:
    return Node(log=log_of(1, 1), epoch=1, leader_id=1)


def prospective() -> Node:
    node = Node(log=log_of(1, 1), epoch=1)
    node.wait()
    return node


def resigned() -> Node:
    node = leader()
    node.ask(fetch_request(3, 3, 2, 2))
    node.ask(TransferLeadershipRequest(NodeId(2)))
    return node


def observer() -> Node:
    return Node(node_id=9, log=log_of(1, 1), epoch=1)


ROLES = (follower, candidate, leader, restarted_leader, prospective, resigned, observer)


class Disk:
    """Finishes the writes of a node, and keeps count of its answers."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.answered: dict[int, int] = {}

    def perform(self, effects: list[Effect]) -> None:
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Reply | ReplyFetch | ReplyFetchSnapshot):
                self.answered[effect.request_id] = self.answered.get(effect.request_id, 0) + 1
            elif isinstance(effect, PersistQuorumState):
                queue += self.node.do(QuorumStatePersisted())
            elif isinstance(effect, SaveSnapshotChunk):
                queue += self.node.do(SnapshotRefused())
        log = self.node.core.log
        if not log.durable:
            self.perform(self.node.do(LogFlushed(log.end_offset)))


@pytest.mark.req("Q1", "Q11")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("seed", range(6))
def test_no_message_ends_a_replica(role: Callable[[], Node], seed: int) -> None:
    forger = Forger(seed)
    node = role()
    disk = Disk(node)
    disk.perform(node.effects)
    while node.core._replica._writes:
        disk.perform(node.do(QuorumStatePersisted()))
    asked = []
    for number in range(ROUNDS):
        kind = forger.chance.choice((*REQUESTS, *RESPONSES))
        message = forger.make(kind, node)
        epoch = node.core.epoch
        if kind in REQUESTS:
            asked.append(10_000 + number)
            disk.perform(node.do(RequestReceived(asked[-1], message)))
        else:
            source = NodeId(forger.chance.choice((2, 3, 4)))
            disk.perform(node.do(ResponseReceived(source, message)))
        assert node.core.epoch - epoch <= EPOCH_JUMP_MAX + 2
        if forger.chance.random() < 0.3:
            disk.perform(node.wait(forger.chance.randrange(700)))
        if forger.chance.random() < 0.02:
            node, asked = role(), []
            disk = Disk(node)
            disk.perform(node.effects)
            while node.core._replica._writes:
                disk.perform(node.do(QuorumStatePersisted()))
    for _ in range(40):
        disk.perform(node.wait(1_000))
    _leads_or_follows(node, disk)
    waiting = [request_id for request_id in asked if disk.answered.get(request_id, 0) != 1]
    assert waiting == [], "each request is answered once"


def _leads_or_follows(node: Node, disk: Disk) -> None:
    """An honest leader of the next epoch is followed, whatever was believed before."""
    epoch = Epoch(node.core.epoch + 1)
    request_id = 99_999
    disk.perform(node.do(RequestReceived(request_id, BeginQuorumEpochRequest(epoch, NodeId(2)))))
    assert (node.core.epoch, node.core.leader_id) == (epoch, 2)


@pytest.mark.req("Q1")
@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(Epoch(1 << 31), key(2), position(9, 9), pre_vote=False),
        VoteRequest(Epoch(1 << 30), key(2), position(9, 9), pre_vote=False),
        VoteRequest(Epoch(2), key(-2), position(9, 9), pre_vote=False),
        VoteRequest(Epoch(2), key(2), position(-1, 9), pre_vote=False),
        replace(fetch_request(2, 0, 0, 1), seen_round=-1),
        fetch_request(2, -1, 0, 1),
        BeginQuorumEpochRequest(Epoch(-1), NodeId(2)),
        BeginQuorumEpochRequest(Epoch(2), NodeId(-7)),
        AddVoterRequest(Voter(key(4, 4), "host", 1 << 16)),
        AddVoterRequest(Voter(key(4, 4), "", 9093)),
        AddVoterRequest(Voter(key(4, 4), "a\nb", 9093)),
        UpdateVoterRequest(Voter(key(-4, 4), "host", 9093)),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(message: Request) -> None:
    node = leader()
    before = (node.core.epoch, node.core.role, node.core.voters)
    assert complaint_of(message, node.core.epoch) is not None
    answer: Any = node.ask(message)
    if isinstance(answer, VoteResponse):
        assert not answer.granted
    else:
        assert answer.error is ErrorCode.INVALID_REQUEST
    assert (node.core.epoch, node.core.role, node.core.voters) == before
    assert only(SendRequest, node.effects) == []
    assert node.core.leader_id != NO_NODE
