"""Apache Kafka's own tools, and so its Java clients, of two generations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.kafka.admin import admin_client
from tests.integration.clusters import wait_until
from tests.integration.commands import raftctl
from tests.integration.kafka_clients import CLIENTS, Record, end_offsets
from tests.kit.topics import create_topic
from tests.peers.programs import JavaTools
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.localcluster.cluster import LocalCluster

LINES = [f"line {number}: τί" for number in range(200)]

pytestmark = [pytest.mark.req("N1", "A3"), pytest.mark.timeout(INSTALL_TIMEOUT_S + 60)]


@pytest.fixture(scope="module", params=["4.1.0", "3.9.1"])
def java(request: pytest.FixtureRequest) -> JavaTools:
    return JavaTools(request.param)


def test_topics(java: JavaTools, bootstrap: str) -> None:
    name = f"java-topics-{java.version}"

    def topics(*arguments: str) -> str:
        return java("TopicCommand", "--bootstrap-server", bootstrap, *arguments)

    shape = ["--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=777"]
    assert f"Created topic {name}." in topics("--create", "--topic", name, *shape)
    described = topics("--describe", "--topic", name)
    assert "PartitionCount: 2" in described
    assert "ReplicationFactor: 3" in described
    assert "retention.ms=777" in described
    assert described.count("Leader: ") == 2
    assert name in topics("--list").splitlines()
    topics("--delete", "--topic", name)
    wait_until(lambda: name not in topics("--list").splitlines(), "the topic to be gone")


def test_console_producer_and_consumer(
    java: JavaTools, bootstrap: str, new_topic: Callable[[str], str]
) -> None:
    topic = new_topic(f"java-console-{java.version}")
    # In 3.9 this tool is not among these yet but in the core.
    if java.version.startswith("3."):
        CLIENTS[0].write(bootstrap, topic, [Record(line.encode(), b"key") for line in LINES])
    else:
        keyed = ["--property", "parse.key=true", "--compression-codec", "zstd"]
        text = "".join(f"key\t{line}\n" for line in LINES)
        to = ["--bootstrap-server", bootstrap, "--topic", topic]
        java("ConsoleProducer", *to, *keyed, stdin=text)
    printed = java(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0"),
        *("--offset", "0", "--max-messages", str(len(LINES)), "--timeout-ms", "20000"),
        *("--property", "print.key=true"),
    )
    assert printed.splitlines() == [f"key\t{line}" for line in LINES]
    found = CLIENTS[0].read(bootstrap, topic)[0].records
    assert [one.value for one in found] == [line.encode() for line in LINES]


def test_verifiable_producer_and_offsets(
    java: JavaTools, bootstrap: str, new_topic: Callable[[str, int], str]
) -> None:
    topic = new_topic(f"java-verifiable-{java.version}", 3)
    server = ["--bootstrap-server", bootstrap, "--topic", topic]
    printed = java("VerifiableProducer", *server, "--max-messages", "1000", "--acks", "-1")
    told = [json.loads(line) for line in printed.splitlines()]
    sent = {
        (one["partition"], one["offset"]): one["value"].encode()
        for one in told
        if one["name"] == "producer_send_success"
    }
    assert len(sent) == 1000
    ours = raftctl("verifiable-producer", *server, "--max-messages", "1")
    assert shapes(ours.stdout) == shapes(printed)
    sent |= {
        (one["partition"], one["offset"]): one["value"].encode()
        for one in map(json.loads, ours.stdout.splitlines())
        if one["name"] == "producer_send_success"
    }
    for client in CLIENTS:
        found = {
            (number, offset): record.value
            for number, partition in enumerate(client.read(bootstrap, topic, 3))
            for offset, record in zip(partition.offsets, partition.records, strict=True)
        }
        assert found == sent
    ends = [f"{topic}:{n}:{end}" for n, end in enumerate(end_offsets(bootstrap, topic, 3))]
    assert java("GetOffsetShell", *server, "--time", "-1").splitlines() == ends
    assert java("GetOffsetShell", *server, "--time", "-2").splitlines() == [
        f"{topic}:{number}:0" for number in range(3)
    ]


def shapes(printed: str) -> dict[str, dict[str, object]]:
    """The fields of each kind of event, with their types."""
    told = [json.loads(line) for line in printed.splitlines()]
    return {one["name"]: {field: shape(value) for field, value in one.items()} for one in told}


def shape(value: object) -> object:
    """The types of a value of JSON; a list is as its first."""
    if isinstance(value, list):
        return [shape(one) for one in value[:1]]
    if isinstance(value, dict):
        return {field: shape(one) for field, one in value.items()}
    return type(value)


def test_our_verifiable_consumer_tells_what_theirs_does(
    bootstrap: str, new_topic: Callable[[str], str]
) -> None:
    java, topic = JavaTools("4.1.0"), new_topic("java-verifiable-consumer")
    CLIENTS[0].write(bootstrap, topic, [Record(line.encode(), b"key") for line in LINES])
    place = ["--bootstrap-server", bootstrap, "--topic", topic, "--verbose"]
    place += ["--max-messages", "10"]
    theirs = java("VerifiableConsumer", *place, "--group-id", "theirs")
    ours = raftctl("verifiable-consumer", *place, "--group-id", "ours").stdout
    assert shapes(ours) == shapes(theirs)
    assert {"partitions_assigned", "record_data", "offsets_committed"} < set(shapes(ours))


@pytest.mark.req("G4")
def test_a_group_of_the_consumer_protocol(
    bootstrap: str, new_topic: Callable[[str, int], str]
) -> None:
    java, topic = JavaTools("4.1.0"), new_topic("java-kip-848", 2)
    CLIENTS[0].write(bootstrap, topic, [Record(line.encode(), b"key") for line in LINES])
    server, protocol = ["--bootstrap-server", bootstrap], "group.protocol=consumer"
    for group, subscription in (
        ("named", ["--topic", topic]),
        ("like", ["--include", "java-kip.*"]),
    ):
        printed = java(
            "consumer.ConsoleConsumer",
            *(*server, *subscription, "--group", group, "--from-beginning"),
            *("--max-messages", str(len(LINES)), "--timeout-ms", "30000"),
            *("--consumer-property", protocol),
            *("--consumer-property", "group.remote.assignor=range"),
        )
        assert sorted(printed.splitlines()) == sorted(LINES)
    groups = "consumer.group.ConsumerGroupCommand"
    described = java(groups, *server, "--describe", "--group", "named").splitlines()
    offsets = [int(row.split()[3]) for row in described if row.startswith("named ")]
    assert sum(offsets) == len(LINES)
    listed = java(groups, *server, "--list", "--type", "consumer").splitlines()
    assert {"named", "like"} <= {row.split()[0] for row in listed if row}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_producer_performance_with_every_codec(
    java: JavaTools, bootstrap: str, new_topic: Callable[[str], str], codec: str
) -> None:
    topic = new_topic(f"java-{codec}-{java.version}")
    printed = java(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "3000", "--record-size", "200"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}"),
        *("acks=all", "enable.idempotence=true", f"compression.type={codec}", "linger.ms=5"),
    )
    assert printed.splitlines()[-1].startswith("3000 records sent")
    found = CLIENTS[0].read(bootstrap, topic)[0]
    assert found.offsets == list(range(3000))
    assert {len(record.value or b"") for record in found.records} == {200}


@pytest.mark.req("T2", "T3")
def test_transactions(java: JavaTools, bootstrap: str) -> None:
    name = f"java-transactions-{java.version}"

    def transactions(*arguments: str) -> list[str]:
        told = java("TransactionsCommand", "--bootstrap-server", bootstrap, *arguments)
        return [line for line in told.splitlines() if name in line]

    create_topic(admin_client(bootstrap), name, 1, 3, {}, 30)
    shape = ["--num-records", "1500", "--record-size", "100", "--throughput", "1000"]
    often = ["--transactional-id", name, "--transaction-duration-ms", "20"]
    properties = ["--producer-props", f"bootstrap.servers={bootstrap}"]
    told = java("ProducerPerformance", "--topic", name, *shape, *often, *properties)
    assert "1500 records sent" in told
    wait_until(lambda: "CompleteCommit" in "".join(transactions("list")), "it is committed")
    (described,) = transactions("describe", "--transactional-id", name)
    assert "CompleteCommit" in described
    epoch = int(described.split()[3])
    # Clients of version 2 (KIP-890) end each transaction with the next epoch.
    assert epoch > 3 if java.version >= "4" else epoch == 0
    where = ["--topic", name, "--partition", "0"]
    told = java(
        "TransactionsCommand", "--bootstrap-server", bootstrap, "describe-producers", *where
    )
    (producer,) = told.splitlines()[1:]
    assert producer.split()[:2] == described.split()[2:4]
    assert producer.split()[-1] == "None", "nothing is open"
    assert transactions("find-hanging", *where) == []


def test_cluster_id(java: JavaTools, cluster: LocalCluster) -> None:
    told = java("ClusterTool", "cluster-id", "--bootstrap-server", cluster.layout.bootstrap)
    assert cluster.layout.cluster_id in told
