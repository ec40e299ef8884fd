"""The role of one replica, and its legal changes.

    unattached  -> prospective  election timeout          -> follower    learns the leader
    prospective -> candidate    a majority would vote     -> follower    learns the leader
                -> prospective  election timeout          -> unattached  votes for another
    candidate   -> leader       a majority voted          -> follower    learns the leader
                -> prospective  election timeout
    leader      -> resigned     asked to, or no majority fetches
    follower    -> prospective  fetch timeout             -> unattached  the leader resigned
                -> candidate    the leader resigned and named this replica first
    resigned    -> prospective  election timeout
    any         -> unattached or follower                 learns a newer epoch

Observers are only unattached or followers. An epoch has one leader and a replica one vote in it. A
message that names a second leader is refused and logged, and changes nothing. It is no invariant
violation: its sender must not be able to stop this replica.
Sources: Raft §5.2, §8, §9.6; KIP-595, KIP-996.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, invariant
from raftctl.raft._campaign import Candidate, Prospective, Resigned, Unattached
from raftctl.raft._fetcher import Fetcher, Follower, random_source
from raftctl.raft._leader import NO_TIMESTAMP_MS, Leader, fetch_response
from raftctl.raft.messages import (
    NO_NODE,
    ChangeVotersResponse,
    EndQuorumEpochRequest,
    Epoch,
    NodeId,
    TransferLeadershipResponse,
    VoteRequest,
)
from raftctl.raft.voters import encode_voters

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.raft._replica import Replica
    from raftctl.raft.messages import ChangeVotersRequest, TransferLeadershipRequest

    LeaderChangePayload = Callable[[NodeId, tuple[NodeId, ...], tuple[NodeId, ...]], bytes]

Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned


@dataclass(slots=True)
class _Handover:
    """A transfer whose target was asked to campaign; the operator waits for the outcome."""

    request_id: int
    target: NodeId
    epoch: Epoch
    deadline_ms: int


class Roles:
    """Holds the current role and changes it."""

    def __init__(self, replica: Replica, leader_change_payload: LeaderChangePayload) -> None:
        self._replica = replica
        self._leader_change_payload = leader_change_payload
        self._handovers: list[_Handover] = []
        """Transfers that wait for the next leader, at most one for each resignation."""
        self.current: Role = Unattached(None)

    @property
    def leader_id(self) -> NodeId:
        """The leader of the epoch as far as this replica knows, or `NO_NODE`."""
        if isinstance(self.current, Follower):
            return self.current.leader_id
        return self._replica.node_id if isinstance(self.current, Leader) else NO_NODE

    def invariants(self) -> None:
        """Check the role's own invariants, and that transfers under way are of epochs past."""
        self.current.invariants()
        known = all(over.epoch <= self._replica.epoch for over in self._handovers)
        invariant(known, "a transfer was begun in an epoch that this replica has been in")

    def start(self, now_ms: int) -> None:
        """Take the first role, from what was on disk."""
        replica = self._replica
        if replica.log.last_epoch > replica.epoch:
            # A quorum-state file that was lost: to fall behind an epoch that the log has seen would
            # let this replica vote in it a second time.
            replica.enter_epoch(replica.log.last_epoch)
        if replica.may_lead(replica.state.leader_id):
            self.follow(replica.state.leader_id, now_ms)
        else:
            # Also where this replica led: unflushed records are lost, so it must not go on in that
            # epoch and give their offsets to other records (Raft §5.3, log matching).
            self.detach(now_ms, now_ms + self._first_election_timeout_ms())

    def _first_election_timeout_ms(self) -> int:
        """Return a short time where no leader can be disturbed: alone, or in a new quorum."""
        replica = self._replica
        if len(replica.voters) == 1 and replica.is_voter:
            return 0
        if replica.epoch == 0 and replica.log.end_offset == 0:
            return replica.random.randrange(replica.config.election_timeout_ms // 2 + 1)
        return replica.election_timeout_ms()

    def learn(self, epoch: Epoch, leader_id: NodeId, now_ms: int) -> bool:
        """Take a peer's knowledge of epoch and leader; return whether the role has changed.

        A newer epoch always counts. A leader counts only in its own epoch and only as the first: a
        second leader of one epoch is impossible, so the peer is wrong (Raft §5.2).
        """
        known = leader_id if self._replica.may_lead(leader_id) else NO_NODE
        if epoch > self._replica.epoch:
            self._replica.enter_epoch(epoch, known)
            if known == NO_NODE:
                self.detach(now_ms)
            else:
                self.follow(known, now_ms)
            return True
        if epoch < self._replica.epoch or known == NO_NODE:
            return False
        recorded = self._replica.state.leader_id
        if recorded not in (NO_NODE, known):
            self._replica.warn(f"{known} is said to lead epoch {epoch}, which {recorded} leads")
            return False
        if self.leader_id == NO_NODE:
            self.follow(known, now_ms)
            return True
        return False

    def detach(self, now_ms: int, election_deadline_ms: int | None = None) -> None:
        """Become unattached. An election time-out under way goes on, unless one is given.

        Restarted by every message, it would never end where a candidate that cannot win keeps
        asking for votes.
        """
        replica = self._replica
        if not replica.may_campaign:
            fetcher = Fetcher(replica, random_source(replica, None))
            # A short pause, lest it goes round at full speed between a leader that has resigned
            # and voters that still name it.
            fetcher.failed(now_ms)
            self._become(Unattached(None, fetcher))
            return
        if election_deadline_ms is None and not isinstance(self.current, Leader | Follower):
            election_deadline_ms = self.current.election_deadline_ms
        if election_deadline_ms is None:
            election_deadline_ms = now_ms + replica.election_timeout_ms()
        self._become(Unattached(election_deadline_ms))

    def follow(self, leader_id: NodeId, now_ms: int) -> None:
        """Become a follower, and fetch as soon as the log is durable."""
        replica = self._replica
        replica.recognize(leader_id)
        fetcher = Fetcher(replica, leader_id)
        self._become(Follower(replica, fetcher, now_ms + replica.config.fetch_timeout_ms))
        fetcher.fetch(now_ms)

    def prospect(self, now_ms: int) -> None:
        """Ask for pre-votes, in the current epoch: nothing changes until a majority grants."""
        campaign = Prospective(
            self._replica, self._vote_request(pre_vote=True), self._campaign_end_ms(now_ms)
        )
        if self._replica.is_voter:
            campaign.granting.add(self._replica.node_id)
        self._become(campaign)
        campaign.start()
        self.count_votes(now_ms)

    def campaign(self, now_ms: int) -> None:
        """Ask for votes in a new epoch; the own vote counts once it is durable."""
        self._replica.campaign()
        campaign = Candidate(
            self._replica, self._vote_request(pre_vote=False), self._campaign_end_ms(now_ms)
        )
        self._become(campaign)
        campaign.start()

    def _campaign_end_ms(self, now_ms: int) -> int:
        return now_ms + self._replica.election_timeout_ms()

    def _vote_request(self, *, pre_vote: bool) -> VoteRequest:
        replica = self._replica
        return VoteRequest(replica.epoch, replica.local, replica.log.end, pre_vote)

    def count_votes(self, now_ms: int) -> None:
        """Campaign or lead if a majority has granted."""
        match self.current:
            case Prospective() as campaign if campaign.won():
                self.campaign(now_ms)
            case Candidate() as campaign if campaign.won():
                self._lead(tuple(sorted(campaign.granting)), now_ms)

    def _lead(self, granting: tuple[NodeId, ...], now_ms: int) -> None:
        replica = self._replica
        replica.recognize(replica.node_id)
        leader = Leader(replica, now_ms)
        self._become(leader)
        payload = self._leader_change_payload(replica.node_id, replica.voters.ids, granting)
        # The record of the own epoch, without which nothing older can commit (Raft §5.4.2).
        leader.propose(payload, 1, NO_TIMESTAMP_MS, control=True)
        if replica.voters.dynamic and replica.log.start_offset == 0 > replica.voters_offset:
            # The first voters are known from the formatting of their own disks alone. From the log
            # observers and later voters know them, too (KIP-853).
            leader.propose(encode_voters(replica.voters), 1, NO_TIMESTAMP_MS, control=True)
        leader.begin(now_ms)

    def resign(self, now_ms: int) -> None:
        """Give leadership up and name the order in which voters shall campaign (thesis §3.10)."""
        leader = self.current
        if not isinstance(leader, Leader):
            return
        replica = self._replica
        request = EndQuorumEpochRequest(replica.epoch, replica.node_id, leader.successors())
        transfer = leader.transfer
        if transfer is not None and leader.transfer_ready():
            leader.transfer = None
            deadline_ms = now_ms + replica.config.fetch_timeout_ms
            over = _Handover(transfer.request_id, transfer.target, replica.epoch, deadline_ms)
            self._handovers.append(over)
        self._become(Resigned(self._campaign_end_ms(now_ms)))
        for voter in replica.other_voters():
            replica.send(voter, request)

    def _become(self, role: Role) -> None:
        """Change the role, and answer all that waited for the leader.

        Every request gets exactly one answer: what a leader kept waiting would be forgotten with
        it, and the follower would wait for its request time-out before it looks elsewhere.
        """
        previous, self.current = self.current, role
        if isinstance(previous, Leader):
            previous.refuse_reads()
            self._end_transfer(previous)
            change, previous.membership.change = previous.membership.change, None
            if change is not None:
                self.answer_change(change.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for waiting in previous.take_waiting():
                self._replica.reply(
                    waiting.request_id,
                    fetch_response(
                        self._replica,
                        waiting.request,
                        ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        self.leader_id,
                    ),
                )

    def _end_transfer(self, previous: Leader) -> None:
        """Answer the request for a transfer that was not handed over."""
        if previous.transfer is not None:
            self.answer_transfer(previous.transfer.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def handover_deadline_ms(self) -> int | None:
        """Return when to stop waiting for the winner after a transfer; None without one."""
        return min((one.deadline_ms for one in self._handovers), default=None)

    def _tend_handovers(self, now_ms: int) -> None:
        """Answer requests for a transfer once the next leader is known.

        That this leader has resigned is not success: the target may have died meanwhile, or be cut
        off, and another voter win.
        """
        replica, leader_id = self._replica, self.leader_id
        for over in list(self._handovers):
            if replica.epoch > over.epoch and leader_id != NO_NODE:
                won = leader_id == over.target
                error = ErrorCode.NONE if won else ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif now_ms >= over.deadline_ms:
                error = ErrorCode.REQUEST_TIMED_OUT
            else:
                continue
            self._handovers.remove(over)
            self.answer_transfer(over.request_id, error)

    def tend(self, now_ms: int) -> None:
        """Advance what a leader does for the operator: changes of voters and transfers."""
        self._tend_handovers(now_ms)
        leader = self.current
        if not isinstance(leader, Leader):
            return
        leader.watch_disk(now_ms)
        ended = leader.membership.advance(now_ms)
        change = leader.membership.change
        if ended is not None and change is not None:
            leader.membership.change = None
            self.answer_change(change.request_id, ended)
        committed = self._replica.voters_offset < self._replica.high_watermark
        removed = committed and not self._replica.is_voter
        if removed or leader.transfer_ready():
            self.resign(now_ms)
        elif leader.transfer is not None and now_ms >= leader.transfer.deadline_ms:
            self.answer_transfer(leader.transfer.request_id, ErrorCode.REQUEST_TIMED_OUT)
            leader.transfer = None

    def transfer(self, request_id: int, request: TransferLeadershipRequest, now_ms: int) -> None:
        """Begin a transfer of leadership for the operator, or refuse it.

        A request decided on in another epoch is refused: it may have been delayed for long, and the
        operator may have done something else since.
        """
        error, seen = ErrorCode.NOT_LEADER_OR_FOLLOWER, request.seen
        asked_now = seen is None or seen.epoch == self._replica.epoch
        if isinstance(self.current, Leader) and asked_now:
            error = self.current.begin_transfer(request_id, request.target, now_ms)
        if error is not ErrorCode.NONE:
            self.answer_transfer(request_id, error)

    def change_voters(self, request_id: int, request: ChangeVotersRequest, now_ms: int) -> None:
        """Begin a change of the voters for the operator, or refuse it."""
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if isinstance(self.current, Leader):
            error = self.current.change_voters(request_id, request, now_ms)
        if error is not ErrorCode.NONE:
            self.answer_change(request_id, error)

    def answer_change(self, request_id: int, error: ErrorCode) -> None:
        """Answer a request to change the voters."""
        replica = self._replica
        replica.reply(request_id, ChangeVotersResponse(error, replica.epoch, self.leader_id))

    def reconsider(self, now_ms: int) -> None:
        """Detach if a snapshot has made a voter of this observer, or the reverse."""
        if isinstance(self.current, Leader | Follower):
            return
        waits_as_voter = not isinstance(self.current, Unattached) or self.current.fetcher is None
        if waits_as_voter != self._replica.may_campaign:
            self.detach(now_ms)

    def answer_transfer(self, request_id: int, error: ErrorCode) -> None:
        """Answer a request to transfer leadership."""
        replica = self._replica
        response = TransferLeadershipResponse(error, replica.epoch, self.leader_id)
        replica.reply(request_id, response)
