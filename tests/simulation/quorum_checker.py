"""What must hold of a quorum after every event, whatever goes wrong (rows Q1, Q3, Q11).

election safety        one leader an epoch, in memory and in what is on disk (Raft figure 3)
one vote               an epoch's vote in a directory never changes, and its epochs never shrink
durable word           no message leaves under an epoch or a vote that is not on disk
log matching           one (offset, epoch) is one batch, everywhere and for ever
leader append-only     a leader never truncates
durable commit         what is committed is on the disks of a majority of voters, by directory
elected by directory   a new leader has the votes of a majority of voters' directories on disk
check-quorum           nobody leads on who has heard no majority for longer than check-quorum
validity               what is committed somebody has proposed
integrity              what was proposed once is committed once at most
immutable commit       a committed batch never changes, and nobody removes one
leader completeness    a new leader has every batch that earlier epochs committed
monotone commit        a node's high watermark never goes back while it runs
snapshots              hold exactly what is committed up to their end; a prefix goes only after one
linearizable reads     a read that is confirmed sees all that was committed when it was asked for
one answer             each request is answered once, and in time (`owes_no_answer`)
true answer            a change that is done is committed, and a transfer that is done won
voters of the log      whom a node takes for voters its own log says (`knows_voters`)

Of the four properties of consensus, agreement is log matching, immutable commit and leader
completeness; validity and integrity have names of their own here; termination is what scenarios
demand when faults have ended (`converge` of `tests.simulation.test_raft_cores`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode
from raftctl.raft.events import (
    AppendToLog,
    DeleteLogPrefix,
    Effect,
    HighWatermarkAdvanced,
    QuorumState,
    ReadConfirmed,
    ReadRefused,
    Reply,
    ReplyFetch,
    ReplyFetchSnapshot,
    ResetLog,
    SendRequest,
    TruncateLog,
)
from raftctl.raft.messages import (
    NO_NODE,
    AddVoterRequest,
    Epoch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    NodeId,
    Offset,
    OffsetAndEpoch,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)

if TYPE_CHECKING:
    from raftctl.raft import RaftCore
    from raftctl.raft.batch import Batch
    from raftctl.raft.voters import VoterSet
    from tests.simulation.quorum_machine import Machine


_end_offset = attrgetter("end_offset")


class Violation(AssertionError):
    """One of the properties does not hold."""


def require(condition: bool, what: str) -> None:
    """Raises `Violation` unless the condition holds."""
    if not condition:
        raise Violation(what)


def matches(voter: ReplicaKey, replica: ReplicaKey) -> bool:
    """Whether the replica is this voter, of which the directory may not be known."""
    same_directory = voter.directory_id in (None, replica.directory_id)
    return voter.node_id == replica.node_id and same_directory


class QuorumChecker:
    """Looks at effects before they are performed, and at nodes after each event."""

    def __init__(self, machines: dict[NodeId, Machine]) -> None:
        self._machines = machines
        self._leaders: dict[Epoch, NodeId] = {}
        self._votes: dict[tuple[ReplicaKey, Epoch], ReplicaKey] = {}
        self._heard: dict[NodeId, dict[ReplicaKey, int]] = {}
        """When each leader got the last Fetch of each replica in its epoch, by its own clock."""
        self._began_ms: dict[NodeId, int] = {}
        self._batches: dict[tuple[Offset, Epoch], Batch] = {}
        self._high_watermarks: dict[NodeId, Offset] = {}
        self._request_ids: set[tuple[NodeId, int]] = set()
        self._led: dict[NodeId, Epoch] = {}
        self._reads: dict[tuple[NodeId, int], Offset] = {}
        self._proposed: set[bytes] = set()
        """No two proposals are equal."""
        self._decided: set[bytes] = set()
        self._asked: dict[tuple[NodeId, int], tuple[Request, int]] = {}
        """What nobody has answered yet, and since when; a crash forgets it."""
        self.reads_confirmed = 0
        self.committed: list[Batch] = []
        self._committed_in: list[Epoch] = []
        """The epoch of whoever first called each of them so, or a later one; it never shrinks."""

    def started(self, node_id: NodeId, core: RaftCore) -> None:
        """A node starts: it knows of no commits but those in its snapshot."""
        self._high_watermarks[node_id] = core.high_watermark

    def snapshot(self, snapshot_id: OffsetAndEpoch, batches: list[Batch]) -> None:
        """A snapshot comes to a node's disk, written there or fetched."""
        require(batches == self.committed[: len(batches)], "a snapshot holds what is committed")
        end = OffsetAndEpoch(batches[-1].end_offset, batches[-1].epoch)
        require(end == snapshot_id, "a snapshot holds all that its name says")

    def proposed(self, payload: bytes) -> None:
        """Someone proposes a batch."""
        self._proposed.add(payload)

    def reads(self, node_id: NodeId, request_id: int) -> None:
        """Someone asks a node to read; it must see all that is committed by now."""
        end = self.committed[-1].end_offset if self.committed else Offset(0)
        self._reads[node_id, request_id] = end

    def crashed(self, node_id: NodeId) -> None:
        """A node is gone."""
        self._led.pop(node_id, None)
        for request_id in [one for one in self._asked if one[0] == node_id]:
            del self._asked[request_id]

    def asked(self, machine: Machine, request_id: int, request: Request, now_ms: int) -> None:
        """A request has come to a node."""
        self._asked[machine.node_id, request_id] = request, now_ms

    def owes_no_answer(self, now_ms: int, within_ms: int) -> None:
        """No node keeps a request for longer than that."""
        for (node_id, _), (request, since_ms) in self._asked.items():
            kept_ms = now_ms - since_ms
            what = f"{node_id} has not answered a {type(request).__name__} for {kept_ms} ms"
            require(kept_ms <= within_ms, what)

    def knows_voters(self, core: RaftCore, in_log: VoterSet, committed: VoterSet) -> None:
        """The voters in effect are those of the whole log, and those committed of its beginning."""
        require(core.voters == in_log, "whom it takes for voters its log does not say")
        known = core.voters_at(core.high_watermark)
        require(known == committed, "whom it takes for committed voters its log does not say")

    def hears(self, machine: Machine, core: RaftCore, request: object, own_ms: int) -> None:
        """A request is about to be handled."""
        if not isinstance(request, FetchRequest | FetchSnapshotRequest):
            return
        if core.is_leader and request.epoch == core.epoch:
            self._heard[machine.node_id][request.replica] = own_ms

    def leads_with_majority(self, machine: Machine, own_ms: int, within_ms: int) -> None:
        """If the node leads, a majority of voters has been heard lately, itself among them."""
        core = machine.core
        if core is None or not core.is_leader:
            return
        heard, began_ms = self._heard[machine.node_id], self._began_ms[machine.node_id]
        since = [
            own_ms
            if voter.replica.node_id == machine.node_id and machine.local in core.voters
            else max(
                (at for key, at in heard.items() if matches(voter.replica, key)), default=began_ms
            )
            for voter in core.voters.voters
        ]
        silent_ms = own_ms - sorted(since, reverse=True)[core.voters.majority - 1]
        what = f"{machine.node_id} leads, and has heard no majority for {silent_ms} ms"
        require(silent_ms <= within_ms, what)

    def persisted(self, machine: Machine, state: QuorumState) -> None:
        """A quorum state reaches the disk."""
        require(state.epoch >= machine.disk_state.epoch, "epochs on disk never shrink")
        if state.voted is not None:
            vote = self._votes.setdefault((machine.local, state.epoch), state.voted)
            require(vote == state.voted, f"{machine.local} votes twice in {state.epoch}")
        if state.leader_id != NO_NODE:
            self._leads(state.epoch, state.leader_id)

    def _leads(self, epoch: Epoch, leader_id: NodeId) -> None:
        leader = self._leaders.setdefault(epoch, leader_id)
        require(leader == leader_id, f"{leader} and {leader_id} lead epoch {epoch}")

    def same(self, batch: Batch) -> Batch:
        """The first of all batches equal to this one: identical ones are compared at once."""
        known = self._batches.setdefault((batch.base_offset, batch.epoch), batch)
        require(known == batch, "one (offset, epoch) is one batch")
        return known

    def effect(self, machine: Machine, core: RaftCore, effect: Effect, now_ms: int) -> None:
        """An effect is about to be performed."""
        match effect:
            case AppendToLog(batch):
                self.same(batch)
            case TruncateLog(end_offset):
                require(not core.is_leader, "a leader never truncates")
                require(end_offset >= core.high_watermark, "no truncation below the high watermark")
                kept = [b for b in machine.log if b.end_offset <= end_offset]
                had = [b for b in machine.log if b in self.committed]
                require(all(b in kept for b in had), "a committed batch is removed")
            case ResetLog(snapshot_id):
                require(not core.is_leader, "a leader never loads a snapshot")
                held = [b for b in machine.history if b in self.committed]
                after = machine.snapshots[snapshot_id]
                require(all(b in after for b in held), "a committed batch is removed")
            case DeleteLogPrefix(snapshot_id):
                require(snapshot_id in machine.snapshots, "a prefix goes, and no snapshot holds it")
            case HighWatermarkAdvanced(high_watermark):
                require(high_watermark >= self._high_watermarks[machine.node_id], "commits go back")
                self._high_watermarks[machine.node_id] = high_watermark
                self._commit(machine, core, high_watermark)
            case SendRequest(_, request):
                voted = request.candidate if isinstance(request, VoteRequest) else None
                pre_vote = isinstance(request, VoteRequest) and request.pre_vote
                epoch = getattr(request, "epoch", Epoch(0))
                self._speaks(machine, epoch, None if pre_vote else voted)
            case (
                Reply(request_id, response)
                | ReplyFetch(request_id, response)
                | ReplyFetchSnapshot(request_id, response)
            ):
                require((machine.node_id, request_id) not in self._request_ids, "a second answer")
                self._request_ids.add((machine.node_id, request_id))
                request, _ = self._asked.pop((machine.node_id, request_id))
                self._truth(core, request, response)
                if not isinstance(response, VoteResponse):
                    self._speaks(machine, response.epoch, None)
                elif response.granted and not response.pre_vote:
                    # By now the disk may be in a later epoch, with another vote or none.
                    vote = self._votes.get((machine.local, response.epoch))
                    require(vote is not None, "a vote leaves before its fsync")
                    candidate, _ = machine.request_ids[request_id]
                    require(vote is None or vote.node_id == candidate, "a vote goes to another")
        if isinstance(effect, ReplyFetch):
            self._offers(machine, effect.response)
        if isinstance(effect, ReadConfirmed | ReadRefused):
            self._read(machine, core, effect)

    def _truth(self, core: RaftCore, request: Request, response: Response) -> None:
        """What a node says has been done has been done."""
        if getattr(response, "error", None) is not ErrorCode.NONE:
            return
        committed = core.voters_at(core.high_watermark)
        match request:
            case AddVoterRequest(voter) | UpdateVoterRequest(voter):
                done = voter in committed.voters
                require(done, "a change of voters is called done, and is not committed")
            case RemoveVoterRequest(replica):
                gone = replica not in committed
                require(gone, "a change of voters is called done, and is not committed")
            case TransferLeadershipRequest(target):
                epoch = getattr(response, "epoch", core.epoch)
                leads = self._leaders.get(epoch) == target
                require(leads, "a transfer is called done, and another leads")

    def _read(self, machine: Machine, core: RaftCore, effect: ReadConfirmed | ReadRefused) -> None:
        wanted = self._reads.pop((machine.node_id, effect.request_id))
        if isinstance(effect, ReadConfirmed):
            self.reads_confirmed += 1
            require(core.high_watermark >= wanted, "a read misses what was committed before it")

    def _offers(self, machine: Machine, response: object) -> None:
        assert isinstance(response, FetchResponse)
        offset = response.fetch_offset
        log = machine.log if machine.log and offset >= machine.log[0].base_offset else machine.base
        at = bisect_left(log, offset, key=_end_offset)
        at_boundary = at < len(log) and log[at].end_offset == offset
        at_start = offset == (log[0].base_offset if log is machine.log else 0)
        require(at_boundary or at_start, "fetches start at batch boundaries")

    def _speaks(self, machine: Machine, epoch: Epoch, voted: ReplicaKey | None) -> None:
        state = machine.disk_state
        require(epoch <= state.epoch, f"{machine.node_id} speaks before epoch {epoch} is on disk")
        if voted is not None and epoch == state.epoch:
            require(voted == state.voted, "a candidate asks before its own vote is on disk")

    def _commit(self, machine: Machine, core: RaftCore, high_watermark: Offset) -> None:
        history, voters = machine.history, core.voters
        log = history[: bisect_right(history, high_watermark, key=_end_offset)]
        shared = min(len(log), len(self.committed))
        require(log[:shared] == self.committed[:shared], "a committed batch changed")
        end = log[-1].end_offset if log else 0
        require(end == high_watermark, "the high watermark is a batch boundary of the own log")
        for batch in log[shared:]:
            keys = [voter.replica for voter in voters.voters]
            having = [k for k in keys if self._machines[k.node_id].had_durably(k, batch)]
            require(len(having) >= voters.majority, "committed, but not on a majority's disks")
            self._decide(batch, core.epoch)

    def _decide(self, batch: Batch, epoch: Epoch) -> None:
        """A batch is committed for the first time, by a leader of an epoch."""
        if not batch.control:  # else the core has made it
            require(batch.payload in self._proposed, "committed, but never proposed")
            require(batch.payload not in self._decided, "committed, and not for the first time")
            self._decided.add(batch.payload)
        self.committed.append(batch)
        newest = self._committed_in[-1] if self._committed_in else epoch
        self._committed_in.append(max(epoch, newest))

    def _elected(self, machine: Machine, core: RaftCore) -> None:
        """Its votes are on the disks of a majority of voters, or were on those that are lost."""
        voted = [
            key
            for (key, epoch), vote in self._votes.items()
            if (epoch, vote.node_id) == (core.epoch, machine.node_id)
        ]
        granting = [v for v in core.voters.voters if any(matches(v.replica, key) for key in voted)]
        require(len(granting) >= core.voters.majority, "a leader without a majority's votes")

    def look(self, machine: Machine, core: RaftCore, own_ms: int) -> None:
        """An event has been handled."""
        log, base = machine.log, machine.base
        newest = log or base
        require(core.log.end_offset == (newest[-1].end_offset if newest else 0), "model")
        require(core.log.start_offset == (base[-1].end_offset if base else 0), "model of the start")
        require(core.high_watermark == self._high_watermarks[machine.node_id], "untold commit")
        require(core.high_watermark <= core.log.end_offset, "committed beyond the log")
        if core.is_leader:
            self._leads(core.epoch, machine.node_id)
            if self._led.get(machine.node_id) != core.epoch:
                self._led[machine.node_id] = core.epoch
                self._heard[machine.node_id], self._began_ms[machine.node_id] = {}, own_ms
                self._elected(machine, core)
                # Whoever was held up may begin to lead an epoch that is over by then.
                count = bisect_left(self._committed_in, core.epoch)
                own, owed = machine.history[:count], self.committed[:count]
                require(own == owed, "a new leader has every batch that earlier epochs committed")
