"""Requests of administrators beyond the creation and deletion of topics.

Most are a list of items, each made or refused on its own. Most responses are an `AdminResponse`:
one outcome for each item, in order. The offset of a response is that from which on images show
the change; a broker waits for its own image to reach it before it responds to the client.

Sources: KIP-195 (partitions), KIP-460 (elections), KIP-339 (configs), KIP-455 (reassignments),
KIP-584 (features), KIP-836 (the quorum's description).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raftctl.errors import ErrorCode
from raftctl.metadata.requests.origin import Origin


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """Outcome of one item."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AdminResponse:
    """Outcome of each item of the request, in order, or one error for all."""

    TYPE_ID: ClassVar[int] = 160
    error: ErrorCode
    message: str
    outcomes: tuple[ItemOutcome, ...]
    offset: int = -1
    """Offset from which on images show the change."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Topic and its new number of partitions, with the replicas of the added ones or None."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsRequest:
    """Adds partitions to topics, each on its own (row C3)."""

    TYPE_ID: ClassVar[int] = 161
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


PREFERRED_ELECTION = 0
"""Elect the first replica, if it is in sync."""
UNCLEAN_ELECTION = 1
"""Elect any active replica of a partition without a leader; records may be lost."""


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest:
    """Elects leaders of partitions, each on its own (row C5)."""

    TYPE_ID: ClassVar[int] = 162
    election_type: int
    """`PREFERRED_ELECTION`, or `UNCLEAN_ELECTION` of any active replica where nobody leads."""
    partitions: tuple[tuple[str, int], ...]
    """(topic, partition id); no more than may be decided on in one turn."""
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """Outcome of one partition's election."""

    topic: str
    partition_id: int
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse:
    """Result of each partition, or one error for all."""

    TYPE_ID: ClassVar[int] = 163
    error: ErrorCode
    message: str
    results: tuple[ElectionResult, ...]
    offset: int = -1
    """Offset from which on images show the new leaders."""


class AlterOperation(enum.IntEnum):
    """Operation on a config, as IncrementalAlterConfigs numbers it."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One config of a resource; `operation` is an `AlterOperation` if it is valid."""

    key: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """Changes of one resource's configs, all or none."""

    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]
    replace: bool = False
    """True if the overrides that are not named go (AlterConfigs)."""


@dataclass(frozen=True, slots=True)
class AlterConfigsRequest:
    """Changes configs of topics, brokers and groups, each on its own (row C9)."""

    TYPE_ID: ClassVar[int] = 164
    resources: tuple[ConfigAlteration, ...]
    validate_only: bool = False
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Partition and its new replicas; None cancels its reassignment."""

    topic: str
    partition_id: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AlterReassignmentsRequest:
    """Begins, changes or cancels reassignments of partitions, each on its own (row C7)."""

    TYPE_ID: ClassVar[int] = 165
    partitions: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


UPGRADE = 1
"""Raise the level."""
SAFE_DOWNGRADE = 2
"""Lower the level if no metadata is lost."""
UNSAFE_DOWNGRADE = 3
"""Lower the level. Here it is as safe as the other: metadata that is lost would stop nodes."""


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """New level of a feature."""

    feature: str
    level: int
    upgrade_type: int = UPGRADE


@dataclass(frozen=True, slots=True)
class UpdateFeaturesRequest:
    """Changes levels of features, all or none (row C11)."""

    TYPE_ID: ClassVar[int] = 166
    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRequest:
    """Removal of a broker or controller; the response is an `AdminResponse` without outcomes."""

    TYPE_ID: ClassVar[int] = 167
    broker_id: int
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    """Request for the state of the metadata log's replicas, which only the leader knows."""

    TYPE_ID: ClassVar[int] = 168
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """Replica of the metadata log; -1 for unknown values. Times are wall clock, in ms."""

    replica_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    directory_id: UUID | None = None
    """Id of its metadata directory."""


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """Address of a voter."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse:
    """State of the quorum as its leader knows it."""

    TYPE_ID: ClassVar[int] = 169
    error: ErrorCode
    message: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    offset: int = -1
    nodes: tuple[QuorumNode, ...] = ()
    """Voters whose addresses are known."""


Request = (
    CreatePartitionsRequest
    | ElectLeadersRequest
    | AlterConfigsRequest
    | AlterReassignmentsRequest
    | UpdateFeaturesRequest
    | UnregisterBrokerRequest
    | DescribeQuorumRequest
)
Response = AdminResponse | ElectLeadersResponse | DescribeQuorumResponse
