"""Consumer groups on a cluster of real processes: their coordinator is killed; `raftctl groups`."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.coordinator.internal_topics import partition_of
from tests.integration.clusters import running_cluster, wait_healthy
from tests.integration.commands import CommandResult, raftctl
from tests.integration.kafka_clients import CLIENTS, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from raftctl.localcluster.cluster import LocalCluster

TIMEOUT_S = 60
NOT_NOW = (
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
)
"""A member has nothing to commit, is about to be given its partitions anew, has not heard of its
new epoch, or has not yet found who coordinates its group now."""
PROTOCOLS: dict[str, dict[str, str | int | bool]] = {
    "classic": {"session.timeout.ms": 6_000},
    "consumer": {"group.protocol": "consumer"},
}
OFFSETS_PARTITIONS = 50
HEARTBEAT_MS = "1500"
PARTITIONS = 6
RECORDS = [Record(b"%d" % number, partition=number % PARTITIONS) for number in range(600)]


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Groups do not wait for members that may come, and these report often."""
    directory = tmp_path_factory.mktemp("groups") / "cluster"
    overrides = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
        "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    }
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

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **PROTOCOLS[protocol],
        }
        self.consumers = [Consumer(settings) for _ in range(2)]
        for one in self.consumers:
            one.subscribe([topic])
        self.values: set[bytes] = set()
        self.group = group
        self._topic = topic

    def poll(self) -> None:
        """Each reads a record, if there is one, and commits it."""
        for one in self.consumers:
            message = one.poll(0.02)
            if message is not None and message.error() is None:
                self.values.add(message.value() or b"")
                one.commit(message=message, asynchronous=True)

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


def read_until(groups: Sequence[Members], condition: Callable[[Members], bool]) -> None:
    """All poll and commit until it holds of each group."""
    until = time.monotonic() + TIMEOUT_S
    while not all(map(condition, groups)):
        assert time.monotonic() < until, [len(one.values) for one in groups]
        for one in groups:
            one.poll()


@contextmanager
def members_of_both(bootstrap: str, topic: str) -> Iterator[list[Members]]:
    """A group of each protocol, both in one partition: they have one coordinator."""
    with ExitStack() as stack:
        found = []
        for protocol in PROTOCOLS:
            found.append(Members(bootstrap, name_of(protocol), topic, protocol))
            stack.callback(found[-1].close)
        yield found


def name_of(protocol: str) -> str:
    """Of a group that lies in the first partition."""
    names = (f"{protocol}-{number}" for number in itertools.count())
    return next(one for one in names if partition_of(one, OFFSETS_PARTITIONS) == 0)


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


@pytest.mark.req("G1", "G2", "G3", "G4")
def test_groups_go_on_when_their_coordinator_is_killed(
    cluster: LocalCluster, bootstrap: str
) -> None:
    fill(bootstrap, "read")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with members_of_both(bootstrap, "read") as both:
        read_until(both, lambda one: len(one.values) > 200)
        before = [committed(bootstrap, one.group) for one in both]
        found = admin.describe_consumer_groups([one.group for one in both])
        (coordinator,) = {one.result(TIMEOUT_S).coordinator.id for one in found.values()}
        killed = cluster.layout.node(coordinator)
        cluster.kill(killed)
        read_until(both, lambda one: len(one.values) == len(RECORDS))
        for one, earlier in zip(both, before, strict=True):
            one.commit()
            after = committed(bootstrap, one.group)
            assert all(offset <= after[partition] for partition, offset in earlier.items())
        read_until(both, lambda one: one.have_committed(100))
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
