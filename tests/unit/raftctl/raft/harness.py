"""One core in the hands of a test: short ways to feed it events and to look at its effects."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from raftctl.errors import ErrorCode
from raftctl.raft import RaftCore, ReplicaLog
from raftctl.raft._config import RaftConfig
from raftctl.raft.batch import Batch, encode_batch
from raftctl.raft.events import (
    Effect,
    Event,
    LogFlushed,
    PersistQuorumState,
    Proposed,
    QuorumState,
    QuorumStatePersisted,
    Reply,
    ReplyFetch,
    RequestReceived,
    ResponseReceived,
    SendRequest,
    Started,
    Tick,
)
from raftctl.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    Epoch,
    FetchRequest,
    FetchResponse,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raftctl.raft.voters import VoterSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

E = TypeVar("E")
CONFIG = RaftConfig()
ME, B, C, D, F = (NodeId(i) for i in range(1, 6))
OBSERVER = NodeId(9)


def key(node_id: int, directory: int | None = None) -> ReplicaKey:
    """The replica of this node."""
    return ReplicaKey(NodeId(node_id), None if directory is None else UUID(int=directory))


def position(offset: int, epoch: int) -> OffsetAndEpoch:
    """A log end."""
    return OffsetAndEpoch(Offset(offset), Epoch(epoch))


def log_of(*epochs: int) -> ReplicaLog:
    """A durable log with one record for each epoch named."""
    starts: dict[Epoch, Offset] = {}
    for offset, epoch in enumerate(epochs):
        starts.setdefault(Epoch(epoch), Offset(offset))
    return ReplicaLog(Offset(0), Offset(len(epochs)), starts.items())


def batch_at(offset: int, epoch: int, count: int = 1) -> Batch:
    """A batch of records."""
    return Batch(Offset(offset), Epoch(epoch), count, 0, False, b"records")


def encoded(*batches: Batch) -> bytes:
    """Batches as they stand in an answer."""
    return b"".join(encode_batch(batch) for batch in batches)


def only(kind: type[E], effects: Iterable[Effect]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


class Node:
    """A core, its clock, and its disk as far as the test lets it finish its writes."""

    def __init__(
        self,
        *,
        voters: Sequence[int] = (1, 2, 3),
        node_id: int = 1,
        epoch: int = 0,
        leader_id: int = NO_NODE,
        voted: ReplicaKey | None = None,
        log: ReplicaLog | None = None,
        config: RaftConfig = CONFIG,
        started: bool = True,
    ) -> None:
        self.now_ms = 1_000_000
        self.core = RaftCore(
            config,
            key(node_id),
            VoterSet(key(voter) for voter in voters),
            QuorumState(Epoch(epoch), NodeId(leader_id), voted),
            log_of() if log is None else log,
            Random(1),
            lambda leader, voters, granting: repr((leader, voters, granting)).encode(),
        )
        self.request_id = 0
        self.effects: list[Effect] = []
        if started:
            self.do(Started())

    def do(self, event: Event) -> list[Effect]:
        """Feeds an event; the effects are kept in `effects`, too."""
        self.effects = self.core.handle(event, self.now_ms)
        self.core.invariants()
        if isinstance(event, Tick):
            due_ms = self.core.deadline_ms()
            assert due_ms is None or due_ms > self.now_ms, "it would go round at full speed"
        return self.effects

    def sent(self) -> list[Request]:
        """The requests among the last effects."""
        return [effect.request for effect in only(SendRequest, self.effects)]

    def ask(self, request: Request) -> Response | None:
        """A peer's request; the answer, if it came at once."""
        self.request_id += 1
        effects = self.do(RequestReceived(self.request_id, request))
        answers: list[Reply | ReplyFetch] = [*only(Reply, effects), *only(ReplyFetch, effects)]
        mine = [answer.response for answer in answers if answer.request_id == self.request_id]
        return mine[0] if mine else None

    def answer(self, source: int, response: Response) -> list[Effect]:
        """A peer's answer."""
        return self.do(ResponseReceived(NodeId(source), response))

    def wait(self, wait_ms: int | None = None) -> list[Effect]:
        """Lets time pass, by default until the deadline, and ticks."""
        if wait_ms is None:
            deadline_ms = self.core.deadline_ms()
            assert deadline_ms is not None
            wait_ms = max(0, deadline_ms - self.now_ms)
        self.now_ms += wait_ms
        return self.do(Tick())

    def persisted(self) -> list[Effect]:
        """The oldest quorum-state write is done."""
        return self.do(QuorumStatePersisted())

    def flushed(self, end_offset: int | None = None) -> list[Effect]:
        """The log is durable, all of it or up to an offset."""
        end = self.core.log.end_offset if end_offset is None else Offset(end_offset)
        return self.do(LogFlushed(end))

    def propose(self, count: int = 1) -> list[Effect]:
        """Appends records as the leader."""
        return self.do(Proposed(b"records", count, 5))

    def state(self) -> QuorumState:
        """The one quorum state that the last effects write."""
        (effect,) = only(PersistQuorumState, self.effects)
        return effect.state

    # --- ways to a role -------------------------------------------------------------------------

    def grant(self, voter: int, *, pre_vote: bool, epoch: int | None = None) -> list[Effect]:
        """A voter grants."""
        in_epoch = self.core.epoch if epoch is None else Epoch(epoch)
        return self.answer(voter, VoteResponse(in_epoch, NO_NODE, True, pre_vote, key(voter)))

    def become_candidate(self) -> None:
        """Campaigns; the own vote is durable."""
        self.wait()
        if self.core.role == "prospective":
            self.grant(2, pre_vote=True)
        assert self.core.role == "candidate"
        self.persisted()

    def become_leader(self) -> None:
        """Leads a new epoch with the vote of node 2; its first record is not durable yet."""
        self.become_candidate()
        if self.core.role == "candidate":
            self.grant(2, pre_vote=False)
        assert self.core.role == "leader"
        self.persisted()

    def become_follower(self, leader_id: int = 2, epoch: int = 1) -> FetchRequest:
        """Follows a leader; returns the first Fetch."""
        self.ask(BeginQuorumEpochRequest(Epoch(epoch), NodeId(leader_id)))
        self.persisted()
        (fetch,) = self.sent()
        assert isinstance(fetch, FetchRequest)
        return fetch


