"""Requests of brokers, controllers and administrators about brokers, replicas and topics.

A broker names its epoch in each request after its registration. The controller refuses a request
in an older epoch, so a replaced incarnation changes nothing. Items of a request succeed or fail
on their own; an error of the whole request leaves its items out.

Sources: KIP-631, KIP-497, KIP-730, KIP-858, KIP-919.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raftctl.errors import ErrorCode
from raftctl.metadata.records import Endpoint, FeatureRange
from raftctl.metadata.requests.origin import Origin


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequest:
    """Registration of a broker's incarnation (row C2)."""

    TYPE_ID: ClassVar[int] = 110
    broker_id: int
    incarnation_id: UUID
    cluster_id: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    log_directories: tuple[UUID, ...]
    features: tuple[FeatureRange, ...] = ()
    """Feature levels that the broker supports; empty: unknown, and nothing is checked."""
    previous_broker_epoch: int = -1
    """Epoch of the last incarnation, if it stopped cleanly on this disk; else -1 (KIP-966)."""
    authorizer: str = ""
    """The broker's authorizer; empty if it has none."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse:
    """Response with the broker epoch to use from now on."""

    TYPE_ID: ClassVar[int] = 111
    error: ErrorCode
    message: str
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequest:
    """Keeps the session; `metadata_offset` is the last offset the broker has published.

    The broker states what it wants, and the controller responds with the state that it may have.
    """

    TYPE_ID: ClassVar[int] = 112
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_directories: tuple[UUID, ...] = ()
    """Log directories that have failed since this incarnation registered (KIP-858)."""


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatResponse:
    """State of the broker after the heartbeat."""

    TYPE_ID: ClassVar[int] = 113
    error: ErrorCode
    caught_up: bool
    fenced: bool
    should_shut_down: bool
    metadata_offset: int = -1
    """Last offset that the controller had replayed when it decided the request."""
    session_timeout_ms: int = -1
    """Session timeout in ms from this heartbeat on; -1: the broker's own setting."""


@dataclass(frozen=True, slots=True)
class AlterPartitionItem:
    """ISR of one partition as its leader proposes it (KIP-497; KIP-903 for broker epochs)."""

    topic_id: UUID
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[tuple[int, int], ...]
    """(broker id, broker epoch) of each member; epoch -1: not known, not checked."""
    leader_recovering: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest:
    """ISR changes that a leader proposes."""

    TYPE_ID: ClassVar[int] = 114
    broker_id: int
    broker_epoch: int
    partitions: tuple[AlterPartitionItem, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """State of a partition after the change, or the error."""

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    """Result of each item, in order, or one error for all."""

    TYPE_ID: ClassVar[int] = 115
    error: ErrorCode
    partitions: tuple[AlterPartitionResult, ...]


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsRequest:
    """Request of a broker for a block of producer ids (row C10)."""

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
    """Topic to create: counts (-1 for the default), or an assignment of replicas."""

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
    requester: tuple[str, str] | None = None
    broker_id: int = -1
    """Broker that creates topics of its own; -1: a client does."""
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class TopicResult:
    """Result of one topic."""

    name: str
    error: ErrorCode
    message: str = ""
    topic_id: UUID | None = None
    partitions: int = -1
    replication_factor: int = -1
    configs_error: ErrorCode = ErrorCode.NONE
    """TOPIC_AUTHORIZATION_FAILED if the requester may not see the configs of the new topic."""


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    """Result of each topic, in order."""

    TYPE_ID: ClassVar[int] = 119
    error: ErrorCode
    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest:
    """Deletes topics named by name or by id."""

    TYPE_ID: ClassVar[int] = 120
    topics: tuple[tuple[str | None, UUID | None], ...]
    """(name, None) or (None, topic id)."""
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse:
    """Result of each topic, in order."""

    TYPE_ID: ClassVar[int] = 121
    error: ErrorCode
    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class DirectoryAssignment:
    """Log directory of one of a broker's replicas."""

    topic_id: UUID
    partition_id: int
    directory_id: UUID


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsRequest:
    """Log directories of a broker's replicas (KIP-858)."""

    TYPE_ID: ClassVar[int] = 122
    broker_id: int
    broker_epoch: int
    assignments: tuple[DirectoryAssignment, ...]


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsResponse:
    """Error of each assignment, in order, or one for all."""

    TYPE_ID: ClassVar[int] = 123
    error: ErrorCode
    results: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class RegisterControllerRequest:
    """Registration of a controller, voter or standby, with the levels it supports (KIP-919)."""

    TYPE_ID: ClassVar[int] = 124
    controller_id: int
    incarnation_id: UUID
    cluster_id: str
    features: tuple[FeatureRange, ...]
    settings: tuple[str, ...] = ()
    """`key=value` of configs that should be the same on all controllers."""


@dataclass(frozen=True, slots=True)
class RegisterControllerResponse:
    """Outcome of a controller's registration; with NONE the message may be a warning.

    Errors: INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, and UNSUPPORTED_VERSION if the controller
    does not support a level in force.
    """

    TYPE_ID: ClassVar[int] = 125
    error: ErrorCode
    message: str


Request = (
    RegisterBrokerRequest
    | BrokerHeartbeatRequest
    | AlterPartitionRequest
    | AllocateProducerIdsRequest
    | CreateTopicsRequest
    | DeleteTopicsRequest
    | AssignReplicasToDirsRequest
    | RegisterControllerRequest
)
Response = (
    RegisterBrokerResponse
    | BrokerHeartbeatResponse
    | AlterPartitionResponse
    | AllocateProducerIdsResponse
    | CreateTopicsResponse
    | DeleteTopicsResponse
    | AssignReplicasToDirsResponse
    | RegisterControllerResponse
)
