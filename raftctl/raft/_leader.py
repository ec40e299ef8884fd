"""The leader: counts what voters have on disk, commits, and answers fetches or lets them wait.

A record is committed when a majority of the voters has it durable and a record of the leader's own
epoch is among the committed (Raft §5.4.2). Three rules keep that true here:

- The leader's own log counts only as far as it is flushed (row Q3). Followers fetch a record while
  the leader still writes it, so it may commit before the leader has it on disk.
- The high watermark never goes back.
- A leader that no majority fetches from resigns (thesis §6.2, KAFKA-15489). Where leaders push, a
  failed send shows; here followers pull, so silence is the only sign.

It also changes the voters, one at a time (KIP-853; Raft §4.1 of the thesis):

add      the new voter first catches up as an observer; then the record with the new set is appended
any      refused unless the leader hears a majority of the new set, which must commit it
remove   the record is appended at once; a leader that removes itself counts itself no more, and
         resigns when the record is committed
update   another address of the same replica

The new set is in effect, and commits its own record, from the append on. Two sets that differ by
one voter share a voter in any two majorities. That holds across leaders as well: no two changes are
under way at once, and a leader first commits a record of its own epoch. A static set becomes a
dynamic one with its first change, with the directory ids that the voters fetch with.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import ErrorCode, invariant
from raftctl.ids import ZERO_UUID
from raftctl.raft._tracker import Progress, Tracker, Waiting
from raftctl.raft.batch import Batch
from raftctl.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    ChangeVotersRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    NodeId,
    Offset,
    OffsetAndEpoch,
    RemoveVoterRequest,
    ReplicaKey,
    UpdateVoterRequest,
    Voter,
)
from raftctl.raft.voters import VoterSet, encode_voters

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.raft._replica import Replica

NO_TIMESTAMP_MS = -1
"""The time of the core's own records: the core has no wall clock."""
READS_MAX = 100_000
"""Reads that wait; more are refused."""


class _Read(NamedTuple):
    round: int
    request_id: int


class Reads:
    """Linearizable reads: each waits until this leader is known to have led after it was requested.

    A Fetch that merely *arrives* after the request proves nothing: it may have been sent long
    before, by a voter that has elected another leader since. So each read opens a round. Answers to
    fetches carry the newest round, and a Fetch carries the newest that its sender has seen in this
    epoch. A majority that has seen the round was in this epoch after the request. So no newer
    leader had been elected by then, and everything committed by then is in this leader's log.
    Source: Raft §8 and thesis §6.4 (read index), turned round for pull replication (row Q9).
    """

    __slots__ = ("_waiting", "round")

    def __init__(self) -> None:
        self.round = 0
        """The newest round; every answer to a Fetch carries it."""
        self._waiting: deque[_Read] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request_id: int) -> None:
        """Open a round for a read."""
        self.round += 1
        self._waiting.append(_Read(self.round, request_id))

    def seen(self, by_majority: int) -> list[int]:
        """Remove and return, in order, the reads whose round a majority has seen."""
        request_ids = []
        while self._waiting and self._waiting[0].round <= by_majority:
            request_ids.append(self._waiting.popleft().request_id)
        return request_ids


@dataclass(frozen=True, slots=True)
class Transfer:
    """A promise of leadership to a voter, due as soon as it has the whole log."""

    request_id: int
    target: NodeId
    deadline_ms: int


# --- changes of voters ----------------------------------------------------------------------------


@dataclass(slots=True)
class Change:
    """A change under way."""

    request_id: int
    voters: VoterSet
    catching_up: ReplicaKey | None
    deadline_ms: int
    offset: Offset | None = None
    """The offset of its record; None until that is appended."""


