"""Real processes started, killed and stopped: by `raftctl`, by signals, while clients write."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from raftctl.localcluster.processes import start_node, wait_gone
from tests.integration.clusters import (
    active_controller,
    processes_of,
    running_cluster,
    wait_healthy,
    wait_until,
)
from tests.integration.commands import ROOT, raftctl
from tests.integration.kafka_clients import CLIENTS, TIMEOUT_S, Confluent, Record, end_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.layout import LocalNode

SAMPLES = [Record(b"line %d" % number, key=b"key") for number in range(500)]


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Three replicas, two of which must have a record before it is acknowledged.

    The controller may end before it has answered: then the topic is there or not, and is looked at.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
    for done in admin.create_topics([new], request_timeout=TIMEOUT_S).values():
        try:
            done.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.REQUEST_TIMED_OUT:
                raise
            assert admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].error is None


def partition_of(cluster: LocalCluster, topic: str) -> Any:
    """The topic's partition 0: `leader`, `replicas`, `isrs`, as the brokers tell."""
    admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap})
    return admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions[0]


def leader_of(cluster: LocalCluster, topic: str) -> LocalNode:
    """The broker that leads partition 0 of the topic."""
    return cluster.layout.node(partition_of(cluster, topic).leader)


class SteadyWriter:
    """Writes numbered records to a partition from a thread, with acks=all, exactly once each."""

    def __init__(self, bootstrap: str, topic: str, partition: int = 0) -> None:
        self._topic = topic
        self._partition = partition
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
            }
        )
        self._times: dict[int, tuple[float, float]] = {}
        self._errors: list[Any] = []
        self._given = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextlib.contextmanager
    def writing(self) -> Iterator[SteadyWriter]:
        """Writes while inside; at the end everything given is acknowledged."""
        self._thread.start()
        try:
            self.wait_for_more(20)
            yield self
            self.wait_for_more(20)
        finally:
            self._stopping.set()
            self._thread.join()
            self._producer.flush(60)
        assert self._errors == []
        assert len(self._times) == self._given

    def wait_for_more(self, count: int) -> None:
        """Waits until that many records given from now on are acknowledged."""
        first = self._given
        wait_until(
            lambda: all(first + number in self._times for number in range(count)),
            f"records from {first} on to be acknowledged",
            timeout_s=60,
        )

    @property
    def written(self) -> list[bytes]:
        """What a reader must find, in order."""
        return [b"%d" % number for number in range(self._given)]

    @property
    def longest_wait_s(self) -> float:
        """The longest time from giving a record to its acknowledgement."""
        return max(acknowledged - given for given, acknowledged in self._times.values())

    def _run(self) -> None:
        while not self._stopping.is_set():
            delivered = partial(self._delivered, self._given, time.monotonic())
            self._producer.produce(
                self._topic,
                b"%d" % self._given,
                partition=self._partition,
                on_delivery=delivered,
            )
            self._given += 1
            self._producer.poll(0.005)

    def _delivered(self, number: int, given_s: float, error: Any, _message: Any) -> None:
        if error is not None:
            self._errors.append(error)
        else:
            self._times[number] = given_s, time.monotonic()


def values(bootstrap: str, topic: str, partition: int = 0) -> list[bytes | None]:
    """Everything in a partition, read with a client that did not write it."""
    found = CLIENTS[1].read(bootstrap, topic, partition + 1)[partition]
    assert found.offsets == list(range(len(found.offsets)))
    return [record.value for record in found.records]


# --- the command line -----------------------------------------------------------------------------


