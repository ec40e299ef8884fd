"""Brokers found by entry point and run by nodes: the how-to page's example, and `memory`."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.localcluster.processes import start_node
from raftctl.plugins import BROKER_GROUP
from tests.integration.clusters import running_cluster, wait_healthy, wait_until
from tests.integration.kafka_clients import CLIENTS, Record
from tests.kit import example_broker
from tests.kit.example_broker import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TIMEOUT_S = 30
VALUES = [b"%d" % number for number in range(300)]
RECORDS = [Record(value, partition=number % 3) for number, value in enumerate(VALUES)]


def _install(directory: Path, package: str, brokers: Mapping[str, str]) -> None:
    """Lays a distribution with these plug-ins out as an installed one."""
    metadata = directory / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {target}\n" for name, target in brokers.items()]
    (metadata / "entry_points.txt").write_text("".join([f"[{BROKER_GROUP}]\n", *lines]))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nodes look for packages first. It has the plug-ins of this tree, which may be newer
    than what was installed when the environment was made, and the example.
    """
    directory = tmp_path / "packages"
    directory.mkdir()
    _install(
        directory, "raftctl", example_broker.entry_points((ROOT / "pyproject.toml").read_text())
    )
    (directory / f"{example_broker.MODULE}.py").write_text(example_broker.code())
    _install(directory, "quiet-broker", example_broker.brokers())
    monkeypatch.syspath_prepend(str(directory))
    earlier = [path for path in [os.environ.get("PYTHONPATH")] if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(directory), *earlier]))
    return directory


@pytest.mark.req("P1", "P2")
@pytest.mark.usefixtures("packages")
def test_the_example_broker_registers_and_sees_its_partitions(tmp_path: Path) -> None:
    spec = ClusterSpec(1, 1, overrides={"broker.plugin": "quiet"})
    cluster = LocalCluster.open(tmp_path / "cluster", spec, random_uuid_text, format_storage)
    try:
        cluster.start_all()
        # It answers no client, which is nothing to wait for.
        assert cluster.wait_ready(TIMEOUT_S, lambda _: None).active_brokers == [1]
        assert cluster.is_healthy()
    finally:
        late = cluster.stop_all()
    log = cluster.log_path(cluster.layout.brokers[0]).read_text().splitlines()
    told = [json.loads(line) for line in log if '"event": "leads"' in line]
    assert told[-1]["partitions"] == 0
    assert told[-1]["offset"] > 0
    assert late == []


@pytest.mark.req("P2")
@pytest.mark.usefixtures("packages")
def test_memory_serves_clients_and_groups_and_leaves_nothing_on_disk(tmp_path: Path) -> None:
    overrides = {"broker.plugin": "memory", "group.initial.rebalance.delay.ms": "0"}
    with running_cluster(tmp_path / "cluster", 1, 2, overrides, start_node) as cluster:
        bootstrap = cluster.layout.bootstrap
        _create(bootstrap, "t", partitions=3, replicas=2)
        CLIENTS[0].write(bootstrap, "t", RECORDS)
        assert _read_as_group(bootstrap, "g", "t") == sorted(VALUES)
        again = cluster.layout.brokers[0]
        cluster.kill(again)
        cluster.start(again)
        wait_healthy(cluster)  # it has copied from the other what it lost
        cluster.stop(cluster.layout.brokers[1])
        read = CLIENTS[0].read(again.address, "t", 3)
        assert [len(partition.records) for partition in read] == [100, 100, 100]
        kept = {path.name for path in (tmp_path / "cluster").rglob("*") if path.is_dir()}
    assert not {name for name in kept if name.startswith(("t-", "__consumer_offsets-"))}
    assert not list((tmp_path / "cluster").rglob("broker-*/**/*-checkpoint"))


@pytest.mark.req("P2")
@pytest.mark.usefixtures("packages")
def test_memory_that_is_full_ends_the_broker_and_says_what_to_do(tmp_path: Path) -> None:
    overrides = {"broker.plugin": "memory", "broker.memory.max.bytes": str(1 << 20)}
    with running_cluster(tmp_path / "cluster", 1, 1, overrides, start_node) as cluster:
        broker = cluster.layout.brokers[0]
        _create(cluster.layout.bootstrap, "t", partitions=1, replicas=1)
        # Not all of it is acknowledged: the last request finds the broker gone.
        settings = {"bootstrap.servers": cluster.layout.bootstrap, "message.timeout.ms": 1000}
        producer = confluent_kafka.Producer(settings)
        for _ in range(4):
            producer.produce("t", os.urandom(400_000))
        producer.flush(TIMEOUT_S)
        wait_until(lambda: not cluster.is_running(broker), "the broker to end")
        told = cluster.log_path(broker).read_text()
    assert "raise broker.memory.max.bytes, or let retention delete sooner" in told
    assert "repair the disk" not in told


def _create(bootstrap: str, topic: str, *, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(topic, partitions, replicas)]).values():
        done.result(TIMEOUT_S)


def _read_as_group(bootstrap: str, group: str, topic: str) -> list[bytes]:
    """What a member of the group reads and commits, sorted."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(values) < len(VALUES):
        assert time.monotonic() < deadline_s, f"{len(values)} records were read"
        values += [message.value() or b"" for message in consumer.consume(100, timeout=0.2)]
    consumer.commit(asynchronous=False)
    assigned = consumer.assignment()
    committed = consumer.committed(assigned, timeout=TIMEOUT_S)
    assert [one.offset for one in committed] == [100, 100, 100]
    consumer.close()
    return sorted(values)
