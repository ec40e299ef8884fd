"""The mouth of the quorum core: events in, effects out.

This module answers peers and passes each event to the role it concerns:

    _roles       which role this replica has, and how roles change
    _leader      commits, fetches that wait, reads, transfers
    _membership  changes of the voters
    _fetcher     the pulling side, of followers and observers
    _campaign    votes and pre-votes
    _replica     facts and effects that all roles share; what has to be durable first

A late, repeated or reordered message changes nothing: each names its epoch, and an answer is taken
only for the request under way. No message is trusted: one that cannot be true is refused before any
role sees it (`_validation`).
Sources: Raft §5, §8, §9.6; KIP-595, KIP-853 (replica keys), KIP-996 (pre-vote).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import ErrorCode, invariant
from raftctl.raft._campaign import Campaign, Candidate, Prospective, Resigned, Unattached
from raftctl.raft._config import RaftConfig
from raftctl.raft._fetcher import Fetcher, Follower
from raftctl.raft._leader import Leader, fetch_response, snapshot_response
from raftctl.raft._replica import Replica
from raftctl.raft._roles import Roles
from raftctl.raft._tracker import QuorumStatus
from raftctl.raft._validation import complaint_of, names_other_leader
from raftctl.raft.events import (
    Effect,
    Event,
    LogFlushed,
    PrefixExpired,
    Proposed,
    QuorumState,
    QuorumStatePersisted,
    ReadRequested,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    SnapshotChunkSaved,
    SnapshotRefused,
    SnapshotSaved,
    SnapshotTaken,
    Started,
    Tick,
)
from raftctl.raft.messages import (
    NO_NODE,
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVotersResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from raftctl.raft._log import ReplicaLog
    from raftctl.raft._roles import LeaderChangePayload
    from raftctl.raft.batch import Batch
    from raftctl.raft.messages import (
        Epoch,
        NodeId,
        Offset,
        OffsetAndEpoch,
        ReplicaKey,
        Request,
        Response,
    )
    from raftctl.raft.voters import VoterSet

__all__ = ["RaftConfig", "RaftCore"]


class _Checked(NamedTuple):
    """What must not go back, as `invariants` found it last."""

    epoch: Epoch
    voted: ReplicaKey | None
    high_watermark: Offset


class RaftCore:
    """One replica of the quorum's log, voter or observer."""

    def __init__(
        self,
        config: RaftConfig,
        local: ReplicaKey,
        voters: VoterSet,
        quorum_state: QuorumState,
        log: ReplicaLog,
        random: Random,
        leader_change_payload: LeaderChangePayload,
        snapshot: OffsetAndEpoch | None = None,
        control_batches: Iterable[Batch] = (),
    ) -> None:
        """Begin with what was recovered from the disk; `Started` must be the first event.

        `voters` are those at the start of the log, `control_batches` are in it and may change them.
        `snapshot` is the newest on disk; the log holds its last record or starts after it.
        `leader_change_payload(leader_id, voters, granting)` packs an epoch's first record, whose
        format is the controller's and none of the core's business.
        """
        self._replica = Replica(config, local, voters, quorum_state, log, random, snapshot)
        self._replica.recover_voters(control_batches)
        self._roles = Roles(self._replica, leader_change_payload)
        self._announced = (quorum_state.epoch, NO_NODE)
        self._checked = _Checked(quorum_state.epoch, quorum_state.voted, self.high_watermark)

    # --- what others may know -------------------------------------------------------------------

    @property
    def role(self) -> str:
        """The name of the current role, in small letters."""
        return type(self._roles.current).__name__.lower()

    @property
    def is_leader(self) -> bool:
        """True if this replica leads; `Proposed` is legal only then."""
        return isinstance(self._roles.current, Leader)

    @property
    def is_changing_voters(self) -> bool:
        """True if this leader may append a record of its own with any event."""
        role = self._roles.current
        return isinstance(role, Leader) and role.membership.change is not None

    def voters_at(self, end_offset: Offset) -> VoterSet:
        """Return the voters by the records below this offset."""
        return self._replica.voters_at(end_offset)

    @property
    def voters(self) -> VoterSet:
        """The voters in effect."""
        return self._replica.voters

    @property
    def is_transferring(self) -> bool:
        """True if this leader hands over: proposals are kept back until that succeeds or fails."""
        role = self._roles.current
        return isinstance(role, Leader) and role.transfer is not None

    @property
    def epoch(self) -> Epoch:
        """The newest epoch this replica knows of."""
        return self._replica.epoch

    @property
    def is_voter(self) -> bool:
        """Whether this replica votes, by the voters in effect."""
        return self._replica.is_voter

    @property
    def voted_id(self) -> NodeId:
        """Who got the vote of this replica in this epoch; NO_NODE for none."""
        voted = self._replica.state.voted
        return NO_NODE if voted is None else voted.node_id

    @property
    def leader_id(self) -> NodeId:
        """Leader of the epoch as far as this replica knows, or `NO_NODE`."""
        return self._roles.leader_id

    @property
    def high_watermark(self) -> Offset:
        """Every record below is committed; the log's start while nothing better is known."""
        return self._replica.high_watermark

    @property
    def log(self) -> ReplicaLog:
        """The model of the log; for reading only."""
        return self._replica.log

    def status(self, now_ms: int) -> QuorumStatus:
        """Return what `quorum describe` shows; only a leader knows the other replicas."""
        role = self._roles.current
        leader = role if isinstance(role, Leader) else None
        return QuorumStatus(
            now_ms=now_ms,
            role=self.role,
            leader_id=self.leader_id,
            epoch=self.epoch,
            high_watermark=self.high_watermark,
            log_end_offset=self.log.end_offset,
            voters=leader.tracker.voter_statuses(now_ms) if leader else (),
            observers=leader.tracker.observer_statuses() if leader else (),
            voter_set=self.voters.voters,
            voters_offset=self._replica.voters_offset,
        )

    def deadline_ms(self) -> int | None:
        """Return when to send `Tick`, on the clock of `now_ms`; None if time changes nothing."""
        at_ms = (self._roles.current.deadline_ms(), self._roles.handover_deadline_ms())
        return min((one for one in at_ms if one is not None), default=None)

    def invariants(self) -> None:
        """Check the whole state, and that nothing has gone back since the last call.

        For tests and the simulation, after each event: it costs more than most events do.
        """
        replica, checked = self._replica, self._checked
        replica.invariants()
        self._roles.invariants()
        invariant(self.epoch >= checked.epoch, "epochs only grow")
        same = self.epoch == checked.epoch
        # A vote that is forgotten could be given twice, and two candidates would win the epoch.
        kept = not same or checked.voted in (None, replica.state.voted)
        invariant(kept, "a vote is never taken back")
        invariant(self.high_watermark >= checked.high_watermark, "what is committed stays so")
        self._checked = _Checked(self.epoch, replica.state.voted, self.high_watermark)

    # --- events ---------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event and return its effects, to be performed in order.

        `now_ms` is any clock that never goes back. It may stand still or jump ahead, as after a
        stalled fsync; time-outs that have passed meanwhile fire with the next `Tick`.
        """
        match event:
            case Started():
                self._roles.start(now_ms)
            case Tick():
                self._tick(now_ms)
            case RequestReceived(request_id, request):
                self._request(request_id, request, now_ms)
            case ResponseReceived(source, response):
                self._response(source, response, now_ms)
            case RequestFailed(destination, request):
                self._request_failed(destination, request, now_ms)
            case Proposed(payload, count, timestamp_ms):
                match self._roles.current:
                    case Leader() as leader:
                        leader.propose(payload, count, timestamp_ms, control=False)
                    case _:
                        invariant(False, "only a leader appends records")
            case ResignRequested():
                self._roles.resign(now_ms)
            case ReadRequested(request_id):
                self._read(request_id)
            case _:
                self._disk(event, now_ms)
        # Any event may commit a record, and so end a change of voters or a transfer of leadership.
        self._roles.tend(now_ms)
        self._announce()
        return self._replica.take_effects()

    def _disk(self, event: Event, now_ms: int) -> None:
        """Take a report of the disk. Reports come in the order of the writes."""
        match event:
            case LogFlushed(end_offset):
                self._log_flushed(end_offset, now_ms)
            case QuorumStatePersisted():
                self._quorum_state_persisted(now_ms)
            case SnapshotTaken(snapshot_id):
                self._replica.snapshot_taken(snapshot_id)
            case PrefixExpired(snapshot_id):
                self._replica.delete_prefix(snapshot_id)
            case SnapshotChunkSaved() | SnapshotSaved() | SnapshotRefused():
                self._snapshot_written(event, now_ms)

    def _read(self, request_id: int) -> None:
        match self._roles.current:
            case Leader() as leader:
                leader.read(request_id)
            case _:
                self._replica.refuse_read(request_id)

    def _announce(self) -> None:
        """Report a new leader to the node; its own leadership only once established.

        Until then the high watermark may lie below records that the last leader had committed: a
        controller that became active would decide from an image that lacks them (Raft §8).
        """
        role = self._roles.current
        hidden = isinstance(role, Leader) and not role.established
        visible = (self.epoch, NO_NODE if hidden else self.leader_id)
        if visible != self._announced:
            self._announced = visible
            self._replica.announce(visible[1])

    def _tick(self, now_ms: int) -> None:
        match self._roles.current:
            case Leader() as leader:
                self._tick_leader(leader, now_ms)
            case Follower() as follower:
                self._tick_follower(follower, now_ms)
            case Unattached(fetcher=Fetcher() as fetcher):
                fetcher.fetch(now_ms)
            case Unattached() | Resigned() | Campaign() as waiting:
                deadline_ms = waiting.election_deadline_ms
                if deadline_ms is not None and now_ms >= deadline_ms:
                    self._look_for_leader(now_ms)
                elif isinstance(waiting, Campaign):
                    waiting.retry(now_ms)

    def _tick_leader(self, leader: Leader, now_ms: int) -> None:
        resign_at_ms, hangs_at_ms = leader.check_quorum_deadline_ms(), leader.disk_deadline_ms()
        # Resigning comes first: after a stall of the process everything is due at once, and by then
        # the others have probably elected another leader.
        if resign_at_ms is not None and now_ms >= resign_at_ms:
            self._roles.resign(now_ms)
        elif hangs_at_ms is not None and now_ms >= hangs_at_ms:
            end = self._replica.log.durable_end_offset
            self._replica.warn(
                f"resigns: nothing from offset {end} on has come to the disk for "
                f"{self._replica.config.disk_hangs_ms} ms, though others have committed it"
            )
            self._roles.resign(now_ms)
        else:
            leader.tick(now_ms)

    def _tick_follower(self, follower: Follower, now_ms: int) -> None:
        if not follower.lost_leader(now_ms):
            follower.fetcher.fetch(now_ms)
        else:
            self._look_for_leader(now_ms)

    def _look_for_leader(self, now_ms: int) -> None:
        """Campaign, or as an observer ask the voters: an observer's votes would count nowhere."""
        if self._replica.may_campaign:
            self._roles.prospect(now_ms)
        else:
            self._roles.detach(now_ms)

    def _log_flushed(self, end_offset: Offset, now_ms: int) -> None:
        self._replica.log.flushed(end_offset)
        self._disk_caught_up(now_ms)

    def _snapshot_written(
        self, event: SnapshotChunkSaved | SnapshotSaved | SnapshotRefused, now_ms: int
    ) -> None:
        """Go on from a piece of a snapshot, whatever the role has become since it was fetched.

        A refused snapshot is damaged, here or at its source. It is fetched from the start again,
        after a pause, since the same source may be damaged still.
        """
        fetcher, more = self._fetcher(), isinstance(event, SnapshotChunkSaved)
        if isinstance(event, SnapshotSaved):
            replaced = self._replica.snapshot_saved(event.voters)
            invariant(not (replaced and self.is_leader), "a leader has all that is committed")
        self._replica.piece_written(more=more)
        if fetcher is not None and not more:
            fetcher.want(None)
            if isinstance(event, SnapshotRefused):
                fetcher.failed(now_ms)
        self._roles.reconsider(now_ms)
        self._disk_caught_up(now_ms)

    def _disk_caught_up(self, now_ms: int) -> None:
        """Count what is durable now, or fetch on: a Fetch leaves only from a durable log."""
        match self._roles.current:
            case Leader() as leader:
                leader.flushed(now_ms)
            case Follower() as follower:
                follower.flushed(now_ms)
            case Unattached(fetcher=Fetcher() as fetcher):
                fetcher.fetch(now_ms)

    def _quorum_state_persisted(self, now_ms: int) -> None:
        """Let out what waited for the write, and count the own vote, which is durable only now.

        Counted earlier, a candidate that crashed could vote again, for another, in an epoch that it
        had won with the forgotten vote (Raft §5.2).
        """
        state = self._replica.persisted()
        role = self._roles.current
        own = state.epoch == self.epoch and self._replica.is_voter
        if isinstance(role, Candidate) and own:
            role.granting.add(self._replica.node_id)
            self._roles.count_votes(now_ms)

    # --- requests -------------------------------------------------------------------------------

    def _request(self, request_id: int, request: Request, now_ms: int) -> None:
        # Before anything is learnt from it: an epoch near the end of its range would be adopted and
        # leave no room for another election, for ever.
        complaint = complaint_of(request, self.epoch)
        if complaint is not None:
            self._replica.warn(f"{type(request).__name__} refused: {complaint}")
            self._refuse(request_id, request)
            return
        match request:
            case FetchRequest() | FetchSnapshotRequest():
                self._fetch(request_id, request, now_ms)
            case VoteRequest():
                self._vote(request_id, request, now_ms)
            case BeginQuorumEpochRequest():
                self._begin_quorum_epoch(request_id, request, now_ms)
            case EndQuorumEpochRequest():
                self._end_quorum_epoch(request_id, request, now_ms)
            case TransferLeadershipRequest():
                self._roles.transfer(request_id, request, now_ms)
            case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest():
                self._roles.change_voters(request_id, request, now_ms)

    def _refuse(self, request_id: int, request: Request) -> None:
        """Answer what no honest peer sends with INVALID_REQUEST; nothing has changed."""
        epoch, leader_id, error = self.epoch, self.leader_id, ErrorCode.INVALID_REQUEST
        response: Response
        match request:
            case FetchRequest():
                response = fetch_response(self._replica, request, error, leader_id)
            case FetchSnapshotRequest():
                response = snapshot_response(self._replica, request, error, leader_id)
            case VoteRequest():
                local = self._replica.local
                response = VoteResponse(epoch, leader_id, False, request.pre_vote, local)
            case BeginQuorumEpochRequest():
                response = BeginQuorumEpochResponse(epoch, leader_id, error)
            case EndQuorumEpochRequest():
                response = EndQuorumEpochResponse(epoch, leader_id, error)
            case TransferLeadershipRequest():
                response = TransferLeadershipResponse(error, epoch, leader_id)
            case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest():
                response = ChangeVotersResponse(error, epoch, leader_id)
        self._replica.reply(request_id, response)

    def _vote(self, request_id: int, request: VoteRequest, now_ms: int) -> None:
        granted = False
        # The candidate is judged by its log alone, and this replica answers even if one of the two
        # is no voter here: this set may be older than the candidate's, which must not be left
        # without the votes of its own majority. The candidate counts only votes of its own set
        # (`_vote_response`), so a vote too many decides nothing. Elections are safe by the log
        # check, the one durable vote and that majority, not by any set (decision 0015).
        if request.candidate.node_id != self._replica.node_id:
            self._roles.learn(request.epoch, NO_NODE, now_ms)
            up_to_date = _rank(request.log_end) >= _rank(self.log.end)
            if request.epoch == self.epoch and up_to_date:
                granted = self._grant(request, now_ms)
            if isinstance(self._roles.current, Candidate):
                self._roles.current.meet(request, now_ms)
        self._replica.reply(
            request_id,
            VoteResponse(
                self.epoch, self.leader_id, granted, request.pre_vote, self._replica.local
            ),
        )

    def _grant(self, request: VoteRequest, now_ms: int) -> bool:
        """Decide on a candidate of this epoch whose log is up to date (Raft §5.4.1)."""
        role = self._roles.current
        if request.pre_vote:
            # A pre-vote costs nothing, so it is no vote: several candidates may have it. It is
            # refused by replicas that hear their leader, so that one that was cut off for a while
            # cannot depose it with a newer epoch when it returns (Raft §9.6).
            if isinstance(role, Follower):
                return not role.hears_leader(now_ms)
            return not isinstance(role, Leader)
        state = self._replica.state
        if state.leader_id != NO_NODE or state.voted not in (None, request.candidate):
            return False
        if state.voted is None:
            self._replica.vote(request.candidate)
            self._roles.detach(now_ms, now_ms + self._replica.election_timeout_ms())
        return True

    def _begin_quorum_epoch(
        self, request_id: int, request: BeginQuorumEpochRequest, now_ms: int
    ) -> None:
        error = self._judge_leader(request)
        if error is ErrorCode.NONE:
            self._roles.learn(request.epoch, request.leader_id, now_ms)
        self._replica.reply(request_id, BeginQuorumEpochResponse(self.epoch, self.leader_id, error))

    def _end_quorum_epoch(
        self, request_id: int, request: EndQuorumEpochRequest, now_ms: int
    ) -> None:
        error = self._judge_leader(request)
        if error is ErrorCode.NONE:
            self._roles.learn(request.epoch, NO_NODE, now_ms)
            if self._replica.may_campaign:
                self._succeed(request, now_ms)
        self._replica.reply(request_id, EndQuorumEpochResponse(self.epoch, self.leader_id, error))

    def _judge_leader(self, request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> ErrorCode:
        if not self._replica.may_lead(request.leader_id):
            return ErrorCode.INCONSISTENT_VOTER_SET
        if names_other_leader(request, self.epoch, self._replica.state.leader_id):
            known = self._replica.state.leader_id
            self._replica.warn(
                f"{type(request).__name__} refused: {request.leader_id} says that it leads epoch "
                f"{request.epoch}, which {known} leads"
            )
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.FENCED_LEADER_EPOCH if request.epoch < self.epoch else ErrorCode.NONE

    def believes(self, request: BeginQuorumEpochRequest) -> bool:
        """Return whether the request may come from the leader of this epoch or of a newer one."""
        known = self._replica.state.leader_id
        other = names_other_leader(request, self.epoch, known)
        return (
            request.epoch >= self.epoch and not other and self._replica.may_lead(request.leader_id)
        )

    def _succeed(self, request: EndQuorumEpochRequest, now_ms: int) -> None:
        """Campaign after the leader has resigned, in the order it named.

        The first successor needs no pre-vote: the leader itself says that it is gone, and others,
        which may not know yet, would refuse because they hear it (thesis §3.10). Later successors
        wait exponentially longer, so that votes are not split among them.
        """
        successors = [replica.node_id for replica in request.preferred_successors]
        if self._replica.node_id not in successors:
            self._roles.detach(now_ms, now_ms + self._replica.election_timeout_ms())
            return
        position = successors.index(self._replica.node_id)
        if position == 0:
            self._roles.campaign(now_ms)
        else:
            pause_ms = self._replica.config.succession_ms(position, len(successors))
            self._roles.detach(now_ms, now_ms + pause_ms)

    def _fetch(
        self, request_id: int, request: FetchRequest | FetchSnapshotRequest, now_ms: int
    ) -> None:
        if request.replica == self._replica.local:
            self._replica.warn(f"{type(request).__name__} refused: it says that this node sent it")
            self._refuse(request_id, request)
            return
        # Only a voter's epoch counts. An observer may have been promised a newer epoch by somebody
        # who is wrong, and must not be able to depose the leader with it.
        if request.replica in self._replica.voters:
            self._roles.learn(request.epoch, NO_NODE, now_ms)
        role = self._roles.current
        if request.epoch == self.epoch and isinstance(role, Leader):
            if isinstance(request, FetchRequest):
                role.fetch(request_id, request, now_ms)
            else:
                role.fetch_snapshot(request_id, request, now_ms)
            return
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if request.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif request.epoch > self.epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        if isinstance(request, FetchRequest):
            refused: Response = fetch_response(self._replica, request, error, self.leader_id)
        else:
            refused = snapshot_response(self._replica, request, error, self.leader_id)
        self._replica.reply(request_id, refused)

    # --- responses ------------------------------------------------------------------------------

    def _response(self, source: NodeId, response: Response, now_ms: int) -> None:
        complaint = complaint_of(response, self.epoch)
        if complaint is not None:
            self._replica.warn(f"{type(response).__name__} of {source} dropped: {complaint}")
            self._dropped(source, response, now_ms)
            return
        match response:
            case FetchResponse() | FetchSnapshotResponse():
                self._fetch_response(source, response, now_ms)
            case VoteResponse():
                self._vote_response(source, response, now_ms)
            case BeginQuorumEpochResponse() | EndQuorumEpochResponse():
                self._roles.learn(response.epoch, response.leader_id, now_ms)
            case TransferLeadershipResponse() | ChangeVotersResponse():
                pass  # a core asks for neither

    def _dropped(self, source: NodeId, response: Response, now_ms: int) -> None:
        """Treat an answer that cannot be true as if none had come."""
        role, fetcher = self._roles.current, self._fetcher()
        if isinstance(response, FetchResponse | FetchSnapshotResponse):
            if fetcher is not None and fetcher.answers(source, response):
                self._fetch_failed(fetcher, now_ms)
        elif isinstance(response, VoteResponse) and isinstance(role, Campaign):
            role.failed(source, now_ms)

    def _fetch_failed(self, fetcher: Fetcher, now_ms: int) -> None:
        if isinstance(self._roles.current, Unattached):
            fetcher.ask_another(now_ms)
        else:
            fetcher.failed(now_ms)

    def _vote_response(self, source: NodeId, response: VoteResponse, now_ms: int) -> None:
        # A replica that grants a pre-vote no longer hears the leader it may name. To follow that
        # one now would end the campaign in favour of a leader that is probably dead.
        leader_id = NO_NODE if response.granted else response.leader_id
        if self._roles.learn(response.epoch, leader_id, now_ms) or not response.granted:
            return
        role = self._roles.current
        asked = isinstance(role, Prospective if response.pre_vote else Candidate)
        sound = response.voter in self._replica.voters and response.voter.node_id == source
        if isinstance(role, Campaign) and asked and sound and response.epoch == self.epoch:
            role.granting.add(source)
            self._roles.count_votes(now_ms)

    def _fetch_response(
        self, source: NodeId, response: FetchResponse | FetchSnapshotResponse, now_ms: int
    ) -> None:
        fetcher = self._fetcher()
        expected = fetcher is not None and fetcher.answers(source, response)
        if expected and self._was_wrong(source, response):
            self._replica.doubt()
            self._roles.detach(now_ms)
        if self._roles.learn(response.epoch, response.leader_id, now_ms):
            return
        if fetcher is None or not expected:
            return
        role = self._roles.current
        if isinstance(role, Unattached):
            fetcher.ask_another(now_ms)
        elif response.epoch < self.epoch:
            fetcher.failed(now_ms)
        elif _has_resigned(response):
            self._roles.detach(now_ms)
        elif isinstance(role, Follower) and isinstance(response, FetchResponse):
            role.accept(response, now_ms)
        elif isinstance(role, Follower) and isinstance(response, FetchSnapshotResponse):
            role.accept_chunk(response, now_ms)

    def _was_wrong(self, source: NodeId, response: FetchResponse | FetchSnapshotResponse) -> bool:
        """Whether the followed replica, which has sent nothing yet, says that another leads.

        A peer that was wrong or lied has named it as the leader. Believed until the fetch time-out,
        it would keep this replica from following the true leader, as a second one of the epoch.
        """
        role = self._roles.current
        if not isinstance(role, Follower) or role.has_fetched or source != role.leader_id:
            return False
        denies = response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return denies and names_other_leader(response, self.epoch, source)

    def _fetcher(self) -> Fetcher | None:
        match self._roles.current:
            case Follower(fetcher=fetcher) | Unattached(fetcher=fetcher):
                return fetcher
        return None

    def _request_failed(self, destination: NodeId, request: Request, now_ms: int) -> None:
        role = self._roles.current
        fetcher = self._fetcher()
        if isinstance(role, Campaign) and role.request == request:
            role.failed(destination, now_ms)
        elif fetcher is not None and fetcher.in_flight == request:
            self._fetch_failed(fetcher, now_ms)


def _has_resigned(response: FetchResponse | FetchSnapshotResponse) -> bool:
    """Whether the leader itself says that its epoch has no leader any more."""
    error = response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error and response.leader_id == NO_NODE


def _rank(log_end: OffsetAndEpoch) -> tuple[int, int]:
    """Order logs by how up to date they are: by the last epoch, then by the end (Raft §5.4.1)."""
    return (log_end.epoch, log_end.offset)