@pytest.mark.req("A1", "A2")
@pytest.mark.timeout(180)
def test_up_status_down_and_up_again_keeps_the_data(tmp_path: Path) -> None:
    to = ("--dir", str(tmp_path / "cluster"), "--output", "json")
    try:
        up = raftctl("up", "--controllers", "3", "--brokers", "3", *to)
        bootstrap = up.document["bootstrap_servers"]
        assert [node["role"] for node in up.document["nodes"]] == ["controller"] * 3 + [
            "broker"
        ] * 3
        assert "3 of 3 brokers are active" in up.stderr
        assert "/console/" in up.stderr
        assert len(processes_of(tmp_path)) == 6
        create(bootstrap, "kept")
        CLIENTS[0].write(bootstrap, "kept", SAMPLES)

        status = raftctl("status", *to).document
        assert status["has_leader"]
        assert [one["role"] for one in status["controllers"]].count("leader") == 1
        assert {broker["broker_id"]: broker["fenced"] for broker in status["brokers"]} == {
            1: False,
            2: False,
            3: False,
        }
        assert status["health"] == {
            "topics": 1,
            "partitions": 1,
            "offline_partitions": 0,
            "under_replicated_partitions": 0,
        }

        down = raftctl("down", *to).document
        assert (len(down["stopped"]), down["killed"]) == (6, [])
        assert processes_of(tmp_path) == []
        without = raftctl("status", *to)
        assert without.status == 1
        assert '"has_leader": false' in without.stdout

        again = raftctl("up", *to).document
        assert again == up.document
        for client in CLIENTS:
            assert client.read(bootstrap, "kept")[0].records == SAMPLES, client.name
        assert CLIENTS[1].write(bootstrap, "kept", SAMPLES[:1]) == [len(SAMPLES)]
    finally:
        raftctl("down", *to)
    assert processes_of(tmp_path) == []


