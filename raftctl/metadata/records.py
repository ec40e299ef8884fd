"""Records of the metadata log: the only way to change the cluster's state.

Names and meanings are KRaft's; the bytes are ours. A record is packed as `[type id, field, ...]`
by `raftctl.codec`; fields are only ever added at the end with a default, which a newer reader fills
in. They are written only at a level of `metadata.version` that knows them: a reader that meets a
record or a field that it does not know must refuse it, or its state would differ from the others'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

NO_LEADER = -1
"""Leader of a partition without one."""
LEADER_UNCHANGED = -2
"""In a `PartitionChangeRecord`: the leader stays, and with it the leader epoch."""
UNASSIGNED = UUID(int=0)
"""Log directory of a replica whose broker has not reported one (KIP-858)."""
TOPIC_RESOURCE = 2
"""Kafka's resource type of a topic in a `ConfigRecord`."""
BROKER_RESOURCE = 4
"""Kafka's resource type of a broker; an empty name means all brokers."""
CLIENT_METRICS_RESOURCE = 16
"""Kafka's resource type of a subscription to the metrics of clients."""
GROUP_RESOURCE = 32
"""Kafka's resource type of a consumer group."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a broker's listener."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """Levels of a feature that a node supports."""

    name: str
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class LeaderChangeRecord:
    """Control record: the first of each epoch, so that its predecessors can commit (Raft §8)."""

    TYPE_ID: ClassVar[int] = 1
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """Registration of a broker's incarnation; its epoch is the offset of this record."""

    TYPE_ID: ClassVar[int] = 10
    broker_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    log_directories: tuple[UUID, ...] = ()
    fenced: bool = True
    in_controlled_shutdown: bool = False
    broker_epoch: int = -1
    """-1: the offset of this record. Otherwise the epoch that a re-registration keeps."""
    features: tuple[FeatureRange, ...] = ()
    """Feature levels that the broker supports; empty if unknown."""


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    """Removal of a broker."""

    TYPE_ID: ClassVar[int] = 11
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChangeRecord:
    """Fences, unfences or begins the controlled shutdown of a broker; None leaves as it is."""

    TYPE_ID: ClassVar[int] = 12
    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_directories: tuple[UUID, ...] | None = None
    """Online log directories; None leaves them unchanged."""


@dataclass(frozen=True, slots=True)
class RegisterControllerRecord:
    """Registration of a controller, voter or standby (KIP-919)."""

    TYPE_ID: ClassVar[int] = 13
    controller_id: int
    incarnation_id: UUID
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True)
class UnregisterControllerRecord:
    """Removal of a controller, also when `metadata.version` no longer knows controllers."""

    TYPE_ID: ClassVar[int] = 14
    controller_id: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """Creation of a topic."""

    TYPE_ID: ClassVar[int] = 20
    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """Deletion of a topic with its partitions and configs."""

    TYPE_ID: ClassVar[int] = 21
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """Full state of a partition."""

    TYPE_ID: ClassVar[int] = 22
    topic_id: UUID
    partition_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    leader_recovering: bool = False
    directories: tuple[UUID, ...] = ()
    """Log directory of each replica, in the order of `replicas`; empty while none is assigned."""


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """A change of a partition; None leaves as it is.

    Each raises the partition epoch by one; a `leader` other than `LEADER_UNCHANGED` raises the
    leader epoch by one (row C6).
    """

    TYPE_ID: ClassVar[int] = 23
    topic_id: UUID
    partition_id: int
    isr: tuple[int, ...] | None = None
    leader: int = LEADER_UNCHANGED
    replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    elr: tuple[int, ...] | None = None
    leader_recovering: bool | None = None
    directories: tuple[UUID, ...] | None = None
    """None: replicas that stay also stay in their log directories."""


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """One config value of a resource; None removes it."""

    TYPE_ID: ClassVar[int] = 30
    resource_type: int
    """Kafka's: see `TOPIC_RESOURCE` and `BROKER_RESOURCE` in the image."""
    resource_name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """Producer ids below `next_producer_id` have been given out (row C10)."""

    TYPE_ID: ClassVar[int] = 40
    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """Finalized level of a feature."""

    TYPE_ID: ClassVar[int] = 50
    name: str
    level: int


@dataclass(frozen=True, slots=True)
class KvRecord:
    """New value of a key; None removes it (row Q10)."""

    TYPE_ID: ClassVar[int] = 70
    key: str
    value: bytes | None
    version: int = -1
    """-1: the offset of this record. Otherwise the version that a snapshot keeps."""


