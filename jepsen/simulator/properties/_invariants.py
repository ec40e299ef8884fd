"""Invariants of the quorum and its metadata, one function for each property.

A property looks at one change (a view of a node before and after one step of its process) and at
the history so far. It returns a complaint, or None. Nothing here knows how nodes are built: views
come from `_watch`, and `_properties` runs all. Partitions are in `_partition_invariants`. What can
be checked of records without knowing when they were written is in `jepsen.checkers.replication`.

`what_waits_is_bounded`: what waits in memory for a disk, a commit or a confirmation stays within
the bounds of production. However long a disk hangs, more requests are refused, not kept.
Source: Raft figure 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jepsen.checkers.replication.metadata import Assignment, is_led_by, is_led_in_sync, may_follow
from jepsen.simulator.properties._committed import Entry, Log, ReadLog, lacks
from jepsen.simulator.properties._partition_invariants import PartitionHistory
from raftctl.node import DEFERRED_MAX, WAITING_BYTES_MAX
from raftctl.quorum import UNWRITTEN_BYTES_MAX
from raftctl.rpc.codec import MESSAGE_BYTES_MAX

NO_VOTE = (0, -1)
"""An epoch and nobody: what a disk says on which no vote has ever been."""
VoterKey = tuple[int, object]
"""A voter: a node id and which disk it has; None for any."""


# --- the quorum -------------------------------------------------------------------------------


class Violation(AssertionError):
    """A property does not hold; `name` is that of its function."""

    def __init__(self, name: str, complaint: str) -> None:
        self.name = name
        super().__init__(f"{name}: {complaint}")


@dataclass(frozen=True, slots=True)
class QuorumView:
    """One node's replica of the metadata log at one moment."""

    node_id: int
    life: int
    """The number of the node's process."""
    epoch: int
    leads: bool
    high_watermark: int
    log_end: int
    read: ReadLog = field(compare=False)
    granting: tuple[int, ...] = ()
    """The voters that voted for it, where it has just become leader."""
    voters: tuple[VoterKey, ...] = ()
    """The voters in effect there."""
    committed_voters: tuple[VoterKey, ...] = ()
    """The voters as the records below the high watermark have them; none if not known."""
    flushed_end: int | None = None
    """The durable end of its log as it believes; None while no fsync of its disk has ever
    failed."""


@dataclass(slots=True)
class QuorumHistory:
    """The history of the quorum so far.

    `durable_...` read a voter's disk as a crash would leave it: the log from its start, in order,
    and (epoch, id of the candidate it voted for).
    """

    voters: tuple[VoterKey, ...]
    """The voters of the node that committed last."""
    durable_entries: Callable[[VoterKey], dict[int, Entry]]
    durable_vote: Callable[[int], tuple[int, int]]
    directory_of: Callable[[int], object] = lambda _: None
    """The id of the disk that a node has now; None where disks have no ids."""
    votes: dict[tuple[VoterKey, int], int] = field(default_factory=dict)
    """Whom each disk has voted for in each epoch."""
    lost_votes: dict[VoterKey, tuple[int, int]] = field(default_factory=dict)
    """The vote on each disk that is gone, when it went."""
    leaders: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    """The newest epoch in which each node has led."""
    committed: Log = field(default_factory=Log)
    committed_in: dict[int, int] = field(default_factory=dict)
    """Up to which offset members of each epoch have called the log committed."""
    views: dict[int, QuorumView] = field(default_factory=dict)
    wiped: set[int] = field(default_factory=set)
    """Nodes that got an empty disk."""
    lost: dict[VoterKey, dict[int, Entry]] = field(default_factory=dict)
    """The durable batches of each disk that is gone, when it went."""
    voter_sets: dict[int, tuple[VoterKey, ...]] = field(default_factory=dict)
    """The committed voters first seen at each high watermark."""
    knew_voters: dict[int, int] = field(default_factory=dict)
    """The high watermark from which on each node has known voters."""


@dataclass(frozen=True, slots=True)
class QuorumChange:
    """One step; `before` is None at the first look at a life."""

    before: QuorumView | None
    after: QuorumView

    @property
    def begins_to_lead(self) -> bool:
        """True if leadership of this epoch began with this step."""
        before, after = self.before, self.after
        return after.leads and not (before and before.leads and before.epoch == after.epoch)


def one_leader_per_epoch(history: QuorumHistory, change: QuorumChange) -> str | None:
    """Election safety: an epoch has at most one leader, ever."""
    after = change.after
    if not after.leads:
        return None
    leader = history.leaders.setdefault(after.epoch, after.node_id)
    return None if leader == after.node_id else f"{leader} and {after.node_id} lead {after.epoch}"


