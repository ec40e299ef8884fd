"""The leader: counts what voters have on disk, commits, and answers fetches or lets them wait.

Rules kept here: a record is committed when a majority of voters has it durable and a record of the
leader's own epoch is among the committed (Raft §5.4.2); the high watermark never goes back; the
leader's own log counts only as far as it is flushed (row Q3); a leader that no majority fetches
from resigns (Raft §6.2 of the thesis, KAFKA-15489).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, invariant
from raftctl.raft._membership import Membership
from raftctl.raft._reads import READS_MAX, Reads
from raftctl.raft._status import ReplicaStatus
from raftctl.raft.batch import Batch
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    NodeId,
    Offset,
    ReplicaKey,
)

if TYPE_CHECKING:
    from raftctl.raft._replica import Replica
    from raftctl.raft.messages import OffsetAndEpoch
    from raftctl.raft.voters import VoterSet

UNKNOWN_OFFSET = Offset(-1)
OBSERVERS_MAX = 2048
OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for so long is forgotten."""
NO_TIMESTAMP_MS = -1
"""The time of the core's own records: the core has no wall clock."""


@dataclass(slots=True)
class Waiting:
    """A Fetch that there is nothing to answer with yet."""

    token: int
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class Progress:
    """What the leader knows of another replica in this epoch."""

    replica: ReplicaKey
    end_offset: Offset = UNKNOWN_OFFSET
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    leader_end_offset: Offset = UNKNOWN_OFFSET
    """The leader's log end when the last Fetch came."""
    waiting: Waiting | None = None
    seen_round: int = 0
    """The newest round of reads that it has seen."""
    fetched_as: ReplicaKey | None = None
    """Its key as it gave it itself, with the directory id."""

    def fetched(self, end_offset: Offset, leader_end_offset: Offset, now_ms: int) -> None:
        """The replica has everything below `end_offset` on disk."""
        if end_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms is not None and end_offset >= self.leader_end_offset:
            # It has now what the leader had at its previous Fetch: it was caught up then.
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self.last_fetch_ms)
        self.end_offset = end_offset
        self.leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms

    def status(self) -> ReplicaStatus:
        """For `quorum describe`."""
        key = self.fetched_as or self.replica
        return ReplicaStatus(
            key.node_id,
            self.end_offset,
            self.last_fetch_ms,
            self.last_caught_up_ms,
            key.directory_id,
        )


@dataclass(frozen=True, slots=True)
class Transfer:
    """Leadership is promised to a voter as soon as it has the whole log."""

    token: int
    target: NodeId
    deadline_ms: int


