"""A real Prometheus scrapes a cluster under load; each panel has data, and alerts fire and clear.

The panels and alerts are ours and Strimzi's. Of Strimzi's the series that they read are checked;
with `--dashboards DIR` its own files are, from a checkout: `packaging/examples/metrics` there.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from raftctl.localcluster.cluster import LocalCluster
from tests.integration.clusters import running_cluster, wait_until
from tests.monitoring import alerts, boards, strimzi
from tests.monitoring.panels import panels
from tests.monitoring.prometheus import Prometheus, running_prometheus
from tests.monitoring.promql import OF_PROMETHEUS, selectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from raftctl.localcluster.layout import LocalNode


pytestmark = [pytest.mark.xdist_group("prometheus"), pytest.mark.timeout(180)]

REPLICATED, ALONE = "orders", "alone"
KEYS = {
    "group.initial.rebalance.delay.ms": "0",
    "metrics.group.lag.interval.ms": "1000",
}
DATA_S = 60
"""For the load to reach everything that is measured, and for two scrapes after it."""
FIRES_S = 45
"""For a broker to be missed, and for an alert that waits ten seconds."""
VARIABLES = {"$cluster": "local", "$instance": ".+", "$__rate_interval": "1m"}


@dataclass(frozen=True, slots=True)
class Watched:
    """A cluster under load, and the Prometheus that watches it."""

    cluster: LocalCluster
    prometheus: Prometheus


@pytest.fixture(scope="module")
def dashboards(request: pytest.FixtureRequest) -> Path | None:
    """Where Strimzi's files are; None where they are not."""
    folder: Path | None = request.config.getoption("--dashboards")
    return folder


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, dashboards: Path | None) -> Iterator[Watched]:
    """3 controllers and 3 brokers that clients use all the time."""
    folder = tmp_path_factory.mktemp("watched")
    rules = {
        "alerts.yml": alerts.rules(lasts="2s"),
        "strimzi.yml": strimzi.recording_rules(),
        **(boards.rules(dashboards) if dashboards else {}),
    }
    with running_cluster(folder / "cluster", overrides=KEYS) as cluster:
        targets = {
            node.http_address: labels(number)
            for number, node in enumerate(cluster.layout.nodes)
            if node.http_address is not None
        }
        with (
            running_prometheus(folder / "prometheus", targets, rules) as prometheus,
            used(cluster.layout.bootstrap),
        ):
            yield Watched(cluster, prometheus)


def labels(number: int) -> dict[str, str]:
    """What the how-to has a scrape configuration say of a node."""
    pod = f"local-kafka-{number}"
    return {
        "cluster": "local",
        "namespace": "here",
        "strimzi_io_cluster": "local",
        "strimzi_io_name": "local-kafka",
        "kubernetes_pod_name": pod,
        "pod": pod,
        "container": "kafka",
    }


class Clients(threading.Thread):
    """Producers, and a group that reads, until they are stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._ends = threading.Event()

    def stop(self) -> None:
        """Ends them, and waits for it."""
        self._ends.set()
        self.join()

    def run(self) -> None:
        """Writes to both topics and reads them, some records at a time."""
        producer = Producer({"bootstrap.servers": self._servers, "message.timeout.ms": 3000})
        group = {"group.id": "readers", "auto.offset.reset": "earliest"}
        quick = {"auto.commit.interval.ms": 500}
        consumer = Consumer({"bootstrap.servers": self._servers, **group, **quick})
        consumer.subscribe([REPLICATED, ALONE])
        number = 0
        while not self._ends.is_set():
            for topic in (REPLICATED, ALONE):
                number += 1
                producer.produce(topic, key=str(number), value=b"v" * 100)
            producer.poll(0)
            consumer.consume(50, timeout=0.02)
        consumer.close()
        producer.purge()
        producer.flush(1)


@contextlib.contextmanager
def used(bootstrap: str) -> Iterator[None]:
    """Topics with three replicas and with one, which clients write and read."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(REPLICATED, 3, 3), NewTopic(ALONE, 6, 1)]
    for made in admin.create_topics(new).values():
        made.result(30)
    clients = Clients(bootstrap)
    clients.start()
    try:
        yield
    finally:
        clients.stop()


def ours() -> Iterator[boards.Shown]:
    """The expressions of our dashboard, with the variables filled in."""
    for panel in panels():
        for query in panel.queries:
            expression = query.expression
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            yield boards.Shown("raftctl", panel.title, expression)


