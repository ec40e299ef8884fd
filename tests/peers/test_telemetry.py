"""Real clients push their metrics once they are subscribed, and `/metrics` has them (row O4)."""

from __future__ import annotations

import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.integration.clusters import running_cluster, wait_until
from tests.integration.commands import raftctl
from tests.kit.topics import create_topic
from tests.peers.conftest import SPEC
from tests.peers.programs import JavaTools
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.localcluster.cluster import LocalCluster

pytestmark = [
    pytest.mark.req("O4", "A3"),
    pytest.mark.timeout(INSTALL_TIMEOUT_S + 60),
    pytest.mark.xdist_group("telemetry"),
]

SUBSCRIBED = ("--set", "metrics=*", "--set", "interval.ms=500")


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A controller and a broker, and the topic `t`."""
    directory = tmp_path_factory.mktemp("telemetry") / "cluster"
    with running_cluster(directory, controllers=1, brokers=1, overrides=SPEC.overrides) as running:
        admin = AdminClient({"bootstrap.servers": running.layout.bootstrap})
        create_topic(admin, "t", 1, 1, {}, 30)
        yield running


def series(cluster: LocalCluster, software: str) -> set[str]:
    """The names of what clients of a software have pushed."""
    address = cluster.layout.brokers[0].http_address
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    label = f'client_software_name="{software}"'
    return {
        line.partition("{")[0]
        for line in lines
        if line.startswith("raftctl_client_") and label in line
    }


def test_metrics_of_librdkafka_arrive_and_end(one_broker: LocalCluster) -> None:
    bootstrap = one_broker.layout.bootstrap
    named = ("--entity-type", "client-metrics", "--entity-name", "librdkafka")
    match = ("--set", "match=client_software_name=confluent-.*")
    raftctl("configs", "alter", *named, *SUBSCRIBED, *match, "--bootstrap-server", bootstrap)
    producers = [Producer({"bootstrap.servers": bootstrap})]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.subscribe(["t"])
    wanted = {
        "raftctl_client_producer_connection_creation_total",
        "raftctl_client_consumer_connection_creation_total",
    }

    def has_arrived() -> bool:
        producers[0].produce("t", b"x")
        producers[0].poll(0.1)
        consumer.poll(0.1)
        return wanted <= found()

    def found() -> set[str]:
        return series(one_broker, "confluent-kafka-python")

    wait_until(has_arrived, lambda: f"{wanted} among {sorted(found())}")
    consumer.close()
    producers.clear()
    wait_until(lambda: not found(), "what the clients pushed is gone with them")


def test_metrics_of_java_arrive_by_apache_kafkas_tool(one_broker: LocalCluster) -> None:
    java, bootstrap = JavaTools("4.1.0"), one_broker.layout.bootstrap
    place = ("--bootstrap-server", bootstrap)
    shape = ("--metrics", "*", "--interval", "500", "--match", "client_software_name=apache-.*")
    java("ClientMetricsCommand", *place, "--alter", "--name", "java", *shape)
    described = java("ClientMetricsCommand", *place, "--describe", "--name", "java")
    assert "interval.ms=500" in described
    reading = threading.Thread(
        target=java,
        args=("consumer.ConsoleConsumer", *place, "--topic", "t", "--timeout-ms", "15000"),
    )
    reading.start()
    wanted = "raftctl_client_consumer_connection_creation_total"
    wait_until(
        lambda: wanted in series(one_broker, "apache-kafka-java"),
        lambda: f"{wanted} among {sorted(series(one_broker, 'apache-kafka-java'))}",
    )
    reading.join()
    java("ClientMetricsCommand", *place, "--delete", "--name", "java")
    listed = java("ClientMetricsCommand", *place, "--list")
    assert "java" not in listed.splitlines()
