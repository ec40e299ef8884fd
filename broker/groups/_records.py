"""The records of `__consumer_offsets` that consumer groups of the classic protocol have.

Tables of Apache Kafka's OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue.
All versions are read; written are those that Apache Kafka writes: the key of an offset in version
1, its value in version 3 or, with a time of expiry of its own, 1; a group in version 3.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict

from broker.coordinator.core import KeyValue
from broker.coordinator.record_format import RecordFormat, field, table, version_of
from broker.groups._consumer_records import KINDS, ConsumerKey, consumer_key_of
from broker.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from broker.protocol import Field, Struct
    from broker.protocol.codec import Message
    from raftctl.runtime.api import Buffer

NO_EXPIRY = -1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_VALUE_HEAD = struct.Struct(">hqih")
_PLAIN_VALUE = struct.Struct(">hqihq")
"""A whole value of the version that is written, without metadata."""
_PLAIN_BYTES = _PLAIN_VALUE.size
_GROUPS_MAX = 4_096
_PARTITIONS_MAX = 65_536
_OFFSET_KEYS = (0, 1)
OFFSET_KEYS = (b"\0\0", b"\0\1")
"""The beginnings of the keys of offsets."""
_GROUP_KEY = 2

_OFFSET_KEY = table(
    "OffsetCommitKey",
    field("group", "string"),
    field("topic", "string"),
    field("partition", "int32"),
)


def _offset_value(version: int) -> Struct:
    # Version 1 has a time of expiry and no leader epoch; 2 dropped the former, 3 brought the
    # latter. So an offset with a time of expiry is written without its epoch.
    fields = [field("offset", "int64")]
    if version >= 3:
        fields.append(field("leader_epoch", "int32", -1))
    fields += [field("metadata", "string"), field("commit_timestamp", "int64")]
    if version == 1:
        fields.append(field("expire_timestamp", "int64", NO_EXPIRY))
    if version >= 4:
        fields.append(field("topic_id", "uuid", None, tag=0))
    return table("OffsetCommitValue", *fields, flexible=version >= 4)


def _member(version: int) -> Struct:
    # Static members came with version 3 (KIP-345); without the field none is static.
    fields: list[Field] = [field("member_id", "string")]
    if version >= 3:
        fields.append(field("group_instance_id", "string", None, nullable=True))
    fields += [field("client_id", "string"), field("client_host", "string")]
    if version >= 1:
        fields.append(field("rebalance_timeout", "int32"))
    fields += [
        field("session_timeout", "int32"),
        field("subscription", "bytes"),
        field("assignment", "bytes"),
    ]
    return table("MemberMetadata", *fields, flexible=version >= 4)


def _group_value(version: int) -> Struct:
    fields = [
        field("protocol_type", "string"),
        field("generation", "int32"),
        field("protocol", "string", nullable=True),
        field("leader", "string", nullable=True),
    ]
    if version >= 2:
        fields.append(field("current_state_timestamp", "int64", -1))
    fields.append(field("members", "struct", array_of=_member(version)))
    return table("GroupMetadataValue", *fields, flexible=version >= 4)


_VALUE_WRITTEN = 3
_OFFSET_KEY_WRITTEN = b"\0\1"
OFFSET_KEY: RecordFormat[Message] = RecordFormat(
    "OffsetCommitKey", {0: _OFFSET_KEY, 1: _OFFSET_KEY}, written=1
)
OFFSET_VALUE: RecordFormat[OffsetValue] = RecordFormat(
    "OffsetCommitValue", {v: _offset_value(v) for v in range(5)}, written=_VALUE_WRITTEN
)
_EXPIRING: RecordFormat[OffsetValue] = RecordFormat(
    "OffsetCommitValue", {1: _offset_value(1)}, written=1
)
GROUP_KEY: RecordFormat[Message] = RecordFormat(
    "GroupMetadataKey", {2: table("Key", field("group", "string"))}, written=2
)
GROUP_VALUE: RecordFormat[GroupValue] = RecordFormat(
    "GroupMetadataValue", {v: _group_value(v) for v in range(5)}, written=3
)


class OffsetValue(TypedDict):
    """OffsetCommitValue, versions 0 to 4."""

    offset: int
    leader_epoch: NotRequired[int]
    metadata: str
    commit_timestamp: int
    expire_timestamp: NotRequired[int]
    topic_id: NotRequired[UUID | None]


class GroupMemberValue(TypedDict):
    """Part of GroupMetadataValue."""

    member_id: str
    group_instance_id: NotRequired[str | None]
    client_id: str
    client_host: str
    rebalance_timeout: NotRequired[int]
    session_timeout: int
    subscription: Buffer
    assignment: Buffer


class GroupValue(TypedDict):
    """GroupMetadataValue, versions 0 to 4."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: NotRequired[int]
    members: list[GroupMemberValue]


class OffsetKey(NamedTuple):
    """Group and partition of an offset."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group's record."""

    group: str


