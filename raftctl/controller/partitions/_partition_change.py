"""Election rule: leader and ISR of a partition, given the replicas that are active.

One rule for every cause: a broker is fenced, unfenced or shuts down, a reassignment ends, a config
changes. Kafka has a rule for each and has had bugs where they differ. Given the active replicas,

* replicas that are not active, or whose log directory is offline, leave the ISR;
* the leader stays if it is in the ISR and active; otherwise the first active replica of the ISR in
  the order of the assignment leads, and if there is none, nobody does;
* without eligible leader replicas an ISR never becomes empty: its last members stay, so that the
  partition waits for a replica that has all committed records;
* with them, a replica that leaves an ISR smaller than `min.insync.replicas` stays eligible: nothing
  is committed meanwhile, so it has all committed records. The ISR may become empty; then an active
  eligible replica leads. ISR and eligible leaders together are never empty;
* only if the topic allows unclean elections, an active replica outside both may then lead, as the
  only member of the ISR and marked as recovering.

A replica counts as active if its broker is active and its log directory is online.

Sources: KIP-497, KIP-631; KIP-704 for recovering leaders; KIP-858 for log directories; KIP-966 for
eligible leader replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from raftctl.metadata.configs.topic import broker_topic_defaults, effective
from raftctl.metadata.features import eligible_leaders_enabled
from raftctl.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    TOPIC_RESOURCE,
    PartitionChangeRecord,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage, PartitionImage

T = TypeVar("T")


class ElectionRules(NamedTuple):
    """Configs of a topic that the election depends on."""

    unclean: bool = False
    min_isr: int = 0
    """Minimum of in-sync replicas; 0 where eligible leader replicas are not kept."""


def elect(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionImage,
    active: frozenset[int],
    *,
    unclean: bool = False,
    min_isr: int = 0,
) -> PartitionChangeRecord | None:
    """Return the change that reconciles the partition with the active replicas.

    None if it needs none: the leader and all members of the ISR are active.
    """
    if partition.leader in active and active.issuperset(partition.isr):
        return None
    after = reconciled(partition, active, ElectionRules(unclean, min_isr))
    return change_record(topic_id, partition_id, partition, after)


def reconciled(
    partition: PartitionImage, active: frozenset[int], rules: ElectionRules
) -> PartitionImage:
    """Return the partition as the rule has it; its epochs are as before.

    An unclean election may complete a reassignment: the new leader alone is in sync then, and it
    may be the only replica to be added.
    """
    return completed(_elected(partition, active, rules), active, rules)


def completed(
    partition: PartitionImage, active: frozenset[int], rules: ElectionRules
) -> PartitionImage:
    """Return the partition without the replicas to be removed, once all to be added are in sync.

    Return it unchanged otherwise, and if it is not being reassigned. The last replica to be removed
    stays until another one is in sync: else all committed records would be lost.
    """
    removing = partition.removing_replicas
    if not removing and not partition.adding_replicas:
        return partition
    isr = tuple(replica for replica in partition.isr if replica not in removing)
    if not isr or not set(partition.adding_replicas) <= set(isr):
        return partition
    replicas = tuple(replica for replica in partition.replicas if replica not in removing)
    moved = partition._replace(
        replicas=replicas,
        isr=isr,
        elr=tuple(replica for replica in partition.elr if replica not in removing),
        adding_replicas=(),
        removing_replicas=(),
        directories=partition.directories_for(replicas),
    )
    return _elected(moved, active, rules)


def _elected(
    partition: PartitionImage, active: frozenset[int], rules: ElectionRules
) -> PartitionImage:
    # Where eligible leaders are not kept any more, those of before have all committed records, as
    # the members of an ISR do.
    last = partition.isr or partition.elr
    members = partition.isr if rules.min_isr else last
    isr = tuple([replica for replica in members if replica in active])
    leader = partition.leader if partition.leader in isr else _first(partition, isr)
    recovering = partition.leader_recovering
    eligible = eligible_leaders(partition, isr, rules.min_isr)
    if leader == NO_LEADER:
        leader = _first(partition, active.intersection(eligible))
        isr = (leader,) if leader != NO_LEADER else () if rules.min_isr else last
        eligible = eligible_leaders(partition, isr, rules.min_isr)
    if leader == NO_LEADER and rules.unclean:
        leader = _first(partition, active)
        if leader != NO_LEADER:
            isr, eligible, recovering = (leader,), (), True
    return partition.led(leader, isr, eligible, recovering=recovering)


def _first(partition: PartitionImage, candidates: Collection[int]) -> int:
    """Return the first candidate in the order of the assignment, or NO_LEADER."""
    return next((replica for replica in partition.replicas if replica in candidates), NO_LEADER)


def eligible_leaders(
    partition: PartitionImage, isr: tuple[int, ...], min_isr: int
) -> tuple[int, ...]:
    """Return the replicas outside the new ISR that have all committed records (KIP-966).

    There are none unless the new ISR is smaller than `min_isr`, so that nothing is committed. If
    the ISR before was large enough, former eligible leaders no longer count: `min.insync.replicas`
    was lowered since, and they may lack records that were committed under the lower minimum.
    """
    if len(isr) >= min_isr or len(isr) >= len(partition.replicas):
        return ()
    known = partition.isr + (partition.elr if len(partition.isr) < min_isr else ())
    return tuple(
        replica for replica in partition.replicas if replica in known and replica not in isr
    )


def change_record(
    topic_id: UUID,
    partition_id: int,
    before: PartitionImage,
    after: PartitionImage,
) -> PartitionChangeRecord | None:
    """Return the change from one state to the other; None if they are equal. Epochs are ignored.

    If a replica is removed, a leader that stays begins a new epoch as well. Otherwise it would go
    on to count the removed replica's fetches in the old epoch.
    """
    if before == after:
        return None
    # Here, not only once it is replayed: by then the record is on its way into every log, and a
    # node that replays it stops at each start.
    after.invariants()
    stays = after.replicas == before.replicas
    gone = not stays and not set(before.replicas) <= set(after.replicas)
    keeps = after.leader == before.leader and not gone
    recovering = after.leader_recovering
    directories = before.directories if stays else before.directories_for(after.replicas)
    return PartitionChangeRecord(
        topic_id,
        partition_id,
        _new(before.isr, after.isr),
        LEADER_UNCHANGED if keeps else after.leader,
        _new(before.replicas, after.replicas),
        _new(before.adding_replicas, after.adding_replicas),
        _new(before.removing_replicas, after.removing_replicas),
        _new(before.elr, after.elr),
        None if recovering == before.leader_recovering else recovering,
        _new(directories, after.directories),
    )


def _new(before: tuple[T, ...], after: tuple[T, ...]) -> tuple[T, ...] | None:
    return None if before == after else after


def without_eligible_leaders(partition: PartitionImage, brokers: Collection[int]) -> PartitionImage:
    """Return the partition without these eligible leaders, unless no other candidate is left.

    The last one stays even if it may lack records: an unclean choice among all replicas could only
    be worse.
    """
    others = tuple(replica for replica in partition.elr if replica not in brokers)
    return partition._replace(elr=others) if others or partition.isr else partition


class TopicRules:
    """Election rules of the topics of an image; topics without overrides share one."""

    def __init__(self, image: MetadataImage, defaults: TopicConfig) -> None:
        self._image = image
        self._defaults = broker_topic_defaults(image, defaults)
        self._eligible_leaders = eligible_leaders_enabled(image)
        self._general = self._rules(self._defaults)
        self._known: dict[str, ElectionRules] = {}

    def of(self, topic: str) -> ElectionRules:
        """Return the rules of the topic of this name."""
        overrides = self._image.config(TOPIC_RESOURCE, topic)
        if not overrides:
            return self._general
        if topic not in self._known:
            self._known[topic] = self._rules(effective(overrides, self._defaults))
        return self._known[topic]

    def _rules(self, config: TopicConfig) -> ElectionRules:
        min_isr = config.min_insync_replicas if self._eligible_leaders else 0
        return ElectionRules(config.unclean_leader_election_enable, min_isr)
