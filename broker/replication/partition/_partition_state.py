"""The state of one partition on one broker: role, in-sync replicas, high watermark (rows R2, R3).

Decides who is in sync, how far records are committed and which ISR to propose; knows no log, no
network, no clock. Two roles, entered by `become_leader` and `become_follower` only; each image of
the partition that the controller published leads into one of them.

A proposed ISR is not in force before the controller says so. Until then the leader waits for the
*maximal* ISR, the larger of the two, since the controller may have committed either (KIP-497):
joining replicas count at once, leaving ones count until they have left.
Sources: KIP-497 (AlterPartition), KIP-903 (broker epochs), KIP-966 (the high watermark stays while
the ISR is below min.insync.replicas), KIP-207 (ListOffsets after an election).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, invariant
from raftctl.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.metadata.image import PartitionImage

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


@dataclass(slots=True)
class LastFetch:
    """Time of a fetch session's last Fetch."""

    ms: int = 0


@dataclass(slots=True)
class FollowerState:
    """State of one follower at its leader, from its fetches in this leader epoch."""

    caught_up_ms: int
    """When it last had all that the leader had, by the Fetch that last read the partition."""
    log_end_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_EPOCH
    log_start_offset: int = UNKNOWN_OFFSET
    sent_high_watermark: int = UNKNOWN_OFFSET
    """The high watermark in the last answer to it."""
    leader_end_at_fetch: int = UNKNOWN_OFFSET
    """The leader's log end at its last fetch."""
    fetched_ms: int = 0
    session: LastFetch | None = None
    """The fetch session in which it is idle: each Fetch of that repeats that it has everything."""

    @property
    def had_all_ms(self) -> int:
        """The last time at which it had everything that the leader had."""
        session = self.session
        return self.caught_up_ms if session is None else max(self.caught_up_ms, session.ms)

    def mark_idle(self, session: LastFetch) -> None:
        """Note that it has everything; until the leader has more, the session's fetches say so."""
        self.session = session

    def mark_dirty(self, session: LastFetch) -> None:
        """Note that the leader has more, or that the session no longer names the partition.

        Another session may have taken over meanwhile: then its fetches go on counting.
        """
        if self.session is session:
            self.caught_up_ms = self.had_all_ms
            self.fetched_ms = max(self.fetched_ms, session.ms)
            self.session = None


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR that the leader asks the controller for; at most one is open."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]
    """(broker id, broker epoch), this broker's own epoch as -1."""
    is_expansion: bool
    """Whether it is larger than the ISR in force."""


