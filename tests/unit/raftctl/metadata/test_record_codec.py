"""Records survive the bytes, and a payload holds what its batch says."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

import msgpack
import pytest

from raftctl.codec import CodecError, NotKnownError
from raftctl.metadata.codec import RECORD_CODEC, pack_records, unpack_records
from raftctl.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    Endpoint,
    EndTransactionRecord,
    FeatureLevelRecord,
    FeatureRange,
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

ID = UUID(int=3)
RECORDS: list[Record] = [
    LeaderChangeRecord(1, (1, 2, 3), (1, 2)),
    RegisterBrokerRecord(1, ID, (Endpoint("A", "h", 1, "SSL"),), None, (ID,), False, True, 7),
    RegisterBrokerRecord(1, ID, (), "r", (ID,), features=(FeatureRange("f", 0, 1),)),
    UnregisterBrokerRecord(1, 7),
    BrokerRegistrationChangeRecord(1, 7, None, True, (ID,)),
    RegisterControllerRecord(101, ID, (FeatureRange("f", 0, 1),)),
    UnregisterControllerRecord(101),
    TopicRecord("a", ID),
    RemoveTopicRecord(ID),
    PartitionRecord(ID, 0, (1, 2), (1,), 1, 2, 3, (4,), (5,), (6,), True, (ID, ID)),
    PartitionChangeRecord(ID, 0, (), -1, None, (1,), None, (2,), False, (ID,)),
    ConfigRecord(2, "a", "retention.ms", None),
    ProducerIdsRecord(1, 7, 1_000),
    FeatureLevelRecord("metadata.version", 1),
    ClientQuotaRecord((("client-id", "c"), ("user", None)), "producer_byte_rate", 1.5),
    AccessControlEntryRecord(ID, 2, "a", 3, "User:u", "*", 3, 3),
    RemoveAccessControlEntryRecord(ID),
    UserScramCredentialRecord("u", 1, b"salt", b"stored", b"server", 4096),
    RemoveUserScramCredentialRecord("u", 1),
    DelegationTokenRecord("id", "User:u", "User:r", ("User:v",), 1, 3, 2),
    RemoveDelegationTokenRecord("id"),
    NoOpRecord(),
    KvRecord("a", b"1", 7),
    KvSessionRecord(ID, 10_000),
    RemoveKvSessionRecord(ID),
    KvOwnerRecord("a", ID),
    KvOwnerRecord("a", None),
    KvLockRecord("l", ID, b"me", 7),
    RemoveKvLockRecord("l", 7),
    SnapshotMarkRecord(),
    StateHashRecord(41, 1, "00ff"),
    BeginTransactionRecord(),
    EndTransactionRecord(),
    AbortTransactionRecord(),
]


def test_every_record_survives_the_bytes() -> None:
    assert {type(record) for record in RECORDS} == set(get_args(Record))
    assert unpack_records(b"".join(pack_records(RECORDS)), len(RECORDS)) == RECORDS


def test_a_payload_with_another_count_is_refused() -> None:
    with pytest.raises(CodecError):
        unpack_records(b"".join(pack_records(RECORDS)), len(RECORDS) + 1)


def test_what_another_release_has_added_is_refused_not_ignored() -> None:
    """A replica that ignored a field would have another state than the others."""
    known = RECORD_CODEC.to_row(FeatureLevelRecord("metadata.version", 1))
    with pytest.raises(NotKnownError, match="FeatureLevelRecord has 1 unknown field"):
        unpack_records(msgpack.packb((*known, 7)), 1)
    with pytest.raises(NotKnownError, match="FeatureLevelRecord has 1 unknown field"):
        unpack_records(msgpack.packb((*known, 7)) * 20, 20)
    type_id, broker_id, incarnation, (endpoint,), *others = RECORD_CODEC.to_row(
        RegisterBrokerRecord(1, ID, (Endpoint("A", "h", 1, "SSL"),), None, ())
    )
    nested = (type_id, broker_id, incarnation, ((*endpoint, 7),), *others)
    with pytest.raises(NotKnownError, match="Endpoint has 1 unknown field"):
        unpack_records(msgpack.packb(nested), 1)
    with pytest.raises(NotKnownError, match="unknown type id 99"):
        unpack_records(msgpack.packb((99, 1)), 1)


def test_type_ids_never_change() -> None:
    """They stand in logs on disk."""
    written = {type(record).__name__: type(record).TYPE_ID for record in RECORDS}
    assert written == {
        "LeaderChangeRecord": 1,
        "RegisterBrokerRecord": 10,
        "UnregisterBrokerRecord": 11,
        "BrokerRegistrationChangeRecord": 12,
        "RegisterControllerRecord": 13,
        "UnregisterControllerRecord": 14,
        "TopicRecord": 20,
        "RemoveTopicRecord": 21,
        "PartitionRecord": 22,
        "PartitionChangeRecord": 23,
        "ConfigRecord": 30,
        "ClientQuotaRecord": 31,
        "AccessControlEntryRecord": 32,
        "RemoveAccessControlEntryRecord": 33,
        "UserScramCredentialRecord": 34,
        "RemoveUserScramCredentialRecord": 35,
        "DelegationTokenRecord": 36,
        "RemoveDelegationTokenRecord": 37,
        "ProducerIdsRecord": 40,
        "FeatureLevelRecord": 50,
        "NoOpRecord": 60,
        "SnapshotMarkRecord": 61,
        "StateHashRecord": 62,
        "BeginTransactionRecord": 63,
        "EndTransactionRecord": 64,
        "AbortTransactionRecord": 65,
        "KvRecord": 70,
        "KvSessionRecord": 71,
        "RemoveKvSessionRecord": 72,
        "KvOwnerRecord": 73,
        "KvLockRecord": 74,
        "RemoveKvLockRecord": 75,
    }
