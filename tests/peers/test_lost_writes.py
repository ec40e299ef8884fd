"""What Apache Kafka does not promise: the harness finds the writes that it loses then."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from tests.integration.clusters import wait_until
from tests.peers import control
from tests.peers.tools import INSTALL_TIMEOUT_S, need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
pytestmark = [
    pytest.mark.req("J5", "J9"),
    pytest.mark.timeout(INSTALL_TIMEOUT_S + 300),
    pytest.mark.xdist_group("apache_kafka"),
]
SPEC = ClusterSpec(
    controllers=1,
    brokers=3,
    overrides={
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    },
)
LATE_S = 60.0
SOME = 5
"""Writes that only their leader has."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One controller and three brokers of Apache Kafka."""
    need("java", "mvn")
    directory = tmp_path_factory.mktemp("kafka") / "nodes"
    try:
        control.up(directory, SPEC)
        yield control.opened(directory)
    finally:
        control.opened(directory).kill_all()


class Watched:
    """A partition whose leader a test takes away while the harness writes to it."""

    def __init__(self, kafka: LocalCluster, topic: str, replicas: int, **configs: str) -> None:
        self._kafka = kafka
        self.topic = topic
        self._admin = AdminClient({"bootstrap.servers": kafka.layout.bootstrap, "log_level": 0})
        new = NewTopic(topic, 1, replicas, config=configs)
        self._admin.create_topics([new])[topic].result(30)

    def partition(self) -> Any:
        """As a broker says it is, once that broker knows it."""
        found: list[Any] = []

        def is_known() -> bool:
            topic = self._admin.list_topics(self.topic, timeout=LATE_S).topics[self.topic]
            found[:] = topic.partitions.values()
            return bool(found)

        wait_until(is_known, f"nobody knows {self.topic}", LATE_S)
        return found[0]

    def new_leader(self, last: int) -> int:
        """Waits until that broker does not lead any more; who does, or -1."""
        wait_until(lambda: self.partition().leader != last, f"broker {last} leads on", LATE_S)
        return int(self.partition().leader)

    def wait_in_sync(self, replicas: int) -> None:
        """Until so many are."""
        wait_until(
            lambda: len(self.partition().isrs) == replicas,
            lambda: f"{replicas} in sync: {self.partition().isrs}",
            LATE_S,
        )

    def do(self, what: str, *brokers: int) -> None:
        """See `tests.peers.control.do`."""
        for broker in brokers:
            control.do(self._kafka, what, self._kafka.layout.node(broker).name)


class Harness:
    """`jepsen test queue` on a topic, until it is told to judge."""

    def __init__(self, bootstrap: str, topic: str, store: Path, *words: str) -> None:
        command = [sys.executable, "-m", "jepsen.cli.main", "test", "queue", "--env", "external"]
        where = ["--bootstrap-servers", bootstrap, "--topic", topic, "--keys", "1"]
        # The topic is there. Of the brokers one may just have been started again.
        where += ["--replication", "1"]
        shape = ["--time-limit", "600", "--rate", "40", "--concurrency", "4"]
        kept = ["--store", str(store), "--output", "json"]
        self._history = store / "current" / "history.jsonl"
        self._process = subprocess.Popen(
            [*command, *where, *shape, *kept, *words], stdout=subprocess.PIPE, text=True
        )

    def wait_written(self, count: int) -> None:
        """Until so many sends have begun from now on and succeeded."""
        begun = len(self._lines())
        wait_until(
            lambda: self._written(begun) >= count,
            lambda: f"{count} writes: {self._lines()[begun:]}",
            LATE_S,
        )

    def _written(self, since: int) -> int:
        begun, written = set(), 0
        for op in self._lines()[since:]:
            if op["f"] == "send" and op["type"] == "invoke":
                begun.add(op["process"])
            elif op["f"] == "send" and op["type"] == "ok":
                written += op["process"] in begun
        return written

    def _lines(self) -> list[dict[str, Any]]:
        if not self._history.exists():
            return []
        lines = self._history.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def judged(self) -> list[str]:
        """Ends the test; the anomalies found."""
        self._process.send_signal(signal.SIGINT)
        told, _ = self._process.communicate(timeout=2 * LATE_S)
        assert self._process.returncode == 1, told
        return [one["name"] for one in json.loads(told)["checkers"]["kafka"]["anomalies"]]

    def kill(self) -> None:
        """If it runs still."""
        self._process.kill()
        self._process.wait()


def test_what_only_a_killed_leader_acknowledged_is_lost(
    kafka: LocalCluster, tmp_path: Path
) -> None:
    partition = Watched(kafka, "acks-1", replicas=3)
    harness = Harness(kafka.layout.bootstrap, partition.topic, tmp_path, "--acks", "1")
    try:
        _kill_who_alone_knows(partition, harness)
        harness.wait_written(2 * SOME)
        assert "lost-write" in harness.judged()
    finally:
        harness.kill()


def _kill_who_alone_knows(partition: Watched, harness: Harness) -> None:
    """Tried again if the followers stood still so long that they are in sync no more."""
    followers: list[int] = []
    leader = -1
    while leader not in followers:
        partition.wait_in_sync(3)
        last = partition.partition().leader
        followers = [one for one in partition.partition().replicas if one != last]
        harness.wait_written(1)
        partition.do("pause", *followers)
        harness.wait_written(SOME)
        partition.do("kill", last)
        partition.do("resume", *followers)
        leader = partition.new_leader(last)
        partition.do("start", last)


def test_an_unclean_election_loses_what_the_replica_in_sync_acknowledged(
    kafka: LocalCluster, tmp_path: Path
) -> None:
    unclean = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    partition = Watched(kafka, "unclean", replicas=2, **unclean)
    harness = Harness(kafka.layout.bootstrap, partition.topic, tmp_path)
    try:
        harness.wait_written(1)
        leader = partition.partition().leader
        (follower,) = (one for one in partition.partition().replicas if one != leader)
        partition.do("kill", follower)
        partition.wait_in_sync(1)
        harness.wait_written(SOME)
        partition.do("kill", leader)
        partition.do("start", follower)
        wait_until(
            lambda: partition.partition().leader == follower, f"{follower} does not lead", LATE_S
        )
        partition.do("start", leader)
        harness.wait_written(2 * SOME)
        # Who has read a record before it was lost sees another one in its place.
        assert {"lost-write", "inconsistent-offsets"} & set(harness.judged())
    finally:
        partition.do("start", *partition.partition().replicas)
        harness.kill()
