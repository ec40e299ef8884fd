"""Properties of the partitions of a whole cluster at every moment, one function each.

A property looks at one change of one replica, and at the history of its partition so far; it
answers with a complaint, or None. The scheme is that of `jepsen.simulator.properties._invariants`.
Sources: KIP-101, KIP-497 and KIP-966.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jepsen.simulator.properties._committed import Log, ReadLog, lacks


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One broker's replica of a partition at one moment."""

    node_id: int
    life: int
    partition: str
    leads: bool
    leader_epoch: int
    high_watermark: int
    log_end: int
    isr: tuple[int, ...]
    min_isr: int
    """The number of replicas that must be in sync for records to be committed."""
    read: ReadLog = field(compare=False)


@dataclass(slots=True)
class PartitionHistory:
    """The history of one partition's replicas so far."""

    committed: Log = field(default_factory=Log)
    committed_in: dict[int, int] = field(default_factory=dict)
    """Up to where records were committed in each leader epoch."""
    leaders: dict[int, int] = field(default_factory=dict)
    views: dict[int, PartitionView] = field(default_factory=dict)
    lost_power: set[int] = field(default_factory=set)
    """The replicas that lost power and may still be taken for in sync."""
    agreed: dict[tuple[int, int], int] = field(default_factory=dict)
    """Up to where each life of a node (node id, life) is known to have what is committed."""


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """One step, as in `QuorumChange`."""

    before: PartitionView | None
    after: PartitionView

    @property
    def begins_to_lead(self) -> bool:
        """True if leadership in this leader epoch began with this step."""
        before, after = self.before, self.after
        known = before is not None and before.leads and before.leader_epoch == after.leader_epoch
        return after.leads and not known


def one_leader_per_leader_epoch(history: PartitionHistory, change: PartitionChange) -> str | None:
    """At most one broker takes writes in a leader epoch."""
    after = change.after
    if not after.leads:
        return None
    leader = history.leaders.setdefault(after.leader_epoch, after.node_id)
    return None if leader == after.node_id else f"{leader} leads as well as {after}"


def replica_never_truncates_committed(
    history: PartitionHistory, change: PartitionChange
) -> str | None:
    """A replica's log never shrinks below what it called committed, nor does its high watermark."""
    before, after = change.before, change.after
    if before is None or after.log_end >= before.high_watermark <= after.high_watermark:
        return None
    return f"{after} after {before}"


def no_committed_record_is_cut(history: PartitionHistory, change: PartitionChange) -> str | None:
    """No replica cuts a record that is committed, whether or not it knows that (row R4)."""
    after = change.after
    life = after.node_id, after.life
    agreed = history.agreed.get(life, 0) if change.before is not None else 0
    if after.log_end < agreed:
        return f"{after} cuts what is committed to {agreed}"
    committed = history.committed
    if agreed < min(after.log_end, committed.end_offset):
        found = after.read(agreed, min(after.log_end, committed.end_offset))
        history.agreed[life] = committed.agrees_to(found, agreed)
    return None


def high_watermark_is_within_the_log(
    history: PartitionHistory, change: PartitionChange
) -> str | None:
    """No replica calls committed what it lacks: a follower's is at most its log end (R2)."""
    after = change.after
    return None if after.high_watermark <= after.log_end else str(after)


def committed_record_never_changes(
    history: PartitionHistory, change: PartitionChange
) -> str | None:
    """One offset is one record on every replica, up to its high watermark, for ever."""
    after = change.after
    begin = change.before.high_watermark if change.before else 0
    if after.high_watermark <= begin:
        return None
    found = after.read(begin, after.high_watermark)
    return history.committed.conflict(found)


def committed_record_is_on_the_isr(
    history: PartitionHistory, change: PartitionChange
) -> str | None:
    """A record is committed when every in-sync replica has it, not before."""
    after = change.after
    if after.high_watermark <= history.committed.end_offset:
        return None
    history.committed.commit(after.read(history.committed.end_offset, after.high_watermark))
    history.committed_in[after.leader_epoch] = after.high_watermark
    for member in after.isr if after.leads else ():
        replica = history.views.get(member)
        if replica is None or member in history.lost_power:
            continue
        if replica.log_end < after.high_watermark:
            return f"{after.partition} committed to {after.high_watermark}, but {replica}"
    return None


def high_watermark_waits_for_min_isr(
    history: PartitionHistory, change: PartitionChange
) -> str | None:
    """A leader commits nothing while fewer than `min.insync.replicas` are in sync (KIP-966)."""
    before, after = change.before, change.after
    if not after.leads or before is None or change.begins_to_lead:
        return None
    if len(after.isr) >= after.min_isr or after.high_watermark == before.high_watermark:
        return None
    return f"{after.partition} committed to {after.high_watermark} by {after.isr}"


def new_partition_leader_has_all_committed(
    history: PartitionHistory, change: PartitionChange
) -> str | None:
    """A clean election chooses a replica that has what was committed in earlier leader epochs.

    Who hears late of an epoch that is over already may lack what later ones have committed.
    """
    if not change.begins_to_lead:
        return None
    epoch = change.after.leader_epoch
    ends = (end for earlier, end in history.committed_in.items() if earlier < epoch)
    return lacks(history.committed, change.after, max(ends, default=0))


def every_replica_has_all_committed(history: PartitionHistory) -> str | None:
    """At rest: every replica has caught up with all that was ever committed."""
    committed = history.committed
    found = (lacks(committed, view, committed.end_offset) for view in history.views.values())
    return next((complaint for complaint in found if complaint), None)


PARTITION_PROPERTIES = (
    one_leader_per_leader_epoch,
    replica_never_truncates_committed,
    new_partition_leader_has_all_committed,
    committed_record_never_changes,
    committed_record_is_on_the_isr,
    high_watermark_waits_for_min_isr,
    no_committed_record_is_cut,
    high_watermark_is_within_the_log,
)
