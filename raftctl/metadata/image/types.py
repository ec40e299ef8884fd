"""Types of the parts of an image: nodes, topics, partitions, keys and quotas.

They are immutable and compare by value, so a delta finds the changed ones. A part names others by
their ids and never holds them; so a change of a broker leaves all partitions as they are, and two
images share them. `coordination` holds the types of sessions and locks.

A partition is a tuple, and equal tuples of broker ids are one object: clusters have millions of
partitions, but only thousands of different assignments. Invariants that do not depend on a
partition's epochs are checked once for all that are alike.

Sources: KIP-631 (brokers, partitions), KIP-919 (controllers), KIP-546 (quotas); KIP-455, KIP-704,
KIP-858 and KIP-966 for the fields of a partition.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from immutables import Map

from raftctl.errors import invariant
from raftctl.metadata.records import LEADER_UNCHANGED, NO_LEADER, UNASSIGNED, Endpoint, FeatureRange
from raftctl.metadata.topic_names import name_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from raftctl.codec import Row

SHARED_MAX = 1 << 16
"""Tuples of broker ids that are kept once for all partitions."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker."""

    broker_id: int
    broker_epoch: int
    """Offset of the record that registered this incarnation."""
    incarnation_id: UUID
    """Random id of one life of the broker's process."""
    endpoints: tuple[Endpoint, ...]
    """Addresses that clients and other brokers use, one a listener."""
    rack: str | None
    log_directories: tuple[UUID, ...]
    """Directories that are online."""
    fenced: bool
    """True if the broker leads nothing: it is silent, or has yet to replay the log."""
    in_controlled_shutdown: bool
    """True if its leaders move away before it stops."""
    features: tuple[FeatureRange, ...] = ()
    """Feature levels that it supports; empty if it did not register any."""

    @property
    def active(self) -> bool:
        """True if it may lead partitions and join ISRs."""
        return not self.fenced and not self.in_controlled_shutdown

    def invariants(self, offset: int) -> None:
        """Check a broker of the image at `offset`."""
        invariant(self.broker_id >= 0, "the id of a broker is not negative")
        invariant(0 <= self.broker_epoch <= offset, "a broker's epoch is an offset of the log")
        listeners = {endpoint.listener for endpoint in self.endpoints}
        invariant(len(listeners) == len(self.endpoints), "a broker has one endpoint a listener")
        _check_ranges(self.features)

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the endpoint of this listener name; None if the broker has none."""
        return next((e for e in self.endpoints if e.listener == listener), None)

    def supports(self, feature: str, level: int) -> bool:
        """Return whether it supports this level; without registered ranges it does."""
        return not self.features or supports(self.features, feature, level)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """A registered controller, voter or standby."""

    controller_id: int
    incarnation_id: UUID
    features: tuple[FeatureRange, ...]
    """Feature levels that it supports."""

    def invariants(self) -> None:
        """Check its id and its feature ranges."""
        invariant(self.controller_id >= 0, "the id of a controller is not negative")
        _check_ranges(self.features)

    def supports(self, feature: str, level: int) -> bool:
        """Return whether it supports this level."""
        return supports(self.features, feature, level)


def supports(ranges: Iterable[FeatureRange], feature: str, level: int) -> bool:
    """Return whether a node with these ranges supports a level; level 0: not to use it."""
    if level == 0:
        return True
    return any(known.name == feature and known.lowest <= level <= known.highest for known in ranges)


def _check_ranges(ranges: Sequence[FeatureRange]) -> None:
    names = {known.name for known in ranges}
    invariant(len(names) == len(ranges), "a node has one range a feature")
    invariant(all(known.lowest <= known.highest for known in ranges), "a range of levels has one")


class PartitionImage(NamedTuple):
    """A partition's assignment and leadership.

    A tuple, since there are millions and each change makes one. Its fields are those of a
    PartitionRecord after the ids, in their order: snapshots are written and read without records.
    """

    replicas: tuple[int, ...]
    """Broker ids; the first is the preferred leader. Those to be removed stand last."""
    isr: tuple[int, ...]
    """Replicas in sync: they have all committed records, and count for the next commit."""
    leader: int
    """Broker id, or NO_LEADER."""
    leader_epoch: int
    """Grows with each leader; a request in an older epoch is refused."""
    partition_epoch: int
    """Grows with each change; a leader's proposal names the one that it knows."""
    adding_replicas: tuple[int, ...] = ()
    """Replicas that a reassignment adds; it ends once all are in the ISR."""
    removing_replicas: tuple[int, ...] = ()
    """Replicas that leave at the end of the reassignment."""
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: outside the ISR, with all committed records (KIP-966)."""
    leader_recovering: bool = False
    """True if the leader was elected uncleanly and has not confirmed its log yet (KIP-704)."""
    directories: tuple[UUID, ...] = ()
    """Log directory of each replica, in the order of `replicas`; empty if none is assigned."""

    def invariants(self) -> None:
        """Check what every change by a controller keeps."""
        # Without the epochs, so that partitions that are alike are checked once.
        _check_partition(self[:3], self[5:9], len(self[9]))

    def succeeds(self, before: PartitionImage) -> None:
        """Check that a controller may lead from `before` to this."""
        invariant(self.partition_epoch > before.partition_epoch, "a change has a partition epoch")
        moved = self.leader != before.leader or (
            self.replicas != before.replicas and not {*before.replicas} <= {*self.replicas}
        )
        # A removed replica would go on to fetch in the old leader epoch and count as a follower.
        grows = self.leader_epoch >= before.leader_epoch + moved
        invariant(grows, "a new leader, or a replica that is gone, begins a leader epoch")

    @property
    def stationary(self) -> tuple[int, ...]:
        """Replicas without those that a reassignment adds; they remain if it is cancelled."""
        return tuple(replica for replica in self.replicas if replica not in self.adding_replicas)

    def led(
        self, leader: int, isr: tuple[int, ...], elr: tuple[int, ...], *, recovering: bool
    ) -> PartitionImage:
        """Return the partition with that leader, ISR and eligible leaders, in the same epochs."""
        return PartitionImage(
            self.replicas,
            isr,
            leader,
            self.leader_epoch,
            self.partition_epoch,
            self.adding_replicas,
            self.removing_replicas,
            elr,
            recovering,
            self.directories,
        )

    def changed(self, row: Row) -> PartitionImage:
        """Return the partition after a PartitionChangeRecord; `row` holds its fields.

        A field of None stays as it is. Each change begins a partition epoch, and one that names a
        leader begins a leader epoch, even if it names the present one again.
        """
        _, _, isr, leader, replicas, adding, removing, elr, recovering, directories = row
        if directories is None and replicas is not None:
            directories = self.directories_for(replicas)
        moved = leader != LEADER_UNCHANGED
        # Not by the constructor, which takes half as long again: a slice has a thousand rows.
        fields = (
            self[0] if replicas is None else replicas,
            self[1] if isr is None else shared(isr),
            leader if moved else self[2],
            self[3] + moved,
            self[4] + 1,
            self[5] if adding is None else adding,
            self[6] if removing is None else removing,
            self[7] if elr is None else elr,
            self[8] if recovering is None else recovering,
            self[9] if directories is None else directories,
        )
        return tuple.__new__(PartitionImage, fields)

    def directory_of(self, broker_id: int) -> UUID:
        """Return the log directory of a replica; UNASSIGNED if unknown, or without a replica."""
        pairs = zip(self.replicas, self.directories, strict=False)
        return next((found for replica, found in pairs if replica == broker_id), UNASSIGNED)

    def directories_for(self, replicas: tuple[int, ...]) -> tuple[UUID, ...]:
        """Return the directories for other replicas: replicas that stay keep theirs."""
        if not self.directories:
            return ()
        return _assigned([self.directory_of(replica) for replica in replicas])

    def in_directory(self, broker_id: int, directory_id: UUID) -> PartitionImage:
        """Return the partition with the replica of a broker in that log directory."""
        directories = [
            directory_id if replica == broker_id else self.directory_of(replica)
            for replica in self.replicas
        ]
        return self._replace(directories=_assigned(directories))


@functools.lru_cache(maxsize=SHARED_MAX)
def _check_partition(
    placed: tuple[tuple[int, ...], tuple[int, ...], int],
    moving: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool],
    directories: int,
) -> None:
    """Check (replicas, ISR, leader) and (adding, removing, ELR, recovering) of a partition.

    `directories` is the number of log directories. Sources: KIP-455, KIP-497, KIP-704, KIP-966.
    """
    replicas, isr, leader = placed
    adding, removing, elr, recovering = moving
    known, in_sync = {*replicas}, {*isr}
    invariant(len(known) == len(replicas) > 0, "replicas are distinct, at least one")
    invariant(len(in_sync) == len(isr) and in_sync <= known, "the ISR is a set of replicas")
    invariant(len({*elr}) == len(elr) and {*elr} <= known, "the ELR is a set of replicas")
    invariant(in_sync.isdisjoint(elr), "an eligible leader replica is not in the ISR")
    # The replicas with all committed records are in them; without one, none could ever lead.
    invariant(bool(isr or elr), "the ISR and the ELR are not both empty")
    invariant(leader == NO_LEADER or leader in in_sync, "the leader is in the ISR")
    # It may have left the ISR, as the last member, and be an eligible leader since.
    invariant(not recovering or len(isr) <= 1, "a leader that recovers is alone in the ISR")
    invariant({*adding} <= known, "a replica to be added is a replica")
    stays = len(replicas) - len(removing)
    invariant(replicas[stays:] == removing, "the replicas to be removed are the last")
    invariant(stays > 0, "a reassignment leaves replicas")
    invariant(not adding or not {*adding} <= in_sync, "a reassignment ends once all are in sync")
    invariant(directories in (0, len(replicas)), "each replica has a log directory, or none has")


@functools.lru_cache(maxsize=SHARED_MAX)
def shared(broker_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Return an equal tuple that other partitions use, too: a few thousand serve millions."""
    return broker_ids


