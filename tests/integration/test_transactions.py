"""Transactions of unmodified clients, also while brokers are killed: all of one, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from kafka import KafkaProducer

from raftctl.cli.kafka.admin import admin_client
from tests.integration.clusters import wait_healthy, wait_until
from tests.integration.commands import raftctl
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.localcluster.cluster import LocalCluster

PARTITIONS = 3
TIMEOUT_S = 60
_numbers = itertools.count()


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"transactions-{next(_numbers)}"
    safe = {"min.insync.replicas": "2"}
    create_topic(admin_client(bootstrap), name, PARTITIONS, 3, safe, 30)
    return name


def read(bootstrap: str, topic: str, *, committed: bool = True) -> list[str]:
    """All values, partition by partition, up to the last stable offset or the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            (message,) = consumer.consume(1, TIMEOUT_S)
            partition, error = message.partition(), message.error()
            assert partition is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
            else:
                found[partition].append((message.value() or b"").decode())
    finally:
        consumer.close()
    return [value for number in sorted(found) for value in found[number]]


# --- one client after the other -------------------------------------------------------------------


def with_confluent(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition)
        producer.flush(TIMEOUT_S)
        ends(TIMEOUT_S)


def with_aiokafka(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"id-{topic}")
        await producer.start()
        try:
            for number in range(4):
                await producer.begin_transaction()
                for partition in range(PARTITIONS):
                    await producer.send_and_wait(topic, b"%d" % number, partition=partition)
                await (
                    producer.abort_transaction() if number % 2 else producer.commit_transaction()
                )
        finally:
            await producer.stop()

    asyncio.run(run())


