"""What real clients send: the frames of a short conversation of each with the broker."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any
from unittest import mock

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from broker.protocol import FrameReader
from tests.fuzz import administrators

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.protocol.codec import Frame

_RECORDS = 5


async def captured(port: int) -> list[bytes]:
    """Whole frames, each once, in the order in which they came."""
    frames: dict[bytes, None] = {}
    take = FrameReader.next

    def spy(self: FrameReader) -> Frame | None:
        frame = take(self)
        if frame is not None:
            frames[len(frame).to_bytes(4, "big") + bytes(frame)] = None
        return frame

    with mock.patch.object(FrameReader, "next", spy):
        await _aiokafka(f"127.0.0.1:{port}")
        await asyncio.to_thread(_confluent, f"127.0.0.1:{port}")
        await asyncio.to_thread(_kafka_python, f"127.0.0.1:{port}")
        await asyncio.to_thread(administrators.confluent, f"127.0.0.1:{port}")
        await asyncio.to_thread(administrators.kafka_python, f"127.0.0.1:{port}")
    return [*frames, *administrators.written()]


async def _aiokafka(address: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
        for number in range(_RECORDS):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
    async with AIOKafkaConsumer(bootstrap_servers=address) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.seek_to_beginning(TopicPartition("t", 0))
        for _ in range(_RECORDS):
            await asyncio.wait_for(consumer.getone(), 20)


def _confluent(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(_RECORDS):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    settings: dict[str, Any] = {"group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": address, **settings})
    try:
        consumer.assign([ConfluentPartition("t", 0, OFFSET_BEGINNING)])
        _until(_RECORDS, lambda: consumer.poll(1.0) is not None)
    finally:
        consumer.close()


def _kafka_python(address: str) -> None:
    with warnings.catch_warnings():
        # It reads its schemas in a way that Python 3.11 deprecates.
        warnings.simplefilter("ignore")
        producer = KafkaProducer(bootstrap_servers=address)
        for number in range(_RECORDS):
            producer.send("t", b"%d" % number, partition=0).get(20)
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=20_000)
        consumer.assign([PythonPartition("t", 0)])
        consumer.seek_to_beginning()
        _until(_RECORDS, lambda: next(consumer, None) is not None)
        consumer.close()


def _until(count: int, step: Callable[[], bool]) -> None:
    for _ in range(20 * count):
        count -= step()
        if count <= 0:
            return
    raise AssertionError("the client has not got its records")