def _assigned(directories: Sequence[UUID]) -> tuple[UUID, ...]:
    """Return the directories as an image holds them: empty if none is assigned."""
    return tuple(directories) if any(known != UNASSIGNED for known in directories) else ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic; partition ids are 0 .. len(partitions) - 1.

    Its configs are not part of it: they are those of a resource, and a change of them leaves the
    partitions as they are.
    """

    name: str
    topic_id: UUID
    partitions: Map[int, PartitionImage]

    def invariants(self) -> None:
        """Check the topic and each of its partitions."""
        # It names directories of brokers: a path such as `..` would lead out of theirs.
        invariant(name_problem(self.name) is None, "a topic has a name that files may have")
        invariant(len(self.partitions) > 0, "a topic has partitions")
        invariant({*self.partitions} == {*range(len(self.partitions))}, "partition ids have no gap")
        for partition in self.partitions.values():
            partition.invariants()

    def items(self) -> Iterator[tuple[int, PartitionImage]]:
        """Return the partitions in the order of their ids."""
        return ((i, self.partitions[i]) for i in range(len(self.partitions)))


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics by id; `ids` maps names to ids.

    A topic that is deleted and created again has another id. So a request that names the id never
    reaches a topic of the same name by mistake (KIP-516).
    """

    topics: Map[UUID, TopicImage] = field(default_factory=Map)
    ids: Map[str, UUID] = field(default_factory=Map)

    def invariants(self) -> None:
        """Check each topic, and that names and ids lead to the same topics."""
        named = {topic.name: topic_id for topic_id, topic in self.topics.items()}
        invariant(named == dict(self.ids), "each topic has a name and an id of its own")
        for topic in self.topics.values():
            topic.invariants()

    def by_name(self, name: str) -> TopicImage | None:
        """Return the topic of this name, if it exists."""
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def by_id(self, topic_id: UUID) -> TopicImage | None:
        """Return the topic of this id, if it exists."""
        return self.topics.get(topic_id)

    def partition(self, name: str, number: int) -> PartitionImage | None:
        """Return a partition by topic name and partition id, if it exists."""
        topic = self.by_name(name)
        return None if topic is None else topic.partitions.get(number)

    def in_order(self) -> Iterator[TopicImage]:
        """Return the topics sorted by name."""
        return (self.topics[self.ids[name]] for name in sorted(self.ids))


class KvEntry(NamedTuple):
    """The value of a key. A tuple, since a put makes one and puts are many."""

    value: bytes
    version: int
    """Offset of the record that set the value; it grows over all keys and so serves as a fencing
    token."""


Configs = Map[tuple[int, str], Map[str, str]]
"""(resource type, resource name) to key to value; a resource without overrides is absent."""


QuotaEntity = tuple[tuple[str, "str | None"], ...]
"""Entity of a client quota: (type, name) sorted by type. Name None is the default of the type."""
ClientQuotas = Map[QuotaEntity, Map[str, float]]
"""Entity to key to value; an entity without quotas is absent."""


def kv_size(key: str, value: bytes | None) -> int:
    """Return what a key, or a place for a lock, adds to `MetadataImage.kv_bytes`."""
    return 0 if value is None else len(key) + len(value)


def quota_order(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    """Return the sort key of an entity: types and names, a default before all names.

    Entities themselves have no order, since the name of a default is None.
    """
    return [(kind, name is not None, name or "") for kind, name in entity]