def no_epoch_is_led_twice(history: QuorumHistory, change: QuorumChange) -> str | None:
    """A restarted leader does not go on in its old epoch: what it had not flushed is lost."""
    after = change.after
    if not change.begins_to_lead:
        return None
    last = history.epochs.get(after.node_id, -1)
    history.epochs[after.node_id] = after.epoch
    return None if after.epoch > last else f"{after.node_id} leads {after.epoch} after {last}"


def epoch_never_goes_back(history: QuorumHistory, change: QuorumChange) -> str | None:
    """A node's epoch grows while it lives, and a later life forgets none that is on its disk."""
    after = change.after
    least = change.before.epoch if change.before else history.durable_vote(after.node_id)[0]
    return None if after.epoch >= least else f"{after.node_id}: {after.epoch} after {least}"


def vote_is_durable_before_it_counts(history: QuorumHistory, change: QuorumChange) -> str | None:
    """A leader was elected by votes that no crash of a voter can undo (Raft figure 2).

    What votes is a disk (KIP-853): what another one in the same node says counts for nothing, and
    a disk that is gone has voted if the vote was on it when it went.
    """
    after = change.after
    for voter in after.granting if change.begins_to_lead else ():
        epoch, voted = history.durable_vote(voter)
        key = next((one for one in after.voters if one[0] == voter), (voter, None))
        if key in history.lost_votes:
            epoch, voted = history.lost_votes[key]
        elif key[1] not in (None, history.directory_of(voter)):
            epoch, voted = NO_VOTE
        elif key[1] is None and voter in history.wiped and epoch == 0:
            continue  # It was there, on the disk that is gone.
        if epoch < after.epoch or (epoch == after.epoch and voted != after.node_id):
            return f"{voter} elects {after.node_id} in {after.epoch}, on disk {epoch, voted}"
    return None


def one_vote_per_disk_and_epoch(history: QuorumHistory, change: QuorumChange) -> str | None:
    """Each disk has one vote in an epoch, also over restarts (Raft figure 2, KIP-853)."""
    node_id = change.after.node_id
    epoch, voted = history.durable_vote(node_id)
    if voted < 0:
        return None
    first = history.votes.setdefault(((node_id, history.directory_of(node_id)), epoch), voted)
    return None if first == voted else f"{node_id} votes for {first} and {voted} in {epoch}"


def high_watermark_never_goes_back(history: QuorumHistory, change: QuorumChange) -> str | None:
    """A high watermark only grows while its node lives."""
    before, after = change.before, change.after
    if before is None or after.high_watermark >= before.high_watermark:
        return None
    return f"{after.node_id}: {after.high_watermark} after {before.high_watermark}"


def committed_is_never_truncated(history: QuorumHistory, change: QuorumChange) -> str | None:
    """A log never ends below its own high watermark."""
    after = change.after
    return None if after.log_end >= after.high_watermark else str(after)


def leader_only_appends(history: QuorumHistory, change: QuorumChange) -> str | None:
    """Leader append-only: a leader's log does not shrink."""
    before, after = change.before, change.after
    if change.begins_to_lead or not after.leads or before is None:
        return None
    return None if after.log_end >= before.log_end else f"{after.node_id}: {after.log_end}"


def committed_never_changes(history: QuorumHistory, change: QuorumChange) -> str | None:
    """State machine safety: an offset that was committed holds the same batch for ever."""
    after = change.after
    begin = change.before.high_watermark if change.before else 0
    if after.high_watermark <= begin:
        return None
    found = after.read(begin, after.high_watermark)
    return history.committed.conflict(found)


def committed_is_durable_on_a_majority(history: QuorumHistory, change: QuorumChange) -> str | None:
    """Records called committed survive the crash of all nodes at once (row Q3).

    A disk that is lost after its voter has acknowledged a batch, and before the leader counts that,
    is one that had it.
    """
    after = change.after
    if after.high_watermark <= history.committed.end_offset:
        return None
    history.committed_in[after.epoch] = after.high_watermark
    found = after.read(history.committed.end_offset, after.high_watermark)
    # The first to commit is the leader, which counts the voters of its own log.
    history.voters = after.voters or history.voters
    disks = [history.lost.get(v) or history.durable_entries(v) for v in history.voters]
    return _on_a_minority(disks, history.committed.commit(found))


