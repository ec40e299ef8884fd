"""Requests to the core of consumer groups; responses are messages as the protocol has them.

They are those of the protocol without its versions: a handler fills in what an older version leaves
out. A request brings along what it needs of the broker's image and of the group's configuration. So
the core follows from its log, its requests and the time, and a test can replay it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.core import NOBODY
from broker.protocol.messages import consumer as wire
from broker.types import TopicPartition
from raftctl.metadata.image import EMPTY_IMAGE, TopicsImage

if TYPE_CHECKING:
    from broker.groups._records import CommittedOffset


class Caller(NamedTuple):
    """The member that a client claims to be; fields are empty or -1 if it claims to be none."""

    member_id: str
    instance_id: str | None = None
    generation: int = -1


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup."""

    group_id: str
    caller: Caller
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, the member's metadata for it), those it likes best first."""
    needs_member_id: bool
    """True if a new member first gets its id and joins again with it (KIP-394)."""
    may_skip_assignment: bool
    """True if a leader understands that there is nothing to assign (KIP-814)."""
    topics: TopicsImage = EMPTY_IMAGE.topics
    """The present topics: a group that has members of KIP-848 too assigns them itself."""
    may_describe: Callable[[str], bool] | None = None
    """Whether the member may describe a topic, as in `ConsumerHeartbeat`."""


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup."""

    group_id: str
    caller: Caller
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]
    """(member id, assignment), from the leader."""
    topics: TopicsImage = EMPTY_IMAGE.topics
    """The present topics, as in `Join`."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat."""

    group_id: str
    caller: Caller
    topics: TopicsImage = EMPTY_IMAGE.topics
    """The present topics, as in `Join`."""
    may_describe: Callable[[str], bool] | None = None
    """Whether the member may describe a topic, as in `ConsumerHeartbeat`."""


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup."""

    group_id: str
    callers: tuple[Caller, ...]
    topics: TopicsImage = EMPTY_IMAGE.topics
    """The present topics, as in `Join`."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat. A field that is None or -1 has not changed.

    A member that joins, or has lost a response, sends every field (`epoch` 0, or the last one).
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    """Empty: none any more."""
    server_assignor: str | None
    owned: tuple[wire.ConsumerGroupHeartbeatRequestTopicPartitions, ...] | None
    """The partitions that it has, as in the message."""
    brings_member_id: bool
    """True if new members make their ids themselves (version 1, KIP-1082)."""
    session_timeout_ms: int
    heartbeat_interval_ms: int
    """The last two are what its group's configuration says."""
    topics: TopicsImage
    may_describe: Callable[[str], bool] | None = None
    """Whether the member may describe a topic; None if every member may describe all."""


class Commit(NamedTuple):
    """OffsetCommit, of partitions that exist. The response maps each of them to its error."""

    group_id: str
    caller: Caller
    offsets: tuple[tuple[TopicPartition, CommittedOffset], ...]
    producer: tuple[int, int] = NOBODY
    """TxnOffsetCommit: the id and epoch of the producer with whose transaction they count."""
    knows_epochs: bool = True
    """True if the client knows groups of KIP-848 and their errors (version 9)."""


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """OffsetFetch of one group. The response maps partitions to offsets."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    """The partitions asked for; None: all that have an offset."""
    require_stable: bool = False
    """True if offsets that a transaction is about to change are UNSTABLE (KIP-447)."""
    caller: Caller | None = None
    """The member that asks, if it says who it is."""


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """OffsetDelete. The response maps each partition to its error."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ForgetTopics:
    """Topics were deleted: their offsets go. The response is None."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """DeleteGroups, of one group. The response is None."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """DescribeGroups, of one group. The response is its message, or None if there is none.

    A group of KIP-848 is none here: its members would look like those of a protocol that they do
    not speak.
    """

    group_id: str


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroup:
    """ConsumerGroupDescribe, of one group. The response is its message."""

    group_id: str
    topics: TopicsImage


@dataclass(frozen=True, slots=True)
class FindGroups:
    """The groups that there are in this partition. The response is a list of their ids."""


@dataclass(frozen=True, slots=True)
class ListGroups:
    """ListGroups, of those of these groups that exist; filters in lower case, empty: no filter.
    The response is a list of messages.
    """

    group_ids: Sequence[str]
    states: frozenset[str]
    types: frozenset[str]


GroupRequest = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | ConsumerHeartbeat
    | Commit
    | FetchOffsets
    | DeleteOffsets
    | ForgetTopics
    | DeleteGroup
    | DescribeGroup
    | DescribeConsumerGroup
    | FindGroups
    | ListGroups
)