class PartitionState:
    """The replica of a partition that this broker has. Times are any clock's milliseconds."""

    def __init__(
        self,
        broker_id: int,
        *,
        high_watermark: int,
        lag_time_max_ms: int,
        may_join: Callable[[int, int], bool],
    ) -> None:
        """`may_join(broker id, broker epoch)`: alive, unfenced, staying, and of that epoch."""
        self.broker_id = broker_id
        self.leader_id = NO_LEADER
        self.leader_epoch = UNKNOWN_EPOCH
        self.partition_epoch = UNKNOWN_EPOCH
        self.epoch_start_offset = UNKNOWN_OFFSET
        """The leader's log end when it took over."""
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        """The replicas that a reassignment adds."""
        self.is_reassigning = False
        self.isr: tuple[int, ...] = ()
        """As the controller committed it."""
        self.maximal_isr: tuple[int, ...] = ()
        self.min_insync_replicas = 1
        self.high_watermark = high_watermark
        """Never goes back within a leader epoch."""
        self.advanced_by: int | None = None
        """The broker that had the records last when the high watermark moved the last time."""
        self.proposal: IsrProposal | None = None
        self.followers: dict[int, FollowerState] = {}
        self._lag_time_max_ms = lag_time_max_ms
        self._may_join = may_join

    @property
    def is_leader(self) -> bool:
        """True if this broker leads the partition."""
        return self.leader_id == self.broker_id

    @property
    def effective_min_insync(self) -> int:
        """`min.insync.replicas`, or the number of replicas if that is smaller."""
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_insync(self) -> bool:
        """True if too few replicas are in sync for acks=all."""
        return len(self.isr) < self.effective_min_insync

    def invariants(self) -> None:
        """Check that ISR, proposal and followers fit the role of this replica."""
        isr, maximal, replicas = set(self.isr), set(self.maximal_isr), set(self.replicas)
        invariant(isr <= replicas, "a replica in sync is a replica")
        invariant(isr <= maximal <= replicas, "the maximal ISR contains the ISR")
        invariant(len(isr) == len(self.isr), "a replica is in sync once")
        others = replicas - {self.broker_id} if self.is_leader else set()
        invariant(set(self.followers) == others, "a leader tracks the other replicas")
        proposal = self.proposal
        if proposal is None:
            invariant(isr == maximal, "without a proposal the ISR is the maximal one")
        else:
            invariant(self.is_leader, "only a leader proposes an ISR")
            current = proposal.leader_epoch, proposal.partition_epoch
            same = current == (self.leader_epoch, self.partition_epoch)
            invariant(same, "a proposal is of the current epochs")
        invariant(not self.is_leader or self.broker_id in isr, "a leader is in sync")
        if self.is_leader:
            invariant(self.epoch_start_offset >= 0, "a leader knows where its epoch began")

    def configure(self, min_insync_replicas: int) -> None:
        """Take the topic's `min.insync.replicas`."""
        self.min_insync_replicas = min_insync_replicas

    # --- roles ----------------------------------------------------------------------------------

    def become_leader(self, image: PartitionImage, *, log_end_offset: int, now_ms: int) -> bool:
        """Lead as the image says; return whether that begins a new leader epoch here."""
        invariant(image.leader == self.broker_id, "the image names this broker the leader")
        if self._is_stale(image):
            return False
        begins = image.leader_epoch > self.leader_epoch
        known = {} if begins else self.followers
        self.followers = {
            replica: known.get(replica) or self._unheard(now_ms, in_sync=replica in image.isr)
            for replica in image.replicas
            if replica != self.broker_id
        }
        if begins:
            self.epoch_start_offset = log_end_offset
        self._take_over(image)
        return begins

    def become_follower(self, image: PartitionImage) -> bool:
        """Follows, or waits while there is no leader; returns whether the leader epoch is new."""
        invariant(image.leader != self.broker_id, "the image names another leader")
        if self._is_stale(image):
            return False
        begins = image.leader_epoch > self.leader_epoch
        self.followers = {}
        self.epoch_start_offset = UNKNOWN_OFFSET
        self._take_over(image)
        return begins

    def resign(self) -> None:
        """Give up the role: the partition is deleted, has moved away, or has lost its log.

        It no longer leads, so it tracks no follower and proposes no ISR.
        """
        self.leader_id = NO_LEADER
        self.followers = {}
        self.proposal = None
        self.maximal_isr = self.isr

    def knows(self, replica_id: int) -> bool:
        """Return whether this broker leads that follower."""
        return replica_id in self.followers

    def _is_stale(self, image: PartitionImage) -> bool:
        """Return whether the image is no newer than this state.

        The answer to a proposal may have come before the image that contains it. What only an
        image says of these epochs is taken up here.
        """
        if image.partition_epoch >= self.partition_epoch:
            self.adding = image.adding_replicas
            self.is_reassigning = bool(image.adding_replicas or image.removing_replicas)
        return image.partition_epoch <= self.partition_epoch

    def _take_over(self, image: PartitionImage) -> None:
        self.leader_id = image.leader
        self.leader_epoch = image.leader_epoch
        self.replicas = image.replicas
        self._commit_isr(image.partition_epoch, image.isr)

    def _unheard(self, now_ms: int, *, in_sync: bool) -> FollowerState:
        """Return the state of a follower that has not fetched in this epoch.

        One in sync has the whole lag time to do so, the others have none.
        """
        return FollowerState(now_ms if in_sync else self._long_ago(now_ms))

    def _long_ago(self, now_ms: int) -> int:
        return now_ms - self._lag_time_max_ms - 1

    # --- what clients and followers may ask -----------------------------------------------------

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """Return whether this leader answers a request of this leader epoch (-1: none given)."""
        error = self.check_epoch(current_leader_epoch)
        return error if error or self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Return whether this replica, leader or not, is of this leader epoch (-1: none given)."""
        if current_leader_epoch != UNKNOWN_EPOCH:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > self.leader_epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    def readable_followers(self, fetch_offset: int) -> dict[int, FollowerState]:
        """Return the followers that a consumer may be sent to: in sync, and having that offset.

        One outside the ISR might fall further and further behind what its reader wants.
        """
        return {
            replica_id: follower
            for replica_id, follower in self.followers.items()
            if replica_id in self.isr
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        }

    def low_watermark(self, log_start_offset: int, lives: Callable[[int], bool]) -> int:
        """Return the least log start of this leader and its followers on brokers that live."""
        starts = (one.log_start_offset for replica, one in self.followers.items() if lives(replica))
        return min([log_start_offset, *starts])

    def acknowledged(self, required_offset: int) -> ErrorCode | None:
        """Return the response to acks=all for records below `required_offset`; None: wait."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark >= required_offset:
            return ErrorCode.NONE
        # Nothing moves the high watermark now, and the client should know rather than time out.
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.is_under_min_insync else None

    @property
    def knows_committed_end(self) -> bool:
        """True if all that earlier leaders committed is below this leader's high watermark."""
        return self.high_watermark >= self.epoch_start_offset

    # --- the high watermark ---------------------------------------------------------------------

    def follower_fetched(
        self,
        replica_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        log_end_offset: int,
        now_ms: int,
    ) -> ErrorCode:
        """Note that a follower has `log_start_offset` to `fetch_offset`; `log_end_offset` is the
        leader's.

        NOT_LEADER_OR_FOLLOWER if it is no replica, or an incarnation before the one last seen;
        OFFSET_OUT_OF_RANGE if it claims more than the leader has.
        """
        follower = self.followers.get(replica_id)
        if follower is None or UNKNOWN_EPOCH < broker_epoch < follower.broker_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if fetch_offset > log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if follower.session is not None:
            follower.mark_dirty(follower.session)
        if broker_epoch > follower.broker_epoch > UNKNOWN_EPOCH:
            # It restarted: what the former incarnation had says nothing.
            follower.caught_up_ms = self._long_ago(now_ms)
        if fetch_offset == log_end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif fetch_offset >= follower.leader_end_at_fetch != UNKNOWN_OFFSET:
            # It has what the leader had when it last asked: it was caught up then.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.log_end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        follower.leader_end_at_fetch = log_end_offset
        follower.fetched_ms = now_ms
        return ErrorCode.NONE

    def idle_follower(
        self, replica_id: int, fetch_offset: int, broker_epoch: int
    ) -> FollowerState | None:
        """Return the follower, if its last fetch reported exactly this and it is in the ISR; else
        None.

        Only then can repeating the fetch change nothing. A follower outside the ISR must go on:
        each of its fetches may be the one that lets it join.
        """
        follower = self.followers.get(replica_id)
        if follower is None or replica_id not in self.isr:
            return None
        last = follower.log_end_offset, follower.broker_epoch
        return follower if last == (fetch_offset, broker_epoch) else None

    def advance_high_watermark(
        self, log_end_offset: int, now_ms: int, by: int | None = None
    ) -> bool:
        """Move a leader's high watermark as far as the replicas allow; return whether it moved.

        `by` is the replica that has more than before; None: fewer replicas may be in sync.
        """
        if not self.is_leader or self.is_under_min_insync:
            return False
        lowest = log_end_offset
        for replica_id, follower in self.followers.items():
            if follower.log_end_offset < lowest and (
                replica_id in self.maximal_isr or self._about_to_join(replica_id, follower, now_ms)
            ):
                lowest = follower.log_end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        self.advanced_by = by
        return True

    def lacking(self, required_offset: int) -> tuple[int, ...]:
        """Return the followers for which the records below `required_offset` wait to be committed.

        This leader, if it is its own disk.
        """
        late = [
            replica_id
            for replica_id, follower in self.followers.items()
            if replica_id in self.maximal_isr and follower.log_end_offset < required_offset
        ]
        return tuple(late) or (self.broker_id,)

    def _about_to_join(self, replica_id: int, follower: FollowerState, now_ms: int) -> bool:
        """Else a follower just behind would chase a high watermark that runs away from it."""
        recent = now_ms - follower.had_all_ms <= self._lag_time_max_ms
        return recent and self._may_join(replica_id, follower.broker_epoch)

    def follow_high_watermark(self, leader_high_watermark: int, log_end_offset: int) -> bool:
        """Move a follower's to min(leader's, own log end), never back; return whether it moved."""
        reached = min(leader_high_watermark, log_end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def log_started_at(self, log_start_offset: int) -> None:
        """Note the log's new start: everything below it was committed once."""
        self.high_watermark = max(self.high_watermark, log_start_offset)

    def note_sent(self, replica_id: int) -> None:
        """Note that the high watermark was sent to a follower, if it is one."""
        follower = self.followers.get(replica_id)
        if follower is not None:
            follower.sent_high_watermark = self.high_watermark

    def truncated(self, log_end_offset: int) -> None:
        """Note that the log was cut to `log_end_offset` by leader epoch."""
        self.high_watermark = min(self.high_watermark, log_end_offset)

    # --- the in-sync replicas -------------------------------------------------------------------

    def propose_expansion(self, replica_id: int) -> IsrProposal | None:
        """Return the ISR with this follower, if it is due to join and nothing else is proposed."""
        follower = self.followers.get(replica_id)
        if follower is None or self.proposal is not None or replica_id in self.isr:
            return None
        level = max(self.high_watermark, self.epoch_start_offset)
        in_sync = follower.log_end_offset >= level
        if not in_sync or not self._may_join(replica_id, follower.broker_epoch):
            return None
        return self._propose((*self.isr, replica_id))

    def propose_shrinking(self, log_end_offset: int, now_ms: int) -> IsrProposal | None:
        """Return the ISR without the replicas that lag for too long, if there are any."""
        if not self.is_leader or self.proposal is not None:
            return None
        staying = tuple(
            replica
            for replica in self.isr
            if replica == self.broker_id
            or self._keeps_up(self.followers[replica], log_end_offset, now_ms)
        )
        return None if staying == self.isr else self._propose(staying)

    def _keeps_up(self, follower: FollowerState, log_end_offset: int, now_ms: int) -> bool:
        has_all = follower.log_end_offset == log_end_offset
        return has_all or now_ms - follower.had_all_ms <= self._lag_time_max_ms

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        members = tuple((replica, self._broker_epoch_of(replica)) for replica in isr)
        self.maximal_isr = isr if len(isr) > len(self.isr) else self.isr
        self.proposal = IsrProposal(
            self.leader_epoch, self.partition_epoch, members, len(isr) > len(self.isr)
        )
        return self.proposal

    def _broker_epoch_of(self, replica_id: int) -> int:
        follower = self.followers.get(replica_id)
        return UNKNOWN_EPOCH if follower is None else follower.broker_epoch

    def isr_committed(self, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]) -> None:
        """Take the controller's answer to a proposal; an outdated one changes nothing."""
        if leader_epoch == self.leader_epoch and partition_epoch >= self.partition_epoch:
            self._commit_isr(partition_epoch, isr)

    def proposal_refused(self, proposal: IsrProposal, error: ErrorCode) -> bool:
        """Note that the controller did not commit the proposal; return whether to send it again.

        Some refusals mean that an image is on its way that ends the proposal: until then the
        maximal ISR stays, because what the controller holds is not known.
        """
        if proposal is not self.proposal:
            return False
        if error in (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA):
            self.proposal = None
            self.maximal_isr = self.isr
            return False
        return error not in _AN_IMAGE_FOLLOWS

    def _commit_isr(self, partition_epoch: int, isr: tuple[int, ...]) -> None:
        self.partition_epoch = partition_epoch
        self.isr = self.maximal_isr = isr
        self.proposal = None


_AN_IMAGE_FOLLOWS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
