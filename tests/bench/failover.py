"""Kill -9 of the active controller and of a partition leader: how long until things go on."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from raftctl.localcluster.layout import LOCAL_TIMEOUTS
from tests.bench.cluster import create_topic, local_cluster, wait_in_sync
from tests.bench.figures import figure

if TYPE_CHECKING:
    from raftctl.localcluster.cluster import LocalCluster

TOPIC = "failover"
WRITE_EVERY_S = 0.005
SETTLE_S = 1.0


def run(turns: int) -> dict[str, Any]:
    """Seconds from the kill to the next metadata commit, and to the next acknowledged write."""
    controller, leader = [], []
    with local_cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap, "log_level": 2})
        create_topic(admin, TOPIC, 1)
        for turn in range(turns):
            controller.append(_kill_controller(cluster, admin, f"after-{turn}"))
            wait_in_sync(cluster)
        for _ in range(turns):
            leader.append(_kill_leader(cluster, admin))
            wait_in_sync(cluster)
    session_s = int(LOCAL_TIMEOUTS["broker.session.timeout.ms"]) / 1000
    return {
        "controller_kill_to_next_commit": figure(controller, "s", "goal: at most 2"),
        "leader_kill_to_next_write": figure(leader, "s", f"goal: at most {session_s + 2}"),
    }


def _kill_controller(cluster: LocalCluster, admin: AdminClient, topic: str) -> float:
    active = cluster.status().leader
    if active is None:
        raise RuntimeError("no controller leads")
    node = cluster.layout.node(active["node_id"])
    cluster.kill(node)
    began = time.perf_counter()
    create_topic(admin, topic, 1)
    elapsed = time.perf_counter() - began
    cluster.start(node)
    return elapsed


def _kill_leader(cluster: LocalCluster, admin: AdminClient) -> float:
    metadata = admin.list_topics(TOPIC, timeout=10)
    node = cluster.layout.node(metadata.topics[TOPIC].partitions[0].leader)
    writer = SteadyWriter(cluster.layout.bootstrap, TOPIC)
    time.sleep(SETTLE_S)
    cluster.kill(node)
    killed = time.perf_counter()
    resumed = writer.next_given_after(killed)
    writer.stop()
    cluster.start(node)
    return resumed - killed


class SteadyWriter:
    """Writes a small record every few milliseconds from a thread, with acks=all."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 2}
        )
        self._acknowledged: list[tuple[float, float]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def next_given_after(self, moment: float, timeout_s: float = 60) -> float:
        """When the first record given after `moment` was acknowledged."""
        while time.perf_counter() < moment + timeout_s:
            for given, acknowledged in list(self._acknowledged):
                if given > moment:
                    return acknowledged
            time.sleep(0.002)
        raise TimeoutError("writes did not resume")

    def stop(self) -> None:
        """Ends the thread and waits for what is under way."""
        self._stopping.set()
        self._thread.join()
        self._producer.flush(30)

    def _run(self) -> None:
        while not self._stopping.is_set():
            delivered = partial(self._delivered, time.perf_counter())
            self._producer.produce(self._topic, b"x" * 100, callback=delivered)
            self._producer.poll(WRITE_EVERY_S)

    def _delivered(self, given: float, error: Any, _message: Any) -> None:
        if error is None:
            self._acknowledged.append((given, time.perf_counter()))
