"""Delta between two images: it replays records, then makes the next image.

Subscribers receive metadata by `publish(delta, image)`. The delta names the brokers, topics,
partitions and configs that changed, so no subscriber compares images.

Replay is the only way from records to state, the same on the active controller, the standbys and
the brokers. A record that refers to an unknown object is a bug of the controller that wrote it,
never an operating error: the process stops. To skip the record instead would let its state differ
from the others' without notice.

Changes are kept in dicts, whose order is that of the records, the same in every process.

A replica that has fetched a snapshot has two whole images, its own and the snapshot's. Its
subscribers expect a delta. `lead` makes it by comparison, in pieces: a cluster may have millions of
partitions, and the node must keep answering the quorum meanwhile.

Source: KIP-631.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from immutables import Map

from raftctl.codec import columns_of, types_of
from raftctl.errors import InvariantViolation, invariant
from raftctl.metadata.image._image import EMPTY_IMAGE, MetadataImage
from raftctl.metadata.image._maps import updated
from raftctl.metadata.image.coordination import CoordinationDelta
from raftctl.metadata.image.types import (
    BrokerImage,
    ControllerImage,
    KvEntry,
    PartitionImage,
    TopicImage,
    TopicsImage,
    kv_size,
    quota_order,
    shared,
)
from raftctl.metadata.records import (
    TOPIC_RESOURCE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KvLockRecord,
    KvOwnerRecord,
    KvRecord,
    KvSessionRecord,
    LeaderChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveKvLockRecord,
    RemoveKvSessionRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    SnapshotMarkRecord,
    StateHashRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from raftctl.codec import Row
    from raftctl.metadata.image.types import ClientQuotas, Configs, QuotaEntity


@dataclass(slots=True)
class TopicDelta:
    """Changes of a topic that exists after them."""

    topic_id: UUID
    name: str
    before: TopicImage | None
    """The topic before the change; None if it is new."""
    whole: TopicImage | None = None
    """New topic from another image, until its partitions are asked for. A snapshot has millions
    of partitions, and most are never looked at one by one."""
    _partitions: dict[int, PartitionImage] = field(default_factory=dict)

    @property
    def partitions(self) -> dict[int, PartitionImage]:
        """Changed and new partitions as they are after the change, by id."""
        if self.whole is not None:
            self._partitions, self.whole = dict(self.whole.items()), None
        return self._partitions

    def changes(self) -> Iterator[tuple[int, PartitionImage]]:
        """Return the items of `partitions`, without a copy of a topic from another image."""
        return iter(self._partitions.items()) if self.whole is None else self.whole.items()

    def partition(self, partition_id: int) -> PartitionImage | None:
        """Return the partition after the records so far; None if it does not exist."""
        changed = self.partitions.get(partition_id)
        if changed is None and self.before is not None:
            return self.before.partitions.get(partition_id)
        return changed

    def apply(self) -> TopicImage:
        """Return the topic after the change."""
        if self.whole is not None:
            return self.whole
        partitions = _NO_PARTITIONS if self.before is None else self.before.partitions
        return TopicImage(self.name, self.topic_id, updated(partitions, self._partitions))


class MetadataDelta:
    """Records on top of an image. After `apply` nothing more may be replayed."""

    __slots__ = (
        "_newest_topic",
        "_topic_ids",
        "changed_acls",
        "changed_brokers",
        "changed_configs",
        "changed_controllers",
        "changed_features",
        "changed_kv",
        "changed_quotas",
        "changed_scram",
        "changed_tokens",
        "changed_topics",
        "coordination",
        "deleted_topics",
        "image",
        "in_transaction",
        "kv_bytes",
        "next_producer_id",
        "snapshot_marked",
        "state_hashes",
    )

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        """The image before the change."""
        self.changed_brokers: dict[int, BrokerImage | None] = {}
        """Broker id to the broker as it is now; None if it was unregistered."""
        self.changed_controllers: dict[int, ControllerImage | None] = {}
        """Controller id to the controller as it is now; None if it was unregistered."""
        self.changed_topics: dict[UUID, TopicDelta] = {}
        """New topics and those with changed partitions."""
        self.deleted_topics: dict[UUID, TopicImage] = {}
        """Removed topics by id, as they were in `image`."""
        self.changed_configs: dict[tuple[int, str], dict[str, str | None]] = {}
        """(resource type, name) to key to the new value; None if the override was removed."""
        self.changed_features: dict[str, int] = {}
        self.changed_kv: dict[str, KvEntry | None] = {}
        """Key to its entry as it is now; None if it was removed."""
        self.kv_bytes = image.kv_bytes
        """Bytes of keys, values and locks after the change."""
        self.coordination: CoordinationDelta | None = None
        """Changes of sessions and locks; None without any."""
        self.changed_quotas: dict[QuotaEntity, dict[str, float | None]] = {}
        """Entity to key to the new value; None if the quota was removed."""
        self.changed_acls: dict[UUID, AccessControlEntryRecord | None] = {}
        self.changed_scram: dict[tuple[str, int], UserScramCredentialRecord | None] = {}
        self.changed_tokens: dict[str, DelegationTokenRecord | None] = {}
        """Id of a delegation token to the token as it is now; None if it was removed."""
        self.next_producer_id = image.next_producer_id
        self.in_transaction = False
        """Whether a transaction has begun and not ended. The delta must not be applied before its
        end: a reader would see a part of it."""
        self.snapshot_marked = False
        """Whether every replica takes a snapshot of the image at the end of the batch."""
        self.state_hashes: list[StateHashRecord] | None = None
        """Hashes of earlier images as the active controller computed them; None without any."""
        self._topic_ids: dict[str, UUID | None] = {}
        self._newest_topic: TopicDelta | None = None
        """Topic of the last record. The next one is mostly about the same, and ids hash slowly."""

    @classmethod
    def between_empty_and(cls, image: MetadataImage) -> MetadataDelta:
        """Return the delta that leads from the empty image to this one, for a new subscriber."""
        delta = cls(EMPTY_IMAGE)
        delta.replay_all([*image.records_before_topics()], image.offset)
        delta.add_topics(image.topics)
        for record in image.records_after_topics():
            delta.replay(record, image.offset)
        return delta

    def replay(self, record: Record, offset: int) -> None:
        """Replay the record at `offset` of the log."""
        _REPLAY[type(record)](self, record, offset)

    def replay_all(self, records: Sequence[Record], base_offset: int) -> None:
        """Replay consecutive records of the log; the first is at `base_offset`.

        Changes of partitions alone, as after a broker's failure, are replayed by rows, and keys
        alone by columns: there are thousands of them in a second.
        """
        kinds = types_of(records)
        if kinds <= _ONLY_CHANGES:
            self.change_partitions(map(_FIELDS_OF_CHANGE, records))
            return
        if kinds == _ONLY_KEYS:
            keys, values, versions = columns_of(KvRecord, records)
            self.set_keys(keys, values, versions, base_offset)
            return
        for offset, record in enumerate(records, base_offset):
            _REPLAY[type(record)](self, record, offset)

    def apply(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """Return the image after the change.

        `offset`, `epoch` and `timestamp_ms` are those of the last record that was replayed.
        """
        before = self.image
        invariant(offset >= before.offset, "an image never goes back in the log")
        invariant(self.kv_bytes >= 0, "keys and values take no fewer than 0 bytes")
        return MetadataImage(
            offset,
            epoch,
            timestamp_ms,
            updated(before.brokers, self.changed_brokers),
            self._apply_topics(),
            self._apply_configs(),
            self.next_producer_id,
            updated(before.features, self.changed_features),
            updated(before.kv, self.changed_kv),
            self._apply_quotas(),
            updated(before.acls, self.changed_acls),
            updated(before.scram, self.changed_scram),
            before.coordination if self.coordination is None else self.coordination.apply(),
            updated(before.controllers, self.changed_controllers),
            updated(before.tokens, self.changed_tokens),
            self.kv_bytes,
        )

    def invariants(self, after: MetadataImage) -> None:
        """Check what the change has made of the image; `after` is what `apply` gave.

        Takes time for what has changed, not for the size of the image.
        """
        before = self.image
        count = len(after.topics.topics)
        invariant(count == len(after.topics.ids), "each topic has a name of its own")
        for broker_id, broker in self.changed_brokers.items():
            if broker is not None:
                broker.invariants(after.offset)
                _check_incarnation(before.brokers.get(broker_id), broker)
        for topic in self.changed_topics.values():
            invariant(after.topics.ids.get(topic.name) == topic.topic_id, "a topic has one name")
            invariant(bool(after.topics.topics[topic.topic_id].partitions), "it has partitions")
            known = _NO_PARTITIONS if topic.before is None else topic.before.partitions
            for partition_id, partition in topic.changes():
                partition.invariants()
                if (was := known.get(partition_id)) is not None:
                    partition.succeeds(was)

    def _apply_topics(self) -> TopicsImage:
        topics = self.image.topics
        if not self.changed_topics and not self.deleted_topics:
            return topics
        changes: dict[UUID, TopicImage | None] = dict.fromkeys(self.deleted_topics)
        for topic_id, topic in self.changed_topics.items():
            changes[topic_id] = topic.apply()
        return TopicsImage(updated(topics.topics, changes), updated(topics.ids, self._topic_ids))

    def _apply_configs(self) -> Configs:
        resources: dict[tuple[int, str], Map[str, str] | None] = {}
        for resource, changes in self.changed_configs.items():
            resources[resource] = updated(self.image.config(*resource), changes) or None
        return updated(self.image.configs, resources)

    def _apply_quotas(self) -> ClientQuotas:
        entities: dict[QuotaEntity, Map[str, float] | None] = {}
        for entity, changes in self.changed_quotas.items():
            quotas = self.image.client_quotas.get(entity, _NO_QUOTAS)
            entities[entity] = updated(quotas, changes) or None
        return updated(self.image.client_quotas, entities)

    # --- brokers ------------------------------------------------------------------------------

    def broker(self, broker_id: int) -> BrokerImage | None:
        """Return the broker after the records so far; None if it is not registered."""
        if broker_id in self.changed_brokers:
            return self.changed_brokers[broker_id]
        return self.image.brokers.get(broker_id)

    def _register_broker(self, record: RegisterBrokerRecord, offset: int) -> None:
        """Register an incarnation; without an epoch in the record, its offset is the epoch."""
        self.changed_brokers[record.broker_id] = BrokerImage(
            record.broker_id,
            offset if record.broker_epoch < 0 else record.broker_epoch,
            record.incarnation_id,
            record.endpoints,
            record.rack,
            record.log_directories,
            record.fenced,
            record.in_controlled_shutdown,
            record.features,
        )

    def _change_broker(self, record: BrokerRegistrationChangeRecord, _offset: int) -> None:
        broker = self._broker_of_epoch(record.broker_id, record.broker_epoch)
        shutdown, directories = record.in_controlled_shutdown, record.log_directories
        self.changed_brokers[record.broker_id] = replace(
            broker,
            log_directories=broker.log_directories if directories is None else directories,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown if shutdown is None else shutdown,
        )

    def _unregister_broker(self, record: UnregisterBrokerRecord, _offset: int) -> None:
        self._broker_of_epoch(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = None

    def _register_controller(self, record: RegisterControllerRecord, _offset: int) -> None:
        controller = ControllerImage(record.controller_id, record.incarnation_id, record.features)
        self.changed_controllers[record.controller_id] = controller

    def _unregister_controller(self, record: UnregisterControllerRecord, _offset: int) -> None:
        known = self.changed_controllers.get(
            record.controller_id, self.image.controllers.get(record.controller_id)
        )
        invariant(known is not None, "a controller that is unregistered was registered")
        self.changed_controllers[record.controller_id] = None

    def _broker_of_epoch(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """Return the incarnation that a record names; InvariantViolation if it is not present."""
        broker = self.broker(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            raise InvariantViolation(
                f"a record names epoch {broker_epoch} of {broker_id}: {broker}"
            )
        return broker

    # --- topics -------------------------------------------------------------------------------

    def _add_topic(self, record: TopicRecord, _offset: int) -> None:
        """Add a topic without partitions; their records follow in the same batch."""
        name, topic_id = record.name, record.topic_id
        taken = self._topic_ids.get(name, self.image.topics.ids.get(name))
        invariant(taken is None, f"topic {name} is created twice")
        used = topic_id in self.image.topics.topics or topic_id in self.changed_topics
        invariant(not used, f"topic id {topic_id} is used twice")
        self._topic_ids[name] = topic_id
        topic = TopicDelta(topic_id, name, None)
        self.changed_topics[topic_id] = self._newest_topic = topic

    def add_topic(self, topic: TopicImage) -> None:
        """Add a topic with all its partitions from another image."""
        self._add_topic(TopicRecord(topic.name, topic.topic_id), self.image.offset)
        self.changed_topics[topic.topic_id].whole = topic

    def add_topics(self, topics: TopicsImage) -> None:
        """Add all topics of another image to an image without topics.

        Takes time for the topics, not for their partitions: see `TopicDelta.whole`.
        """
        invariant(not self.image.topics.topics and not self.changed_topics, "there is no topic")
        for topic in topics.in_order():
            self._topic_ids[topic.name] = topic.topic_id
            self.changed_topics[topic.topic_id] = TopicDelta(
                topic.topic_id, topic.name, None, topic
            )

    def change_topic(self, topic: TopicImage, partition_ids: Iterable[int]) -> None:
        """Take over partitions of a known topic from another image."""
        partitions = self._topic(topic.topic_id).partitions
        for partition_id in partition_ids:
            partitions[partition_id] = topic.partitions[partition_id]

    def _remove_topic(self, record: RemoveTopicRecord, _offset: int) -> None:
        """Remove a topic with its configs.

        A topic that these records have created leaves no trace: subscribers never learn of it.
        """
        topic = self._topic(record.topic_id)
        del self.changed_topics[record.topic_id]
        self._newest_topic = None
        self._topic_ids[topic.name] = None
        if topic.before is not None:
            self.deleted_topics[record.topic_id] = topic.before
        resource = (TOPIC_RESOURCE, topic.name)
        self.changed_configs.pop(resource, None)
        if overrides := self.image.config(*resource):
            self.changed_configs[resource] = dict.fromkeys(sorted(overrides))

    def _add_partition(self, record: PartitionRecord, _offset: int) -> None:
        partition = PartitionImage(
            shared(record.replicas),
            shared(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.adding_replicas,
            record.removing_replicas,
            record.elr,
            record.leader_recovering,
            record.directories,
        )
        self.add_partitions((record.topic_id,), (record.partition_id,), (partition,))

    def add_partitions(
        self,
        topic_ids: Sequence[UUID],
        partition_ids: Sequence[int],
        partitions: Sequence[PartitionImage],
    ) -> None:
        """Add partitions, as a PartitionRecord of each would, in order."""
        end = 0
        for topic_id, run in groupby(topic_ids):
            begin, end = end, end + len([*run])
            topic, ids = self._topic(topic_id), partition_ids[begin:end]
            contiguous = ids[0] == 0 or topic.partition(ids[0] - 1) is not None
            contiguous = contiguous and (*ids,) == (*range(ids[0], ids[0] + len(ids)),)
            invariant(contiguous, "a record adds a partition before the one below it")
            topic.partitions.update(zip(ids, partitions[begin:end], strict=True))

    def _change_partition(self, record: PartitionChangeRecord, _offset: int) -> None:
        self.change_partitions((_FIELDS_OF_CHANGE(record),))

    def change_partitions(self, rows: Iterable[Row]) -> None:
        """Change partitions; a row holds the fields of a PartitionChangeRecord."""
        newest: UUID | None = None
        for row in rows:
            topic_id, partition_id = row[0], row[1]
            if topic_id is not newest:  # an id is one object in all rows
                topic, newest = self._topic(topic_id), topic_id
                changed = topic.partitions
                known = _NO_PARTITIONS if topic.before is None else topic.before.partitions
            partition = changed.get(partition_id) or known.get(partition_id)
            if partition is None:
                raise InvariantViolation(f"{topic.name} has no partition {partition_id}")
            changed[partition_id] = partition.changed(row)

    def _topic(self, topic_id: UUID) -> TopicDelta:
        """Return the delta of a topic, begun at its first change.

        Raises InvariantViolation if the topic does not exist, or was removed by an earlier record.
        """
        topic = self._newest_topic
        if topic is not None and topic.topic_id is topic_id:
            return topic
        topic = self.changed_topics.get(topic_id)
        if topic is None:
            before = self.image.topics.topics.get(topic_id)
            if before is None or topic_id in self.deleted_topics:
                raise InvariantViolation(f"a record names the unknown topic {topic_id}")
            topic = self.changed_topics[topic_id] = TopicDelta(topic_id, before.name, before)
        self._newest_topic = topic
        return topic

    # --- keys and values ----------------------------------------------------------------------

    def kv_entry(self, key: str) -> KvEntry | None:
        """Return the entry of a key after the records so far; None if it does not exist."""
        if key in self.changed_kv:
            return self.changed_kv[key]
        return self.image.kv.get(key)

    @property
    def kv_count(self) -> int:
        """Upper bound of the number of keys: a key that changed counts twice."""
        return len(self.image.kv) + len(self.changed_kv)

    def _set_kv(self, record: KvRecord, offset: int) -> None:
        self.set_keys((record.key,), (record.value,), (record.version,), offset)

    def set_keys(
        self,
        keys: Sequence[str],
        values: Sequence[bytes | None],
        versions: Sequence[int],
        base_offset: int,
    ) -> None:
        """Set or remove keys as consecutive KvRecords do, given field by field.

        The first is at `base_offset`. Without a version in the record, its offset is the version.
        """
        changed, unchanged, grown = self.changed_kv, self.image.kv, 0
        rows = zip(keys, values, versions, strict=True)
        for offset, (key, value, version) in enumerate(rows, base_offset):
            before = changed[key] if key in changed else unchanged.get(key)
            if before is not None:
                grown -= kv_size(key, before[0])
            if value is None:
                if self.coordination or self.image.coordination.owners:
                    self._coordinate().disown(key)
                changed[key] = None
            else:
                grown += kv_size(key, value)
                changed[key] = KvEntry(value, offset if version < 0 else version)
        self.kv_bytes += grown

    def _coordinate(self) -> CoordinationDelta:
        """Return the delta of sessions and locks, begun at their first change."""
        if self.coordination is None:
            self.coordination = CoordinationDelta(self.image.coordination)
        return self.coordination

    def _open_kv_session(self, record: KvSessionRecord, _offset: int) -> None:
        self._coordinate().open_session(record)

    def _close_kv_session(self, record: RemoveKvSessionRecord, _offset: int) -> None:
        self._coordinate().close_session(record)

    def _own_kv(self, record: KvOwnerRecord, _offset: int) -> None:
        self._coordinate().own(record)

    def _enqueue(self, record: KvLockRecord, offset: int) -> None:
        self._coordinate().enqueue(record, offset)
        self.kv_bytes += kv_size(record.lock, record.value)

    def _dequeue(self, record: RemoveKvLockRecord, _offset: int) -> None:
        gone = self._coordinate().dequeue(record)
        self.kv_bytes -= kv_size(record.lock, gone.value)

    # --- security -----------------------------------------------------------------------------

    def _set_quota(self, record: ClientQuotaRecord, _offset: int) -> None:
        """Set one quota of an entity, or remove it. An entity without quotas is absent."""
        self.changed_quotas.setdefault(record.entity, {})[record.key] = record.value

    def _add_acl(self, record: AccessControlEntryRecord, _offset: int) -> None:
        self.changed_acls[record.entry_id] = record

    def _remove_acl(self, record: RemoveAccessControlEntryRecord, _offset: int) -> None:
        entry = self.changed_acls.get(record.entry_id, self.image.acls.get(record.entry_id))
        invariant(entry is not None, "an access control entry that is removed exists")
        self.changed_acls[record.entry_id] = None

    def _set_scram(self, record: UserScramCredentialRecord, _offset: int) -> None:
        self.changed_scram[record.user, record.mechanism] = record

    def _remove_scram(self, record: RemoveUserScramCredentialRecord, _offset: int) -> None:
        credential = (record.user, record.mechanism)
        known = self.changed_scram.get(credential, self.image.scram.get(credential))
        invariant(known is not None, "a credential that is removed exists")
        self.changed_scram[record.user, record.mechanism] = None

    def _set_token(self, record: DelegationTokenRecord, _offset: int) -> None:
        invariant(record.expires_ms <= record.max_ms, "no token outlives its longest lifetime")
        self.changed_tokens[record.token_id] = record

    def _remove_token(self, record: RemoveDelegationTokenRecord, _offset: int) -> None:
        token_id = record.token_id
        known = self.changed_tokens.get(token_id, self.image.tokens.get(token_id))
        invariant(known is not None, "a delegation token that is removed exists")
        self.changed_tokens[token_id] = None

    # --- the rest -----------------------------------------------------------------------------

    def _set_config(self, record: ConfigRecord, _offset: int) -> None:
        resource = (record.resource_type, record.resource_name)
        self.changed_configs.setdefault(resource, {})[record.key] = record.value

    def _set_next_producer_id(self, record: ProducerIdsRecord, _offset: int) -> None:
        # Not the same again either: two brokers would give the ids of one block to producers.
        ascending = record.next_producer_id > self.next_producer_id
        invariant(ascending, f"producer ids go back to {record.next_producer_id}")
        self.next_producer_id = record.next_producer_id

    def _set_feature(self, record: FeatureLevelRecord, _offset: int) -> None:
        self.changed_features[record.name] = record.level

    def _mark_snapshot(self, _record: SnapshotMarkRecord, _offset: int) -> None:
        self.snapshot_marked = True

    def _note_state_hash(self, record: StateHashRecord, _offset: int) -> None:
        self.state_hashes = [*(self.state_hashes or ()), record]

    def _begin_transaction(self, _record: BeginTransactionRecord, _offset: int) -> None:
        """Begin a transaction; see `in_transaction` (KIP-868)."""
        invariant(not self.in_transaction, "a transaction ends before another begins")
        self.in_transaction = True

    def _end_transaction(self, _record: EndTransactionRecord, _offset: int) -> None:
        invariant(self.in_transaction, "a transaction that ends has begun")
        self.in_transaction = False

    def _abort_transaction(self, _record: AbortTransactionRecord, _offset: int) -> None:
        """Drop all changes if a transaction is open: a delta begins where a transaction does.

        The controller that aborts a transaction has not replayed it; its delta stays as it is.
        """
        if self.in_transaction:
            empty = MetadataDelta(self.image)
            for name in self.__slots__:
                setattr(self, name, getattr(empty, name))

    def _ignore(self, _record: Record, _offset: int) -> None:
        """Replay a control or no-op record: only the offset of the image moves."""


def _check_incarnation(before: BrokerImage | None, after: BrokerImage) -> None:
    """Check that a broker's epochs grow, and that no epoch is shared by two incarnations."""
    if before is None:
        return
    invariant(after.broker_epoch >= before.broker_epoch, "the epochs of a broker grow")
    same = after.incarnation_id == before.incarnation_id
    invariant(same or after.broker_epoch > before.broker_epoch, "an incarnation has its own epoch")