class Membership:
    """The changes of voters by one leader."""

    def __init__(self, replica: Replica, tracker: Tracker, append: Callable[[bytes], None]) -> None:
        """`append` appends a control record of this leader."""
        self._replica = replica
        self._tracker = tracker
        self._append = append
        self.change: Change | None = None

    def begin(
        self, request_id: int, request: ChangeVotersRequest, now_ms: int, *, ready: bool
    ) -> ErrorCode:
        """Begin the change; NONE if its outcome is to be waited for.

        `ready` is whether the leader may change anything now (`Leader.change_voters`).
        REQUEST_TIMED_OUT is retriable and means that nothing was done: a change or a transfer is
        under way, the newest voters are not committed, or the request was decided on others.
        NOT_ENOUGH_REPLICAS: no majority of the new set is alive, so the record might never commit.
        """
        leaving = request.replica if isinstance(request, RemoveVoterRequest) else None
        current = self._identified(leaving)
        committed = self._replica.voters_offset < self._replica.high_watermark
        if self.change is not None or current is None or not committed or not ready:
            return ErrorCode.REQUEST_TIMED_OUT
        if not isinstance(request, UpdateVoterRequest) and self._is_delayed(request.seen):
            return ErrorCode.REQUEST_TIMED_OUT
        error = _judge(current, request)
        if error is not ErrorCode.NONE:
            return error
        catching_up = None
        match request:
            case AddVoterRequest(voter=voter):
                catching_up = voter.replica
                voters = current.with_voter(voter)
            case UpdateVoterRequest(voter):
                voters = current.with_voter(voter)
            case RemoveVoterRequest(replica=replica):
                voters = current.without(replica.node_id)
        if not self._tracker.is_majority_live(voters, catching_up, now_ms):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        deadline_ms = now_ms + self._replica.config.fetch_timeout_ms
        self.change = Change(request_id, voters, catching_up, deadline_ms)
        return ErrorCode.NONE

    def _is_delayed(self, seen: OffsetAndEpoch | None) -> bool:
        """Whether it was decided on other voters than these, or before this leader.

        The epoch is needed as well: the record at that offset may have been truncated since.
        """
        replica = self._replica
        return seen not in (None, OffsetAndEpoch(replica.voters_offset, replica.epoch))

    def _identified(self, leaving: ReplicaKey | None) -> VoterSet | None:
        """The voters with their directory ids; None until each has been heard in this epoch.

        But for the one that leaves, which may be gone for good: it is whom the operator names.
        """
        voters = self._replica.voters
        if voters.dynamic:
            return voters
        keys = {self._replica.node_id: self._replica.local, **self._tracker.voter_keys()}
        if leaving is not None:
            keys.setdefault(leaving.node_id, leaving)
        if any(node_id not in keys for node_id in voters.ids):
            return None
        return VoterSet(
            (Voter(keys[v.replica.node_id], v.host, v.port) for v in voters.voters), dynamic=True
        )

    def advance(self, now_ms: int) -> ErrorCode | None:
        """Append the record when it is time; return the outcome once there is one, else None."""
        change = self.change
        if change is None:
            return None
        if change.offset is not None:
            return ErrorCode.NONE if self._replica.high_watermark > change.offset else None
        if self._may_append(change, now_ms):
            change.offset = self._replica.log.end_offset
            self._append(encode_voters(change.voters))
            return None
        return ErrorCode.REQUEST_TIMED_OUT if now_ms >= change.deadline_ms else None

    def _may_append(self, change: Change, now_ms: int) -> bool:
        """Whether the new set could commit its own record: else nothing would commit any more."""
        joining = change.catching_up
        caught_up = joining is None or self._tracker.has_caught_up(joining, now_ms)
        return caught_up and self._tracker.is_majority_live(change.voters, joining, now_ms)

    def deadline_ms(self) -> int | None:
        """Return the time at which the leader stops waiting for the new voter to catch up."""
        waits = self.change is not None and self.change.offset is None
        return self.change.deadline_ms if waits and self.change else None