def leader_of(size: int) -> Node:
    """Leads a quorum of this size; its own log is durable."""
    node = Node(voters=range(1, size + 1))
    node.wait()
    for pre_vote, role in ((True, "prospective"), (False, "candidate")):
        for voter in range(2, size + 1):
            if node.core.role == role:
                node.grant(voter, pre_vote=pre_vote)
        node.persisted()
    assert node.core.is_leader
    node.flushed()
    return node


def fetch_request(
    replica: int, offset: int, last_epoch: int, epoch: int, *, known: int = 0, wait_ms: int = 500
) -> FetchRequest:
    """A replica asks for what comes after its log."""
    return FetchRequest(
        Epoch(epoch), key(replica), position(offset, last_epoch), 1000, wait_ms, Offset(known)
    )


def fetch_answer(request: Request, *batches: Batch, leader_id: int = 2) -> FetchResponse:
    """The leader's answer to a Fetch: no error, nothing committed; change it with `replace`."""
    assert isinstance(request, FetchRequest)
    return FetchResponse(
        error=ErrorCode.NONE,
        epoch=request.epoch,
        leader_id=NodeId(leader_id),
        fetch_offset=request.fetch_from.offset,
        high_watermark=Offset(0),
        diverging=None,
        snapshot_id=None,
        log_start_offset=Offset(0),
        batches=encoded(*batches),
        fetch_id=request.fetch_id,
    )


def refusal(
    request: Request, error: ErrorCode, epoch: int, leader_id: int = NO_NODE
) -> FetchResponse:
    """An answer that only says what the other knows."""
    answer = fetch_answer(request, leader_id=leader_id)
    return replace(answer, error=error, epoch=Epoch(epoch))


def vote_request(
    candidate: int, epoch: int, log_end: tuple[int, int] = (0, 0), *, pre_vote: bool = False
) -> VoteRequest:
    """A candidate's question."""
    return VoteRequest(Epoch(epoch), key(candidate), position(*log_end), pre_vote)
