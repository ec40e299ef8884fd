"""What an administrator may believe of a cluster, in plain containers.

Each request is judged by itself: which errors it may be refused with (Apache Kafka's, for whatever
is wrong with it) and what is so afterwards. Who leads and who is in sync is not modelled here: the
machine's invariants look after that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from raftctl.errors import ErrorCode
from raftctl.metadata.features import (
    ELR_FEATURE,
    METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    TRANSACTION_VERSION_FEATURE,
)
from raftctl.metadata.records import FeatureRange
from raftctl.metadata.requests.security import AclBinding
from tests.properties import values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.requests.admin import (
        ConfigAlteration,
        ConfigChange,
        FeatureUpdate,
        NewPartitions,
        Reassignment,
    )
    from raftctl.metadata.requests.cluster import NewTopic
    from raftctl.metadata.requests.security import AclFilter, AlterScramRequest, QuotaAlteration

TOPIC, BROKER, GROUP = 2, 4, 32
MIN_ISR = "min.insync.replicas"
SUPPORTED = {
    ELR_FEATURE: (0, 1),
    METADATA_VERSION_FEATURE: (1, METADATA_VERSION),
    TRANSACTION_VERSION_FEATURE: (0, 2),
}
SECURITY_LEVEL, DIRECTORIES_LEVEL = 2, 4
Errors = set[ErrorCode]
Entity = tuple[tuple[str, "str | None"], ...]


@dataclass
class TopicModel:
    """A topic."""

    topic_id: UUID
    partitions: int


@dataclass
class Model:
    """The cluster."""

    brokers: dict[int, tuple[UUID, tuple[FeatureRange, ...]]] = field(default_factory=dict)
    """(incarnation, what it can work with)"""
    topics: dict[str, TopicModel] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[Entity, dict[str, float]] = field(default_factory=dict)
    acls: set[AclBinding] = field(default_factory=set)
    scram: dict[tuple[str, int], int] = field(default_factory=dict)
    """Iterations."""
    features: dict[str, int] = field(default_factory=dict)
    keys: dict[str, bytes] = field(default_factory=dict)
    next_producer_id: int = 0

    def set_configs(self, resource: tuple[int, str], configs: dict[str, str]) -> None:
        """A resource without configs is not there."""
        self.configs.pop(resource, None)
        if configs:
            self.configs[resource] = configs

    def agrees(self, image: MetadataImage) -> None:
        """The image says the same."""
        topics = {topic.name: topic for topic in image.topics.in_order()}
        assert {name: (t.topic_id, len(t.partitions)) for name, t in topics.items()} == {
            name: (t.topic_id, t.partitions) for name, t in self.topics.items()
        }
        assert {owner: dict(found) for owner, found in image.configs.items()} == self.configs
        quotas = {entity: dict(found) for entity, found in image.client_quotas.items()}
        assert quotas == self.quotas
        assert {values.binding(one) for one in image.acls.values()} == self.acls
        assert len(image.acls) == len(self.acls)
        assert {key: one.iterations for key, one in image.scram.items()} == self.scram
        assert dict(image.features) == self.features
        assert {key: entry.value for key, entry in image.kv.items()} == self.keys
        assert image.next_producer_id == self.next_producer_id
        assert {key: (b.incarnation_id, b.features) for key, b in image.brokers.items()} == (
            self.brokers
        )

    def level(self, feature: str) -> int:
        """The finalized level."""
        return self.features.get(feature, 0)

    @property
    def too_low_for_security(self) -> Errors:
        """UNSUPPORTED_VERSION as long as quotas, rules and credentials have no place."""
        low = self.level(METADATA_VERSION_FEATURE) < SECURITY_LEVEL
        return {ErrorCode.UNSUPPORTED_VERSION} if low else set()

    # --- topics -------------------------------------------------------------------------------

    def creation(
        self, topic: NewTopic, named: Sequence[str], earlier: Iterable[str], active: set[int]
    ) -> Errors:
        """What is wrong with a new topic; `earlier` ones are created by the same request."""
        wrong = self._name_errors(topic.name, named, earlier)
        if any(not values.topic_value_is_good(key, value) for key, value in topic.configs):
            wrong.add(ErrorCode.INVALID_CONFIG)
        if topic.assignments:
            ids = sorted(number for number, _ in topic.assignments)
            if topic.partitions != -1 or topic.replication_factor != -1:
                wrong.add(ErrorCode.INVALID_REQUEST)
            if ids != list(range(len(ids))):
                wrong.add(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            lists = [replicas for _, replicas in sorted(topic.assignments)]
            return wrong | self.assignment_errors(lists, len(lists[0]), active)
        if topic.partitions != -1 and topic.partitions < 1:
            wrong.add(ErrorCode.INVALID_PARTITIONS)
        factor = 1 if topic.replication_factor == -1 else topic.replication_factor
        if topic.partitions > values.PARTITIONS_MAX:
            wrong.add(ErrorCode.POLICY_VIOLATION)
        return wrong | self._placement_errors(factor, active)

    def _name_errors(self, name: str, named: Sequence[str], earlier: Iterable[str]) -> Errors:
        wrong: Errors = set()
        if named.count(name) > 1:
            wrong.add(ErrorCode.INVALID_REQUEST)
        if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) or name in (".", ".."):
            wrong.add(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if name in self.topics:
            wrong.add(ErrorCode.TOPIC_ALREADY_EXISTS)
        others = {other.replace(".", "_") for other in (*self.topics, *earlier) if other != name}
        if name.replace(".", "_") in others:
            wrong.add(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return wrong

    def assignment_errors(
        self, lists: Sequence[tuple[int, ...]], factor: int, active: set[int]
    ) -> Errors:
        """What is wrong with replicas that an administrator chose."""
        good = all(
            replicas
            and len(replicas) == factor
            and self.are_replicas(replicas)
            and not active.isdisjoint(replicas)
            for replicas in lists
        )
        return set() if good else {ErrorCode.INVALID_REPLICA_ASSIGNMENT}

    def are_replicas(self, replicas: tuple[int, ...]) -> bool:
        """Different, registered brokers."""
        return len(set(replicas)) == len(replicas) and set(replicas) <= set(self.brokers)

    def _placement_errors(self, factor: int, active: set[int]) -> Errors:
        good = 1 <= factor <= len(self.brokers) and active
        return set() if good else {ErrorCode.INVALID_REPLICATION_FACTOR}

    def addition(
        self, wanted: NewPartitions, named: Sequence[str], factor: int, active: set[int]
    ) -> Errors:
        """What is wrong with more partitions; the topic has `factor` replicas, if it is there."""
        wrong: Errors = {ErrorCode.INVALID_REQUEST} if named.count(wanted.name) > 1 else set()
        topic = self.topics.get(wanted.name)
        if topic is None:
            return wrong | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if wanted.count <= topic.partitions:
            wrong.add(ErrorCode.INVALID_PARTITIONS)
        if wanted.count - topic.partitions > values.PARTITIONS_MAX:
            wrong.add(ErrorCode.POLICY_VIOLATION)
        if wanted.assignments is None:
            return wrong | self._placement_errors(factor, active)
        if len(wanted.assignments) != wanted.count - topic.partitions:
            wrong.add(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        return wrong | self.assignment_errors(wanted.assignments, factor, active)

    def reassignment(
        self, one: Reassignment, named: Sequence[tuple[str, int]], *, fixed: int | None
    ) -> Errors:
        """What is wrong with the target; `fixed` is the number of replicas that may not change."""
        key = (one.topic, one.partition_id)
        wrong: Errors = {ErrorCode.INVALID_REQUEST} if named.count(key) > 1 else set()
        topic = self.topics.get(one.topic)
        if topic is None or not 0 <= one.partition_id < topic.partitions:
            return wrong | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if one.replicas is None:
            return wrong
        if not one.replicas or not self.are_replicas(one.replicas):
            wrong.add(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        if fixed is not None and len(one.replicas) != fixed:
            wrong.add(ErrorCode.INVALID_REPLICATION_FACTOR)
        return wrong

    # --- configs ------------------------------------------------------------------------------

    def alteration(
        self, resource: ConfigAlteration, named: Sequence[tuple[int, str]]
    ) -> tuple[Errors, dict[str, str]]:
        """What is wrong with it, and the configs afterwards if nothing is."""
        owner = (resource.resource_type, resource.resource_name)
        wrong = self._owner_errors(*owner)
        if named.count(owner) > 1:
            wrong.add(ErrorCode.INVALID_REQUEST)
        keys = [change.key for change in resource.changes]
        if len(set(keys)) < len(keys):
            wrong.add(ErrorCode.INVALID_REQUEST)
        after = {} if resource.replace else dict(self.configs.get(owner, {}))
        for change in resource.changes:
            wrong |= _config_change(owner[0], change, after)
        bad = {one for item in after.items() for one in values.config_errors(*owner, *item)}
        if owner[0] == BROKER and bad:
            bad = {ErrorCode.INVALID_REQUEST}
        return wrong | bad, after

    def _owner_errors(self, kind: int, name: str) -> Errors:
        if kind == TOPIC:
            return set() if name in self.topics else {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if kind == BROKER:
            if name and not name.isdecimal():
                return {ErrorCode.INVALID_REQUEST}
            known = not name or int(name) in self.brokers
            return set() if known else {ErrorCode.INVALID_REQUEST}
        return set() if kind == GROUP and name else {ErrorCode.INVALID_REQUEST}

    # --- security -----------------------------------------------------------------------------

    def quota(self, one: QuotaAlteration, entities: Sequence[Entity]) -> Errors:
        """What is wrong with the quotas of an entity."""
        entity = values.ordered(one.entity)
        keys = [key for key, _ in one.changes]
        good = (
            [values.ordered(other) for other in entities].count(entity) == 1
            and values.entity_is_good(entity)
            and len(set(keys)) == len(keys)
            and all(values.quota_is_good(entity, *change) for change in one.changes)
        )
        return self.too_low_for_security | (set() if good else {ErrorCode.INVALID_REQUEST})

    def credentials(self, request: AlterScramRequest, user: str) -> Errors:
        """What is wrong with the changes of a user's credentials."""
        wrong = self.too_low_for_security
        if not user:
            wrong.add(ErrorCode.UNACCEPTABLE_CREDENTIAL)
        gone = [one.mechanism for one in request.deletions if one.user == user]
        new = [one for one in request.upsertions if one.user == user]
        named = gone + [one.mechanism for one in new]
        if not set(named) <= {1, 2}:
            wrong.add(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        if len(set(named)) < len(named):
            wrong.add(ErrorCode.DUPLICATE_RESOURCE)
        if any((user, mechanism) not in self.scram for mechanism in gone):
            wrong.add(ErrorCode.RESOURCE_NOT_FOUND)
        if any(not values.credential_is_good(one) for one in new):
            wrong.add(ErrorCode.UNACCEPTABLE_CREDENTIAL)
        return wrong

    def meant(self, wanted: AclFilter) -> set[AclBinding]:
        """The rules that a filter means."""
        return {one for one in self.acls if values.is_meant(wanted, one)}

    # --- features -----------------------------------------------------------------------------

    def feature(
        self, update: FeatureUpdate, named: Sequence[str], *, has_directories: bool
    ) -> Errors:
        """What is wrong with a level."""
        wrong: Errors = set()
        low, high = SUPPORTED.get(update.feature, (0, -1))
        present = self.level(update.feature)
        unable = [
            ranges
            for _, ranges in self.brokers.values()
            if ranges and update.level and not values.covers(ranges, update.feature, update.level)
        ]
        lowered = update.feature == METADATA_VERSION_FEATURE and update.level < present
        secured = bool(self.quotas or self.acls or self.scram)
        lost = update.level < SECURITY_LEVEL and secured
        lost = lost or (update.level < DIRECTORIES_LEVEL and has_directories)
        if (
            not low <= update.level <= high
            or (update.level < present and update.upgrade_type == 1)
            or (update.level > present and update.upgrade_type != 1)
            or (update.level != present and unable)
            or (lowered and lost)
        ):
            wrong.add(ErrorCode.INVALID_UPDATE_VERSION)
        if update.upgrade_type not in (1, 2, 3):
            wrong.add(ErrorCode.INVALID_UPDATE_VERSION)
        if named.count(update.feature) > 1:
            wrong.add(ErrorCode.INVALID_REQUEST)
        return wrong

    def raise_levels(self, updates: Sequence[FeatureUpdate]) -> None:
        """The levels are so from now on, and what follows from them."""
        changed = {one.feature for one in updates if one.level != self.level(one.feature)}
        for one in updates:
            if one.feature in changed:
                self.features[one.feature] = one.level
        if ELR_FEATURE in changed:
            # From then on all nodes must agree on it, whatever their files say.
            self.configs.setdefault((BROKER, ""), {}).setdefault(MIN_ISR, "1")


def _config_change(kind: int, change: ConfigChange, after: dict[str, str]) -> Errors:
    """What is wrong with one change; makes it otherwise."""
    if not change.key:
        return {ErrorCode.INVALID_CONFIG}
    if change.operation == 1:
        after.pop(change.key, None)
        return set()
    if change.value is None:
        return {ErrorCode.INVALID_CONFIG}
    if change.operation == 0:
        after[change.key] = change.value
        return set()
    if change.operation not in (2, 3):
        return {ErrorCode.INVALID_REQUEST}
    default = values.list_default(kind, change.key)
    if default is None:
        return {ErrorCode.INVALID_CONFIG}
    items = [one for one in after.get(change.key, default).split(",") if one]
    given = change.value.split(",")
    if change.operation == 2:
        items += [one for one in given if one not in items]
    else:
        items = [one for one in items if one not in given]
    after[change.key] = ",".join(items)
    return set()
