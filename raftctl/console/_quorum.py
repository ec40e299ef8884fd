"""The quorum of the metadata log, as this node sees it: replicas with their lags, and elections.

Only the leader knows how far replicas are. Another node asks it, at most once a second for all its
viewers, and shows what it was answered while the epoch is the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from raftctl.console._history import MetadataLog
from raftctl.errors import ErrorCode, KafkaError
from raftctl.ids import uuid_text
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.requests.admin import DescribeQuorumRequest, DescribeQuorumResponse
from raftctl.raft.messages import NO_NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from raftctl.console._history import EpochStart
    from raftctl.console.http import Asked
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.requests.admin import QuorumReplica
    from raftctl.plugins import ControllerClient
    from raftctl.raft import QuorumStatus, ReplicaStatus
    from raftctl.raft.messages import Offset
    from raftctl.security import Requester

ELECTIONS_MAX = 100
"""Of which a node keeps what it saw."""
FRESH_S = 1.0
"""How old an answer of the leader may be."""
TIMEOUT_MS = 1_000


class Quorum(MetadataLog, Protocol):
    """This node's replica of the metadata log (`raftctl.quorum.RaftDriver`); for reading only."""

    @property
    def leader_id(self) -> int:
        """The leader of the current epoch, or a number below 0."""

    @property
    def epoch(self) -> int:
        """The current epoch."""

    @property
    def is_leader(self) -> bool:
        """True if this node leads the current epoch, as far as it knows."""

    def status(self) -> QuorumStatus:
        """Return the quorum as this node sees it."""


class Election(NamedTuple):
    """A change of the leader that this node has seen."""

    at_ms: int
    epoch: int
    leader_id: int
    """NO_NODE: the leader of before is gone, and there is no other yet."""
    before: int
    """The leader that this node knew before, or NO_NODE."""

    def row(self) -> dict[str, Any]:
        """Return the entry of the timeline."""
        if self.leader_id == NO_NODE:
            kind, text = "resigned", f"node {self.before} no longer leads: an election begins"
        elif self.before == self.leader_id:
            kind, text = "elected", f"node {self.leader_id} leads again, in epoch {self.epoch}"
        else:
            after = "" if self.before == NO_NODE else f" after node {self.before}"
            kind, text = "elected", f"node {self.leader_id} leads epoch {self.epoch}{after}"
        return {
            "at_ms": self.at_ms,
            "epoch": self.epoch,
            "kind": kind,
            "leader_id": _known(self.leader_id),
            "text": text,
        }


class Elections:
    """A listener of the driver that keeps the newest changes of the leader."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self.seen: deque[Election] = deque(maxlen=ELECTIONS_MAX)
        self.changed: Callable[[], None] = lambda: None
        """Called after each."""

    def on_committed(self, high_watermark: Offset) -> None:
        """Commits are no elections."""

    def on_snapshot(self, image: MetadataImage) -> None:
        """Snapshots are none either."""

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """Take note of a leader, or of none."""
        before = self.seen[-1].leader_id if self.seen else NO_NODE
        if leader_id == before == NO_NODE:
            return
        self.seen.append(Election(self._wall_ms(), epoch, leader_id, before))
        self.changed()

    def add_earlier(self, elections: Iterable[EpochStart]) -> None:
        """Take leaders of epochs before the first that this node has seen since its start."""
        first = min((one.epoch for one in self.seen), default=None)
        before: int = NO_NODE
        found: list[Election] = []
        for at_ms, epoch, leader_id in elections:
            if first is None or epoch < first:
                found.append(Election(at_ms, epoch, leader_id, before))
                before = leader_id
        if found and self.seen:
            self.seen[0] = self.seen[0]._replace(before=before)
        self.seen = deque((*found, *self.seen), maxlen=ELECTIONS_MAX)

    def timeline(self) -> list[dict[str, Any]]:
        """Return the newest changes, the newest first."""
        return [one.row() for one in reversed(self.seen)]


class _Answered(NamedTuple):
    """What the leader has said of replicas."""

    epoch: int
    at: float
    """Seconds of the event loop's clock."""
    voters: list[dict[str, Any]]
    observers: list[dict[str, Any]]