def _judge(current: VoterSet, request: ChangeVotersRequest) -> ErrorCode:
    match request:
        case AddVoterRequest(voter=voter):
            taken = voter.replica.node_id in current.ids
            directory_id = voter.replica.directory_id
            if taken:
                return ErrorCode.DUPLICATE_VOTER
            # One disk of two names, or its copy, would count twice for a majority.
            others = {None, ZERO_UUID, *(one.replica.directory_id for one in current.voters)}
            return ErrorCode.INVALID_VOTER_KEY if directory_id in others else ErrorCode.NONE
        case UpdateVoterRequest(voter):
            replica = voter.replica
        case RemoveVoterRequest(replica=replica):
            if replica in current and len(current) == 1:
                return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if replica in current else ErrorCode.VOTER_NOT_FOUND


# --- the leader -----------------------------------------------------------------------------------


class Leader:
    """Leads the current epoch: from the won election until another role takes its place."""

    def __init__(self, replica: Replica, now_ms: int) -> None:
        self._replica = replica
        self._began_ms = now_ms
        self.epoch_start_offset: Offset = replica.log.end_offset
        self.tracker = Tracker(replica)
        self.membership = Membership(replica, self.tracker, self._append_control)
        self._waiting_deadline_ms: int | None = None
        """No Fetch waits longer than this. It may be too early; then a tick finds nothing to do."""
        self._begin_deadline_ms: int | None = None
        self._commits_due_ms: int | None = None
        """The time at which voters that wait for records get an answer with the newer high
        watermark."""
        self._reads = Reads()
        self._lacks: tuple[Offset, int] | None = None
        """(high watermark that the own disk lacked, since when); None if it lacks nothing."""
        self.transfer: Transfer | None = None
        """The transfer under way. Until it ends nothing is proposed, so that its target can catch
        up."""

    @property
    def established(self) -> bool:
        """True if a record of this epoch is committed, and so everything before it."""
        return self._replica.high_watermark > self.epoch_start_offset

    def invariants(self) -> None:
        """Check what makes this replica the leader of its epoch."""
        replica = self._replica
        self.tracker.invariants()
        invariant(replica.state.leader_id == replica.node_id, "a leader knows that it leads")
        # Else it could have voted for two candidates, or lead again after a crash.
        invariant(replica.vote_is_durable, "a leader's vote is durable")
        invariant(replica.log.last_epoch == replica.epoch, "a leader's epoch has a record at once")
        begun = replica.log.start_offset <= self.epoch_start_offset < replica.log.end_offset
        invariant(begun or self.established, "the first record is in the log until committed")
        change = self.membership.change
        invariant(change is None or self.transfer is None, "no voters change during a transfer")
        appended = change is None or change.offset is None or change.offset == replica.voters_offset
        invariant(appended, "the change under way is that of the newest voters' record")
        rounds = all(p.seen_round <= self._reads.round for p in self.tracker.all())
        invariant(rounds, "nobody has seen a round of reads that has not begun")

    # --- records --------------------------------------------------------------------------------

    def propose(self, payload: bytes, count: int, timestamp_ms: int, *, control: bool) -> None:
        """Append records of this epoch, and answer fetches that wait for some."""
        replica = self._replica
        invariant(count > 0, "a batch has records")
        invariant(count == 1 or not control, "a control batch has one record")
        # The log must not grow then, or the target could never catch up and the leadership would be
        # neither here nor there (thesis §3.10).
        invariant(self.transfer is None, "nothing is proposed during a transfer")
        base = replica.log.end_offset
        replica.append(Batch(base, replica.epoch, count, timestamp_ms, control, payload))
        self.tracker.voters_appended()
        self._answer_waiting()

    def _append_control(self, payload: bytes) -> None:
        self.propose(payload, 1, NO_TIMESTAMP_MS, control=True)

    # --- the own disk ---------------------------------------------------------------------------

    def watch_disk(self, now_ms: int) -> None:
        """Record since when the own disk has lacked what others have committed."""
        committed, durable = self._replica.high_watermark, self._replica.log.durable_end_offset
        if durable >= committed:
            self._lacks = None
        elif self._lacks is None or durable >= self._lacks[0]:
            self._lacks = (committed, now_ms)

    def disk_deadline_ms(self) -> int | None:
        """Return when to resign unless the own disk gets on; None if it lacks nothing.

        A leader whose disk hangs commits by the others' disks and keeps what it cannot write in
        memory, while one of those others could lead.
        """
        return None if self._lacks is None else self._lacks[1] + self._replica.config.disk_hangs_ms

    def flushed(self, now_ms: int) -> None:
        """Commit what the leader's own flush has completed, if anything."""
        if self._commit():
            self._answer_waiting()
            self._defer_commits(now_ms)

    def _commit(self) -> bool:
        """Advance the high watermark if a majority allows it; return whether it did."""
        replica = self._replica
        ends = [progress.end_offset for progress in self.tracker.voters.values()]
        if replica.is_voter:  # a leader that is being removed does not count (thesis §4.2.2)
            ends.append(replica.log.durable_end_offset)
        reached = replica.voters.reached_by_majority(ends)
        # A record of an earlier epoch commits only along with one of this epoch. Counted alone, it
        # could be on a majority and still be overwritten by a later leader (Raft figure 8).
        advanced = reached > self.epoch_start_offset and replica.advance_high_watermark(reached)
        self._confirm_reads()
        return advanced

    # --- fetches --------------------------------------------------------------------------------

    def fetch(self, request_id: int, request: FetchRequest, now_ms: int) -> None:
        """Answer a Fetch of this epoch, now or when there is something to answer with.

        The Fetch is the acknowledgement of everything below its position, so it may commit records.
        A position that is not in this log is answered at once, with where the logs part or with the
        snapshot that replaces what this log no longer holds.
        """
        log = self._replica.log
        progress = self._progress(request.replica, now_ms)
        if request.seen_round <= self._reads.round:  # else it is not one of this leader's
            progress.seen_round = max(progress.seen_round, request.seen_round)
        self._confirm_reads()
        if log.starts_after(request.fetch_from):
            progress.last_fetch_ms = now_ms
            response = self._response(request)
            self._replica.reply(request_id, replace(response, snapshot_id=self._replica.snapshot))
            return
        diverging = log.divergence(request.fetch_from)
        if diverging is not None:
            progress.last_fetch_ms = now_ms
            self._reply(request_id, request, diverging=diverging)
            return
        progress.fetched(request.fetch_from.offset, log.end_offset, now_ms)
        wait_ms = min(request.max_wait_ms, self._replica.config.fetch_max_wait_ms)
        progress.waiting = Waiting(request_id, request, now_ms + wait_ms)
        if self._commit():
            self._answer_waiting()
        elif wait_ms <= 0 or self._is_answerable(request):
            self._answer(progress)
        else:
            self._expect(progress.waiting.deadline_ms)
        self._defer_commits(now_ms)

    def fetch_snapshot(self, request_id: int, request: FetchSnapshotRequest, now_ms: int) -> None:
        """Answer with a piece of a snapshot; asking for one counts as a sign of life."""
        self._progress(request.replica, now_ms).last_fetch_ms = now_ms
        response = snapshot_response(self._replica, request, ErrorCode.NONE, self._replica.node_id)
        max_bytes = min(request.max_bytes, self._replica.config.snapshot_max_bytes)
        self._replica.reply_snapshot(request_id, response, request.snapshot_id, max_bytes)

    def _progress(self, key: ReplicaKey, now_ms: int) -> Progress:
        """Return the replica's progress; a Fetch of it that still waits is answered first."""
        progress, forgotten = self.tracker.fetching(key, now_ms)
        if forgotten is not None:
            self._answer_empty(forgotten)
        self._answer_empty(progress)
        return progress

    def _is_answerable(self, request: FetchRequest) -> bool:
        """Whether there are records for a voter to make durable, or commits for an observer.

        Voters learn commits with the next records or a little later. Nobody waits for what they
        apply, and an answer for each commit, with the Fetch that follows, is half of all messages.
        Observers get records together with their commit, in one answer instead of two: nobody
        waits for what they have on disk.
        """
        if request.replica not in self._replica.voters:
            return self._has_commits(request)
        return self._replica.log.end_offset > request.fetch_from.offset or self._has_round(request)

    def _has_commits(self, request: FetchRequest) -> bool:
        return self._replica.high_watermark > request.high_watermark

    def _defer_commits(self, now_ms: int) -> None:
        if self._commits_due_ms is None and any(
            p.waiting is not None and self._has_commits(p.waiting.request)
            for p in self.tracker.voters.values()
        ):
            self._commits_due_ms = now_ms + self._replica.config.commit_delay_ms

    def _answer_commits(self) -> None:
        self._commits_due_ms = None
        for progress in self.tracker.voters.values():
            if progress.waiting is not None and self._has_commits(progress.waiting.request):
                self._answer(progress)

    def _has_round(self, request: FetchRequest) -> bool:
        """Whether a read waits for this voter to see its round."""
        return len(self._reads) > 0 and request.seen_round < self._reads.round

    def _expect(self, deadline_ms: int) -> None:
        earliest = self._waiting_deadline_ms
        self._waiting_deadline_ms = deadline_ms if earliest is None else min(earliest, deadline_ms)

    def _answer_waiting(self) -> None:
        for progress in self.tracker.all():
            if progress.waiting is not None:
                if self._is_answerable(progress.waiting.request):
                    self._answer(progress)
                else:
                    self._expect(progress.waiting.deadline_ms)

    def _answer(self, progress: Progress) -> None:
        """Answer the waiting Fetch with the records that there are."""
        waiting, progress.waiting = progress.waiting, None
        if waiting is not None:
            max_bytes = min(waiting.request.max_bytes, self._replica.config.fetch_max_bytes)
            response = self._response(waiting.request)
            self._replica.reply_fetch(waiting.request_id, response, max_bytes)

    def _answer_empty(self, progress: Progress) -> None:
        """Answer a waiting Fetch without records: its replica has asked again, or is forgotten."""
        waiting, progress.waiting = progress.waiting, None
        if waiting is not None:
            self._reply(waiting.request_id, waiting.request)

    def _reply(
        self,
        request_id: int,
        request: FetchRequest,
        *,
        error: ErrorCode = ErrorCode.NONE,
        diverging: OffsetAndEpoch | None = None,
    ) -> None:
        self._replica.reply(request_id, self._response(request, error=error, diverging=diverging))

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
        """Remove and return the fetches that wait, for the next role of this replica to answer."""
        waiting = [p.waiting for p in self.tracker.all() if p.waiting is not None]
        for progress in self.tracker.all():
            progress.waiting = None
        return waiting

    # --- reads ----------------------------------------------------------------------------------

    def read(self, request_id: int) -> None:
        """Confirm the read once a majority has acknowledged a round that began after it (§6.4)."""
        if len(self._reads) >= READS_MAX:
            self._replica.refuse_read(request_id)
            return
        self._reads.add(request_id)
        self._confirm_reads()
        if len(self._reads) > 0:
            self._answer_waiting()

    def _confirm_reads(self) -> None:
        if not len(self._reads) or not self.established:
            return
        seen = [progress.seen_round for progress in self.tracker.voters.values()]
        if self._replica.is_voter:
            seen.append(self._reads.round)
        for request_id in self._reads.seen(self._replica.voters.reached_by_majority(seen)):
            self._replica.confirm_read(request_id)

    def refuse_reads(self) -> None:
        """Refuse all reads that wait: leadership is lost, so they cannot be confirmed any more."""
        for request_id in self._reads.seen(self._reads.round):
            self._replica.refuse_read(request_id)

    # --- for the operator -------------------------------------------------------------------------

    def change_voters(
        self, request_id: int, request: ChangeVotersRequest, now_ms: int
    ) -> ErrorCode:
        """Begin a change of the voters; NONE if its outcome is to be waited for.

        Refused until a record of this epoch is committed. Without that, two leaders could each
        change the set of an older epoch by one voter, and the two new sets need not share a
        majority (Ongaro, "bug in single-server membership changes", raft-dev, 2015).
        """
        ready = self.established and self.transfer is None
        return self.membership.begin(request_id, request, now_ms, ready=ready)

    def begin_transfer(self, request_id: int, target: NodeId, now_ms: int) -> ErrorCode:
        """Promise leadership to a voter; NONE if the outcome is to be waited for.

        ELECTION_NOT_NEEDED if it leads already, VOTER_NOT_FOUND if it is no voter.
        """
        if target not in self.tracker.voters:
            own = target == self._replica.node_id
            return ErrorCode.ELECTION_NOT_NEEDED if own else ErrorCode.VOTER_NOT_FOUND
        if self.transfer is not None or self.membership.change is not None:
            return ErrorCode.REQUEST_TIMED_OUT  # not "done already": that may be another's transfer
        deadline_ms = now_ms + self._replica.config.fetch_timeout_ms
        self.transfer = Transfer(request_id, target, deadline_ms)
        return ErrorCode.NONE

    def transfer_ready(self) -> bool:
        """Return whether the target of a transfer has the whole log on disk, so that it can win."""
        if self.transfer is None:
            return False
        progress = self.tracker.voters[self.transfer.target]
        return progress.end_offset == self._replica.log.end_offset

    # --- time -----------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """Ask voters to fetch, again and again until each has.

        A follower pulls, so a voter that does not know the new leader sends it nothing; without
        this request a leader that won silently would be deposed by check-quorum.
        """
        replica, voters = self._replica, self.tracker.voters.values()
        missing = [p.replica.node_id for p in voters if p.last_fetch_ms is None]
        for node_id in missing:
            replica.send(node_id, BeginQuorumEpochRequest(replica.epoch, replica.node_id))
        pause_ms = replica.config.fetch_timeout_ms // 2
        self._begin_deadline_ms = now_ms + pause_ms if missing else None

    def tick(self, now_ms: int) -> None:
        """Answer fetches that have waited long enough, and remind voters to fetch."""
        if self._begin_deadline_ms is not None and now_ms >= self._begin_deadline_ms:
            self.begin(now_ms)
        if self._commits_due_ms is not None and now_ms >= self._commits_due_ms:
            self._answer_commits()
        if self._waiting_deadline_ms is None or now_ms < self._waiting_deadline_ms:
            return
        self._waiting_deadline_ms = None
        for progress in self.tracker.all():
            if progress.waiting is None:
                continue
            if now_ms >= progress.waiting.deadline_ms:
                self._answer(progress)
            else:
                self._expect(progress.waiting.deadline_ms)

    def check_quorum_deadline_ms(self) -> int | None:
        """Return when to resign unless more voters fetch; None for the only voter."""
        seen_ms = self.tracker.majority_seen_ms(self._began_ms)
        return None if seen_ms is None else seen_ms + self._replica.config.check_quorum_ms

    def deadline_ms(self) -> int | None:
        """Return when to call `tick`, or to resign."""
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

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Return the other voters: first the target of a transfer, then the longest logs first."""
        first = self.transfer.target if self.transfer else None
        ranked = sorted(
            self.tracker.voters.values(),
            key=lambda p: (p.replica.node_id != first, -p.end_offset, p.replica.node_id),
        )
        return tuple(progress.replica for progress in ranked)


def fetch_response(
    replica: Replica,
    request: FetchRequest,
    error: ErrorCode,
    leader_id: NodeId,
    diverging: OffsetAndEpoch | None = None,
    read_round: int = 0,
) -> FetchResponse:
    """Return an answer without records, with this replica's knowledge of epoch and leader."""
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
    """Return an answer without data, with this replica's knowledge of epoch and leader."""
    return FetchSnapshotResponse(
        error=error,
        epoch=replica.epoch,
        leader_id=leader_id,
        position=request.position,
        size=0,
        data=b"",
        fetch_id=request.fetch_id,
    )
