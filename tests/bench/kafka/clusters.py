"""Two clusters of three controllers and three brokers on one machine, ours and Apache Kafka's.

Both get the same files of properties, so the same timeouts; what neither file says is each one's
default. Apache Kafka runs with the options of its own start script, a heap of 1 GiB among them.
"""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.localcluster.processes import start_node, start_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.config import NodeConfig
    from raftctl.localcluster.cluster import FormatStorage, Launcher
    from raftctl.localcluster.layout import LocalNode
    from raftctl.localcluster.processes import ProcessRef

SPEC = ClusterSpec(controllers=3, brokers=3)
REPLICAS = 3
READY_S = 180.0
POLL_S = 0.02
HOSTED_S, HOSTED_POLL_S = 900.0, 0.2
"""For what costs more to look at."""
AT_ONCE = 5000
"""Partitions; Apache Kafka refuses a topic for which it would have to write 10,001 records."""
QUICK_RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
POM = Path(__file__).parent / "pom.xml"
JAVA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
QUICK_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For what is not measured."""


def missing() -> str:
    """What has to be installed before Apache Kafka can be measured; empty if nothing."""
    lacks = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return " and ".join(lacks)


def kafka_jars(version: str, cache: Path) -> Path:
    """A folder with the server's jars, from Maven Central if they are not there yet."""
    folder = cache / f"kafka-{version}"
    done = folder / ".complete"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        maven = ["mvn", "-q", "-B", "-f", str(POM), f"-Dkafka.version={version}", *copy]
        outcome = subprocess.run(maven, capture_output=True, text=True, timeout=600)
        if outcome.returncode:
            raise SystemExit(f"no Apache Kafka {version} on Maven Central:\n{outcome.stdout}")
        done.touch()
    return folder


@dataclass(frozen=True, slots=True)
class Entrance:
    """How clients get into a cluster."""

    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of librdkafka besides the addresses."""
    command_config: Path | None = None
    """The same for `--command-config`; None: as to a listener without protection."""


class Cluster:
    """One of the two. What is measured of it is seen by clients or by the operating system."""

    def __init__(
        self,
        name: str,
        directory: Path,
        launch: Launcher,
        format_node: FormatStorage,
        spec: ClusterSpec = SPEC,
        start_all: Callable[[LocalCluster], object] | None = None,
    ) -> None:
        """`launch` starts one node, `start_all` all of them if there is a quicker way."""
        self.name = name
        self.entrance = Entrance()
        self._start_all = start_all or LocalCluster.start_all
        self._nodes = LocalCluster.open(directory, spec, random_uuid_text, format_node, launch)
        self.directory = directory
        self.bootstrap = self._nodes.layout.bootstrap

    def entered(self, name: str, bootstrap: str, entrance: Entrance) -> Cluster:
        """The same nodes, by another of their listeners, under a name of its own."""
        other = copy.copy(self)
        other.name, other.bootstrap, other.entrance = name, bootstrap, entrance
        return other

    def start(self) -> None:
        """Starts all nodes at once; `wait_usable` says when they serve."""
        self._start_all(self._nodes)

    def stop(self) -> None:
        """Kills all nodes."""
        self._nodes.kill_all()

    def admin(self) -> AdminClient:
        """A client that comes back quickly to a broker that was away."""
        where = {"bootstrap.servers": self.bootstrap, **self.entrance.client}
        return AdminClient({**where, "log_level": 0, **QUICK_RECONNECT})

    def kill_broker(self, node_id: int) -> None:
        """As a crash would."""
        self._nodes.kill(self._broker(node_id))

    def start_broker(self, node_id: int) -> None:
        """With what it has on disk."""
        self._nodes.start(self._broker(node_id))

    def broker_processes(self) -> list[psutil.Process]:
        """Of all brokers that run."""
        found = [self._nodes.process(broker) for broker in self._nodes.layout.brokers]
        return [psutil.Process(one.pid) for one in found if one is not None and one.is_alive()]

    def broker_cpu_seconds(self) -> float:
        """Used by all brokers since they were started."""
        times = [process.cpu_times() for process in self.broker_processes()]
        return sum(one.user + one.system for one in times)

    def wait_usable(self) -> None:
        """Until a client sees all brokers."""
        admin = self.admin()
        _poll(
            lambda: _broker_count(admin) == len(self._nodes.layout.brokers),
            f"{self.name} does not become ready",
        )

    def create_topic(self, admin: AdminClient, topic: str, partitions: int, **configs: str) -> None:
        """Creates it, again and again until there are brokers enough, and waits for leaders."""
        config = {"min.insync.replicas": "2", **configs}
        new = NewTopic(topic, min(partitions, AT_ONCE), REPLICAS, config=config)
        _poll(lambda: _created(admin, new), f"{self.name} does not create {topic}")
        self.wait_isr(admin, topic)
        for total in range(2 * AT_ONCE, partitions + 1, AT_ONCE):
            admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)
            self.wait_isr(admin, topic)

    def wait_isr(self, admin: AdminClient, topic: str, replicas: int = REPLICAS) -> None:
        """Until every partition has a leader and so many replicas in sync."""

        def complete() -> bool:
            partitions = _partitions(admin, topic)
            return bool(partitions) and all(
                one.leader >= 0 and len(one.isrs) == replicas for one in partitions.values()
            )

        _poll(complete, f"{self.name}: {topic} has not {replicas} replicas in sync")

    def wait_hosted(self, topic: str, partitions: int) -> None:
        """Until every broker has made the logs of all its replicas."""
        logs = f"broker-*/data/{topic}-*"
        _poll(
            lambda: sum(1 for _ in self.directory.glob(logs)) == partitions * REPLICAS,
            f"{self.name}: the logs of {topic} are not complete",
            every_s=HOSTED_POLL_S,
            within_s=HOSTED_S,
        )

    def leader(self, admin: AdminClient, topic: str) -> int:
        """The broker that leads partition 0."""
        return int(_partitions(admin, topic)[0].leader)

    def wait_leader(self, admin: AdminClient, topic: str, *, other_than: int) -> float:
        """When (`time.perf_counter`) another broker was named as the leader of partition 0."""

        def is_named() -> bool:
            found = _partitions(admin, topic)
            return bool(found) and found[0].leader not in (-1, other_than)

        _poll(is_named, f"{self.name}: nobody else leads {topic}")
        return time.perf_counter()

    def evict(self, topic: str) -> int:
        """Takes the topic's segments out of the page cache; their bytes on all brokers."""
        size = 0
        for path in self.directory.glob(f"broker-*/data/{topic}-*/*.log"):
            descriptor = os.open(path, os.O_RDWR)
            try:
                # Only clean pages can be dropped.
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                size += os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
        return size

    def broker_read_bytes(self) -> int:
        """From the disk, by all brokers since they were started."""
        return sum(process.io_counters().read_bytes for process in self.broker_processes())

    def _broker(self, node_id: int) -> LocalNode:
        return self._nodes.layout.node(node_id)


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes clusters of one kind."""

    name: str
    make: Callable[[Path], Cluster]
    """Formats one in a new directory; it is not started."""


def makers(jars: Path | None, spec: ClusterSpec = SPEC) -> list[Maker]:
    """Ours, and Apache Kafka's if there are its jars."""
    ours = Maker("raftctl", partial(raftctl_cluster, spec=spec))
    if jars is None:
        return [ours]
    return [ours, Maker("kafka", partial(kafka_cluster, jars=jars, spec=spec))]