@pytest.mark.req("A2")
@pytest.mark.timeout(120)
def test_nodes_started_by_hand_are_nodes_of_the_cluster(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", 1, 2) as cluster:
        to = ("--dir", str(cluster.directory), "--output", "json")
        broker = cluster.layout.node("broker-1")
        properties = cluster.log_path(broker).with_name("node.properties")
        cluster.kill(broker)
        stopped = raftctl("status", *to).document["stopped"]
        assert list(stopped) == ["broker-1"]
        assert stopped["broker-1"].startswith("killed: its log ends with ")
        start_node(properties, tmp_path / "by-hand.log")
        wait_until(lambda: raftctl("status", *to).document["stopped"] == {}, "broker-1 to be seen")
        wait_healthy(cluster)
        again = raftctl("start", "--config", str(properties))
        assert (again.status, again.stderr.count("\n")) == (2, 1)
        by_hand = cluster.process(broker)
        assert by_hand is not None
        assert f"is in use by another node (process {by_hand.pid}): " in again.stderr
        assert raftctl("up", *to).status == 0
        assert cluster.process(broker) == by_hand
        down = raftctl("down", *to).document
        assert down == {"stopped": ["controller-101", "broker-1", "broker-2"], "killed": []}
        assert processes_of(tmp_path) == []
        told = raftctl("status", "--dir", str(cluster.directory)).stdout
        assert f"broker-1 does not run: process {by_hand.pid}, started by hand, has ended" in told
        assert "controller-101 does not run: stopped as asked at 2" in told
        assert told.endswith(
            f"raftctl up --dir {cluster.directory} starts the nodes that do not run\n"
        )


@pytest.mark.req("A2")
@pytest.mark.timeout(180)
def test_an_interrupted_up_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "raftctl", "up", "--dir", str(tmp_path / "cluster")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as up:
        # More than its own: the nodes have been started, and are not ready yet.
        wait_until(lambda: len(processes_of(tmp_path)) > 3, "nodes to be started")
        up.send_signal(signal.SIGINT)
        _, told = up.communicate(timeout=30)
    assert up.returncode == 130
    assert "Traceback" not in told
    assert "the nodes that this command started are stopped again\n" in told
    assert processes_of(tmp_path) == []


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.req("R5", "T1")
@pytest.mark.timeout(180)
def test_killing_a_leader_while_writing_loses_and_repeats_nothing(cluster: LocalCluster) -> None:
    bootstrap = cluster.layout.bootstrap
    create(bootstrap, "killed")
    with SteadyWriter(bootstrap, "killed").writing() as writer:
        for _ in range(2):
            leader = leader_of(cluster, "killed")
            cluster.kill(leader)
            writer.wait_for_more(50)
            assert leader_of(cluster, "killed") != leader
            cluster.start(leader)
            wait_healthy(cluster)
    assert values(bootstrap, "killed") == writer.written


@pytest.mark.timeout(180)
def test_killing_the_active_controller_hurts_no_writer(cluster: LocalCluster) -> None:
    bootstrap = cluster.layout.bootstrap
    create(bootstrap, "undisturbed")
    with SteadyWriter(bootstrap, "undisturbed").writing() as writer:
        killed = active_controller(cluster)
        cluster.kill(killed)
        create(bootstrap, "made-after-the-kill")
        assert active_controller(cluster) != killed
        cluster.start(killed)
        wait_healthy(cluster)
    assert values(bootstrap, "undisturbed") == writer.written


@pytest.mark.timeout(180)
def test_killing_every_process_keeps_what_was_acknowledged(cluster: LocalCluster) -> None:
    bootstrap = cluster.layout.bootstrap
    create(bootstrap, "everything", 3)
    records = [Record(b"%d" % number, partition=number % 3) for number in range(3_000)]
    CLIENTS[0].write(bootstrap, "everything", records)
    cluster.kill_all()
    assert processes_of(cluster.directory) == []
    cluster.start_all()
    assert len(cluster.wait_ready(60, lambda _: None).active_brokers) == 3
    # Ready means that clients are served at once, by brokers registered since the crash.
    assert sorted(end_offsets(bootstrap, "everything", 3)) == [1_000] * 3
    for client in CLIENTS:
        found = client.read(bootstrap, "everything", 3)
        assert [one.records for one in found] == [records[0::3], records[1::3], records[2::3]]
    assert CLIENTS[2].write(bootstrap, "everything", records[:1]) == [1_000]


@pytest.mark.timeout(180)
def test_a_stopping_broker_hands_its_leaders_over_first(tmp_path: Path) -> None:
    # So long a session that only a hand-over, never a missed heartbeat, can move the leaders.
    patient = {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "60000"}
    with running_cluster(tmp_path / "cluster", 1, 3, patient) as cluster:
        bootstrap = cluster.layout.bootstrap
        create(bootstrap, "handed")
        leader = leader_of(cluster, "handed")
        with SteadyWriter(bootstrap, "handed").writing() as writer:
            process = cluster.process(leader)
            assert process is not None
            process.send(signal.SIGTERM)
            assert wait_gone([process], 20) == []
            now = partition_of(cluster, "handed")
            assert now.leader not in (leader.node_id, -1)
            assert leader.node_id not in now.isrs
            assert sorted(now.replicas) == [1, 2, 3]
            writer.wait_for_more(50)
            cluster.start(leader)
            wait_healthy(cluster)
        assert '"node_stopped"' in cluster.log_path(leader).read_text()
        assert values(bootstrap, "handed") == writer.written
        assert writer.longest_wait_s < 3


@pytest.mark.timeout(180)
def test_too_few_replicas_refuse_writes_until_they_are_back(cluster: LocalCluster) -> None:
    bootstrap = cluster.layout.bootstrap
    create(bootstrap, "refusing")
    leader = leader_of(cluster, "refusing")
    followers = [broker for broker in cluster.layout.brokers if broker != leader]
    for broker in followers:
        cluster.kill(broker)
    wait_until(lambda: partition_of(cluster, "refusing").isrs == [leader.node_id], "a short ISR")
    impatient = Producer(
        {"bootstrap.servers": leader.address, "acks": "all", "message.timeout.ms": 1_500}
    )
    errors: list[Any] = []
    impatient.produce("refusing", b"x", on_delivery=lambda error, _: errors.append(error))
    impatient.flush(TIMEOUT_S)
    assert [error is None for error in errors] == [False]
    for broker in followers:
        cluster.start(broker)
    wait_healthy(cluster)
    (offset,) = Confluent().write(bootstrap, "refusing", [Record(b"accepted")])
    assert values(bootstrap, "refusing")[offset] == b"accepted"


# --- the demo -------------------------------------------------------------------------------------


@pytest.mark.req("A2")
@pytest.mark.timeout(240)
def test_the_demo_loses_duplicates_and_reorders_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "demo"
    done = raftctl("demo", "--keep", str(kept), timeout_s=200)
    assert done.status == 0, done
    assert done.stdout.splitlines()[-1] == "valid: lost 0, duplicated 0, out of order 0"
    assert json.loads((kept / "latest" / "results.json").read_text())["faults"] == {"kill": 2}
    assert processes_of(kept) == []


@pytest.mark.req("A2")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("moment", ["controllers and", "last: kill: controller"])
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path, moment: str) -> None:
    command = [sys.executable, "-m", "raftctl", "demo", "--keep"]
    with subprocess.Popen(
        [*command, str(tmp_path / "demo")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        told: list[str] = []
        for line in demo.stdout:
            told.append(line)
            if moment in line:
                demo.send_signal(signal.SIGINT)
    assert demo.returncode == 130, "".join(told)
    assert "Traceback" not in "".join(told)
    assert any("interrupted" in line for line in told)
    assert processes_of(tmp_path) == []