@dataclass(frozen=True, slots=True)
class KvSessionRecord:
    """Opening of a client's session (row Q10); only a record closes it."""

    TYPE_ID: ClassVar[int] = 71
    session_id: UUID
    timeout_ms: int
    """Once it is silent for this long the active controller closes it."""


@dataclass(frozen=True, slots=True)
class RemoveKvSessionRecord:
    """Closing of a session; the records before it have removed what it owned."""

    TYPE_ID: ClassVar[int] = 72
    session_id: UUID


@dataclass(frozen=True, slots=True)
class KvOwnerRecord:
    """Owner of an ephemeral key, which is removed with that session. None: the key stays."""

    TYPE_ID: ClassVar[int] = 73
    key: str
    session_id: UUID | None


@dataclass(frozen=True, slots=True)
class KvLockRecord:
    """Place of a session in the queue for a lock; the first place holds it."""

    TYPE_ID: ClassVar[int] = 74
    lock: str
    session_id: UUID
    value: bytes
    """Text for other clients, such as the holder's address."""
    token: int = -1
    """-1: the offset of this record. Otherwise the token that a snapshot keeps."""


@dataclass(frozen=True, slots=True)
class RemoveKvLockRecord:
    """Removal of the place with this token from the queue for a lock."""

    TYPE_ID: ClassVar[int] = 75
    lock: str
    token: int


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """One quota of an entity; None removes it (row C12)."""

    TYPE_ID: ClassVar[int] = 31
    entity: tuple[tuple[str, str | None], ...]
    """(type, name) sorted by type; a name of None is the default of its type."""
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    """Entry of an access control list, with Kafka's numbers (row C12)."""

    TYPE_ID: ClassVar[int] = 32
    entry_id: UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    """Removal of an access control entry."""

    TYPE_ID: ClassVar[int] = 33
    entry_id: UUID


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord:
    """Verifier of a user's password, never the password itself (row C12, RFC 5802)."""

    TYPE_ID: ClassVar[int] = 34
    user: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord:
    """Removal of a user's credential of a mechanism."""

    TYPE_ID: ClassVar[int] = 35
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class DelegationTokenRecord:
    """Delegation token as it is now (KIP-48). Its HMAC is not stored: a key makes it from the id.

    Principals are `TYPE:NAME`; times are those of the wall clock (ms).
    """

    TYPE_ID: ClassVar[int] = 36
    token_id: str
    owner: str
    """For whom a client with the token acts."""
    requester: str
    """Who has created it."""
    renewers: tuple[str, ...]
    """Who may renew it or let it expire, apart from the owner."""
    issued_ms: int
    max_ms: int
    """When it ends, however often it is renewed."""
    expires_ms: int
    """When it ends unless it is renewed; not after `max_ms`."""


@dataclass(frozen=True, slots=True)
class RemoveDelegationTokenRecord:
    """Removal of a delegation token."""

    TYPE_ID: ClassVar[int] = 37
    token_id: str


@dataclass(frozen=True, slots=True)
class NoOpRecord:
    """Changes nothing; written when idle so that lag is measurable in time."""

    TYPE_ID: ClassVar[int] = 60


@dataclass(frozen=True, slots=True)
class SnapshotMarkRecord:
    """Every replica takes a snapshot of the state at the end of this record's batch (row Q13).

    So that all have one of the same offset, and its hash can be compared.
    """

    TYPE_ID: ClassVar[int] = 61


@dataclass(frozen=True, slots=True)
class StateHashRecord:
    """Hash of the state at `offset`, the offset of a mark, at the active controller.

    Changes nothing; a replica whose own hash is another one must stop (row Q13).
    """

    TYPE_ID: ClassVar[int] = 62
    offset: int
    version: int
    """Version of the hash function: hashes of two versions cannot be compared."""
    state_hash: str
    """In hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class BeginTransactionRecord:
    """Begin of records that take effect when their `EndTransactionRecord` commits (KIP-868).

    It is the first record of its batch. No key, session or lock is changed in a transaction.
    """

    TYPE_ID: ClassVar[int] = 63


@dataclass(frozen=True, slots=True)
class EndTransactionRecord:
    """End of a transaction, which takes effect; the last record of its batch."""

    TYPE_ID: ClassVar[int] = 64


@dataclass(frozen=True, slots=True)
class AbortTransactionRecord:
    """Abortion of a transaction whose controller is no longer active."""

    TYPE_ID: ClassVar[int] = 65


Record = (
    LeaderChangeRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | RegisterControllerRecord
    | UnregisterControllerRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | KvRecord
    | KvSessionRecord
    | RemoveKvSessionRecord
    | KvOwnerRecord
    | KvLockRecord
    | RemoveKvLockRecord
    | ClientQuotaRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | NoOpRecord
    | SnapshotMarkRecord
    | StateHashRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)
