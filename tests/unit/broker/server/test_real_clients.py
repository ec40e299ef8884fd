"""Unmodified clients produce and fetch over loopback; the logs are in memory.

The transactional and group requests of these clients need coordinators, so partitions are assigned.
"""

from __future__ import annotations

import asyncio
import importlib
import warnings
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic as ConfluentTopic

from tests.unit.broker.server.fakes import FakeBroker, running

_ATTRIBUTES_AT = 22
CODECS = {"none": 0, "gzip": 1, "lz4": 3}
VALUES = [f"value {number}".encode() for number in range(20)]


@pytest.mark.req("N1")
@pytest.mark.parametrize("idempotent", [False, True])
async def test_aiokafka(idempotent: bool) -> None:
    async with running("t") as broker:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.address, acks="all", enable_idempotence=idempotent
        )
        await producer.start()
        try:
            for offset, value in enumerate(VALUES):
                sent = await producer.send_and_wait("t", value, partition=0)
                assert sent.offset == offset
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.address)
        await consumer.start()
        try:
            consumer.assign([TopicPartition("t", 0)])
            await consumer.seek_to_beginning(TopicPartition("t", 0))
            found = [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in VALUES]
        finally:
            await consumer.stop()
        assert found == VALUES


@pytest.mark.req("N1", "C3")
async def test_aiokafka_administers() -> None:
    async with running("t") as broker:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await admin.start()
        try:
            await admin.create_topics([NewTopic("new", 3, 1)])
            assert set(await admin.list_topics()) == {"t", "new"}
            await admin.delete_topics(["t"])
            assert await admin.list_topics() == ["new"]
        finally:
            await admin.close()


@pytest.mark.req("N1")
@pytest.mark.parametrize("codec", CODECS)
async def test_confluent_kafka(codec: str) -> None:
    async with running("t") as broker:
        found = await asyncio.to_thread(_confluent_round_trip, broker, codec)
        assert found == VALUES
        assert any(
            part[22] & 7 == {"none": 0, "gzip": 1, "lz4": 3}[codec] for part in _parts(broker)
        )


def _parts(broker: FakeBroker) -> list[bytes]:
    return broker.replicas.appended


def _confluent_round_trip(broker: FakeBroker, codec: str) -> list[bytes]:
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 50,
        }
    )
    errors: list[Any] = []
    for value in VALUES:
        producer.produce("t", value, partition=0, callback=lambda error, _: errors.append(error))
    assert producer.flush(10) == 0
    assert errors == [None] * len(VALUES)
    # With commits on, closing waits for a coordinator.
    settings = {"group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.address, **settings})
    try:
        consumer.assign([ConfluentPartition("t", 0, OFFSET_BEGINNING)])
        return [_polled(consumer) for _ in VALUES]
    finally:
        consumer.close()


def _polled(consumer: Consumer) -> bytes:
    message = consumer.poll(10)
    assert message is not None
    assert message.error() is None
    value = message.value()
    assert isinstance(value, bytes)
    return value


@pytest.mark.req("N1", "C3")
async def test_confluent_kafka_administers() -> None:
    async with running() as broker:

        def administer() -> set[str]:
            admin = AdminClient({"bootstrap.servers": broker.address})
            for future in admin.create_topics([ConfluentTopic("new", 2, 1)]).values():
                future.result(10)
            return set(admin.list_topics(timeout=10).topics)

        assert await asyncio.to_thread(administer) == {"new"}


@pytest.mark.req("N1")
async def test_kafka_python() -> None:
    async with running("t") as broker:
        assert await asyncio.to_thread(_kafka_python_round_trip, broker.address) == VALUES


def _kafka_python_round_trip(address: str) -> list[bytes]:
    with warnings.catch_warnings():
        # It reads its schemas in a way that Python 3.11 deprecates.
        warnings.simplefilter("ignore")
        kafka = importlib.import_module("kafka")
        producer = kafka.KafkaProducer(bootstrap_servers=address, acks="all")
        sent = [producer.send("t", value, partition=0) for value in VALUES]
        assert [future.get(timeout=10).offset for future in sent] == list(range(len(VALUES)))
        producer.close()
        consumer = kafka.KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=10_000)
        partition = kafka.TopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found = [next(consumer).value for _ in VALUES]
        consumer.close()
        return found
