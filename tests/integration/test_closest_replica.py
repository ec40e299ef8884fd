"""A consumer reads from the broker in its rack: real processes, an unmodified client (row R7)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from raftctl.config.keys import RACK_AWARE_SELECTOR
from tests.integration.clusters import running_cluster, wait_healthy
from tests.integration.test_local_cluster import create, partition_of

if TYPE_CHECKING:
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

TIMEOUT_S = 60


def give_racks(cluster: LocalCluster) -> None:
    """Each broker is in a rack of its own, named by its id."""
    for node in cluster.layout.brokers:
        cluster.kill(node)
        path = cluster.directory / node.name / "node.properties"
        path.write_text(f"{path.read_text()}broker.rack=rack-{node.node_id}\n")
        cluster.start(node)
    wait_healthy(cluster)


@pytest.mark.req("R7")
def test_a_consumer_fetches_from_the_follower_in_its_rack(tmp_path: Path) -> None:
    overrides = {"replica.selector.class": RACK_AWARE_SELECTOR}
    with running_cluster(tmp_path, 1, 3, overrides) as cluster:
        give_racks(cluster)
        bootstrap = cluster.layout.bootstrap
        create(bootstrap, "t")
        wait_healthy(cluster)
        partition = partition_of(cluster, "t")
        follower = next(r for r in partition.isrs if r != partition.leader)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(20):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        values, read_from = consumed(bootstrap, f"rack-{follower}", 20, follower)
        assert values == [b"%d" % number for number in range(20)]
        assert read_from == follower


def consumed(bootstrap: str, rack: str, count: int, broker: int) -> tuple[list[Any], int]:
    """The first values of partition 0, and the broker that the client says it reads from."""
    read_from: list[int] = []

    def note(document: str) -> None:
        topics = json.loads(document)["topics"].values()
        read_from.extend(topic["partitions"]["0"]["broker"] for topic in topics)

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.rack": rack,
        "group.id": "unused",
        "enable.auto.commit": False,
        "statistics.interval.ms": 100,
        "stats_cb": note,
    }
    consumer, values = Consumer(settings), list[Any]()
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        while len(values) < count or read_from[-1:] != [broker]:
            assert time.monotonic() < deadline_s, (values, read_from)
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value())
    finally:
        consumer.close()
    return values, read_from[-1]
