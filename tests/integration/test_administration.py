"""Administration of a cluster of real processes: partitions move while clients write."""

from __future__ import annotations

import importlib
import json
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.clusters import wait_healthy, wait_until
from tests.integration.commands import raftctl
from tests.integration.kafka_clients import CLIENTS, Record

if TYPE_CHECKING:
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

TIMEOUT_S = 60


def create(bootstrap: str, name: str, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        done.result(TIMEOUT_S)


def partitions_of(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    command = ("topics", "describe", topic, "--bootstrap-server", bootstrap, "--output", "json")
    found: list[dict[str, Any]] = raftctl(*command).document["partitions"]
    return found


@pytest.mark.req("C7", "C5")
def test_partitions_move_to_another_broker_and_keep_every_record(
    cluster: LocalCluster, bootstrap: str, tmp_path: Path
) -> None:
    create(bootstrap, "moved", 3, 2)
    client = CLIENTS[0]
    before = [Record(b"%d" % number, partition=number % 3) for number in range(300)]
    client.write(bootstrap, "moved", before)
    ids = sorted(node.node_id for node in cluster.layout.brokers)
    wanted = []
    for one in partitions_of(bootstrap, "moved"):
        (absent,) = [broker_id for broker_id in ids if broker_id not in one["replicas"]]
        kept = one["replicas"][0]
        wanted.append({"topic": "moved", "partition": one["partition"], "replicas": [absent, kept]})
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    command = (
        "reassign-partitions",
        "--reassignment-json-file",
        str(plan),
        "--bootstrap-server",
        bootstrap,
    )
    assert raftctl(*command, "--execute").status == 0
    after = [Record(b"%d" % number, partition=number % 3) for number in range(300, 600)]
    client.write(bootstrap, "moved", after)
    wait_until(lambda: raftctl(*command, "--verify").status == 0, "the plan is done", TIMEOUT_S)
    found = partitions_of(bootstrap, "moved")
    assert [one["replicas"] for one in found] == [one["replicas"] for one in wanted]
    elect = ("elect-leaders", "--all-topic-partitions", "--bootstrap-server", bootstrap)
    assert raftctl(*elect).status == 0
    found = partitions_of(bootstrap, "moved")
    assert [one["leader"] for one in found] == [one["replicas"][0] for one in wanted]
    for number, partition in enumerate(client.read(bootstrap, "moved", 3)):
        assert partition.records == [*before[number::3], *after[number::3]]
    wait_healthy(cluster)


@pytest.mark.req("C14", "A1")
def test_log_directories_are_described(cluster: LocalCluster, bootstrap: str) -> None:
    create(bootstrap, "described", 4, 1)
    CLIENTS[0].write(bootstrap, "described", [Record(b"x" * 1000, partition=0)])
    ids = sorted(node.node_id for node in cluster.layout.brokers)

    def there() -> bool:
        command = ("brokers", "log-dirs", "--bootstrap-server", bootstrap, "--output", "json")
        found = raftctl(*command).document
        assert [one["broker_id"] for one in found] == ids
        assert all(one["error"] is None and one["free"] > 0 for one in found)
        return sum(one["replicas"] for one in found) >= 4 and any(
            one["bytes"] >= 1000 for one in found
        )

    wait_until(there, "the log directories hold the topic", TIMEOUT_S)


@pytest.mark.req("C9", "C3")
def test_configs_take_effect_on_every_broker(bootstrap: str) -> None:
    create(bootstrap, "configured", 3, 3)
    client = CLIENTS[0]
    large = [Record(b"x" * 5_000, partition=number) for number in range(3)]
    client.write(bootstrap, "configured", large)
    server = ("--bootstrap-server", bootstrap)
    topic = ("--entity-type", "topic", "--entity-name", "configured")
    changed = raftctl("configs", "alter", *topic, "--set", "max.message.bytes=1000", *server)
    assert changed.status == 0, changed

    def refused(partition: int) -> bool:
        try:
            client.write(bootstrap, "configured", [Record(b"x" * 5_000, partition=partition)])
        except KafkaException as error:
            return "MSG_SIZE_TOO_LARGE" in str(error)
        return False

    for partition in range(3):
        wait_until(partial(refused, partition), f"{partition} refuses", TIMEOUT_S)
    grown = raftctl("topics", "alter", "configured", "--partitions", "4", *server)
    assert grown.status == 0, grown
    assert client.write(bootstrap, "configured", [Record(b"small", partition=3)]) == [0]


@pytest.mark.req("C9")
def test_what_is_set_for_all_brokers_takes_effect_on_each(bootstrap: str) -> None:
    create(bootstrap, "defaulted", 3, 3)
    client = CLIENTS[0]
    every = ("configs", "alter", "--entity-type", "brokers", "--entity-default")
    server = ("--bootstrap-server", bootstrap)

    def takes(partition: int) -> bool:
        try:
            client.write(bootstrap, "defaulted", [Record(b"x" * 5_000, partition=partition)])
        except KafkaException as error:
            return "MSG_SIZE_TOO_LARGE" not in str(error)
        return True

    def refuses(partition: int) -> bool:
        return not takes(partition)

    assert raftctl(*every, "--set", "message.max.bytes=1000", *server).status == 0
    try:
        for partition in range(3):
            wait_until(partial(refuses, partition), f"{partition} refuses", TIMEOUT_S)
    finally:
        assert raftctl(*every, "--delete", "message.max.bytes", *server).status == 0
    for partition in range(3):
        wait_until(partial(takes, partition), f"{partition} takes it again", TIMEOUT_S)


@pytest.mark.req("Q5", "N1")
def test_the_quorum_is_described_over_the_kafka_protocol(
    cluster: LocalCluster, bootstrap: str
) -> None:
    with warnings.catch_warnings():
        # It reads its schemas in a way that Python 3.11 deprecates.
        warnings.simplefilter("ignore")
        admin = importlib.import_module("kafka.admin").KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            quorum = admin.describe_metadata_quorum()
        finally:
            admin.close()
    (partition,) = quorum["topics"][0]["partitions"]
    voters = sorted(one["replica_id"] for one in partition["current_voters"])
    assert voters == sorted(node.node_id for node in cluster.layout.controllers)
    assert partition["leader_id"] in voters
    assert all(one["log_end_offset"] > 0 for one in partition["current_voters"])
    observers = sorted(one["replica_id"] for one in partition["observers"])
    assert observers == sorted(node.node_id for node in cluster.layout.brokers)
