"""Where one administrative operation of a client is tried, and why some are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Producer

if TYPE_CHECKING:
    from raftctl.localcluster.cluster import LocalCluster

TIMEOUT_S = 30
RECORDS = 3
GROUPS = "consumer groups"
TRANSACTIONS = "transactions"
LOCAL = "asks no broker"


class Place:
    """The cluster and a topic of two partitions with three replicas, for one operation."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.bootstrap = cluster.layout.bootstrap
        self.brokers = sorted(node.node_id for node in cluster.layout.brokers)

    def fill(self) -> None:
        """Three records in partition 0."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(RECORDS):
            producer.produce(self.topic, b"x", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
