"""A leader's view of the other replicas: their progress and liveness (etcd's tracker).

`QuorumStatus` is the view that `quorum describe` shows; its times are the core's clock (`now_ms`).

A voter's progress is what its fetches have said in this epoch. It is kept by the voter's key, not
by its node id alone: a replica with another directory id has another disk, so it must not inherit
what the old disk had (KIP-853). Such a replica is followed as an observer until a change of the
voters names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from raftctl.errors import invariant
from raftctl.raft.messages import Epoch, FetchRequest, NodeId, Offset, ReplicaKey, Voter
from raftctl.raft.voters import NOT_IN_LOG

if TYPE_CHECKING:
    from raftctl.raft._replica import Replica
    from raftctl.raft.voters import VoterSet

UNKNOWN_OFFSET = Offset(-1)
OBSERVERS_MAX = 2048
OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for so long is forgotten."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica as the leader knows it."""

    node_id: NodeId
    log_end_offset: Offset
    """Its durable log end; -1 before its first Fetch in this epoch."""
    last_fetch_ms: int | None
    """The time of its last Fetch; None before the first."""
    last_caught_up_ms: int | None
    """The last time at which it had all that the leader had."""
    directory_id: UUID | None = None
    """The directory id that it reported; None before its first Fetch."""


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """The quorum as one replica sees it; only the leader knows `voters` and `observers`."""

    now_ms: int
    role: str
    leader_id: NodeId
    epoch: Epoch
    high_watermark: Offset
    log_end_offset: Offset
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]
    voter_set: tuple[Voter, ...] = ()
    """The voters in effect here, with their addresses."""
    voters_offset: Offset = NOT_IN_LOG
    """The offset of the record that names them; `NOT_IN_LOG` if no record does."""


@dataclass(slots=True)
class Waiting:
    """A Fetch that the leader keeps until there is something to answer with."""

    request_id: int
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class Progress:
    """Progress of another replica in this epoch."""

    replica: ReplicaKey
    end_offset: Offset = UNKNOWN_OFFSET
    """Everything below is on its disk."""
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    leader_end_offset: Offset = UNKNOWN_OFFSET
    """The leader's log end when the last Fetch came."""
    waiting: Waiting | None = None
    seen_round: int = 0
    """The newest round of reads that it has seen."""
    fetched_as: ReplicaKey | None = None
    """The key in its own fetches, with the directory id; None before the first."""

    def fetched(self, end_offset: Offset, leader_end_offset: Offset, now_ms: int) -> None:
        """Record a Fetch from `end_offset`: everything below is on the replica's disk."""
        if end_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms is not None and end_offset >= self.leader_end_offset:
            # It has now what the leader had at its previous Fetch: it was caught up then.
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self.last_fetch_ms)
        self.end_offset = end_offset
        self.leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms

    def status(self) -> ReplicaStatus:
        """Return the row for `quorum describe`."""
        key = self.fetched_as or self.replica
        return ReplicaStatus(
            key.node_id,
            self.end_offset,
            self.last_fetch_ms,
            self.last_caught_up_ms,
            key.directory_id,
        )


