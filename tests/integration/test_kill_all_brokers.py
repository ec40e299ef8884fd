"""All brokers are killed at once under load: nothing that was acknowledged is lost."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from raftctl.cli.kafka.admin import admin_client
from tests.integration.clusters import wait_healthy, wait_until
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from raftctl.localcluster.cluster import LocalCluster

TOPIC = "killed"
PARTITIONS = 3
ENOUGH = 2_000
"""Acknowledged records before the brokers are killed, and again after they are back."""


class Writer:
    """Writes numbers from a thread as fast as they are acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1000,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self.acknowledged: dict[tuple[int, int], int] = {}
        """The number of each record by partition and offset."""
        self.refused: list[Any] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(120) == 0

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                self._producer.produce(
                    TOPIC,
                    b"%d" % number,
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            where = (message.partition(), message.offset())
            self.acknowledged[where] = int(message.value())
        else:
            self.refused.append(error.str())


def read_all(bootstrap: str, ends: dict[int, int]) -> dict[tuple[int, int], int]:
    """The numbers by partition and offset, up to these ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    found: dict[tuple[int, int], int] = {}
    deadline_s = time.monotonic() + 60
    try:
        consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in ends])
        while len(found) < sum(ends.values()):
            assert time.monotonic() < deadline_s, f"{len(found)} of {sum(ends.values())}"
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                found[partition, offset] = int(message.value() or b"-1")
    finally:
        consumer.close()
    return found


@pytest.mark.req("R5", "L4")
@pytest.mark.timeout(240)
def test_nothing_acknowledged_is_lost(cluster: LocalCluster) -> None:
    bootstrap = cluster.layout.bootstrap
    durable = {"min.insync.replicas": "2"}
    create_topic(admin_client(bootstrap), TOPIC, PARTITIONS, 3, durable, 30)
    writer = Writer(bootstrap)
    try:
        wait_until(lambda: len(writer.acknowledged) > ENOUGH, "a first load", 60)
        cluster.kill_all(spare=cluster.layout.controllers)
        before = len(writer.acknowledged)
        for broker in cluster.layout.brokers:
            cluster.start(broker)
        wait_until(lambda: len(writer.acknowledged) > before + ENOUGH, "writes to go on", 90)
    finally:
        writer.stop()
    wait_healthy(cluster)
    assert writer.refused == []
    ends = {
        partition: 1 + max(offset for number, offset in writer.acknowledged if number == partition)
        for partition in range(PARTITIONS)
    }
    found = read_all(bootstrap, ends)
    assert {where: found.get(where) for where in writer.acknowledged} == writer.acknowledged
    # An idempotent producer's retries leave each number once, in order.
    for partition in range(PARTITIONS):
        numbers = [found[partition, offset] for offset in range(ends[partition])]
        assert numbers == sorted(set(numbers))
