"""One running cluster for all peers, and one of Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from raftctl.localcluster.cluster import ClusterSpec
from tests.bench.kafka.clusters import kafka_cluster, kafka_jars
from tests.integration.clusters import ANY_TIMESTAMP, running_cluster
from tests.peers.differential.systems import ours_listening
from tests.peers.jvm import running_jvm
from tests.peers.protected_node import Entrance, Place, settings, write_files
from tests.peers.secured.cluster import secured_cluster
from tests.peers.tools import CACHE, KAFKA_VERSION, installing, need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.localcluster.cluster import LocalCluster
    from tests.peers.secured.cluster import SecuredCluster


# No broker shall be fenced, and its partitions without a leader, because the machine is busy.
SPEC = ClusterSpec(
    controllers=1,
    brokers=1,
    overrides={
        "broker.session.timeout.ms": "60000",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    },
)


QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
}
"""Groups wait for nobody who may come, and not for long for members that were killed."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """3 controllers and 3 brokers, as real processes."""
    directory = tmp_path_factory.mktemp("nodes") / "cluster"
    with running_cluster(directory, overrides={**ANY_TIMESTAMP, **QUICK_GROUPS}) as running:
        yield running


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """One controller and two brokers with TLS, logins and rules.

    Tests that use it are of one `xdist_group`, so that it is started once.
    """
    with secured_cluster(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def bootstrap(cluster: LocalCluster) -> str:
    """What clients take as their bootstrap servers."""
    return cluster.layout.bootstrap


@pytest.fixture
def new_topic(bootstrap: str) -> Callable[[str, int], str]:
    """Makes a topic of three replicas, two of which must be in sync, and returns its name."""

    def make(name: str, partitions: int = 1) -> str:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[name].result(30)
        return name

    return make


@pytest.fixture(scope="session")
def java_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One node with protected listeners, and one virtual machine with the clients and tools.

    Tests that use it are of one `xdist_group`, so that it is started once.
    """
    folder = tmp_path_factory.mktemp("secured")
    with running_jvm(folder / "jvm.log", folder / "token.jwt") as jvm:
        write_files(jvm, folder)
        with ours_listening(folder, settings(folder)) as systems:
            yield Place(jvm, Entrance(systems, folder))


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of one controller and one broker of Apache Kafka.

    Tests that use it are of one `xdist_group`, so that it is started once.
    """
    need("java", "mvn")
    with installing():
        jars = kafka_jars(KAFKA_VERSION, CACHE)
    cluster = kafka_cluster(tmp_path_factory.mktemp("kafka") / "nodes", jars, SPEC)
    try:
        cluster.start()
        cluster.wait_usable()
        yield cluster.bootstrap
    finally:
        cluster.stop()
