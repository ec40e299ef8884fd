"""The demo's Kafka clients: one producer, two readers. They know a bootstrap address, no more, so
they work against any Kafka-compatible cluster.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from raftctl.cli.local.demo._ledger import Ledger, ReadBack
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import Producer

_POLL_EVERY_LINES = 64
_PROGRESS_EVERY_S = 0.2
_STALL_S = 30.0
_GIVE_UP_MS = 120_000
_FETCH_RECORDS = 10_000


class GapMeter:
    """The longest time in which a partition acknowledged nothing while a line waited for it."""

    def __init__(self) -> None:
        self._last_s: dict[int, float] = {}
        self.longest_s = 0.0

    def acknowledged(self, partition: int, given_s: float, now_s: float) -> None:
        """A line given to the producer at `given_s` is acknowledged."""
        waiting_since_s = max(given_s, self._last_s.get(partition, given_s))
        self.longest_s = max(self.longest_s, now_s - waiting_since_s)
        self._last_s[partition] = now_s


class LineWriter:
    """Writes lines with acks=all, idempotent, and notes in the ledger what became of each."""

    def __init__(self, bootstrap_servers: str, topic: str, ledger: Ledger) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._ledger = ledger
        self._gaps = GapMeter()
        self._producer: Producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 10,
                "queue.buffering.max.messages": 50_000,
                "message.timeout.ms": _GIVE_UP_MS,
                "topic.metadata.refresh.fast.interval.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    @property
    def longest_interruption_s(self) -> float:
        """The longest pause between two acknowledgements of one partition."""
        return self._gaps.longest_s

    def write(self, records: Iterable[tuple[bytes, bytes]], tick: Callable[[], None]) -> None:
        """Gives all lines to the producer; waits while its buffer is full. `tick` is called often.

        Acknowledgements may still be outstanding: see `finish`.
        """
        for count, (key, value) in enumerate(records):
            line = self._ledger.add(key, value)
            callback = partial(self._delivered, line, time.monotonic())
            while not self._accepts(key, value, callback):
                self._producer.poll(0.05)
                tick()
            if count % _POLL_EVERY_LINES == 0:
                self._producer.poll(0)
                tick()

    def serve_until(self, time_s: float, tick: Callable[[], None]) -> None:
        """Serves acknowledgements, without writing, until `time.monotonic()` is `time_s`."""
        while (left_s := time_s - time.monotonic()) > 0:
            self._producer.poll(left_s)
            tick()

    def finish(self, tick: Callable[[], None]) -> None:
        """Waits until every line is acknowledged or given up."""
        while self._producer.flush(_PROGRESS_EVERY_S) > 0:
            tick()
        tick()

    def abandon(self) -> None:
        """Forgets what is not sent, so that an interrupted demo ends at once."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    def _accepts(self, key: bytes, value: bytes, callback: Callable[[Any, Any], None]) -> bool:
        try:
            self._producer.produce(self._topic, value=value, key=key, on_delivery=callback)
        except BufferError:
            return False
        return True

    def _delivered(self, line: int, given_s: float, error: Any, message: Any) -> None:
        if error is not None:
            self._ledger.fail(line)
            return
        self._ledger.acknowledge(line, message.partition(), message.offset())
        self._gaps.acknowledged(message.partition(), given_s, time.monotonic())


def read_with_confluent(
    bootstrap_servers: str, topic: str, partitions: int, progress: Callable[[int], None]
) -> ReadBack:
    """Reads offsets from start to end of every partition with confluent-kafka.

    KafkaError if nothing comes for 30 s.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "raftctl-demo",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    read = ReadBack()
    try:
        ends = {}
        for number in range(partitions):
            ends[number] = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=_STALL_S
            )[1]
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        stall = _StallGuard("confluent-kafka")
        while _behind(read, ends):
            for message in consumer.consume(_FETCH_RECORDS, timeout=0.5):
                if message.error() is None:
                    _note(read, message)
            stall.check(read.count)
            progress(read.count)
    finally:
        consumer.close()
    return read


async def read_with_aiokafka(
    bootstrap_servers: str, topic: str, partitions: int, progress: Callable[[int], None]
) -> ReadBack:
    """Reads offsets from start to end of every partition with aiokafka.

    KafkaError if nothing comes for 30 s.
    """
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=1 << 20,
    )
    await consumer.start()
    read = ReadBack()
    try:
        assigned = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(assigned)
        end_offsets = await consumer.end_offsets(assigned)
        ends = {of.partition: end for of, end in end_offsets.items()}
        for one in assigned:
            consumer.seek(one, 0)
        stall = _StallGuard("aiokafka")
        while _behind(read, ends):
            batches = await consumer.getmany(timeout_ms=500, max_records=_FETCH_RECORDS)
            for of, records in batches.items():
                for record in records:
                    read.add(of.partition, record.offset, record.key, record.value)
            stall.check(read.count)
            progress(read.count)
    finally:
        await consumer.stop()
    return read


class _StallGuard:
    """Raises when a count has not grown for too long."""

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._count = -1
        self._since_s = time.monotonic()

    def check(self, count: int) -> None:
        """To be called after each step."""
        now_s = time.monotonic()
        if count != self._count:
            self._count, self._since_s = count, now_s
        elif now_s - self._since_s > _STALL_S:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self._reader} got nothing for {_STALL_S:g} s after {count} records",
            )


def _note(read: ReadBack, message: Any) -> None:
    read.add(message.partition(), message.offset(), message.key(), message.value())


def _behind(read: ReadBack, ends: dict[int, int]) -> bool:
    """Whether a partition is not yet read to its end."""
    return any(_next_offset(read, number) < end for number, end in ends.items())


def _next_offset(read: ReadBack, number: int) -> int:
    records = read.partitions.get(number)
    return records.offsets[-1] + 1 if records is not None and records.offsets else 0
