"""Messages between consumers of the classic protocol: subscriptions and assignments.

To the classic protocol these are bytes that members and their leader exchange. The coordinator
reads them to say which topics a group reads, and when such members share a group with members of
KIP-848. Tables of Apache Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment; a
version above those known is read as the newest of them, as clients do.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict

from broker.coordinator.record_format import RecordFormat, field, table, version_of
from broker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.protocol import Struct
    from raftctl.runtime.api import Buffer

_NEWEST = 3
_VERSION = struct.Struct(">h")
_PARTITIONS = table(
    "TopicPartition", field("topic", "string"), field("partitions", "int32", array=True)
)


def _subscription(version: int) -> Struct:
    fields = [field("topics", "string", array=True), field("user_data", "bytes", nullable=True)]
    if version >= 1:
        fields.append(field("owned_partitions", "struct", array_of=_PARTITIONS))
    if version >= 2:
        fields.append(field("generation_id", "int32", -1))
    if version >= 3:
        fields.append(field("rack_id", "string", None, nullable=True))
    return table("ConsumerProtocolSubscription", *fields)


_ASSIGNMENT_TABLE = table(
    "ConsumerProtocolAssignment",
    field("assigned_partitions", "struct", array_of=_PARTITIONS),
    field("user_data", "bytes", nullable=True),
)
_SUBSCRIPTION: RecordFormat[_SubscriptionFields] = RecordFormat(
    "ConsumerProtocolSubscription", {v: _subscription(v) for v in range(_NEWEST + 1)}, written=1
)
_ASSIGNMENT: RecordFormat[_AssignmentFields] = RecordFormat(
    "ConsumerProtocolAssignment", dict.fromkeys(range(_NEWEST + 1), _ASSIGNMENT_TABLE), written=0
)


class _TopicFields(TypedDict):
    topic: str
    partitions: list[int]


class _SubscriptionFields(TypedDict):
    topics: list[str]
    user_data: Buffer | None
    owned_partitions: NotRequired[list[_TopicFields]]
    generation_id: NotRequired[int]
    rack_id: NotRequired[str | None]


class _AssignmentFields(TypedDict):
    assigned_partitions: list[_TopicFields]
    user_data: Buffer | None


class Subscription(NamedTuple):
    """Metadata of a consumer that joins."""

    topics: tuple[str, ...]
    """The topics in order, each once."""
    owned: frozenset[TopicPartition] = frozenset()
    """The partitions that it has not revoked; an assignor that is not cooperative revokes all."""
    rack_id: str | None = None


def subscription_of(metadata: bytes) -> Subscription:
    """Return the subscription in a member's metadata; ValueError if there is none."""
    fields = _SUBSCRIPTION.decode(_known(metadata))
    return Subscription(
        tuple(sorted(set(fields["topics"]))),
        _partitions(fields.get("owned_partitions", ())),
        fields.get("rack_id"),
    )


def subscription(topics: Iterable[str], owned: Iterable[TopicPartition] = ()) -> bytes:
    """Return the metadata of a member that reads these topics."""
    owned_partitions = _by_topic(owned)
    return _SUBSCRIPTION.encode(
        {"topics": sorted(topics), "user_data": None, "owned_partitions": owned_partitions}
    )


def assignment_of(data: bytes) -> frozenset[TopicPartition]:
    """Return the partitions of a member's assignment, none of an empty one; ValueError if
    malformed.
    """
    if not data:
        return frozenset()
    return _partitions(_ASSIGNMENT.decode(_known(data))["assigned_partitions"])


def assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the assignment with these partitions, in a version that every client reads."""
    return _ASSIGNMENT.encode({"assigned_partitions": _by_topic(partitions), "user_data": b""})


def _known(data: bytes) -> bytes:
    version = version_of(data)
    return data if version <= _NEWEST else _VERSION.pack(_NEWEST) + data[_VERSION.size :]


def _partitions(topics: Iterable[_TopicFields]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(one["topic"], number) for one in topics for number in one["partitions"]
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[_TopicFields]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in found.items()]
