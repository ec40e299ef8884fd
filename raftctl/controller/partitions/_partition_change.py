"""The rule that says who leads a partition and who is in its ISR when brokers come and go.

One rule for every cause (a broker is fenced, unfenced, shutting down; a reassignment ends): given
who is active,

* replicas that are not active, or whose log directory is offline, leave the ISR;
* the leader stays if it is in the ISR and active; otherwise the first active replica of the ISR in
  the order of the assignment leads, and if there is none, nobody does;
* without eligible leader replicas an ISR never becomes empty: its last members stay, so that the
  partition waits for a replica that has all committed records;
* with them, whoever leaves an ISR smaller than `min.insync.replicas` stays eligible: nothing is
  committed meanwhile, so it has all that is. The ISR may become empty; then an active one of the
  eligible leads. ISR and eligible together are never empty;
* only if the topic allows unclean elections, an active replica outside both may then lead, as the
  only member of the ISR and marked as recovering.

Sources: KIP-497, KIP-631; KIP-704 for recovering leaders; KIP-858 for log directories; KIP-966 for
eligible leader replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from raftctl.metadata.configs.topic import broker_topic_defaults, effective
from raftctl.metadata.features import eligible_leaders_enabled
from raftctl.metadata.image import TOPIC_RESOURCE
from raftctl.metadata.records import LEADER_UNCHANGED, NO_LEADER, PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage, PartitionImage

T = TypeVar("T")


class ElectionRules(NamedTuple):
    """What a topic allows."""

    unclean: bool = False
    min_isr: int = 0
    """0: there are no eligible leader replicas."""


def elect(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionImage,
    active: frozenset[int],
    *,
    unclean: bool = False,
    min_isr: int = 0,
) -> PartitionChangeRecord | None:
    """The change that makes the partition right for the brokers that are active; None if it is."""
    if partition.leader in active and active.issuperset(partition.isr):
        return None
    after = settled(partition, active, ElectionRules(unclean, min_isr))
    return change_record(topic_id, partition_id, partition, after)


def settled(
    partition: PartitionImage, active: frozenset[int], rules: ElectionRules
) -> PartitionImage:
    """The partition as it should be for the brokers that are active; its epochs are as before.

    A leader from outside the ISR may be all that a reassignment has waited for.
    """
    return completed(_elected(partition, active, rules), active, rules)


def completed(
    partition: PartitionImage, active: frozenset[int], rules: ElectionRules
) -> PartitionImage:
    """The partition without the replicas to be removed, if all to be added are in sync.

    Otherwise, and if it does not move, as it is.
    """
    removing = partition.removing_replicas
    if not removing and not partition.adding_replicas:
        return partition
    isr = tuple(one for one in partition.isr if one not in removing)
    if not isr or not set(partition.adding_replicas) <= set(isr):
        return partition
    replicas = tuple(one for one in partition.replicas if one not in removing)
    moved = partition._replace(
        replicas=replicas,
        isr=isr,
        elr=tuple(one for one in partition.elr if one not in removing),
        adding_replicas=(),
        removing_replicas=(),
        directories=partition.directories_for(replicas),
    )
    return _elected(moved, active, rules)


def _elected(
    partition: PartitionImage, active: frozenset[int], rules: ElectionRules
) -> PartitionImage:
    # Without eligible leaders those of before, if there are any, are as good as in sync.
    last = partition.isr or partition.elr
    isr = tuple([one for one in (partition.isr if rules.min_isr else last) if one in active])
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
    """The first of them in the order of the assignment."""
    for one in partition.replicas:
        if one in candidates:
            return one
    return NO_LEADER


def eligible_leaders(
    partition: PartitionImage, isr: tuple[int, ...], min_isr: int
) -> tuple[int, ...]:
    """Who has all that is committed without being in the new ISR, because it is too small.

    Where the ISR was large enough before, those of before are none: `min.insync.replicas` has been
    lowered since, and what was committed under it they may lack.
    """
    if len(isr) >= min_isr or len(isr) >= len(partition.replicas):
        return ()
    known = partition.isr + (partition.elr if len(partition.isr) < min_isr else ())
    return tuple(one for one in partition.replicas if one in known and one not in isr)


def change_record(
    topic_id: UUID,
    partition_id: int,
    before: PartitionImage,
    after: PartitionImage,
) -> PartitionChangeRecord | None:
    """What leads from one state to the other, epochs aside; None if nothing does.

    Where replicas are gone also a leader that stays begins a new epoch, so that none of them is
    taken for a follower any more.
    """
    if before == after:
        return None
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


def without_eligible(partition: PartitionImage, brokers: Collection[int]) -> PartitionImage:
    """Takes the brokers from the eligible leaders, unless nobody else is left."""
    others = tuple(one for one in partition.elr if one not in brokers)
    return partition._replace(elr=others) if others or partition.isr else partition


class TopicRules:
    """The rules of each topic of an image; those without configs of their own share one."""

    def __init__(self, image: MetadataImage, defaults: TopicConfig) -> None:
        self._image = image
        self._defaults = broker_topic_defaults(image, defaults)
        self._eligible_leaders = eligible_leaders_enabled(image)
        self._general = self._rules(self._defaults)
        self._known: dict[str, ElectionRules] = {}

    def of(self, topic: str) -> ElectionRules:
        """The rules of the topic of this name."""
        overrides = self._image.config(TOPIC_RESOURCE, topic)
        if not overrides:
            return self._general
        if topic not in self._known:
            self._known[topic] = self._rules(effective(overrides, self._defaults))
        return self._known[topic]

    def _rules(self, config: TopicConfig) -> ElectionRules:
        min_isr = config.min_insync_replicas if self._eligible_leaders else 0
        return ElectionRules(config.unclean_leader_election_enable, min_isr)