_NO_QUOTAS: Map[str, float] = Map()
_NO_PARTITIONS: Map[int, PartitionImage] = Map()
_ONLY_CHANGES = frozenset((PartitionChangeRecord,))
_ONLY_KEYS = frozenset((KvRecord,))
_FIELDS_OF_CHANGE: Callable[[Any], tuple[Any, ...]] = attrgetter(
    *[each.name for each in fields(PartitionChangeRecord)]
)

_REPLAY: dict[type, Callable[[MetadataDelta, Any, int], None]] = {
    LeaderChangeRecord: MetadataDelta._ignore,
    RegisterBrokerRecord: MetadataDelta._register_broker,
    UnregisterBrokerRecord: MetadataDelta._unregister_broker,
    BrokerRegistrationChangeRecord: MetadataDelta._change_broker,
    RegisterControllerRecord: MetadataDelta._register_controller,
    UnregisterControllerRecord: MetadataDelta._unregister_controller,
    TopicRecord: MetadataDelta._add_topic,
    RemoveTopicRecord: MetadataDelta._remove_topic,
    PartitionRecord: MetadataDelta._add_partition,
    PartitionChangeRecord: MetadataDelta._change_partition,
    ConfigRecord: MetadataDelta._set_config,
    ProducerIdsRecord: MetadataDelta._set_next_producer_id,
    FeatureLevelRecord: MetadataDelta._set_feature,
    KvRecord: MetadataDelta._set_kv,
    KvSessionRecord: MetadataDelta._open_kv_session,
    RemoveKvSessionRecord: MetadataDelta._close_kv_session,
    KvOwnerRecord: MetadataDelta._own_kv,
    KvLockRecord: MetadataDelta._enqueue,
    RemoveKvLockRecord: MetadataDelta._dequeue,
    ClientQuotaRecord: MetadataDelta._set_quota,
    AccessControlEntryRecord: MetadataDelta._add_acl,
    RemoveAccessControlEntryRecord: MetadataDelta._remove_acl,
    UserScramCredentialRecord: MetadataDelta._set_scram,
    RemoveUserScramCredentialRecord: MetadataDelta._remove_scram,
    DelegationTokenRecord: MetadataDelta._set_token,
    RemoveDelegationTokenRecord: MetadataDelta._remove_token,
    NoOpRecord: MetadataDelta._ignore,
    SnapshotMarkRecord: MetadataDelta._mark_snapshot,
    StateHashRecord: MetadataDelta._note_state_hash,
    BeginTransactionRecord: MetadataDelta._begin_transaction,
    EndTransactionRecord: MetadataDelta._end_transaction,
    AbortTransactionRecord: MetadataDelta._abort_transaction,
}