class Tracker:
    """The progress of all other replicas, as one leader knows it."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._counted = replica.voters
        """The voter set that `voters` was made for."""
        self.voters: dict[NodeId, Progress] = {}
        """The other voters, in order of their node ids."""
        self.observers: dict[ReplicaKey, Progress] = {}
        """Everybody else, in order of the last Fetch."""
        self._count_voters()

    def invariants(self) -> None:
        """Check that each other voter is followed once, and none beyond the leader's log."""
        replica = self._replica
        followed = tuple(self.voters) == replica.other_voters()
        invariant(followed, "the voters followed are those in effect")
        own = {progress.replica for progress in self.voters.values()}
        invariant(own.isdisjoint(self.observers), "no replica is followed twice")
        # A follower's end is taken only if its log is a prefix of the leader's.
        within = all(p.end_offset <= replica.log.end_offset for p in self.all())
        invariant(within, "nobody follows beyond the leader's log")

    def all(self) -> list[Progress]:
        """Return the progress of every other replica, voters first."""
        return [*self.voters.values(), *self.observers.values()]

    def voters_appended(self) -> None:
        """Follow the voters of the newest record, if those are new.

        A replica whose kind changes keeps its progress: a voter that joined as an observer has the
        log already, and to start it from nothing would stop commits until its next Fetch.
        """
        if self._replica.voters is not self._counted:
            self._count_voters()

    def _count_voters(self) -> None:
        voters = self._replica.voters
        known = {p.fetched_as or p.replica: p for p in self.all()}
        self.voters = {}
        for node_id in self._replica.other_voters():
            key = voters.key(node_id)
            progress = known.pop(key) if key in known else Progress(key)
            progress.replica = key
            self.voters[node_id] = progress
        self.observers = known
        self._counted = voters

    def fetching(self, key: ReplicaKey, now_ms: int) -> tuple[Progress, Progress | None]:
        """Return the progress of a replica that fetches, and an observer forgotten for it.

        The key must be the voter's own: a voter that lost its disk comes back with another
        directory id, and what it had before does not count for commits any more.
        """
        voter = self.voters.get(key.node_id)
        forgotten = None
        if voter is not None and key in self._replica.voters:
            progress = voter
        else:
            # Taken out and put back at the end, so that the longest idle stands in front.
            progress = self.observers.pop(key, Progress(key))
            forgotten = self._forget_idle(now_ms)
            self.observers[key] = progress
        progress.fetched_as = key
        return progress, forgotten

    def _forget_idle(self, now_ms: int) -> Progress | None:
        oldest = next(iter(self.observers.values()), None)
        if oldest is None:
            return None
        seen_ms = oldest.last_fetch_ms
        idle = seen_ms is None or now_ms - seen_ms > OBSERVER_SESSION_MS
        if not idle and len(self.observers) < OBSERVERS_MAX:
            return None
        del self.observers[oldest.replica]
        return oldest

    def voter_keys(self) -> dict[NodeId, ReplicaKey]:
        """Return the keys with which the other voters have fetched in this epoch."""
        fetched = {node_id: p.fetched_as for node_id, p in self.voters.items()}
        return {node_id: key for node_id, key in fetched.items() if key is not None}

    def has_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Return whether a live observer has everything that is committed."""
        progress = self.observers.get(key)
        caught_up = progress is not None and progress.end_offset >= self._replica.high_watermark
        return caught_up and progress is not None and self._is_live(progress, now_ms)

    def _is_live(self, progress: Progress, now_ms: int) -> bool:
        seen_ms = progress.last_fetch_ms
        return seen_ms is not None and now_ms - seen_ms < self._replica.config.check_quorum_ms

    def is_majority_live(self, voters: VoterSet, joining: ReplicaKey | None, now_ms: int) -> bool:
        """Return whether these voters could commit now: a majority of them has fetched lately.

        `joining` counts as live: it is asked for separately whether it has caught up.
        """
        live = {node_id for node_id, p in self.voters.items() if self._is_live(p, now_ms)}
        live.add(self._replica.node_id)
        if joining is not None:
            live.add(joining.node_id)
        return len(live.intersection(voters.ids)) >= voters.majority

    def majority_seen_ms(self, began_ms: int) -> int | None:
        """Return when a majority, this leader included, had last fetched; None for one voter.

        A voter that has not fetched yet counts as seen when the leader began. A leader that votes
        is one of the majority; one that is being removed is not (thesis §4.2.2).
        """
        if not self.voters:
            return None
        fetches = [progress.last_fetch_ms for progress in self.voters.values()]
        seen_ms = [began_ms if at_ms is None else at_ms for at_ms in fetches]
        needed = self._replica.voters.majority - self._replica.is_voter
        return sorted(seen_ms, reverse=True)[needed - 1]

    def voter_statuses(self, now_ms: int) -> tuple[ReplicaStatus, ...]:
        """Return all voters, this leader included, in order of their node ids."""
        statuses = [progress.status() for progress in self.voters.values()]
        if self._replica.is_voter:  # else it leads only until its removal is committed
            local, end_offset = self._replica.local, self._replica.log.durable_end_offset
            own = ReplicaStatus(local.node_id, end_offset, now_ms, now_ms, local.directory_id)
            statuses.append(own)
        return tuple(sorted(statuses, key=lambda status: status.node_id))

    def observer_statuses(self) -> tuple[ReplicaStatus, ...]:
        """Return all observers, in order of their node ids."""
        statuses = [progress.status() for progress in self.observers.values()]
        return tuple(sorted(statuses, key=lambda status: status.node_id))