class QuorumViews:
    """Answers about the quorum."""

    def __init__(self, quorum: Quorum, elections: Elections, controller: ControllerClient) -> None:
        self._quorum = quorum
        self._elections = elections
        self._controller = controller
        self._answered: _Answered | None = None
        self._asking: asyncio.Task[None] | None = None

    async def quorum(self, asked: Asked) -> dict[str, Any]:
        """Return the quorum with the lags of its replicas."""
        asked.fields.end()
        asked.rights.require(Operation.DESCRIBE, ResourceType.CLUSTER)
        await self.refresh(asked.requester)
        return self.document()

    async def refresh(self, requester: Requester) -> None:
        """Return once the lags are as fresh as they get; see `ask_soon`."""
        asking = self.ask_soon(requester)
        if asking is not None:
            await asyncio.shield(asking)

    def ask_soon(self, requester: Requester) -> asyncio.Task[None] | None:
        """Begin to ask the leader, unless this node is it, or has an answer that is fresh."""
        loop = asyncio.get_running_loop()
        if self._quorum.is_leader or (self._answered and loop.time() - self._answered.at < FRESH_S):
            return None
        if self._asking is None or self._asking.done():
            self._asking = loop.create_task(self._ask(requester))
        return self._asking

    async def _ask(self, requester: Requester) -> None:
        request = DescribeQuorumRequest((str(requester.principal), requester.host))
        loop = asyncio.get_running_loop()
        try:
            answer = await self._controller.call(request, TIMEOUT_MS)
        except KafkaError:
            # Without a leader nobody knows the lags: they are shown as unknown, until there is one.
            return
        if isinstance(answer, DescribeQuorumResponse) and answer.error is ErrorCode.NONE:
            # The leader's own row is of the time of its answer, whatever this node's clock says.
            replicas = (*answer.voters, *answer.observers)
            now_ms = max((one.last_fetch_ms for one in replicas), default=-1)
            end = max((one.log_end_offset for one in replicas), default=-1)
            self._answered = _Answered(
                answer.leader_epoch,
                loop.time(),
                [_described(one, now_ms, end) for one in answer.voters],
                [_described(one, now_ms, end) for one in answer.observers],
            )

    def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()

    def document(self) -> dict[str, Any]:
        """Return the quorum as far as it is known now."""
        status = self._quorum.status()
        voters, observers = self._replicas(status)
        places = {voter.replica.node_id: voter for voter in status.voter_set}
        for row in voters:
            place = places.get(row["node_id"])
            row["host"] = None if place is None else place.host
            row["port"] = None if place is None else place.port
            row["role"] = "leader" if row["node_id"] == status.leader_id else "voter"
        for row in observers:
            row.update(host=None, port=None, role="observer")
        return {
            "leader_id": _known(status.leader_id),
            "epoch": status.epoch,
            "high_watermark": status.high_watermark,
            "log_end_offset": status.log_end_offset,
            "voters": voters,
            "observers": observers,
            "timeline": self._elections.timeline(),
        }

    def _replicas(self, status: QuorumStatus) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        if self._quorum.is_leader:
            return _rows(status, status.voters), _rows(status, status.observers)
        answered = self._answered
        if answered is not None and answered.epoch == status.epoch:
            return [dict(row) for row in answered.voters], [dict(row) for row in answered.observers]
        unknown = [_row(one.replica.node_id, one.replica.directory_id) for one in status.voter_set]
        return unknown, []


def _known(node_id: int) -> int | None:
    return None if node_id < 0 else node_id


def _row(
    node_id: int,
    directory_id: UUID | None,
    end: int | None = None,
    lag: int | None = None,
    fetch_age_ms: int | None = None,
    caught_up_age_ms: int | None = None,
) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "directory_id": None if directory_id is None else uuid_text(directory_id),
        "log_end_offset": end,
        "lag": lag,
        "last_fetch_age_ms": fetch_age_ms,
        "last_caught_up_age_ms": caught_up_age_ms,
    }


def _rows(status: QuorumStatus, replicas: Iterable[ReplicaStatus]) -> list[dict[str, Any]]:
    """Return the rows of replicas as the leader knows them."""

    def age(at_ms: int | None) -> int | None:
        return None if at_ms is None else status.now_ms - at_ms

    return [
        _row(
            one.node_id,
            one.directory_id,
            _known(one.log_end_offset),
            None if one.log_end_offset < 0 else max(0, status.log_end_offset - one.log_end_offset),
            age(one.last_fetch_ms),
            age(one.last_caught_up_ms),
        )
        for one in replicas
    ]


def _described(one: QuorumReplica, now_ms: int, end: int) -> dict[str, Any]:
    """Return the row of a replica from an answer of the leader."""
    known = one.log_end_offset >= 0
    return _row(
        one.replica_id,
        one.directory_id,
        one.log_end_offset if known else None,
        max(0, end - one.log_end_offset) if known else None,
        None if one.last_fetch_ms < 0 else max(0, now_ms - one.last_fetch_ms),
        None if one.last_caught_up_ms < 0 else max(0, now_ms - one.last_caught_up_ms),
    )
