"""The records of `__consumer_offsets` that consumer groups of KIP-848 have.

Tables of Apache Kafka 4.1: ConsumerGroupMetadata, ConsumerGroupMemberMetadata,
ConsumerGroupTargetAssignmentMetadata, ConsumerGroupTargetAssignmentMember,
ConsumerGroupCurrentMemberAssignment and ConsumerGroupRegularExpression, keys and values. The
ConsumerGroupPartitionMetadata of earlier releases is left alone (KIP-1101).
"""

from __future__ import annotations

import enum
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from uuid import UUID

from broker.coordinator.core import KeyValue
from broker.coordinator.record_format import RecordFormat, field, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.protocol import Field
    from broker.protocol.codec import Message
    from raftctl.runtime.api import Buffer

Slot = tuple[UUID, int]
"""A partition, by the id of its topic."""


class Kind(enum.IntEnum):
    """Kind of a record: the version of its key."""

    GROUP = 3
    PARTITIONS = 4
    """Written by releases before 4.1 only; left alone."""
    MEMBER = 5
    TARGET = 6
    TARGET_OF_MEMBER = 7
    CURRENT = 8
    REGEX = 16


class ConsumerKey(NamedTuple):
    """Key of a record: the group, and the member or regular expression that it is about.

    `part` is empty where the record is about the group as a whole.
    """

    kind: Kind
    group: str
    part: str = ""


class TopicPartitions(TypedDict):
    """Partitions of one topic."""

    topic_id: UUID
    partitions: list[int]


class ClassicProtocolValue(TypedDict):
    """Part of ConsumerGroupMemberMetadataValue."""

    name: str
    metadata: Buffer


class ClassicMemberValue(TypedDict):
    """Part of ConsumerGroupMemberMetadataValue.

    Present while the member speaks the classic protocol, so that a downgrade finds its protocols.
    """

    session_timeout_ms: int
    supported_protocols: list[ClassicProtocolValue]


class GroupEpochValue(TypedDict):
    """ConsumerGroupMetadataValue. The hash is that of the subscribed topics (KIP-1101)."""

    epoch: int
    metadata_hash: int


class MemberValue(TypedDict):
    """ConsumerGroupMemberMetadataValue."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberValue | None


class TargetEpochValue(TypedDict):
    """ConsumerGroupTargetAssignmentMetadataValue."""

    assignment_epoch: int


class MemberTargetValue(TypedDict):
    """ConsumerGroupTargetAssignmentMemberValue."""

    topic_partitions: list[TopicPartitions]


class CurrentValue(TypedDict):
    """ConsumerGroupCurrentMemberAssignmentValue."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class RegexValue(TypedDict):
    """ConsumerGroupRegularExpressionValue."""

    topics: Sequence[str]
    version: int
    timestamp: int


_OF_GROUP = (Kind.GROUP, Kind.PARTITIONS, Kind.TARGET)
_PART = {Kind.REGEX: "regular_expression"}


def _key_format(kind: Kind) -> RecordFormat[Message]:
    fields = [field("group_id", "string")]
    if kind not in _OF_GROUP:
        fields.append(field(_PART.get(kind, "member_id"), "string"))
    return RecordFormat(kind.name, {kind: table("Key", *fields)}, written=kind)


def _value_format(kind: Kind, *fields: Field) -> RecordFormat[Message]:
    return RecordFormat(kind.name, {0: table("Value", *fields, flexible=True)}, written=0)


_PARTITIONS_OF_TOPIC = table(
    "TopicPartitions",
    field("topic_id", "uuid"),
    field("partitions", "int32", array=True),
    flexible=True,
)
_CLASSIC_PROTOCOL = table(
    "ClassicProtocol", field("name", "string"), field("metadata", "bytes"), flexible=True
)
_CLASSIC_MEMBER = table(
    "ClassicMemberMetadata",
    field("session_timeout_ms", "int32"),
    field("supported_protocols", "struct", array_of=_CLASSIC_PROTOCOL),
    flexible=True,
)
_KEYS = {kind: _key_format(kind) for kind in Kind}
_VALUES = {
    Kind.GROUP: _value_format(
        Kind.GROUP, field("epoch", "int32"), field("metadata_hash", "int64", 0, tag=0)
    ),
    Kind.MEMBER: _value_format(
        Kind.MEMBER,
        field("instance_id", "string", nullable=True),
        field("rack_id", "string", nullable=True),
        field("client_id", "string"),
        field("client_host", "string"),
        field("subscribed_topic_names", "string", array=True),
        field("subscribed_topic_regex", "string", nullable=True),
        field("rebalance_timeout_ms", "int32", -1),
        field("server_assignor", "string", nullable=True),
        field(
            "classic_member_metadata",
            "struct",
            None,
            nullable=True,
            tag=0,
            of=_CLASSIC_MEMBER,
        ),
    ),
    Kind.TARGET: _value_format(Kind.TARGET, field("assignment_epoch", "int32")),
    Kind.TARGET_OF_MEMBER: _value_format(
        Kind.TARGET_OF_MEMBER, field("topic_partitions", "struct", array_of=_PARTITIONS_OF_TOPIC)
    ),
    Kind.CURRENT: _value_format(
        Kind.CURRENT,
        field("member_epoch", "int32"),
        field("previous_member_epoch", "int32"),
        field("state", "int8"),
        field("assigned_partitions", "struct", array_of=_PARTITIONS_OF_TOPIC),
        field("partitions_pending_revocation", "struct", array_of=_PARTITIONS_OF_TOPIC),
    ),
    Kind.REGEX: _value_format(
        Kind.REGEX,
        field("topics", "string", array=True),
        field("version", "int64"),
        field("timestamp", "int64"),
    ),
}
KINDS = frozenset(int(kind) for kind in Kind)


def consumer_key_of(kind: int, data: bytes) -> ConsumerKey:
    """Return the subject of a record; ValueError if the key is malformed."""
    fields = _KEYS[Kind(kind)].decode(data)
    return ConsumerKey(Kind(kind), *fields.values())


def value_of(kind: Kind, data: bytes) -> Any:
    """Return the fields of a value; ValueError if it is none of a known version."""
    return _VALUES[kind].decode(data)


def record(key: ConsumerKey, fields: Message | None) -> KeyValue:
    """Return the record; a tombstone without fields."""
    named = {"group_id": key.group, _PART.get(key.kind, "member_id"): key.part}
    value = None if fields is None else _VALUES[key.kind].encode(fields)
    return KeyValue(_KEYS[key.kind].encode(named), value)


def topic_partitions(slots: Iterable[Slot]) -> list[TopicPartitions]:
    """Return partitions in the form of messages and records: by topic, in order."""
    return [
        {"topic_id": topic_id, "partitions": [number for _, number in group]}
        for topic_id, group in groupby(sorted(slots), key=lambda slot: slot[0])
    ]


def slots_of(topics: Iterable[TopicPartitions]) -> frozenset[Slot]:
    """Return the partitions of a message or record."""
    return frozenset((one["topic_id"], number) for one in topics for number in one["partitions"])