def _on_a_minority(disks: Sequence[Mapping[int, Entry]], entries: Sequence[Entry]) -> str | None:
    for entry in entries:
        having = sum(_has(disk, entry) for disk in disks)
        if having <= len(disks) // 2:
            return f"{entry} is on {having} of {len(disks)} disks"
    return None


def _has(disk: Mapping[int, Entry], entry: Entry) -> bool:
    return disk.get(entry.base_offset) == entry or entry.base_offset < next(iter(disk), -1)


def flushed_is_durable(history: QuorumHistory, change: QuorumChange) -> str | None:
    """Batches that a voter acknowledges are on its disk, also after a failed fsync (row Q12)."""
    node_id, flushed = change.after.node_id, change.after.flushed_end
    entries = history.durable_entries((node_id, None)) if flushed is not None else {}
    end = next((entry.end_offset for entry in reversed(entries.values())), None)
    right = end is None or flushed is None or end >= flushed
    return None if right else f"{node_id} takes {flushed} for durable, its disk ends at {end}"


def new_leader_has_all_committed(history: QuorumHistory, change: QuorumChange) -> str | None:
    """Leader completeness: no node is elected that lacks a batch that an earlier epoch committed.

    A candidate that was held up may begin to lead an epoch that is over by then, without the
    batches of later ones.
    """
    after = change.after
    if not change.begins_to_lead:
        return None
    earlier = (end for epoch, end in history.committed_in.items() if epoch < after.epoch)
    return lacks(history.committed, after, max(earlier, default=0))


def all_committed_stays_durable_on_a_majority(history: QuorumHistory) -> str | None:
    """At rest: nothing that was ever committed has left the disks of a majority since."""
    disks = [history.durable_entries(voter) for voter in history.voters]
    return _on_a_minority(disks, history.committed.entries)


def no_voter_differs_from_committed(history: QuorumHistory) -> str | None:
    """At rest: no voter holds anything else where something was committed; one may lag."""
    committed = history.committed
    found = (committed.conflict(v.read(0, committed.end_offset)) for v in history.views.values())
    return next((complaint for complaint in found if complaint), None)


def voters_change_one_at_a_time(history: QuorumHistory, change: QuorumChange) -> str | None:
    """A leader appends other voters only when those before are committed, and one more or less.

    Else two majorities without a common voter could both commit (Raft §4.1 of the thesis). A leader
    that is left alone commits its new voters in the step in which it appends them.
    """
    before, after = change.before, change.after
    if before is None or not after.leads or change.begins_to_lead:
        return None
    old, new = ({voter for voter, _ in view.voters} for view in (before, after))
    committed = (before.voters, after.voters) if len(new) == 1 else (before.voters,)
    if old == new or (len(old ^ new) == 1 and after.committed_voters in committed):
        return None
    return f"{after.node_id} appends {after.voters} after {before.voters}"


def replicas_agree_on_committed_voters(history: QuorumHistory, change: QuorumChange) -> str | None:
    """Replicas have equal voters at equal high watermarks, and none forgets those it knew."""
    after = change.after
    if not after.committed_voters:
        knew_at = history.knew_voters.get(after.node_id, after.high_watermark + 1)
        return f"{after} forgot who votes" if after.high_watermark >= knew_at else None
    history.knew_voters.setdefault(after.node_id, after.high_watermark)
    known = history.voter_sets.setdefault(after.high_watermark, after.committed_voters)
    agree = known == after.committed_voters
    return None if agree else f"{after.committed_voters} instead of {known} in {after}"


QUORUM_PROPERTIES = (
    one_leader_per_epoch,
    epoch_never_goes_back,
    no_epoch_is_led_twice,
    vote_is_durable_before_it_counts,
    one_vote_per_disk_and_epoch,
    high_watermark_never_goes_back,
    committed_is_never_truncated,
    leader_only_appends,
    new_leader_has_all_committed,
    committed_never_changes,
    committed_is_durable_on_a_majority,
    voters_change_one_at_a_time,
    replicas_agree_on_committed_voters,
    flushed_is_durable,
)


# --- the metadata -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImageView:
    """A node's newest published image; `image` compares equal if its content is equal."""

    node_id: int
    offset: int
    image: object
    high_watermark: int
    assignments: Callable[[], Sequence[Assignment]]
    unfenced: Mapping[int, int]
    """The epoch of each broker that is not fenced."""
    life: int = 0
    """The number of the node's process."""
    next_producer_id: int = 0
    """Producer ids below have been granted to brokers."""