# --- between two images ---------------------------------------------------------------------------

PIECE_PARTITIONS = 20_000
"""Partitions compared without a pause, about 12 ms. A topic is never divided."""


def lead(delta: MetadataDelta, new: MetadataImage) -> Iterator[None]:
    """Make an empty delta lead from its image to `new`; yield between its pieces.

    First it removes everything that `new` lacks. Then it takes over the partitions that differ, and
    replays each other record of the new image that the old one does not have. A record of an image
    sets its object as a whole, so nothing else is needed.
    """
    old = delta.image
    for record in _removals(old, new):
        delta.replay(record, new.offset)
    removed = {topic.name for topic in delta.deleted_topics.values()}
    known = {*old.records_before_topics(), *old.records_after_topics()}
    for record in new.records_before_topics():
        if record not in known:
            delta.replay(record, new.offset)
    if old.topics.topics:
        yield from _lead_topics(delta, old, new)
    else:
        delta.add_topics(new.topics)
    for record in new.records_after_topics():
        # A topic's configs are removed with it, also if another topic has taken its name. Equal
        # configs of the new topic then have to be written again.
        lost = isinstance(record, ConfigRecord) and record.resource_name in removed
        if lost or record not in known:
            delta.replay(record, new.offset)


def _lead_topics(delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> Iterator[None]:
    compared = len(old.topics.topics)  # so many were looked for to find those that are gone
    for topic in new.topics.in_order():
        _add_topic(delta, old.topics.by_id(topic.topic_id), topic)
        compared += len(topic.partitions)
        if compared >= PIECE_PARTITIONS:
            compared = 0
            yield


def _add_topic(delta: MetadataDelta, before: TopicImage | None, topic: TopicImage) -> None:
    if before is None:
        delta.add_topic(topic)
        return
    known = before.partitions
    changed = [number for number, partition in topic.items() if known.get(number) != partition]
    if changed:
        delta.change_topic(topic, changed)


def _removals(old: MetadataImage, new: MetadataImage) -> Iterator[Record]:
    """Yield the records that remove all objects of `old` that `new` lacks, in a fixed order."""
    for broker_id in sorted(old.brokers):
        if broker_id not in new.brokers:
            yield UnregisterBrokerRecord(broker_id, old.brokers[broker_id].broker_epoch)
    for controller_id in sorted(old.controllers):
        if controller_id not in new.controllers:
            yield UnregisterControllerRecord(controller_id)
    for topic in old.topics.in_order():
        if topic.topic_id not in new.topics.topics:
            yield RemoveTopicRecord(topic.topic_id)
    for resource_type, name in sorted(old.configs):
        for key in sorted(old.configs[resource_type, name]):
            if key not in new.config(resource_type, name):
                yield ConfigRecord(resource_type, name, key, None)
    for key in sorted(old.kv):
        if key not in new.kv:
            yield KvRecord(key, None)
    yield from old.coordination.removals(new.coordination)
    yield from _security_removals(old, new)


def _security_removals(old: MetadataImage, new: MetadataImage) -> Iterator[Record]:
    for entity in sorted(old.client_quotas, key=quota_order):
        kept = new.client_quotas.get(entity, ())
        for key in sorted(old.client_quotas[entity]):
            if key not in kept:
                yield ClientQuotaRecord(entity, key, None)
    for entry_id in sorted(one for one in old.acls if one not in new.acls):
        yield RemoveAccessControlEntryRecord(entry_id)
    for user, mechanism in sorted(old.scram):
        if (user, mechanism) not in new.scram:
            yield RemoveUserScramCredentialRecord(user, mechanism)
    for token_id in sorted(old.tokens):
        if token_id not in new.tokens:
            yield RemoveDelegationTokenRecord(token_id)