def raftctl_cluster(directory: Path, spec: ClusterSpec = SPEC) -> Cluster:
    """Ours, formatted but not started."""
    return Cluster("raftctl", directory, start_node, format_storage, spec, start_all=_up)


def _up(nodes: LocalCluster) -> None:
    """As users do; the nodes then share what one process has imported."""
    up = [sys.executable, "-m", "raftctl", "up", "--dir", str(nodes.directory)]
    subprocess.run(up, check=True, capture_output=True, timeout=READY_S)


def start_kafka(jars: Path, java: Sequence[str], properties: Path, log: Path) -> ProcessRef:
    """Starts a node of Apache Kafka with those options of Java."""
    return start_program(["java", *java, "-cp", f"{jars}/*", "kafka.Kafka", str(properties)], log)


def kafka_cluster(
    directory: Path, jars: Path, spec: ClusterSpec = SPEC, java: Sequence[str] = JAVA_OPTIONS
) -> Cluster:
    """Apache Kafka's, formatted but not started."""
    options: dict[int, list[str]] = {}

    def note(config: NodeConfig, cluster_id: str, voters: str | None) -> None:
        first = [] if voters is None else ["--initial-controllers", voters]
        options[config.node_id] = ["--cluster-id", cluster_id, *first]

    cluster = Cluster("kafka", directory, partial(start_kafka, jars, java), note, spec)
    for properties in sorted(directory.glob("*/node.properties")):
        tool = ["java", *QUICK_JAVA, "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"]
        node_id = int(properties.parent.name.rpartition("-")[2])
        arguments = [*options[node_id], "--config", str(properties)]
        subprocess.run([*tool, *arguments], check=True, capture_output=True, timeout=120)
    return cluster


def _poll(
    is_so: Callable[[], bool], complaint: str, every_s: float = POLL_S, within_s: float = READY_S
) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(every_s)


def _broker_count(admin: AdminClient) -> int:
    try:
        return len(admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return 0


def _partitions(admin: AdminClient, topic: str) -> dict[int, Any]:
    try:
        found = admin.list_topics(topic, timeout=5).topics[topic]
    except KafkaException:
        return {}
    return found.partitions if found.error is None else {}


def _created(admin: AdminClient, new: NewTopic) -> bool:
    futures = admin.create_topics([new], operation_timeout=30, request_timeout=5)
    try:
        futures[new.topic].result(30)
    except KafkaException as error:
        return bool(error.args[0].name() == "TOPIC_ALREADY_EXISTS")
    return True
