"""Each invariant of images and deltas notices a state that breaks it, and it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from immutables import Map

from raftctl.errors import InvariantViolation
from raftctl.metadata.image import (
    BrokerImage,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from raftctl.metadata.image.coordination import Coordination, KvSession, KvWaiter
from raftctl.metadata.image.types import ControllerImage, KvEntry
from raftctl.metadata.records import (
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    DelegationTokenRecord,
    Endpoint,
    FeatureRange,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.metadata.records import Record

TOPIC_ID, OTHER_ID, SESSION_ID, ENTRY_ID = (UUID(int=number) for number in range(1, 5))
DIRECTORY = UUID(int=100)
PARTITION = PartitionImage((1, 2, 3), (1, 2), 1, 4, 7, elr=(3,))
BROKER = BrokerImage(
    1,
    5,
    UUID(int=11),
    (Endpoint("A", "h", 1), Endpoint("B", "h", 2)),
    None,
    (DIRECTORY,),
    False,
    False,
)
CONTROLLER = ControllerImage(2, UUID(int=21), (FeatureRange("f", 1, 3),))
ENTRY = AccessControlEntryRecord(ENTRY_ID, 2, "t", 3, "User:a", "*", 3, 3)
CREDENTIAL = UserScramCredentialRecord("u", 1, b"s", b"k", b"k", 4096)
TOKEN = DelegationTokenRecord("id", "User:u", "User:u", (), 1, 3, 2)
COORDINATION = Coordination(
    sessions=Map({SESSION_ID: KvSession(SESSION_ID, 1_000, ("k",), ("l",))}),
    owners=Map({"k": SESSION_ID}),
    queues=Map({"l": (KvWaiter(6, SESSION_ID, b"1"),)}),
)


def mapped(items: dict[Any, Any]) -> Map[Any, Any]:
    """A persistent map of anything."""
    return Map(items)


def topics(*partitions: PartitionImage, name: str = "t") -> TopicsImage:
    topic = TopicImage(name, TOPIC_ID, Map(dict(enumerate(partitions))))
    return TopicsImage(Map({TOPIC_ID: topic}), Map({name: TOPIC_ID}))


IMAGE = MetadataImage(
    offset=9,
    epoch=1,
    brokers=Map({1: BROKER}),
    topics=topics(PARTITION),
    next_producer_id=1_000,
    features=Map({"f": 3}),
    configs=Map({(TOPIC_RESOURCE, "t"): Map({"retention.ms": "1"})}),
    kv=Map({"k": KvEntry(b"23", 8)}),
    client_quotas=Map({(("client-id", "c"), ("user", "u")): Map({"request_percentage": 1.0})}),
    acls=Map({ENTRY_ID: ENTRY}),
    scram=Map({("u", 1): CREDENTIAL}),
    tokens=Map({"id": TOKEN}),
    coordination=COORDINATION,
    kv_bytes=5,
)


def test_a_sound_image_passes() -> None:
    IMAGE.invariants()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"replicas": (1, 2, 3, 3)}, "replicas are distinct"),
        ({"replicas": (), "isr": (), "elr": (), "leader": -1}, "at least one"),
        ({"isr": (1, 4)}, "the ISR is a set of replicas"),
        ({"isr": (1, 1)}, "the ISR is a set of replicas"),
        ({"elr": (4,)}, "the ELR is a set of replicas"),
        ({"elr": (2,)}, "is not in the ISR"),
        ({"isr": (), "elr": (), "leader": -1}, "are not both empty"),
        ({"leader": 3}, "the leader is in the ISR"),
        ({"leader_recovering": True}, "alone in the ISR"),
        ({"adding_replicas": (4,)}, "to be added is a replica"),
        ({"removing_replicas": (1,)}, "to be removed are the last"),
        ({"adding_replicas": (2,)}, "ends once all are in sync"),
        ({"directories": (DIRECTORY,)}, "each replica has a log directory"),
        ({"removing_replicas": (1, 2, 3)}, "a reassignment leaves replicas"),
    ],
)
def test_partitions(changes: Mapping[str, Any], why: str) -> None:
    broken = PARTITION._replace(**changes)
    with pytest.raises(InvariantViolation, match=why):
        replace(IMAGE, topics=topics(broken)).invariants()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"broker_epoch": 10}, "an offset of the log"),
        ({"broker_id": 2}, "known by its id"),
        ({"endpoints": (*BROKER.endpoints, Endpoint("A", "g", 3))}, "one endpoint a listener"),
        ({"log_directories": (DIRECTORY, DIRECTORY)}, "on one broker"),
        ({"features": (FeatureRange("f", 2, 1),)}, "a range of levels has one"),
        ({"features": (FeatureRange("f", 1, 1), FeatureRange("f", 2, 2))}, "one range a feature"),
        ({"features": (FeatureRange("f", 1, 2),)}, "supports the levels in force"),
    ],
)
def test_brokers(changes: Mapping[str, Any], why: str) -> None:
    broken = replace(BROKER, **changes)
    with pytest.raises(InvariantViolation, match=why):
        replace(IMAGE, brokers=mapped({1: broken})).invariants()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"topics": topics()}, "a topic has partitions"),
        ({"topics": topics(PARTITION, name="..")}, "a name that files may have"),
        ({"topics": replace(IMAGE.topics, ids=mapped({"t": OTHER_ID}))}, "an id of its own"),
        ({"configs": mapped({(TOPIC_RESOURCE, "u"): mapped({"a": "1"})})}, "a topic that exists"),
        ({"configs": mapped({(TOPIC_RESOURCE, "t"): mapped({})})}, "a topic that exists"),
        ({"client_quotas": mapped({(("user", "u"),): mapped({})})}, "has quotas"),
        ({"client_quotas": mapped({(("user", "u"),): mapped({"k": 0.0})})}, "above 0"),
        ({"client_quotas": mapped({(("ip", "a"), ("ip", "b")): mapped({"k": 1.0})})}, "one order"),
        ({"controllers": mapped({1: CONTROLLER})}, "a controller is known by its id"),
        ({"controllers": mapped({2: CONTROLLER}), "features": mapped({"f": 4})}, "the levels in"),
        ({"acls": mapped({OTHER_ID: ENTRY})}, "is known by its id"),
        ({"scram": mapped({("u", 2): CREDENTIAL})}, "known by user and mechanism"),
        ({"tokens": mapped({"other": TOKEN})}, "is known by its id"),
        ({"tokens": mapped({"id": replace(TOKEN, expires_ms=4)})}, "outlives its longest"),
        ({"kv": mapped({"k": KvEntry(b"23", 10)})}, "a version is an offset"),
        ({"kv_bytes": 4}, "are counted"),
    ],
)
def test_the_rest_of_the_image(changes: Mapping[str, Any], why: str) -> None:
    with pytest.raises(InvariantViolation, match=why):
        replace(IMAGE, **changes).invariants()


def session(*, keys: tuple[str, ...] = ("k",), locks: tuple[str, ...] = ("l",)) -> KvSession:
    return KvSession(SESSION_ID, 1_000, keys, locks)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"owners": mapped({"k": SESSION_ID, "j": SESSION_ID})}, "an ephemeral key exists"),
        ({"sessions": mapped({})}, "an open session that lists it"),
        ({"owners": mapped({})}, "owns the keys that it lists"),
        ({"queues": mapped({})}, "in the queues that it lists"),
        ({"queues": mapped({"l": (KvWaiter(10, SESSION_ID, b"1"),)})}, "a token is an offset"),
        ({"queues": mapped({"l": COORDINATION.queue("l"), "m": ()})}, "is not empty"),
        (
            {
                "queues": mapped(
                    {"l": (KvWaiter(6, SESSION_ID, b"1"), KvWaiter(5, SESSION_ID, b""))}
                )
            },
            "in the order of its tokens",
        ),
        (
            {"queues": mapped({"l": COORDINATION.queue("l"), "m": COORDINATION.queue("l")})},
            "a place in a queue belongs to",
        ),
    ],
)
def test_sessions_and_locks(changes: Mapping[str, Any], why: str) -> None:
    broken = replace(COORDINATION, **changes)
    with pytest.raises(InvariantViolation, match=why):
        replace(IMAGE, coordination=broken).invariants()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "a change has a partition epoch"),
        ({"partition_epoch": 8, "leader_epoch": 3}, "begins a leader epoch"),
        ({"partition_epoch": 8, "leader": 2}, "begins a leader epoch"),
        ({"partition_epoch": 8, "replicas": (1, 2), "elr": ()}, "begins a leader epoch"),
        ({"partition_epoch": 8, "elr": (1,)}, "is not in the ISR"),
    ],
)
def test_changes_of_partitions(changes: Mapping[str, Any], why: str) -> None:
    delta = MetadataDelta(IMAGE)
    partition = PARTITION._replace(**changes)
    delta.change_topic(TopicImage("t", TOPIC_ID, mapped({0: partition})), [0])
    with pytest.raises(InvariantViolation, match=why):
        delta.invariants(delta.apply(10, 1, 0))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"broker_epoch": 4}, "the epochs of a broker grow"),
        ({"incarnation_id": UUID(int=12)}, "an incarnation has its own epoch"),
        ({"broker_epoch": 11}, "an offset of the log"),
    ],
)
def test_changes_of_brokers(changes: Mapping[str, Any], why: str) -> None:
    delta = MetadataDelta(IMAGE)
    delta.changed_brokers[1] = replace(BROKER, **changes)
    with pytest.raises(InvariantViolation, match=why):
        delta.invariants(delta.apply(10, 1, 0))


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (UnregisterControllerRecord(7), "was registered"),
        (ProducerIdsRecord(1, 5, 1_000), "producer ids go back"),
        (RemoveAccessControlEntryRecord(OTHER_ID), "that is removed exists"),
        (RemoveUserScramCredentialRecord("u", 2), "that is removed exists"),
        (RemoveDelegationTokenRecord("other"), "that is removed exists"),
        (replace(TOKEN, expires_ms=4), "outlives its longest"),
    ],
)
def test_records_that_are_refused(record: Record, why: str) -> None:
    with pytest.raises(InvariantViolation, match=why):
        MetadataDelta(IMAGE).replay(record, 10)


def test_bytes_that_are_owed() -> None:
    delta = MetadataDelta(IMAGE)
    delta.kv_bytes = -1
    with pytest.raises(InvariantViolation, match="no fewer than 0 bytes"):
        delta.apply(10, 1, 0)
