"""What the status API makes of a quorum and of an image."""

from __future__ import annotations

from uuid import UUID

from raftctl.admin import PartitionCounts
from raftctl.admin._admin_api import cluster_json, quorum_json
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    Endpoint,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftctl.raft import QuorumStatus, ReplicaStatus
from raftctl.raft.messages import Epoch, NodeId, Offset

TOPIC = UUID(int=9)


def _partition(partition_id: int, isr: tuple[int, ...], leader: int) -> PartitionRecord:
    return PartitionRecord(TOPIC, partition_id, (1, 2), isr, leader, 0, 0)


def _raise(error: BaseException) -> None:
    raise error


async def test_the_cluster_as_json() -> None:
    listeners = (Endpoint("PLAINTEXT", "one", 9092), Endpoint("INTERNAL", "10.0.0.1", 9094))
    records: list[Record] = [
        RegisterBrokerRecord(2, UUID(int=2), listeners[:1], None),
        RegisterBrokerRecord(1, UUID(int=1), listeners, "rack-a"),
        BrokerRegistrationChangeRecord(1, 1, fenced=False),
        TopicRecord("orders", TOPIC),
        _partition(0, (1, 2), 1),
        _partition(1, (1,), 1),
        _partition(2, (2,), NO_LEADER),
    ]
    delta = MetadataDelta(EMPTY_IMAGE)
    for offset, record in enumerate(records):
        delta.replay(record, offset)
    image, counts = delta.apply(6, 1, 0), PartitionCounts(_raise)
    counts.publish(delta, image)
    document = cluster_json(image, counts)
    brokers = document.pop("brokers")
    assert document == {
        "topics": 1,
        "partitions": 3,
        "offline_partitions": 1,
        "under_replicated_partitions": 2,
        "metadata_offset": 6,
    }
    assert brokers[0] == {
        "broker_id": 1,
        "endpoints": ["PLAINTEXT://one:9092", "INTERNAL://10.0.0.1:9094"],
        "rack": "rack-a",
        "fenced": False,
        "in_controlled_shutdown": False,
        "broker_epoch": 1,
        "leaders": 2,
        "replicas": 3,
    }
    assert (brokers[1]["broker_id"], brokers[1]["fenced"], brokers[1]["leaders"]) == (2, True, 0)


def test_the_quorum_as_json() -> None:
    voters = (
        ReplicaStatus(NodeId(1), Offset(50), 1_000, 1_000),
        ReplicaStatus(NodeId(2), Offset(40), 900, 700),
        ReplicaStatus(NodeId(3), Offset(-1), None, None),
    )
    status = QuorumStatus(1_000, "leader", NodeId(1), Epoch(4), Offset(40), Offset(50), voters, ())
    document = quorum_json(status)
    assert (document["leader_id"], document["epoch"], document["observers"]) == (1, 4, [])
    assert (document["high_watermark"], document["log_end_offset"]) == (40, 50)
    assert document["voters_offset"] == -1, "no record names them"
    assert [voter["lag"] for voter in document["voters"]] == [0, 10, 51]
    ages = [(v["last_fetch_age_ms"], v["last_caught_up_age_ms"]) for v in document["voters"]]
    assert ages == [(0, 0), (100, 300), (None, None)]
