"""Three unmodified Kafka clients behind one face: write records, read partitions back.

A client says which codecs it can write and read as it is installed here. Reading is by assigned
partition from offset 0 to the end that the client itself asks for.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import aiokafka
import aiokafka.codec
import confluent_kafka
import kafka
import kafka.codec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from raftctl.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it goes in and comes out."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 1_700_000_000_123
    partition: int = 0


@dataclass(slots=True)
class Partition:
    """A partition read back."""

    offsets: list[int] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


class KafkaClient(Protocol):
    """What a test asks of a client."""

    name: str

    def can(self, codec: str) -> bool:
        """Whether the client has what it needs for the codec."""

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = True,
    ) -> list[int]:
        """Writes and returns the offsets acknowledged; raises what the cluster refuses."""

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Partition]:
        """Everything in the topic."""


class Confluent:
    """confluent-kafka: librdkafka."""

    name = "confluent-kafka"

    def can(self, codec: str) -> bool:
        """It brings all of them."""
        return True

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = True,
    ) -> list[int]:
        """See KafkaClient."""
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "enable.idempotence": idempotent,
                "compression.type": codec,
                "linger.ms": 20,
                "message.timeout.ms": TIMEOUT_S * 1000,
            }
        )
        offsets: dict[int, int] = {}
        errors: list[Any] = []

        def delivered(number: int, error: Any, message: Any) -> None:
            errors.extend([error] if error is not None else [])
            offsets[number] = message.offset()

        for number, record in enumerate(records):
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=partial(delivered, number),
            )
            producer.poll(0)
        unsent = producer.flush(TIMEOUT_S)
        if errors:
            raise confluent_kafka.KafkaException(errors[0])
        assert unsent == 0
        return [offsets[number] for number in range(len(records))]

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Partition]:
        """See KafkaClient."""
        consumer = assigned_consumer(bootstrap)
        found = [Partition() for _ in range(partitions)]
        try:
            ends = ends_of(consumer, topic, partitions)
            starts = [confluent_kafka.TopicPartition(topic, n, 0) for n in range(partitions)]
            consumer.assign(starts)
            deadline_s = time.monotonic() + TIMEOUT_S
            while not is_read(found, ends):
                assert time.monotonic() < deadline_s, f"{self.name}: {lengths(found)} of {ends}"
                for message in consumer.consume(1000, timeout=0.2):
                    if message.error() is not None:
                        raise confluent_kafka.KafkaException(message.error())
                    keep_confluent(found, message)
        finally:
            consumer.close()
        return found


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"

    def can(self, codec: str) -> bool:
        """Whether the optional library is there."""
        return codec == "none" or bool(getattr(kafka.codec, f"has_{codec}")())

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = True,
    ) -> list[int]:
        """See KafkaClient."""
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(timeout=TIMEOUT_S).offset for future in futures]
        finally:
            producer.close(timeout=TIMEOUT_S)

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Partition]:
        """See KafkaClient."""
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none"
        )
        found = [Partition() for _ in range(partitions)]
        try:
            assigned = [kafka.TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(assigned)
            by_partition = consumer.end_offsets(assigned)
            ends = [by_partition[one] for one in assigned]
            for one in assigned:
                consumer.seek(one, 0)
            deadline_s = time.monotonic() + TIMEOUT_S
            while not is_read(found, ends):
                assert time.monotonic() < deadline_s, f"{self.name}: {lengths(found)} of {ends}"
                for of, messages in consumer.poll(timeout_ms=200, max_records=1000).items():
                    keep(found[of.partition], of.partition, messages)
        finally:
            consumer.close()
        return found


class Aiokafka:
    """aiokafka."""

    name = "aiokafka"

    def can(self, codec: str) -> bool:
        """Whether the optional library is there."""
        return codec == "none" or bool(getattr(aiokafka.codec, f"has_{codec}")())

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = True,
    ) -> list[int]:
        """See KafkaClient."""
        return asyncio.run(self._write(bootstrap, topic, records, acks, codec, idempotent))

    async def _write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        acks: str,
        codec: str,
        idempotent: bool,
    ) -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            told = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
        finally:
            await producer.stop()
        # With acks=0 there is nothing to tell.
        return [-1 if one is None else one.offset for one in told]

    def read(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Partition]:
        """See KafkaClient."""
        return asyncio.run(self._read(bootstrap, topic, partitions))

    async def _read(self, bootstrap: str, topic: str, partitions: int) -> list[Partition]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none"
        )
        await consumer.start()
        found = [Partition() for _ in range(partitions)]
        try:
            assigned = [aiokafka.TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(assigned)
            by_partition = await consumer.end_offsets(assigned)
            ends = [by_partition[one] for one in assigned]
            for one in assigned:
                consumer.seek(one, 0)
            deadline_s = time.monotonic() + TIMEOUT_S
            while not is_read(found, ends):
                assert time.monotonic() < deadline_s, f"{self.name}: {lengths(found)} of {ends}"
                batches = await consumer.getmany(timeout_ms=200, max_records=1000)
                for of, messages in batches.items():
                    keep(found[of.partition], of.partition, messages)
        finally:
            await consumer.stop()
        return found


CLIENTS: tuple[KafkaClient, ...] = (Confluent(), KafkaPython(), Aiokafka())


def assigned_consumer(bootstrap: str, **more: Any) -> Consumer:
    """A consumer of confluent-kafka that wants nothing of a group."""
    without_group = {
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    return Consumer({"bootstrap.servers": bootstrap, **without_group, **more})


_PASSING = (
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    confluent_kafka.KafkaError._UNKNOWN_PARTITION,
)


def ends_of(consumer: Consumer, topic: str, partitions: int) -> list[int]:
    """The end offset of each partition, as confluent-kafka is told."""
    return [_end_of(consumer, topic, number) for number in range(partitions)]


def _end_of(consumer: Consumer, topic: str, number: int) -> int:
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        partition = confluent_kafka.TopicPartition(topic, number)
        try:
            return consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)[1]
        except confluent_kafka.KafkaException as error:
            # A new leader does not know the end before its followers have fetched (KIP-207), and
            # the client may still know the old one, or have asked a broker that has yet to learn
            # of the topic; this call, unlike those of other clients, leaves asking again to its
            # caller.
            if error.args[0].code() not in _PASSING or time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def end_offsets(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """The same, for those who have no consumer."""
    consumer = assigned_consumer(bootstrap)
    try:
        return ends_of(consumer, topic, partitions)
    finally:
        consumer.close()


def keep(partition: Partition, number: int, messages: Sequence[Any]) -> None:
    """Adds what kafka-python and aiokafka return; their records look alike."""
    for message in messages:
        partition.offsets.append(message.offset)
        partition.records.append(
            Record(message.value, message.key, tuple(message.headers), message.timestamp, number)
        )


def keep_confluent(found: Sequence[Partition], message: Any) -> None:
    """Adds what confluent-kafka returns."""
    number = message.partition()
    headers = tuple(message.headers() or ())
    timestamp_ms = message.timestamp()[1]
    record = Record(message.value(), message.key(), headers, timestamp_ms, number)
    found[number].offsets.append(message.offset())
    found[number].records.append(record)


def is_read(found: Sequence[Partition], ends: Sequence[int]) -> bool:
    """Whether every partition is read to its end."""
    return all(
        end == 0 or (of.offsets and of.offsets[-1] >= end - 1)
        for of, end in zip(found, ends, strict=True)
    )


def lengths(found: Sequence[Partition]) -> list[int]:
    """How far reading got, for messages."""
    return [len(of.records) for of in found]
