"""Consumer groups on a cluster of real processes: their coordinator is killed; `raftctl groups`."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.clusters import CommandResult, raftctl, running_cluster, wait_healthy
from tests.integration.kafka_clients import CLIENTS, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.localcluster.cluster import LocalCluster

TIMEOUT_S = 60
NOT_NOW = (
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._WAIT_COORD,
    KafkaError.REBALANCE_IN_PROGRESS,
)
"""A member has nothing to commit, is about to be given its partitions anew, or has not yet found
who coordinates its group now."""
PARTITIONS = 6
RECORDS = [Record(b"%d" % number, partition=number % PARTITIONS) for number in range(600)]


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Groups do not wait for members that may come."""
    directory = tmp_path_factory.mktemp("groups") / "cluster"
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with running_cluster(directory, overrides=overrides) as running:
        yield running


def fill(bootstrap: str, topic: str) -> None:
    """A topic of six partitions with a hundred records each."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    for done in admin.create_topics([new], request_timeout=TIMEOUT_S).values():
        done.result(TIMEOUT_S)
    CLIENTS[0].write(bootstrap, topic, RECORDS)


class Members:
    """Two consumers of a group, with what they have read."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }
        self.consumers = [Consumer(settings) for _ in range(2)]
        for one in self.consumers:
            one.subscribe([topic])
        self.values: set[bytes] = set()
        self._topic = topic

    def read_until(self, condition: Callable[[], bool]) -> None:
        """Polls and commits all along."""
        until = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < until, f"{len(self.values)} records were read"
            for one in self.consumers:
                self._poll(one)

    def _poll(self, consumer: Consumer) -> None:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.values.add(message.value() or b"")
            consumer.commit(message=message, asynchronous=True)

    def commit(self) -> None:
        """Commits what is not yet."""
        for one in self.consumers:
            try:
                one.commit(asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in NOT_NOW:
                    raise

    def have_committed(self, offset: int) -> bool:
        """Whether that is the group's offset of every partition, after committing once more.

        Commits that found no coordinator are repeated by the client in any order, also after a
        newer one.
        """
        self.commit()
        partitions = [Partition(self._topic, number) for number in range(PARTITIONS)]
        found = self.consumers[0].committed(partitions, timeout=TIMEOUT_S)
        return all(one.offset == offset for one in found)

    def close(self) -> None:
        """Leaves the group."""
        for one in self.consumers:
            one.close()


@contextmanager
def members_of(bootstrap: str, group: str, topic: str) -> Iterator[Members]:
    """The members, which are closed afterwards."""
    members = Members(bootstrap, group, topic)
    try:
        yield members
    finally:
        members.close()


def groups(bootstrap: str, command: str, *arguments: str) -> CommandResult:
    """`raftctl groups COMMAND ...`."""
    return raftctl("groups", command, *arguments, "--bootstrap-server", bootstrap)


def described(bootstrap: str, group: str) -> dict[int, dict[str, Any]]:
    """The rows of `raftctl groups describe`, by partition."""
    found = groups(bootstrap, "describe", group, "--output", "json").document
    return {one["partition"]: one for one in found["partitions"]}


def committed(bootstrap: str, group: str) -> dict[int, int]:
    """The offset up to which each partition is committed, 0 if none is."""
    rows = described(bootstrap, group)
    return {partition: one["current_offset"] or 0 for partition, one in sorted(rows.items())}


@pytest.mark.req("G1", "G2", "G3")
def test_a_group_goes_on_when_its_coordinator_is_killed(
    cluster: LocalCluster, bootstrap: str
) -> None:
    fill(bootstrap, "read")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with members_of(bootstrap, "readers", "read") as members:
        members.read_until(lambda: len(members.values) > 200)
        found = admin.describe_consumer_groups(["readers"])["readers"].result(TIMEOUT_S)
        before = committed(bootstrap, "readers")
        killed = cluster.layout.node(found.coordinator.id)
        cluster.kill(killed)
        members.read_until(lambda: len(members.values) == len(RECORDS))
        members.commit()
        after = committed(bootstrap, "readers")
        for partition, earlier in before.items():
            assert earlier <= after[partition]
        members.read_until(lambda: members.have_committed(100))
        cluster.start(killed)
    wait_healthy(cluster)


@pytest.mark.req("G1")
def test_the_internal_topic_is_as_apache_kafkas(bootstrap: str) -> None:
    shown = raftctl(
        "topics",
        "describe",
        "__consumer_offsets",
        "--bootstrap-server",
        bootstrap,
        "--output",
        "json",
    ).document
    assert len(shown["partitions"]) == 50
    assert {len(one["replicas"]) for one in shown["partitions"]} == {3}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x"})
    assert consumer.committed([Partition("shown", 0)], timeout=TIMEOUT_S)[0].offset < 0
    consumer.close()
