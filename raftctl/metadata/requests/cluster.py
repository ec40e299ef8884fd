"""Requests of brokers, controllers and administrators about brokers, replicas and topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raftctl.errors import ErrorCode
from raftctl.metadata.records import Endpoint, FeatureRange


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequest:
    """A broker's incarnation introduces itself (row C2)."""

    TYPE_ID: ClassVar[int] = 110
    broker_id: int
    incarnation_id: UUID
    cluster_id: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    log_directories: tuple[UUID, ...]
    features: tuple[FeatureRange, ...] = ()
    """What the broker can work with; empty: it does not tell, and nothing is checked."""
    previous_broker_epoch: int = -1
    """Of the incarnation that stopped cleanly here before; -1 if that cannot be told (KIP-966)."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse:
    """The broker epoch to use from now on."""

    TYPE_ID: ClassVar[int] = 111
    error: ErrorCode
    message: str
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequest:
    """Keeps the session; `metadata_offset` is the last offset the broker has published."""

    TYPE_ID: ClassVar[int] = 112
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_directories: tuple[UUID, ...] = ()
    """Those that have failed since this incarnation registered (KIP-858)."""


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatResponse:
    """What the controller makes of the broker now."""

    TYPE_ID: ClassVar[int] = 113
    error: ErrorCode
    caught_up: bool
    fenced: bool
    should_shut_down: bool
    metadata_offset: int = -1
    """The last offset the controller had replayed when it answered."""
    session_timeout_ms: int = -1
    """How long the session lasts without another heartbeat; -1: the broker's own setting."""


@dataclass(frozen=True, slots=True)
class AlterPartitionItem:
    """A leader proposes a new ISR for one partition (KIP-497, broker epochs: KIP-903)."""

    topic_id: UUID
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[tuple[int, int], ...]
    """(broker id, broker epoch) of each member; epoch -1: not known, not checked."""
    leader_recovering: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest:
    """A leader proposes ISR changes."""

    TYPE_ID: ClassVar[int] = 114
    broker_id: int
    broker_epoch: int
    partitions: tuple[AlterPartitionItem, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """The state after the change, or why not."""

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    """A result for each item, in order, or one error for all."""

    TYPE_ID: ClassVar[int] = 115
    error: ErrorCode
    partitions: tuple[AlterPartitionResult, ...]


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsRequest:
    """A broker wants a block of producer ids (row C10)."""

    TYPE_ID: ClassVar[int] = 116
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse:
    """Ids `first` .. `first + count - 1` belong to the asking broker alone."""

    TYPE_ID: ClassVar[int] = 117
    error: ErrorCode
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: counts (-1 for the default), or an assignment of replicas."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(partition id, replicas) for each partition, or nothing."""
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """Creates topics, each on its own (row C3)."""

    TYPE_ID: ClassVar[int] = 118
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What became of one topic."""

    name: str
    error: ErrorCode
    message: str = ""
    topic_id: UUID | None = None
    partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    """A result for each topic, in order."""

    TYPE_ID: ClassVar[int] = 119
    error: ErrorCode
    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest:
    """Deletes topics named by name or by id."""

    TYPE_ID: ClassVar[int] = 120
    topics: tuple[tuple[str | None, UUID | None], ...]
    """(name, None) or (None, topic id)."""


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse:
    """A result for each topic, in order."""

    TYPE_ID: ClassVar[int] = 121
    error: ErrorCode
    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class DirectoryAssignment:
    """In which of its log directories a broker has a replica."""

    topic_id: UUID
    partition_id: int
    directory_id: UUID


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsRequest:
    """A broker with several log directories says where its replicas are (KIP-858)."""

    TYPE_ID: ClassVar[int] = 122
    broker_id: int
    broker_epoch: int
    assignments: tuple[DirectoryAssignment, ...]


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsResponse:
    """An error for each assignment, in order, or one for all."""

    TYPE_ID: ClassVar[int] = 123
    error: ErrorCode
    results: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class RegisterControllerRequest:
    """A controller, voter or standby, tells what it can work with (KIP-919)."""

    TYPE_ID: ClassVar[int] = 124
    controller_id: int
    incarnation_id: UUID
    cluster_id: str
    features: tuple[FeatureRange, ...]
    settings: tuple[str, ...] = ()
    """`key=value` of configs that should be the same on all controllers."""


@dataclass(frozen=True, slots=True)
class RegisterControllerResponse:
    """Errors: INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, and UNSUPPORTED_VERSION if the

    controller cannot work with a feature's level. With NONE the message may be a warning.
    """

    TYPE_ID: ClassVar[int] = 125
    error: ErrorCode
    message: str
