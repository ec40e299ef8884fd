"""Metrics of real brokers under load: what is produced is counted, and a dead broker shows."""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.clusters import wait_healthy

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.layout import LocalNode

TOPIC = "measured"
RECORDS = 500
VALUE = b"v" * 100
TIMEOUT_S = 30.0
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(node: LocalNode) -> tuple[Series, Series]:
    """(Metric, labels) to value, of all metrics and of counters."""
    with urllib.request.urlopen(f"http://{node.http_address}/metrics") as response:
        text: str = response.read().decode()
    families = list(text_string_to_metric_families(text))
    found = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    names = {s.name for family in families if family.type == "counter" for s in family.samples}
    return found, {key: value for key, value in found.items() if key[0] in names}


def total(nodes: list[LocalNode], name: str, **labels: str) -> float:
    """The sum of a metric over these nodes, of the series that have the labels."""
    return sum(
        value
        for node in nodes
        for (metric, at), value in scrape(node)[0].items()
        if metric == name and labels.items() <= dict(at).items()
    )


def eventually(condition: Callable[[], bool]) -> None:
    """Waits until it holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it has not come to be"
        time.sleep(0.2)


@pytest.mark.req("O1", "N4")
def test_brokers_under_load_count_what_they_do_and_one_that_dies_shows(
    cluster: LocalCluster, bootstrap: str
) -> None:
    brokers = list(cluster.layout.brokers)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 6, 3)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    topics, replicas = "kafka_server_brokertopicmetrics", "kafka_server_replicamanager"
    before = {node.name: scrape(node)[1] for node in brokers}
    for number in range(RECORDS):
        producer.produce(TOPIC, VALUE, partition=number % 6)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    left = RECORDS
    while left:
        left -= len(consumer.consume(left, 1.0))
    consumer.close()

    assert total(brokers, f"{topics}_messagesin_total", topic=TOPIC) == RECORDS
    assert total(brokers, f"{topics}_bytesin_total", topic=TOPIC) >= RECORDS * len(VALUE)
    assert total(brokers, f"{topics}_bytesout_total", topic=TOPIC) >= RECORDS * len(VALUE)
    copied = total(brokers, f"{topics}_replicationbytesin_total")
    assert copied >= 2 * RECORDS * len(VALUE)
    assert total(brokers, "kafka_log_log_logendoffset", topic=TOPIC) == 3 * RECORDS
    assert total(brokers, "kafka_log_log_size", topic=TOPIC) >= 3 * RECORDS * len(VALUE)
    led = total(brokers, f"{replicas}_leadercount")
    assert total(brokers, "kafka_cluster_partition_replicascount") == 3 * led
    for node in brokers:
        found, counters = scrape(node)
        assert found["raftctl_metrics_series", frozenset()] <= 1_500
        assert [key for key in before[node.name] if counters[key] < before[node.name][key]] == []

    dead, *living = brokers
    assert total(living, f"{replicas}_underreplicatedpartitions") == 0
    cluster.kill(dead)
    eventually(lambda: total(living, f"{replicas}_underreplicatedpartitions") >= 6)
    assert total(living, "kafka_cluster_partition_underreplicated", topic=TOPIC) == 6
    cluster.start(dead)
    wait_healthy(cluster)
    eventually(lambda: total(living, f"{replicas}_underreplicatedpartitions") == 0)
    assert total(living, f"{replicas}_isrexpands_total") >= 6
