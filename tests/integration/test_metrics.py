"""What operators scrape of a real cluster: brokers alone, a controller, a group that lags."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.clusters import running_cluster, wait_until
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.layout import LocalNode

pytestmark = [pytest.mark.req("O1", "O3", "N4"), pytest.mark.timeout(120)]
TOPIC, GROUP = "orders", "shipping"
TIMEOUT_S = 30
PARTITIONS, RECORDS, CONSUMED = 6, 60, 24
OVERRIDES = {"metrics.group.lag.interval.ms": "500", "offsets.topic.num.partitions": "3"}
Series = dict[tuple[str, ...], float]
"""By name and the values of labels, in the order of the labels' names."""


def scraped(node: LocalNode) -> Series:
    with urllib.request.urlopen(f"http://{node.http_address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in found, "Prometheus refuses a series that comes twice"
            found[key] = sample.value
    return found


def readiness(node: LocalNode) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://{node.http_address}/readyz", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def of_all(cluster: LocalCluster, name: str) -> Series:
    """The series of a metric on all brokers; each is served by one."""
    found: Series = {}
    for broker in cluster.layout.brokers:
        for key, value in scraped(broker).items():
            if key[0] == name:
                assert key not in found, f"{key}: two brokers would be summed"
                found[key[1:]] = value
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers with a topic, of which a group has consumed a part."""
    with running_cluster(tmp_path_factory.mktemp("metrics") / "c", 1, 3, OVERRIDES) as made:
        bootstrap = made.layout.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        create_topic(admin, TOPIC, PARTITIONS, 3, {}, TIMEOUT_S)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"record", partition=number % PARTITIONS)
        producer.flush()
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
        )
        each = CONSUMED // PARTITIONS
        consumer.commit(
            offsets=[At(TOPIC, number, each) for number in range(PARTITIONS)], asynchronous=False
        )
        consumer.close()
        yield made


def test_the_lag_of_a_group_is_that_of_all_leaders_and_comes_once(cluster: LocalCluster) -> None:
    def lags() -> Series:
        return of_all(cluster, "kafka_consumergroup_lag")

    wait_until(lambda: len(lags()) == PARTITIONS, "a lag for each partition")
    assert set(lags().values()) == {(RECORDS - CONSUMED) / PARTITIONS}
    assert of_all(cluster, "kafka_consumergroup_lag_sum") == {(GROUP, TOPIC): RECORDS - CONSUMED}
    assert of_all(cluster, "kafka_consumergroup_current_offset_sum") == {(GROUP, TOPIC): CONSUMED}
    assert of_all(cluster, "kafka_consumergroup_members") == {(GROUP,): 0}


def test_each_partition_is_shown_by_its_leader(cluster: LocalCluster) -> None:
    ends = of_all(cluster, "kafka_topic_partition_current_offset")
    assert {key: value for key, value in ends.items() if key[1] == TOPIC} == {
        (str(number), TOPIC): RECORDS / PARTITIONS for number in range(PARTITIONS)
    }
    assert of_all(cluster, "kafka_topic_partitions")[TOPIC,] == PARTITIONS


def has_looked_at_its_loop(node: LocalNode) -> bool:
    """Whether the lag of the event loop was looked at, which a node does each second."""
    return scraped(node)["raftctl_event_loop_lag_ms_count",] > 0


def test_every_node_shows_its_process_event_loop_and_quorum(cluster: LocalCluster) -> None:
    for node in cluster.layout.nodes:
        wait_until(partial(has_looked_at_its_loop, node), "the event loop's lag")
        found = scraped(node)
        assert found["process_resident_memory_bytes",] > 10_000_000
        assert found["process_open_fds",] > 5
        assert 0 < found["kafka_network_socketserver_networkprocessoravgidle_percent",] <= 1
        assert found["kafka_server_raftmetrics_current_leader",] == 101
        assert found["raftctl_raft_leader_changes_total",] >= 1
        assert found["kafka_server_broker_metadata_metrics_last_applied_record_offset",] > 0
        assert found["raftctl_metrics_series",] <= 1_500
    broker = scraped(cluster.layout.brokers[0])
    assert broker["kafka_server_raftchannelmetrics_response_total",] > 0
    assert broker["kafka_server_raftchannelmetrics_incoming_byte_total",] > 0


def test_a_broker_shows_its_requests_and_connections(cluster: LocalCluster) -> None:
    found = [scraped(broker) for broker in cluster.layout.brokers]
    requests = "kafka_network_requestmetrics_totaltimems_count"
    assert sum(one.get((requests, "Produce"), 0) for one in found) >= 1
    assert all(one[requests, "FetchFollower"] > 0 for one in found)
    for one in found:
        assert one["kafka_server_socket_server_metrics_connection_count", "PLAINTEXT", "0"] >= 2
        assert one["kafka_network_requestmetrics_errors_total", "NONE", "FetchFollower"] > 0
        assert one["kafka_server_kafkaserver_brokerstate",] == 3


def test_a_controller_shows_how_it_decides(cluster: LocalCluster) -> None:
    (controller,) = cluster.layout.controllers
    found = scraped(controller)
    assert found["kafka_controller_controllereventmanager_eventqueueprocessingtimems_count",] > 0
    assert found["kafka_controller_controllerstats_uncleanleaderelections_total",] == 0


def test_nodes_are_ready_and_a_broker_that_is_killed_comes_back(cluster: LocalCluster) -> None:
    for node in cluster.layout.nodes:
        assert readiness(node) == (200, {"ready": True, "problems": []})
    broker = cluster.layout.brokers[-1]
    (controller,) = cluster.layout.controllers
    elections = scraped(controller)["raftctl_controller_leaderelections_total",]
    cluster.kill(broker)
    wait_until(
        lambda: scraped(controller)["raftctl_controller_leaderelections_total",] > elections,
        "other leaders",
    )
    cluster.start(broker)
    answers = []

    def is_ready() -> bool:
        try:
            answers.append(readiness(broker))
        except OSError:
            return False
        return answers[-1][0] == 200

    wait_until(is_ready, lambda: f"a broker that is ready: {answers[-1:]}", 60)
    assert all(answer["problems"] for status, answer in answers if status == 503)
    assert cluster.status().leader is not None
    assert cluster.is_healthy(), "a broker is ready once its replicas are in sync"
