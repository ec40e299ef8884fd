"""Image: the cluster's metadata at one offset, immutable, shared and cheap to keep.

Maps are persistent (`immutables.Map`, a hash trie): the next image shares all unchanged parts with
this one. To roll back is to go back to an older reference, and a slow reader keeps a consistent
view.

Iteration over a map with string keys depends on the hash seed of the process. Code whose result
depends on the order iterates over `sorted(...)`; records in different orders on two nodes would
give snapshots with different hashes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from immutables import Map

from raftctl.errors import invariant
from raftctl.metadata.image.coordination import NO_COORDINATION, Coordination
from raftctl.metadata.image.types import (
    BrokerImage,
    ClientQuotas,
    Configs,
    ControllerImage,
    KvEntry,
    TopicsImage,
    kv_size,
    quota_order,
)
from raftctl.metadata.records import (
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    KvRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metadata.records import Record


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """State after the log up to `offset`, inclusive; -1 for an empty log.

    Two images at one offset are equal on every node. `records` writes an image as a snapshot; its
    order of kinds is part of the format, since each record refers only to earlier ones.
    """

    offset: int = -1
    """Offset of the last record that was replayed."""
    epoch: int = 0
    """Leader epoch of the quorum in which that record was appended."""
    timestamp_ms: int = 0
    """Time at which the active controller appended the record at `offset`."""
    brokers: Map[int, BrokerImage] = field(default_factory=Map)
    """Registered brokers by id, fenced or not."""
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: Configs = field(default_factory=Map)
    """Overrides of topics, brokers and groups; those of the resource "" hold for all brokers."""
    next_producer_id: int = 0
    """First producer id that no broker was given yet."""
    features: Map[str, int] = field(default_factory=Map)
    """Feature to its finalized level; a feature that is not used is absent or 0."""
    kv: Map[str, KvEntry] = field(default_factory=Map)
    """Keys of the key-value store."""
    client_quotas: ClientQuotas = field(default_factory=Map)
    acls: Map[UUID, AccessControlEntryRecord] = field(default_factory=Map)
    """Access control entries by their ids."""
    scram: Map[tuple[str, int], UserScramCredentialRecord] = field(default_factory=Map)
    """(user, mechanism) to the credential."""
    coordination: Coordination = NO_COORDINATION
    """Sessions of keys and values, and locks."""
    controllers: Map[int, ControllerImage] = field(default_factory=Map)
    tokens: Map[str, DelegationTokenRecord] = field(default_factory=Map)
    """Delegation tokens by their ids, also those that have expired and are not removed yet."""
    kv_bytes: int = 0
    """Characters of all keys and bytes of their values, and the same of all places in queues for
    locks. Kept as a sum, since each write is checked against a bound."""

    def invariants(self) -> None:
        """Check everything; for tests and simulations, as it looks at every partition and key."""
        for broker_id, broker in self.brokers.items():
            invariant(broker_id == broker.broker_id, "a broker is known by its id")
            broker.invariants(self.offset)
        for controller_id, controller in self.controllers.items():
            invariant(controller_id == controller.controller_id, "a controller is known by its id")
            controller.invariants()
        self._check_levels()
        self.topics.invariants()
        directories = [
            directory for broker in self.brokers.values() for directory in broker.log_directories
        ]
        invariant(len({*directories}) == len(directories), "a log directory is on one broker")
        for (resource_type, name), values in self.configs.items():
            exists = resource_type != TOPIC_RESOURCE or name in self.topics.ids
            invariant(exists and len(values) > 0, "overrides are those of a topic that exists")
        self._check_security()
        self._check_kv()

    def _check_levels(self) -> None:
        """Check that no node meets records that it cannot read (KIP-584)."""
        nodes = (*self.brokers.values(), *self.controllers.values())
        for feature, level in self.features.items():
            readable = all(node.supports(feature, level) for node in nodes)
            invariant(readable, "each registered node supports the levels in force")

    def _check_security(self) -> None:
        """Check that each entry is under the one key by which nodes look it up."""
        for entity, quotas in self.client_quotas.items():
            kinds = [kind for kind, _ in entity]
            ordered = kinds == sorted({*kinds})
            invariant(ordered and len(quotas) > 0, "an entity has one order, and has quotas")
            finite = all(0 < value < math.inf for value in quotas.values())
            invariant(finite, "a quota is above 0 and finite")
        for entry_id, entry in self.acls.items():
            invariant(entry_id == entry.entry_id, "an access control entry is known by its id")
        for credential in self.scram:
            record = self.scram[credential]
            named = credential == (record.user, record.mechanism)
            invariant(named, "a credential is known by user and mechanism")
        for token_id, token in self.tokens.items():
            invariant(token_id == token.token_id, "a delegation token is known by its id")
            invariant(token.expires_ms <= token.max_ms, "no token outlives its longest lifetime")

    def _check_kv(self) -> None:
        """Check versions and tokens against the offset, and the sum of bytes against the keys."""
        versions = [entry.version for entry in self.kv.values()]
        invariant(max(versions, default=-1) <= self.offset, "a version is an offset of the log")
        self.coordination.invariants(self.kv, self.offset)
        size = sum(kv_size(key, entry.value) for key, entry in self.kv.items())
        for lock, queue in self.coordination.queues.items():
            size += sum(kv_size(lock, waiter.value) for waiter in queue)
        invariant(size == self.kv_bytes, "the bytes of keys and values are counted")

    def config(self, resource_type: int, name: str) -> Map[str, str]:
        """Return the overrides of one resource, empty without any.

        Values are as they were set: a reader parses them and adds the defaults.
        """
        return self.configs.get((resource_type, name), _NO_CONFIG)

    def kv_entry(self, key: str) -> KvEntry | None:
        """Return the entry of a key, if it exists."""
        return self.kv.get(key)

    @property
    def kv_count(self) -> int:
        """Number of keys."""
        return len(self.kv)

    def records(self) -> Iterator[Record]:
        """Return the image as records, in a fixed order: the content of a snapshot.

        Replaying them on the empty image gives an equal image. Broker epochs are written
        explicitly, since the offsets that they came from are gone.
        """
        yield from self.records_before_topics()
        for topic in self.topics.in_order():
            yield TopicRecord(topic.name, topic.topic_id)
            for partition_id, partition in topic.items():
                yield PartitionRecord(topic.topic_id, partition_id, *partition)
        yield from self.records_after_topics()

    def records_before_topics(self) -> Iterator[Record]:
        """Return the records that precede the topics."""
        for feature in sorted(self.features):
            yield FeatureLevelRecord(feature, self.features[feature])
        for broker_id in sorted(self.brokers):
            yield _broker_record(self.brokers[broker_id])
        for controller_id in sorted(self.controllers):
            one = self.controllers[controller_id]
            yield RegisterControllerRecord(controller_id, one.incarnation_id, one.features)

    def records_after_topics(self) -> Iterator[Record]:
        """Return the records that follow the topics."""
        for resource_type, name in sorted(self.configs):
            values = self.configs[resource_type, name]
            for key in sorted(values):
                yield ConfigRecord(resource_type, name, key, values[key])
        if self.next_producer_id > 0:
            yield ProducerIdsRecord(-1, -1, self.next_producer_id)
        for key in sorted(self.kv):
            yield KvRecord(key, *self.kv[key])
        yield from self.coordination.records()
        yield from self._security_records()

    def _security_records(self) -> Iterator[Record]:
        """Return quotas, access control entries, credentials and tokens as records."""
        # By `quota_order`: the names of an entity may be None, which does not compare with text.
        for entity in sorted(self.client_quotas, key=quota_order):
            quotas = self.client_quotas[entity]
            for key in sorted(quotas):
                yield ClientQuotaRecord(entity, key, quotas[key])
        # In the order of their ids, of which there are millions: their numbers compare sooner.
        for _, entry in sorted(self.acls.items(), key=lambda item: item[0].int):
            yield entry
        for credential in sorted(self.scram):
            yield self.scram[credential]
        for token_id in sorted(self.tokens):
            yield self.tokens[token_id]


def _broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker.broker_id,
        broker.incarnation_id,
        broker.endpoints,
        broker.rack,
        broker.log_directories,
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.broker_epoch,
        broker.features,
    )


_NO_CONFIG: Map[str, str] = Map()
EMPTY_IMAGE = MetadataImage()
