"""The part of a replica that all its roles share: its facts, its log, and its effects.

The rule that makes votes safe lives here: a message leaves only when the epoch and the vote it
was sent under are durable (Raft §5.2, figure 2 "persistent state"). Who leads the epoch is written
down too, so that a restarted replica knows whom to ask, but nothing waits for that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from raftctl.errors import invariant
from raftctl.raft.events import (
    AppendToLog,
    DeleteLogPrefix,
    Effect,
    HighWatermarkAdvanced,
    LeaderChanged,
    PersistQuorumState,
    QuorumState,
    ReadConfirmed,
    ReadRefused,
    Reply,
    ReplyFetch,
    ReplyFetchSnapshot,
    ResetLog,
    SaveSnapshotChunk,
    SendRequest,
    TruncateLog,
    Warned,
)
from raftctl.raft.messages import NO_NODE, Epoch
from raftctl.raft.voters import VoterHistory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from raftctl.raft._config import RaftConfig
    from raftctl.raft._log import ReplicaLog
    from raftctl.raft.batch import Batch
    from raftctl.raft.messages import (
        FetchResponse,
        FetchSnapshotResponse,
        NodeId,
        Offset,
        OffsetAndEpoch,
        ReplicaKey,
        Request,
        Response,
    )
    from raftctl.raft.voters import VoterSet

_FETCH_ID_BITS = 62


@dataclass(slots=True)
class _Write:
    """A quorum-state write under way, and the messages that wait for it."""

    state: QuorumState
    binding: bool
    held: list[Effect] = field(default_factory=list)


class Replica:
    """The replica behind the roles. Only roles and the core call it; it decides nothing."""

    def __init__(
        self,
        config: RaftConfig,
        local: ReplicaKey,
        voters: VoterSet,
        state: QuorumState,
        log: ReplicaLog,
        random: Random,
        snapshot: OffsetAndEpoch | None,
    ) -> None:
        self.config = config
        self.local = local
        self._voters = VoterHistory(voters)
        self.state = state
        self.log = log
        self.random = random
        self.snapshot = snapshot
        """The newest whole snapshot on disk. What it holds is committed."""
        held = log.start_offset == 0 or (snapshot and snapshot.offset >= log.start_offset)
        invariant(bool(held), "what stands before the log is in a snapshot")
        self.saving: OffsetAndEpoch | None = None
        """The snapshot of which a piece is being written; nothing is fetched meanwhile."""
        self._part: tuple[OffsetAndEpoch, int] | None = None
        """The snapshot that is fetched in part, and the bytes of it."""
        self.high_watermark: Offset = snapshot.offset if snapshot else log.start_offset
        self._heard_commits = False
        self._last_fetch_id = random.getrandbits(_FETCH_ID_BITS)
        self._effects: list[Effect] = []
        self._writes: deque[_Write] = deque()

    @property
    def epoch(self) -> Epoch:
        """The newest epoch this replica knows of."""
        return self.state.epoch

    @property
    def node_id(self) -> NodeId:
        """This replica's node id."""
        return self.local.node_id

    @property
    def voters(self) -> VoterSet:
        """The voters as the log has them, committed or not."""
        return self._voters.newest

    @property
    def voters_offset(self) -> Offset:
        """Offset of the record of the voters in the log; -1 if it is not there."""
        return self._voters.newest_offset

    def voters_at(self, end_offset: Offset) -> VoterSet:
        """Return the voters by the records below this offset."""
        return self._voters.at(end_offset)

    def recover_voters(self, batches: Iterable[Batch]) -> None:
        """Take note of the control batches that were found in the log."""
        for batch in batches:
            self._voters.appended(batch)

    def invariants(self) -> None:
        """Check what must hold in every role, after every event."""
        self.log.invariants()
        self._voters.invariants(self.log.end_offset)
        invariant(self.log.last_epoch <= self.epoch, "no record is of an epoch unknown here")
        invariant(self.high_watermark <= self.log.end_offset, "what is committed is in the log")
        held = 0 if self.snapshot is None else self.snapshot.offset
        invariant(held <= self.high_watermark, "a snapshot holds only committed records")
        invariant(self.log.start_offset <= held, "what stands before the log is in a snapshot")
        newest = self._writes[-1].state if self._writes else self.state
        invariant(newest == self.state, "epoch and vote are on their way to the disk")
        bound = all(write.binding or not write.held for write in self._writes)
        invariant(bound, "messages wait only for an epoch or a vote")
        saving = self.saving is None or (self._part is not None and self._part[0] == self.saving)
        invariant(saving, "the piece that is being written belongs to the snapshot here in part")

    @property
    def vote_is_durable(self) -> bool:
        """True if no epoch and no vote is still on its way to the disk."""
        return not any(write.binding for write in self._writes)

    def may_lead(self, node_id: NodeId) -> bool:
        """Return whether to believe that this node leads: any node but this replica may.

        Also one that is no voter here: the record that lets it vote may be on its way (Raft §4.1
        of the thesis), also where the set is still the one of the configuration. What makes it
        safe is its own majority, see `docs/decisions/0015-leaders-outside-the-voter-set.md`.
        """
        return node_id >= 0 and node_id != self.node_id

    @property
    def is_voter(self) -> bool:
        """True if this replica votes; otherwise it is an observer."""
        return self.local in self.voters

    @property
    def may_campaign(self) -> bool:
        """True if this replica votes, or did before a change that may be uncommitted.

        Only it may have the record of its own removal, and then nobody else can win the votes that
        the others still need (Raft §4.2.2 of the thesis).
        """
        sets = self._voters.since(self.high_watermark)
        return self.is_voter or any(self.local in voters for voters in sets)

    @property
    def may_fetch(self) -> bool:
        """True if a Fetch may leave: the log is durable and no snapshot is being written."""
        return self.log.durable and self.saving is None

    def other_voters(self) -> tuple[NodeId, ...]:
        """Return the voters besides this replica, in order."""
        return self.voters.others(self.node_id)

    def election_timeout_ms(self) -> int:
        """Return a fresh random election timeout, so that split votes are rare (Raft §5.2)."""
        least = self.config.election_timeout_ms
        return least + self.random.randrange(least)

    def next_fetch_id(self) -> int:
        """Return a number that no Fetch of this replica had lately, not even before a restart."""
        self._last_fetch_id += 1
        return self._last_fetch_id

    # --- persistence ----------------------------------------------------------------------------

    def enter_epoch(self, epoch: Epoch, leader_id: NodeId = NO_NODE) -> None:
        """Move on to a newer epoch, in which nobody has this replica's vote yet."""
        invariant(epoch > self.epoch, "epochs only grow")
        self._persist(QuorumState(epoch, leader_id, None))

    def campaign(self) -> None:
        """Move on to the next epoch with this replica's vote for itself."""
        self._persist(QuorumState(Epoch(self.epoch + 1), NO_NODE, self.local))

    def vote(self, candidate: ReplicaKey) -> None:
        """Give the vote of this epoch; a second one goes only to the same candidate."""
        invariant(self.state.voted in (None, candidate), "one vote an epoch")
        self._persist(replace(self.state, voted=candidate))

    def doubt(self) -> None:
        """Whom it took for the leader of this epoch says that it is not."""
        self._persist(replace(self.state, leader_id=NO_NODE))

    def recognize(self, leader_id: NodeId) -> None:
        """Note who leads this epoch."""
        invariant(self.state.leader_id in (NO_NODE, leader_id), "one leader an epoch")
        self._persist(replace(self.state, leader_id=leader_id))

    def _persist(self, state: QuorumState) -> None:
        if state == self.state:
            return
        binding = (state.epoch, state.voted) != (self.state.epoch, self.state.voted)
        self.state = state
        self._effects.append(PersistQuorumState(state))
        self._writes.append(_Write(state, binding))

    def persisted(self) -> QuorumState:
        """Note that the oldest quorum-state write is durable, and release what waited for it."""
        invariant(len(self._writes) > 0, "a quorum-state write is under way")
        write = self._writes.popleft()
        self._effects.extend(write.held)
        return write.state

    # --- effects --------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Return all effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    def send(self, destination: NodeId, request: Request) -> None:
        """Send a request as soon as epoch and vote are durable."""
        self._message(SendRequest(destination, request))

    def reply(self, request_id: int, response: Response) -> None:
        """Answer a request as soon as epoch and vote are durable."""
        self._message(Reply(request_id, response))

    def reply_fetch(self, request_id: int, response: FetchResponse, max_bytes: int) -> None:
        """Answer a Fetch with records of the log as it is now, so it cannot wait.

        It need not: only a leader does this, and its own vote was durable before it counted.
        """
        invariant(self.vote_is_durable, "a leader's vote is durable")
        self._effects.append(ReplyFetch(request_id, response, max_bytes))

    def reply_snapshot(
        self,
        request_id: int,
        response: FetchSnapshotResponse,
        snapshot_id: OffsetAndEpoch,
        max_bytes: int,
    ) -> None:
        """Answer with a piece of a snapshot, which never changes, so this could wait as well."""
        self._message(ReplyFetchSnapshot(request_id, response, snapshot_id, max_bytes))

    def _message(self, effect: SendRequest | Reply | ReplyFetchSnapshot) -> None:
        for write in reversed(self._writes):
            if write.binding:
                write.held.append(effect)
                return
        self._effects.append(effect)

    def append(self, batch: Batch) -> None:
        """Append to the log."""
        self.log.append(batch)
        self._voters.appended(batch)
        self._effects.append(AppendToLog(batch))

    def truncate(self, end_offset: Offset) -> None:
        """Cut the log's diverging tail, which is never committed (Raft §5.4.3)."""
        invariant(end_offset >= self.high_watermark, "no truncation below the high watermark")
        self.log.truncate(end_offset)
        self._voters.truncated(end_offset)
        self._effects.append(TruncateLog(end_offset))

    # --- snapshots ------------------------------------------------------------------------------

    def save_chunk(
        self, snapshot_id: OffsetAndEpoch, position: int, data: bytes, *, last: bool
    ) -> None:
        """Write a piece of a snapshot."""
        invariant(self.saving is None, "one piece is written after the other")
        self.saving = snapshot_id
        self._part = snapshot_id, position + len(data)
        self._effects.append(SaveSnapshotChunk(snapshot_id, position, data, last))

    def has_of(self, snapshot_id: OffsetAndEpoch) -> int:
        """Return how many bytes of a snapshot are here.

        Their source does not matter: the image at an offset is the same everywhere, and the file is
        checked as a whole when all of it is here.
        """
        return self._part[1] if self._part and self._part[0] == snapshot_id else 0

    def piece_written(self, *, more: bool) -> None:
        """Note that a piece is on disk, the last one unless more are to come."""
        self.saving = None
        if not more:
            self.forget_part()

    def forget_part(self) -> None:
        """Forget the partial snapshot: it is whole, damaged, or no longer to be had."""
        self._part = None

    def snapshot_taken(self, snapshot_id: OffsetAndEpoch) -> None:
        """Note that a snapshot of committed state is on disk."""
        invariant(snapshot_id.offset <= self.high_watermark, "snapshots hold what is committed")
        invariant(self.log.contains(snapshot_id), "a snapshot is of this log")
        if self.snapshot is None or snapshot_id.offset > self.snapshot.offset:
            self.snapshot = snapshot_id

    def delete_prefix(self, snapshot_id: OffsetAndEpoch) -> None:
        """Move the start of the log up to the end of a snapshot."""
        held = self.snapshot is not None and snapshot_id.offset <= self.snapshot.offset
        invariant(held, "only what a snapshot holds is deleted")
        if snapshot_id.offset > self.log.start_offset:
            self.log.delete_prefix(snapshot_id)
            self._voters.started(snapshot_id)
            self._effects.append(DeleteLogPrefix(snapshot_id))

    def snapshot_saved(self, voters: VoterSet | None) -> bool:
        """Replace the log by a fetched snapshot that is on disk, unless the log holds all of it.

        Return whether it did. Safe in any role but a leader's, who has all that is committed (Raft
        figure 3, leader completeness): for the others more committed records are only more. The
        records of a snapshot are committed in either case. A high watermark below it would be
        outside the log as soon as the log starts at the snapshot.
        """
        snapshot_id, self.saving = self.saving, None
        if snapshot_id is None:
            invariant(False, "a snapshot was being written")
            return False
        replaces = snapshot_id.offset > self.high_watermark
        replaces = replaces and not self.log.contains(snapshot_id)
        if replaces:
            self.log.reset(snapshot_id)
            self._voters = VoterHistory(voters or self._voters.base)
            self._effects.append(ResetLog(snapshot_id))
        if snapshot_id.offset > self.high_watermark:
            self.advance_high_watermark(snapshot_id.offset)
        if self.snapshot is None or snapshot_id.offset > self.snapshot.offset:
            self.snapshot = snapshot_id
        return replaces

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark to `offset`; return whether that is new.

        So it is, the first time, also where nothing is committed but what the snapshot holds.
        """
        confirmed = 0 < offset == self.high_watermark and not self._heard_commits
        if offset <= self.high_watermark and not confirmed:
            return False
        self.high_watermark = offset
        self._heard_commits = True
        self._effects.append(HighWatermarkAdvanced(offset))
        return True

    def confirm_read(self, request_id: int) -> None:
        """Confirm a read: it sees everything that was committed when it was requested."""
        self._effects.append(ReadConfirmed(request_id))

    def refuse_read(self, request_id: int) -> None:
        """Refuse a read: this replica cannot know what is committed."""
        self._effects.append(ReadRefused(request_id))

    def warn(self, why: str) -> None:
        """Have the node log a warning."""
        self._effects.append(Warned(why))

    def announce(self, leader_id: NodeId) -> None:
        """Report the leader to the node."""
        self._effects.append(LeaderChanged(self.epoch, leader_id))