class Leader:
    """Leads the current epoch."""

    def __init__(self, replica: Replica, now_ms: int) -> None:
        self._replica = replica
        self._began_ms = now_ms
        self.epoch_start_offset: Offset = replica.log.end_offset
        self._voters: dict[NodeId, Progress] = {}
        self._observers: dict[ReplicaKey, Progress] = {}
        self._counted = replica.voters
        self._count_voters()
        self.membership = Membership(replica, self)
        self._waiting_deadline_ms: int | None = None
        """No Fetch waits longer than this; it may be too early, then a tick finds nothing to do."""
        self._begin_deadline_ms: int | None = None
        self._commits_due_ms: int | None = None
        """When voters that wait for records are told what has been committed meanwhile."""
        self._reads = Reads()
        self._lacks: tuple[Offset, int] | None = None
        """Which end others have committed and the own disk has not, and since when."""
        self.transfer: Transfer | None = None
        """While there is one, nothing is proposed, so that its target can catch up."""

    @property
    def established(self) -> bool:
        """Whether a record of this epoch is committed, and so everything before it."""
        return self._replica.high_watermark > self.epoch_start_offset

    # --- records --------------------------------------------------------------------------------

    def propose(self, payload: bytes, count: int, timestamp_ms: int, *, control: bool) -> None:
        """Appends records of this epoch and hands them to whoever waits for some."""
        replica = self._replica
        invariant(count == 1 or not control, "a control batch has one record")
        base = replica.log.end_offset
        replica.append(Batch(base, replica.epoch, count, timestamp_ms, control, payload))
        if replica.voters is not self._counted:
            self._count_voters()
        self._answer_waiting()

    def _count_voters(self) -> None:
        """The voters are new: whoever was followed as the other kind of replica stays known."""
        voters = self._replica.voters
        known = {p.fetched_as or p.replica: p for p in self._all_progress()}
        self._voters = {}
        for node_id in self._replica.other_voters():
            key = voters.key(node_id)
            progress = known.pop(key) if key in known else Progress(key)
            progress.replica = key
            self._voters[node_id] = progress
        self._observers = known
        self._counted = voters

    def voter_keys(self) -> dict[NodeId, ReplicaKey]:
        """The keys with which the other voters have fetched in this epoch."""
        heard = {node_id: p.fetched_as for node_id, p in self._voters.items()}
        return {node_id: key for node_id, key in heard.items() if key is not None}

    def has_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Whether an observer has everything that is committed, by its word of just now."""
        progress = self._observers.get(key)
        caught_up = progress is not None and progress.end_offset >= self._replica.high_watermark
        return caught_up and progress is not None and self._is_heard(progress, now_ms)

    def _is_heard(self, progress: Progress, now_ms: int) -> bool:
        seen_ms = progress.last_fetch_ms
        return seen_ms is not None and now_ms - seen_ms < self._replica.config.check_quorum_ms

    def hears_majority_of(self, voters: VoterSet, joining: ReplicaKey | None, now_ms: int) -> bool:
        """Whether these voters could commit now: a majority is heard, and so is who joins them."""
        heard = {n for n, p in self._voters.items() if self._is_heard(p, now_ms)}
        heard.add(self._replica.node_id)
        if joining is not None:
            heard.add(joining.node_id)
        return len(heard.intersection(voters.ids)) >= voters.majority

    # --- the own disk ---------------------------------------------------------------------------

    def watch_disk(self, now_ms: int) -> None:
        """Takes note of how long the own disk has lacked what others have committed."""
        committed, durable = self._replica.high_watermark, self._replica.log.durable_end_offset
        if durable >= committed:
            self._lacks = None
        elif self._lacks is None or durable >= self._lacks[0]:
            self._lacks = (committed, now_ms)

    def disk_deadline_ms(self) -> int | None:
        """When to resign unless the own disk gets on.

        A leader whose disk hangs commits by the others' disks and keeps what it cannot write in
        memory, while one of those others could lead.
        """
        return None if self._lacks is None else self._lacks[1] + self._replica.config.disk_hangs_ms

    def flushed(self, now_ms: int) -> None:
        """More of the leader's own log is durable."""
        if self._commit():
            self._answer_waiting()
            self._defer_commits(now_ms)

    def _commit(self) -> bool:
        """Advances the high watermark if a majority allows it; tells whether it did."""
        replica = self._replica
        ends = [progress.end_offset for progress in self._voters.values()]
        if replica.is_voter:  # a leader that is being removed counts no more
            ends.append(replica.log.durable_end_offset)
        reached = replica.voters.reached_by_majority(ends)
        # A record of an earlier epoch commits only along with one of this epoch (figure 8).
        news = reached > self.epoch_start_offset and replica.advance_high_watermark(reached)
        self._confirm_reads()
        return news

    # --- fetches --------------------------------------------------------------------------------

    def fetch(self, token: int, request: FetchRequest, now_ms: int) -> None:
        """Answers a Fetch of this epoch, now or when there is something to answer with."""
        log = self._replica.log
        progress = self._progress(request.replica, now_ms)
        if request.seen_round <= self._reads.round:  # else it is not one of this leader's
            progress.seen_round = max(progress.seen_round, request.seen_round)
        self._confirm_reads()
        if log.starts_after(request.fetch_from):
            progress.last_fetch_ms = now_ms
            response = self._response(request)
            self._replica.reply(token, replace(response, snapshot_id=self._replica.snapshot))
            return
        diverging = log.divergence(request.fetch_from)
        if diverging is not None:
            progress.last_fetch_ms = now_ms
            self._reply(token, request, diverging=diverging)
            return
        progress.fetched(request.fetch_from.offset, log.end_offset, now_ms)
        wait_ms = min(request.max_wait_ms, self._replica.config.fetch_max_wait_ms)
        progress.waiting = Waiting(token, request, now_ms + wait_ms)
        if self._commit():
            self._answer_waiting()
        elif wait_ms <= 0 or self._has_news(request):
            self._answer(progress)
        else:
            self._expect(progress.waiting.deadline_ms)
        self._defer_commits(now_ms)

    def fetch_snapshot(self, token: int, request: FetchSnapshotRequest, now_ms: int) -> None:
        """Answers with a piece of a snapshot; whoever asks for one hears this leader."""
        self._progress(request.replica, now_ms).last_fetch_ms = now_ms
        response = snapshot_response(self._replica, request, ErrorCode.NONE, self._replica.node_id)
        max_bytes = min(request.max_bytes, self._replica.config.snapshot_max_bytes)
        self._replica.reply_snapshot(token, response, request.snapshot_id, max_bytes)

    def _progress(self, key: ReplicaKey, now_ms: int) -> Progress:
        """The replica's progress; a Fetch of it that still waits is answered first."""
        voter = self._voters.get(key.node_id)
        is_voter = voter is not None and key in self._replica.voters
        progress = voter if voter is not None and is_voter else self._observer(key, now_ms)
        progress.fetched_as = key
        self._answer_empty(progress)
        return progress

    def _observer(self, key: ReplicaKey, now_ms: int) -> Progress:
        """Keeps observers in order of their last Fetch, so that the idle are found in front."""
        observer = self._observers.pop(key, None) or Progress(key)
        self._forget_idle(now_ms)
        self._observers[key] = observer
        return observer

    def _forget_idle(self, now_ms: int) -> None:
        oldest = next(iter(self._observers.values()), None)
        if oldest is None:
            return
        seen_ms = oldest.last_fetch_ms
        idle = seen_ms is None or now_ms - seen_ms > OBSERVER_SESSION_MS
        if idle or len(self._observers) >= OBSERVERS_MAX:
            del self._observers[oldest.replica]
            self._answer_empty(oldest)

    def _has_news(self, request: FetchRequest) -> bool:
        """Whether there are records for a voter to make durable, or commits for an observer.

        Voters hear of commits with the next records or a little later: nobody waits for what they
        apply, and an answer for each commit, with the Fetch that follows, is half of all messages.
        Nobody waits for what observers have either: they get records together with their commit,
        and not before it, in one answer instead of two.
        """
        if request.replica not in self._replica.voters:
            return self._has_commits(request)
        return self._replica.log.end_offset > request.fetch_from.offset or self._has_round(request)

    def _has_commits(self, request: FetchRequest) -> bool:
        return self._replica.high_watermark > request.high_watermark

    def _defer_commits(self, now_ms: int) -> None:
        if self._commits_due_ms is None and any(
            p.waiting is not None and self._has_commits(p.waiting.request)
            for p in self._voters.values()
        ):
            self._commits_due_ms = now_ms + self._replica.config.commit_delay_ms

    def _tell_commits(self) -> None:
        self._commits_due_ms = None
        for progress in self._voters.values():
            if progress.waiting is not None and self._has_commits(progress.waiting.request):
                self._answer(progress)

    def _has_round(self, request: FetchRequest) -> bool:
        """Whether a read waits for this voter to see its round."""
        return len(self._reads) > 0 and request.seen_round < self._reads.round

    def _expect(self, deadline_ms: int) -> None:
        earliest = self._waiting_deadline_ms
        self._waiting_deadline_ms = deadline_ms if earliest is None else min(earliest, deadline_ms)

    def _all_progress(self) -> list[Progress]:
        return [*self._voters.values(), *self._observers.values()]

    def _answer_waiting(self) -> None:
        for progress in self._all_progress():
            if progress.waiting is not None:
                if self._has_news(progress.waiting.request):
                    self._answer(progress)
                else:
                    self._expect(progress.waiting.deadline_ms)

    def _answer(self, progress: Progress) -> None:
        """Answers the waiting Fetch with what there is."""
        waiting, progress.waiting = progress.waiting, None
        if waiting is not None:
            max_bytes = min(waiting.request.max_bytes, self._replica.config.fetch_max_bytes)
            response = self._response(waiting.request)
            self._replica.reply_fetch(waiting.token, response, max_bytes)

    def _answer_empty(self, progress: Progress) -> None:
        """Answers a waiting Fetch without records: its replica has asked again, or is forgotten."""
        waiting, progress.waiting = progress.waiting, None
        if waiting is not None:
            self._reply(waiting.token, waiting.request)

    def _reply(
        self,
        token: int,
        request: FetchRequest,
        *,
        error: ErrorCode = ErrorCode.NONE,
        diverging: OffsetAndEpoch | None = None,
    ) -> None:
        self._replica.reply(token, self._response(request, error=error, diverging=diverging))

    def _response(
        self,
        request: FetchRequest,
        *,
        error: ErrorCode = ErrorCode.NONE,
        diverging: OffsetAndEpoch | None = None,
    ) -> FetchResponse:
        replica, current = self._replica, self._reads.round
        return fetch_response(replica, request, error, replica.node_id, diverging, current)

    def take_waiting(self) -> list[Waiting]:
        """The fetches that wait, to be answered by whoever the replica is from now on."""
        waiting = [p.waiting for p in self._all_progress() if p.waiting is not None]
        for progress in self._all_progress():
            progress.waiting = None
        return waiting

    # --- reads ----------------------------------------------------------------------------------

    def read(self, token: int) -> None:
        """Confirms the read as soon as a majority has been heard that sent its word after this."""
        if len(self._reads) >= READS_MAX:
            self._replica.refuse_read(token)
            return
        self._reads.add(token)
        self._confirm_reads()
        if len(self._reads) > 0:
            self._answer_waiting()

    def _confirm_reads(self) -> None:
        if not len(self._reads) or not self.established:
            return
        seen = [progress.seen_round for progress in self._voters.values()]
        if self._replica.is_voter:
            seen.append(self._reads.round)
        for token in self._reads.seen(self._replica.voters.reached_by_majority(seen)):
            self._replica.confirm_read(token)

    def refuse_reads(self) -> None:
        """Leadership is lost: what waits cannot be confirmed any more."""
        for token in self._reads.seen(self._reads.round):
            self._replica.refuse_read(token)

    # --- transfer -------------------------------------------------------------------------------

    def begin_transfer(self, token: int, target: NodeId, now_ms: int) -> ErrorCode:
        """Promises leadership to a voter; NONE if it is to be waited for."""
        if target not in self._voters:
            own = target == self._replica.node_id
            return ErrorCode.ELECTION_NOT_NEEDED if own else ErrorCode.VOTER_NOT_FOUND
        if self.transfer is not None or self.membership.change is not None:
            return ErrorCode.REQUEST_TIMED_OUT  # not "done already": that may be another's transfer
        deadline_ms = now_ms + self._replica.config.fetch_timeout_ms
        self.transfer = Transfer(token, target, deadline_ms)
        return ErrorCode.NONE

    def transfer_ready(self) -> bool:
        """Whether the target of a transfer has the whole log on disk, so that it can win."""
        transfer, end_offset = self.transfer, self._replica.log.end_offset
        return transfer is not None and self._voters[transfer.target].end_offset == end_offset

    # --- time -----------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """Asks voters to fetch, again and again until each has."""
        missing = [p.replica.node_id for p in self._voters.values() if p.last_fetch_ms is None]
        replica = self._replica
        for node_id in missing:
            replica.send(node_id, BeginQuorumEpochRequest(replica.epoch, replica.node_id))
        pause_ms = replica.config.fetch_timeout_ms // 2
        self._begin_deadline_ms = now_ms + pause_ms if missing else None

    def tick(self, now_ms: int) -> None:
        """Answers fetches that have waited long enough, and reminds voters to fetch."""
        if self._begin_deadline_ms is not None and now_ms >= self._begin_deadline_ms:
            self.begin(now_ms)
        if self._commits_due_ms is not None and now_ms >= self._commits_due_ms:
            self._tell_commits()
        if self._waiting_deadline_ms is None or now_ms < self._waiting_deadline_ms:
            return
        self._waiting_deadline_ms = None
        for progress in self._all_progress():
            if progress.waiting is None:
                continue
            if now_ms >= progress.waiting.deadline_ms:
                self._answer(progress)
            else:
                self._expect(progress.waiting.deadline_ms)

    def check_quorum_deadline_ms(self) -> int | None:
        """When to resign unless more voters fetch; None for the only voter."""
        if not self._voters:
            return None  # the only voter
        began_ms = self._began_ms
        fetches = [progress.last_fetch_ms for progress in self._voters.values()]
        seen_ms = [began_ms if at_ms is None else at_ms for at_ms in fetches]
        needed = self._replica.voters.majority - self._replica.is_voter
        return sorted(seen_ms, reverse=True)[needed - 1] + self._replica.config.check_quorum_ms

    def deadline_ms(self) -> int | None:
        """When to call `tick`, or to resign."""
        candidates = (
            self._begin_deadline_ms,
            self._waiting_deadline_ms,
            self._commits_due_ms,
            self.check_quorum_deadline_ms(),
            self.disk_deadline_ms(),
            self.transfer.deadline_ms if self.transfer else None,
            self.membership.deadline_ms(),
        )
        return min((at_ms for at_ms in candidates if at_ms is not None), default=None)

    # --- for the operator and the successor -----------------------------------------------------

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters: whom leadership was promised to, then those with the longest logs."""
        first = self.transfer.target if self.transfer else None
        ranked = sorted(
            self._voters.values(),
            key=lambda p: (p.replica.node_id != first, -p.end_offset, p.replica.node_id),
        )
        return tuple(progress.replica for progress in ranked)

    def voter_statuses(self, now_ms: int) -> tuple[ReplicaStatus, ...]:
        """All voters, in order of their node ids."""
        statuses = [progress.status() for progress in self._voters.values()]
        if self._replica.is_voter:  # else it leads only until its removal is committed
            local, end_offset = self._replica.local, self._replica.log.durable_end_offset
            own = ReplicaStatus(local.node_id, end_offset, now_ms, now_ms, local.directory_id)
            statuses.append(own)
        return tuple(sorted(statuses, key=lambda status: status.node_id))

    def observer_statuses(self) -> tuple[ReplicaStatus, ...]:
        """All observers, in order of their node ids."""
        statuses = [progress.status() for progress in self._observers.values()]
        return tuple(sorted(statuses, key=lambda status: status.node_id))


def fetch_response(
    replica: Replica,
    request: FetchRequest,
    error: ErrorCode,
    leader_id: NodeId,
    diverging: OffsetAndEpoch | None = None,
    read_round: int = 0,
) -> FetchResponse:
    """An answer without records, which says what this replica knows of epoch and leader."""
    return FetchResponse(
        error=error,
        epoch=replica.epoch,
        leader_id=leader_id,
        fetch_offset=request.fetch_from.offset,
        high_watermark=replica.high_watermark,
        diverging=diverging,
        snapshot_id=None,
        log_start_offset=replica.log.start_offset,
        batches=b"",
        fetch_id=request.fetch_id,
        round=read_round,
    )


def snapshot_response(
    replica: Replica, request: FetchSnapshotRequest, error: ErrorCode, leader_id: NodeId
) -> FetchSnapshotResponse:
    """An answer without data, which says what this replica knows of epoch and leader."""
    return FetchSnapshotResponse(
        error=error,
        epoch=replica.epoch,
        leader_id=leader_id,
        position=request.position,
        size=0,
        data=b"",
        fetch_id=request.fetch_id,
    )