def with_kafka_python(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"id-{topic}")
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send(topic, b"%d" % number, partition=partition).get(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close(TIMEOUT_S)


@pytest.mark.req("T2", "T4", "N1")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("write", [with_confluent, with_aiokafka, with_kafka_python])
def test_readers_of_committed_records_see_no_other(write: Any, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic)
    # The client is told of a commit before every partition has its marker.
    wait_until(lambda: len(read(bootstrap, topic)) == 2 * PARTITIONS, "the last marker")
    assert Counter(read(bootstrap, topic)) == {"0": PARTITIONS, "2": PARTITIONS}
    every = dict.fromkeys("0123", PARTITIONS)
    assert Counter(read(bootstrap, topic, committed=False)) == every


@pytest.mark.req("T3")
@pytest.mark.timeout(120)
def test_a_producer_that_was_replaced_cannot_commit(bootstrap: str, topic: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"id-{topic}"}
    zombie = Producer({**settings, "log_level": 0})
    zombie.init_transactions(TIMEOUT_S)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    zombie.flush(TIMEOUT_S)
    other = Producer(settings)
    other.init_transactions(TIMEOUT_S)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    other.begin_transaction()
    other.produce(topic, b"other", partition=0)
    other.commit_transaction(TIMEOUT_S)
    wait_until(lambda: read(bootstrap, topic) == ["other"], "the other's record alone")


# --- while brokers are killed ---------------------------------------------------------------------


class Writer:
    """Writes transactions from a thread, each with one record to every partition."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.unknown: list[str] = []
        """Those whose outcome the client was not told."""
        self._settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 30_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        self._topic, self._name = topic, name
        self._chance = random.Random(name)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        numbers = itertools.count()
        while not self._stopping.is_set():
            producer = Producer(self._settings)
            with contextlib.suppress(KafkaException):
                producer.init_transactions(TIMEOUT_S)
                while not self._stopping.is_set():
                    self._transaction(producer, f"{self._name}/{next(numbers)}")

    def _transaction(self, producer: Producer, value: str) -> None:
        self.unknown.append(value)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(self._topic, value.encode(), partition=partition)
        if self._chance.random() < 0.3:
            producer.abort_transaction(TIMEOUT_S)
            self.aborted.append(value)
        else:
            self._commit(producer)
            self.committed.append(value)
        self.unknown.remove(value)

    def _commit(self, producer: Producer) -> None:
        try:
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                # The outcome is known after all: not committed.
                producer.abort_transaction(TIMEOUT_S)
            raise


@contextlib.contextmanager
def writing(bootstrap: str, topic: str, count: int) -> Iterator[list[Writer]]:
    writers = [Writer(bootstrap, topic, f"writer-{number}") for number in range(count)]
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stop()


@pytest.mark.req("T2", "T4")
@pytest.mark.timeout(300)
def test_a_transaction_is_all_or_nothing_while_brokers_are_killed(
    cluster: LocalCluster, bootstrap: str, topic: str
) -> None:
    def go_on(writers: list[Writer], what: str) -> None:
        def told() -> int:
            return sum(len(one.committed) for one in writers)

        before = told()
        wait_until(lambda: told() > before + 10, what, 90)

    with writing(bootstrap, topic, 2) as writers:
        for broker in cluster.layout.brokers[:1]:
            go_on(writers, "transactions")
            cluster.kill(broker)
            go_on(writers, "transactions without it")
            cluster.start(broker)
            wait_healthy(cluster)
    committed = {value for one in writers for value in one.committed}
    aborted = {value for one in writers for value in one.aborted}
    assert committed
    assert aborted

    def found() -> Counter[str]:
        return Counter(read(bootstrap, topic))

    # Whatever was open when its writer stopped ends by its timeout.
    wait_until(lambda: committed <= set(found()), "all that was committed", 60)
    counts = found()
    assert set(counts.values()) == {PARTITIONS}
    assert not aborted & set(counts)
    unknown = {value for one in writers for value in one.unknown}
    assert set(counts) <= committed | unknown


# --- killed between PREPARE and COMPLETE ----------------------------------------------------------


def described(bootstrap: str, name: str) -> dict[str, Any] | None:
    """What a transactional id has come to; None while nobody can tell."""
    asked = ("transactions", "describe", name, "--bootstrap-server", bootstrap, "--timeout", "5")
    done = raftctl(*asked, "--output", "json")
    return done.document[0] if done.status == 0 else None


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """The leader of each partition; -1 where nobody leads."""
    found = admin_client(bootstrap).list_topics(topic, timeout=30).topics[topic]
    return {number: one.leader for number, one in found.partitions.items()}


@pytest.mark.req("T2")
@pytest.mark.timeout(300)
def test_a_coordinator_that_is_killed_after_prepare_leaves_nothing_open(
    cluster: LocalCluster, bootstrap: str
) -> None:
    topic = f"prepared-{next(_numbers)}"
    create_topic(admin_client(bootstrap), topic, PARTITIONS, 1, {}, 30)
    settings = {"transactional.id": topic, "reconnect.backoff.max.ms": 200, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    producer.init_transactions(TIMEOUT_S)
    assert len(leaders(bootstrap, "__transaction_state")) == 50
    known = described(bootstrap, topic)
    assert known is not None
    coordinator = known["coordinator"]
    partition, leader = next(
        one for one in leaders(bootstrap, topic).items() if one[1] != coordinator
    )
    brokers = {one.node_id: one for one in cluster.layout.brokers}
    producer.begin_transaction()
    producer.produce(topic, "whole", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    # Its only replica is gone: the marker cannot be written, and so neither can COMPLETE.
    cluster.kill(brokers[leader])
    wait_until(lambda: leaders(bootstrap, topic)[partition] == -1, "nobody leads the partition", 60)
    committing = threading.Thread(target=producer.commit_transaction, args=(120,))
    committing.start()

    def is_in(state: str) -> bool:
        found = described(bootstrap, topic)
        return found is not None and found["state"] == state

    wait_until(lambda: is_in("PrepareCommit"), "the outcome is decided", 60)
    cluster.kill(brokers[coordinator])
    for node in (coordinator, leader):
        cluster.start(brokers[node])
    wait_healthy(cluster)
    wait_until(lambda: is_in("CompleteCommit"), "every partition has its marker", 60)
    committing.join()
    assert read(bootstrap, topic) == ["whole"]
