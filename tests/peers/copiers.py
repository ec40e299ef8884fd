"""Programs that copy a topic exactly once with Python's clients, for tests that kill them.

Each reads in a group and commits its offsets in the transactions that it writes with, for ever.
Any failure ends it: whoever starts it again goes on behind what was committed.

Usage: python -m tests.peers.copiers CLIENT BOOTSTRAP SOURCE TARGET
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Message, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aiokafka import TopicPartition

AT_ONCE = 10
SESSION_MS = 6_000
TIMEOUT_S = 60
STUCK_S = 10


class GivenAnewError(Exception):
    """Partitions were given anew in the middle of a transaction, at the offset where it began."""


class Positions:
    """Tells when a client without KIP-447 is given records once more.

    Its offsets do not say the generation, so that the coordinator takes them also of a member that
    has lost its partitions and got them back.
    """

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def take(self, partition: int, offsets: Iterable[int]) -> None:
        """Notes what was read; GivenAnewError if it is not what comes next."""
        for offset in offsets:
            if self._next.get(partition, offset) != offset:
                raise GivenAnewError(f"{offset} of partition {partition} after {self._next}")
            self._next[partition] = offset + 1


def with_confluent(bootstrap: str, source: str, target: str, protocol: str = "classic") -> None:
    """librdkafka's clients."""
    name = f"copy-{target}"
    session = {"session.timeout.ms": SESSION_MS} if protocol == "classic" else {}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **session,
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    while True:
        messages = [one for one in consumer.consume(AT_ONCE, 0.2) if one.error() is None]
        if messages:
            _copy_confluent(consumer, producer, messages, target)


def _copy_confluent(
    consumer: Consumer, producer: Producer, messages: list[Message], target: str
) -> None:
    producer.begin_transaction()
    for one in messages:
        producer.produce(target, one.value(), partition=one.partition() or 0)
    positions = consumer.position(consumer.assignment())
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction(positions, metadata, TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)


def with_consumer_protocol(bootstrap: str, source: str, target: str) -> None:
    """librdkafka's clients in a group of KIP-848."""
    with_confluent(bootstrap, source, target, "consumer")


def with_aiokafka(bootstrap: str, source: str, target: str) -> None:
    """aiokafka's clients."""
    asyncio.run(_with_aiokafka(bootstrap, source, target))


async def _with_aiokafka(bootstrap: str, source: str, target: str) -> None:
    name, positions = f"copy-{target}", Positions()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await producer.start()
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=name,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
    )
    await consumer.start()
    while True:
        found = await consumer.getmany(timeout_ms=200, max_records=AT_ONCE)
        if not found:
            continue
        async with producer.transaction():
            offsets: dict[TopicPartition, int] = {}
            for partition, messages in found.items():
                positions.take(partition.partition, (one.offset for one in messages))
                offsets[partition] = messages[-1].offset + 1
                for one in messages:
                    await producer.send(target, one.value, partition=partition.partition)
            await producer.send_offsets_to_transaction(offsets, name)


@contextlib.contextmanager
def not_for_ever() -> Iterator[None]:
    """Ends the process if it takes too long.

    kafka-python loses what it was to ask of a coordinator that refuses its connection, and waits
    for the answer nevertheless.
    """
    signal.alarm(STUCK_S)
    yield
    signal.alarm(0)


def with_kafka_python(bootstrap: str, source: str, target: str) -> None:
    """kafka-python's clients."""
    name, positions = f"copy-{target}", Positions()
    # It waits for so long for a coordinator that is gone, before it asks who is in its place.
    shared = {"bootstrap_servers": bootstrap, "request_timeout_ms": SESSION_MS + 1_000}
    producer = KafkaProducer(**shared, transactional_id=name)
    with not_for_ever():
        producer.init_transactions()
    consumer = KafkaConsumer(
        source,
        **shared,
        group_id=name,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
    )
    while True:
        # Longer than it takes to join: if a poll ends meanwhile, the assignment that comes after
        # it is lost.
        found = consumer.poll(timeout_ms=TIMEOUT_S * 1_000, max_records=AT_ONCE)
        if not found:
            continue
        with not_for_ever():
            producer.begin_transaction()
            offsets = {}
            for partition, messages in found.items():
                positions.take(partition.partition, (one.offset for one in messages))
                offsets[partition] = OffsetAndMetadata(messages[-1].offset + 1, "", -1)
                for one in messages:
                    producer.send(target, one.value, partition=partition.partition)
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()


COPIERS = {
    "confluent": with_confluent,
    "confluent-consumer-protocol": with_consumer_protocol,
    "aiokafka": with_aiokafka,
    "kafka-python": with_kafka_python,
}

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    faulthandler.register(signal.SIGUSR1)
    try:
        COPIERS[sys.argv[1]](*sys.argv[2:])
    finally:
        # Not held up by threads of the clients.
        traceback.print_exc()
        os._exit(1)