class CommittedOffset(NamedTuple):
    """The position of a group in a partition: the offset of the record that it reads next."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    """Wall clock, milliseconds."""
    expire_timestamp: int = NO_EXPIRY


def key_of(data: bytes) -> OffsetKey | GroupKey | ConsumerKey | None:
    """Return the subject of a record; None for unknown kinds. ValueError if malformed."""
    version = version_of(data)
    if version in _OFFSET_KEYS:
        return offset_key_of(data)
    if version == _GROUP_KEY:
        return GroupKey(GROUP_KEY.decode(data)["group"])
    return consumer_key_of(version, data) if version in KINDS else None


def offset_key_of(data: bytes) -> OffsetKey:
    """Return whose offset it is; ValueError if malformed."""
    group, partition = owner_of(data)
    return OffsetKey(group, *partition)


def owner_of(data: bytes) -> tuple[str, TopicPartition]:
    """Group and partition of an offset's key; ValueError if malformed. By hand: a partition that is
    loaded has a million of them, of much fewer groups and topics.
    """
    topic_at = 4 + int.from_bytes(data[2:4], "big")
    return _group_of(data[4:topic_at]), read_partition(data[topic_at:])


def key_head(data: bytes) -> bytes:
    """Return what the keys of a group's offsets begin with: all before `read_partition`."""
    return data[: 4 + int.from_bytes(data[2:4], "big")]


@lru_cache(_GROUPS_MAX)
def _group_of(data: bytes) -> str:
    return data.decode()


@lru_cache(_PARTITIONS_MAX)
def read_partition(data: bytes) -> TopicPartition:
    """Return the partition, which follows the group in a key; ValueError if malformed.

    Cached, so that the many groups that read a partition share one object: with a million offsets
    that is most of the memory.
    """
    end = 2 + int.from_bytes(data[:2], "big")
    if end + _INT32.size != len(data):
        raise ValueError("OffsetCommitKey: the lengths in it do not fit")
    return TopicPartition(data[2:end].decode(), _INT32.unpack_from(data, end)[0])


def offset_record(key: OffsetKey, committed: CommittedOffset | None) -> KeyValue:
    """Return the record of a committed offset; a tombstone without one."""
    return KeyValue(offset_key(*key), None if committed is None else offset_value(committed))


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of an offset's record. Written by hand, as the value is: each commit needs
    them.
    """
    return _group_part(group) + _partition_part(topic, partition)


@lru_cache(_GROUPS_MAX)
def _group_part(group: str) -> bytes:
    return _OFFSET_KEY_WRITTEN + _string(group)


@lru_cache(_PARTITIONS_MAX)
def _partition_part(topic: str, partition: int) -> bytes:
    return _string(topic) + _INT32.pack(partition)


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def offset_value(committed: CommittedOffset) -> bytes:
    """Return the value of an offset's record."""
    if committed.expire_timestamp != NO_EXPIRY:
        return _EXPIRING.encode(
            {
                "offset": committed.offset,
                "metadata": committed.metadata,
                "commit_timestamp": committed.commit_timestamp,
                "expire_timestamp": committed.expire_timestamp,
            }
        )
    head = _VALUE_WRITTEN, committed.offset, committed.leader_epoch
    if not committed.metadata:
        return _PLAIN_VALUE.pack(*head, 0, committed.commit_timestamp)
    metadata = committed.metadata.encode()
    at_last = _INT64.pack(committed.commit_timestamp)
    return _VALUE_HEAD.pack(*head, len(metadata)) + metadata + at_last


UNSTABLE = CommittedOffset(-1, -1, "", -1)
"""Stands for an offset that an open transaction is about to change; it is this very object."""


def check_offset(value: bytes) -> None:
    """ValueError if the value is none of a committed offset."""
    if not is_plain(value):
        offset_of(value)


def is_plain(value: bytes) -> bool:
    """Return whether a value is of the version that is written, without metadata: nearly all are,
    and need not be read.
    """
    return (
        len(value) == _PLAIN_BYTES and value.startswith(b"\0\3") and value.startswith(b"\0\0", 14)
    )


def offset_of(value: bytes) -> CommittedOffset:
    """Return the offset of a record's value; ValueError if it is none."""
    # By hand, as the key.
    size = len(value)
    if size == _PLAIN_VALUE.size:
        version, offset, leader_epoch, text, timestamp = _PLAIN_VALUE.unpack(value)
        if version == OFFSET_VALUE.written and text == 0:
            found = (offset, leader_epoch, "", timestamp, NO_EXPIRY)
            return tuple.__new__(CommittedOffset, found)
    elif size > _PLAIN_VALUE.size:
        version, offset, leader_epoch, text = _VALUE_HEAD.unpack_from(value)
        if version == OFFSET_VALUE.written and text == size - _PLAIN_VALUE.size:
            end = _VALUE_HEAD.size + text
            metadata = value[_VALUE_HEAD.size : end].decode()
            (timestamp,) = _INT64.unpack_from(value, end)
            return CommittedOffset(offset, leader_epoch, metadata, timestamp)
    fields = OFFSET_VALUE.decode(value)
    return CommittedOffset(
        fields["offset"],
        fields.get("leader_epoch", -1),
        fields["metadata"],
        fields["commit_timestamp"],
        fields.get("expire_timestamp", NO_EXPIRY),
    )


def group_record(group_id: str, fields: GroupValue | None) -> KeyValue:
    """Return the record of a group; a tombstone without fields."""
    value = None if fields is None else GROUP_VALUE.encode(fields)
    return KeyValue(GROUP_KEY.encode({"group": group_id}), value)