@dataclass(slots=True)
class ImageHistory:
    """The first image seen at each offset."""

    images: dict[int, object] = field(default_factory=dict)
    assignments: dict[str, Assignment] = field(default_factory=dict)
    newest: int = -1
    """The offset of the newest image of all, which the assignments are of."""
    reached: dict[int, int] = field(default_factory=dict)
    """The newest offset that each node has published."""
    partitions: dict[str, PartitionHistory] = field(default_factory=dict)


def image_is_committed(history: ImageHistory, view: ImageView) -> str | None:
    """Nodes publish only metadata that can no longer be lost."""
    if view.offset < view.high_watermark:
        return None
    return f"{view.node_id} publishes {view.offset}, committed to {view.high_watermark}"


def images_agree(history: ImageHistory, view: ImageView) -> str | None:
    """Active controller, standbys and brokers have equal images at equal offsets (row Q13)."""
    known = history.images.setdefault(view.offset, view.image)
    if known is view.image or known == view.image:
        return None
    return f"{view.node_id} differs at offset {view.offset}: {view.image} instead of {known}"


def leader_is_in_isr_and_isr_in_replicas(history: ImageHistory, view: ImageView) -> str | None:
    """A partition's leader is in sync, who is in sync or eligible is a replica, and some are."""
    for one in view.assignments() if view.offset > history.newest else ():
        if not is_led_in_sync(one):
            return str(one)
    return None


def leader_is_not_fenced(history: ImageHistory, view: ImageView) -> str | None:
    """A fenced broker leads no partition."""
    for one in view.assignments() if view.offset > history.newest else ():
        if not is_led_by(one, view.unfenced):
            return str(one)
    return None


def new_isr_member_has_all_committed(history: ImageHistory, view: ImageView) -> str | None:
    """A broker that enters an ISR has every record that is committed then (KIP-497)."""
    for one in view.assignments() if view.offset > history.newest else ():
        old = history.assignments.get(one.partition)
        partition = history.partitions.get(one.partition)
        if old is None or partition is None:
            continue
        for member in one.isr:
            replica = partition.views.get(member)
            if member in old.isr or replica is None or member in partition.lost_power:
                continue
            if replica.log_end < partition.committed.end_offset:
                return f"{one}, but {member} ends at {replica.log_end}"
    return None


def unfenced_broker_has_caught_up(history: ImageHistory, view: ImageView) -> str | None:
    """A broker is unfenced only after it has seen its own registration."""
    reached = history.reached
    reached[view.node_id] = max(view.offset, reached.get(view.node_id, -1))
    for broker_id, broker_epoch in view.unfenced.items():
        if reached.get(broker_id, -1) < broker_epoch:
            return f"{broker_id} of {broker_epoch} has seen {reached.get(broker_id)}"
    return None


def partition_epochs_never_go_back(history: ImageHistory, view: ImageView) -> str | None:
    """Leader and partition epochs grow from image to image, and with each change."""
    if view.offset <= history.newest:
        return None
    history.newest = view.offset
    for one in view.assignments():
        old = history.assignments.get(one.partition)
        history.assignments[one.partition] = one
        if old is not None and old != one and not may_follow(one, old):
            return f"{one} after {old}"
    return None


IMAGE_PROPERTIES = (
    image_is_committed,
    images_agree,
    leader_is_in_isr_and_isr_in_replicas,
    leader_is_not_fenced,
    new_isr_member_has_all_committed,
    unfenced_broker_has_caught_up,
    partition_epochs_never_go_back,
)


HEARTBEATS_MAX = 1_000
"""Heartbeats are never refused; so many of them may wait besides."""


@dataclass(frozen=True, slots=True)
class WaitingView:
    """The requests that wait in one controller."""

    node_id: int
    unwritten_bytes: int
    answers: int
    answers_bytes: int


def what_waits_is_bounded(view: WaitingView) -> str | None:
    """One message may go beyond a bound, since all of its requests are taken or none."""
    bounds = (
        ("bytes wait for the disk", view.unwritten_bytes, UNWRITTEN_BYTES_MAX + MESSAGE_BYTES_MAX),
        ("answers wait", view.answers, DEFERRED_MAX + HEARTBEATS_MAX),
        ("bytes wait with answers", view.answers_bytes, WAITING_BYTES_MAX + MESSAGE_BYTES_MAX),
    )
    for what, found, most in bounds:
        if found > most:
            return f"node {view.node_id}: {found:,} {what}, {most:,} at most"
    return None
