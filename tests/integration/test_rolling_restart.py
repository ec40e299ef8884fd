"""All six nodes are restarted one after the other while clients write and read."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from raftctl.cli.kafka.admin import admin_client
from tests.integration.clusters import processes_of, running_cluster, wait_until
from tests.integration.commands import raftctl
from tests.integration.kafka_clients import CLIENTS, assigned_consumer
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

PARTITIONS = 3
TIMEOUT_S = 60
PAUSE_S = 0.01
"""Between two records of a client: a load that a busy machine bears."""
QUICK_RECONNECT = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0}


class Load(abc.ABC):
    """A client that works on a topic from a thread of its own until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.done: list[int] = []
        """The numbers acknowledged, or read."""
        self.errors: list[str] = []
        self.stopping = threading.Event()

    @abc.abstractmethod
    def run(self) -> None:
        """Works until `stopping`, then finishes what it has begun."""

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Works while inside; nothing may fail."""
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            self.wait_for_more(30)
            yield
            self.wait_for_more(30)
        finally:
            self.stopping.set()
            thread.join()
        assert self.errors == []

    def wait_for_more(self, count: int) -> None:
        """Until so many more are done: it goes on."""
        wanted = len(self.done) + count
        wait_until(lambda: len(self.done) >= wanted or self.errors, self.topic, TIMEOUT_S)


class ConfluentWriter(Load):
    """librdkafka with acks=all and idempotence."""

    def run(self) -> None:
        """Any error that it tells is one that it could not retry."""
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True}
        producer = Producer({**settings, "message.timeout.ms": 60_000, **QUICK_RECONNECT})
        number = 0
        while not self.stopping.is_set():
            producer.produce(
                self.topic,
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=partial(self._delivered, number),
            )
            number += 1
            producer.poll(PAUSE_S)
        if producer.flush(TIMEOUT_S):
            self.errors.append("not all was acknowledged")

    def _delivered(self, number: int, error: Any, _message: Any) -> None:
        if error is None:
            self.done.append(number)
        else:
            self.errors.append(error.str())


class AiokafkaWriter(Load):
    """aiokafka with acks=all and idempotence."""

    def run(self) -> None:
        """Any exception of a send is an error that it could not retry."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True
        )
        await producer.start()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(producer.stop)
            sent = []
            number = 0
            while not self.stopping.is_set():
                future = await producer.send(
                    self.topic, b"%d" % number, partition=number % PARTITIONS
                )
                future.add_done_callback(partial(self._delivered, number))
                sent.append(future)
                number += 1
                await asyncio.sleep(PAUSE_S)
            await asyncio.wait(sent)

    def _delivered(self, number: int, future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self.done.append(number)
        else:
            self.errors.append(repr(error))


class ConfluentReader(Load):
    """librdkafka's consumer, without a group."""

    def run(self) -> None:
        """What it reads must come in order, partition by partition, and without an error."""
        consumer = assigned_consumer(self.bootstrap, **QUICK_RECONNECT)
        consumer.assign(
            [TopicPartition(self.topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)]
        )
        try:
            while not self.stopping.is_set():
                for message in consumer.consume(100, 0.1):
                    error = message.error()
                    if error is not None:
                        self.errors.append(error.str())
                    else:
                        self.done.append(int(message.value() or b"-1"))
        finally:
            consumer.close()


def written(bootstrap: str, topic: str) -> list[list[int]]:
    """The numbers in each partition, read by a client that did not write them."""
    return [
        [int(record.value or b"-1") for record in partition.records]
        for partition in CLIENTS[1].read(bootstrap, topic, PARTITIONS)
    ]


def pids(cluster: LocalCluster) -> list[int]:
    processes = [cluster.process(node) for node in cluster.layout.nodes]
    return [process.pid for process in processes if process is not None]


@pytest.mark.req("A5", "A1")
@pytest.mark.timeout(240)
def test_a_rolling_restart_loses_nothing_and_hurts_no_client(cluster: LocalCluster) -> None:
    bootstrap = cluster.layout.bootstrap
    admin = admin_client(bootstrap)
    for topic in ("rolled-1", "rolled-2"):
        create_topic(admin, topic, PARTITIONS, 3, {"min.insync.replicas": "2"}, 30)
    writers = [ConfluentWriter(bootstrap, "rolled-1"), AiokafkaWriter(bootstrap, "rolled-2")]
    reader = ConfluentReader(bootstrap, "rolled-1")
    before = pids(cluster)
    with writers[0].working(), writers[1].working(), reader.working():
        rolled = raftctl("restart", "--rolling", "--dir", str(cluster.directory), timeout_s=200)
    assert rolled.status == 0, rolled
    assert set(pids(cluster)).isdisjoint(before)
    names = [line.split()[0] for line in rolled.stdout.splitlines()[1:]]
    assert sorted(names[:3]) == [one.name for one in cluster.layout.controllers]
    assert names[3:] == [one.name for one in cluster.layout.brokers]
    assert "killed" not in rolled.stdout
    for writer in writers:
        found = written(bootstrap, writer.topic)
        # All there, none twice, each partition in the order of writing.
        assert sorted(number for one in found for number in one) == sorted(writer.done)
        assert all(one == sorted(set(one)) for one in found)
    for partition in range(PARTITIONS):
        read = [number for number in reader.done if number % PARTITIONS == partition]
        assert read == written(bootstrap, "rolled-1")[partition][: len(read)]


@pytest.mark.req("A5", "A2")
@pytest.mark.timeout(120)
def test_no_node_goes_down_while_the_cluster_is_not_in_sync(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with running_cluster(directory, 1, 2) as cluster:
        bootstrap = cluster.layout.bootstrap
        create_topic(admin_client(bootstrap), "short", 1, 2, {}, 30)
        command = ("restart", "--rolling", "--dir", str(directory))
        cluster.kill(cluster.layout.node("broker-2"))
        before = pids(cluster)
        refused = raftctl(*command)
        assert refused.status == 1
        assert "broker-2 does not run: killed: its log ends with " in refused.stderr
        assert f"raftctl up --dir {directory} starts it" in refused.stderr
        assert pids(cluster) == before
        cluster.start(cluster.layout.node("broker-2"))
        told = raftctl(*command, "--node", "broker-2", "--output", "json")
        (one,) = told.document
        assert (one["node"], one["killed"]) == ("broker-2", False)
        whole = raftctl("restart", "--dir", str(directory), "--node", "broker-1")
        assert whole.status == 0, whole
        assert whole.stdout.splitlines()[1].split() == ["broker-1", "cleanly"]
        assert len(processes_of(directory)) == 3
