"""`raftctl offsets` and Apache Kafka's GetOffsetShell agree, on our brokers and on Apache Kafka."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from confluent_kafka import Producer

from raftctl.cli.kafka.admin import admin_client
from tests.integration.clusters import wait_until
from tests.integration.commands import raftctl
from tests.kit.topics import create_topic
from tests.peers.programs import JavaTools
from tests.peers.tools import INSTALL_TIMEOUT_S, KAFKA_VERSION

TOPIC = "offsets-agree"
PARTITIONS = 3
TIME_MS = 1_700_000_000_000
FOR_EVER = {"retention.ms": "-1"}
"""Records of that time would be deleted while they are looked at."""
EXPECTED = {
    "-1": [(0, 4), (1, 1), (2, 0)],
    "-2": [(0, 0), (1, 0), (2, 0)],
    "-3": [(0, 2), (1, 0)],
    str(TIME_MS + 2): [(0, 2)],
}
"""Partitions and offsets of the records that `fill` writes, by `--time`."""

pytestmark = [pytest.mark.req("A1", "A3", "L7"), pytest.mark.timeout(2 * INSTALL_TIMEOUT_S)]


@pytest.fixture(scope="module")
def tools() -> JavaTools:
    return JavaTools(KAFKA_VERSION)


def fill(bootstrap: str, replicas: int) -> None:
    """Partition 0 has four records, the newest by time in the middle; 1 has one, 2 has none."""
    with contextlib.closing(Producer({"bootstrap.servers": bootstrap})) as producer:
        create_topic(admin_client(bootstrap), TOPIC, PARTITIONS, replicas, FOR_EVER, 30)
        for partition, after in ((0, 0), (0, 1), (0, 3), (0, 2), (1, 1)):
            producer.produce(TOPIC, b"x", partition=partition, timestamp=TIME_MS + after)
            assert producer.flush(60) == 0


def ours(*arguments: str) -> list[str]:
    """In the form of Kafka's tool."""
    told = raftctl("offsets", *arguments)
    assert told.status == 0, told
    return [":".join(line.split()) for line in told.stdout.splitlines()[1:]]


def agree(tools: JavaTools, arguments: list[str], expected: list[str]) -> bool:
    theirs = tools("GetOffsetShell", *arguments).splitlines()
    return ours(*arguments) == expected == theirs


def compare(tools: JavaTools, bootstrap: str) -> None:
    for time, expected in EXPECTED.items():
        asked = ["--bootstrap-server", bootstrap, "--topic", f"{TOPIC[:-1]}.*", "--time", time]
        lines = [f"{TOPIC}:{partition}:{offset}" for partition, offset in expected]
        # Both leave out partitions that have no leader just then.
        wait_until(partial(agree, tools, asked, lines), f"--time {time} to be {lines}", 120)


def test_on_our_brokers(tools: JavaTools, bootstrap: str) -> None:
    fill(bootstrap, 3)
    compare(tools, bootstrap)


@pytest.mark.xdist_group("apache_kafka")
def test_on_apache_kafka(tools: JavaTools, apache_kafka: str) -> None:
    fill(apache_kafka, 1)
    compare(tools, apache_kafka)
    bench = ["--bootstrap-server", apache_kafka, "--topic", TOPIC, "--output", "json"]
    written = raftctl("bench", "produce", *bench, "--num-records", "100").document
    assert written["records"] == 100
    assert raftctl("bench", "consume", *bench, "--num-records", "105").document["records"] == 105
    through = raftctl("bench", "end-to-end", *bench, "--num-records", "10").document
    assert 0 < through["p50_ms"] <= through["p99_ms"]