def theirs() -> Iterator[boards.Shown]:
    """Expressions like those of Strimzi's panels."""
    for board, needs in strimzi.NEEDS.items():
        for need in needs:
            yield boards.Shown(board, need.series, need.expression)


def wait_for_data(prometheus: Prometheus, expressions: Callable[[], list[boards.Shown]]) -> None:
    """Waits until each expression has a series; fails with those that have none."""
    empty: list[boards.Shown] = []

    def all_have_data() -> bool:
        empty[:] = [one for one in expressions() if not prometheus.query(one.expression)]
        return not empty

    wait_until(all_have_data, lambda: "\n".join(map(str, empty)), DATA_S)


@pytest.mark.req("O5", "N4")
def test_every_panel_has_data(watched: Watched) -> None:
    wait_for_data(watched.prometheus, lambda: [*ours(), *theirs()])


@pytest.mark.req("O5", "N4")
def test_every_panel_of_strimzi_has_data(watched: Watched, dashboards: Path | None) -> None:
    if dashboards is None:
        pytest.skip("needs the dashboards of Strimzi: --dashboards=DIR")
    prometheus = watched.prometheus
    wait_for_data(prometheus, lambda: list(boards.shown(dashboards, prometheus)))


@pytest.mark.req("O5")
def test_the_table_has_every_series_that_strimzi_reads(
    watched: Watched, dashboards: Path | None
) -> None:
    if dashboards is None:
        pytest.skip("needs the dashboards of Strimzi: --dashboards=DIR")
    known = {need.series for needs in strimzi.NEEDS.values() for need in needs}
    expressions = [one.expression for one in boards.shown(dashboards, watched.prometheus)]
    alarms = watched.prometheus.expressions_of_alerts().items()
    expressions += [text for (group, _), text in alarms if group != "raftctl"]
    read = {one.name for expression in expressions for one in selectors(expression)}
    assert read - known <= OF_PROMETHEUS


@pytest.mark.req("O5", "N4")
def test_every_series_that_alerts_read_is_there(watched: Watched) -> None:
    prometheus = watched.prometheus

    def read() -> list[boards.Shown]:
        return [
            boards.Shown(group, alert, f"{series.name}{series.conditions}")
            for (group, alert), expression in prometheus.expressions_of_alerts().items()
            for series in selectors(expression)
        ]

    assert len(read()) >= len(alerts.ALERTS)
    wait_for_data(prometheus, read)


@pytest.mark.req("O5")
def test_alerts_fire_while_a_broker_is_down_and_clear(
    watched: Watched, dashboards: Path | None
) -> None:
    cluster, prometheus = watched.cluster, watched.prometheus
    expected = {
        ("raftctl", name)
        for name in ("OfflinePartitions", "UnderReplicatedPartitions", "NodeDown", "FencedBrokers")
    }
    if dashboards is not None:
        expected |= {
            ("kafka", "UnderReplicatedPartitions"),
            ("kafka", "OfflinePartitions"),
            ("kafka-exporter-topic", "UnderReplicatedPartition"),
        }
    topics = AdminClient({"bootstrap.servers": cluster.layout.bootstrap}).list_topics(ALONE, 30)
    victim = cluster.layout.node(topics.topics[ALONE].partitions[0].leader)
    with firing(watched, expected, [victim]):
        assert f"{victim.http_address} cannot be scraped" in prometheus.summaries()
        assert all("<no value>" not in summary for summary in prometheus.summaries())


@pytest.mark.req("O5")
def test_alerts_fire_while_a_majority_of_voters_is_down_and_clear(watched: Watched) -> None:
    expected = {("raftctl", "NoActiveController"), ("raftctl", "QuorumWithoutLeader")}
    with firing(watched, expected, watched.cluster.layout.controllers[:2]):
        pass


@contextlib.contextmanager
def firing(
    watched: Watched, expected: set[tuple[str, str]], victims: Sequence[LocalNode]
) -> Iterator[None]:
    """Kills nodes until alerts fire, then starts them until the alerts have cleared."""
    cluster, prometheus = watched.cluster, watched.prometheus
    wait_until(lambda: not expected & prometheus.firing(), "no alert before the fault", DATA_S)
    for victim in victims:
        cluster.kill(victim)
    wait_until(
        lambda: expected <= prometheus.firing(),
        lambda: f"{expected - prometheus.firing()} fire",
        FIRES_S,
    )
    yield
    for victim in victims:
        cluster.start(victim)
    wait_until(
        lambda: not expected & prometheus.firing(),
        lambda: f"{expected & prometheus.firing()} clear",
        FIRES_S,
    )
