"""Writes records as fast as asked for, in the way of `kafka-producer-perf-test`.

Latency is from the call of `produce` to the acknowledgement, so it holds the wait for the batch.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from raftctl.bench._latencies import Latencies
from raftctl.bench.clients import (
    MEGABYTE,
    PROGRESS_S,
    new_client,
    partitions_of,
    rates,
)
from raftctl.errors import ErrorCode, KafkaError, client_error

if TYPE_CHECKING:
    from collections.abc import Callable

PAYLOADS = 16
"""Different values, in turn: random letters, as the tool of Apache Kafka makes them."""
BUFFER_KIB = 65536
"""What may wait in the client, unless `queue.buffering.max.kbytes` says otherwise."""
BATCH_OVERHEAD = 4096
MESSAGE_BYTES_MIN = 1_000_000
"""librdkafka's default of `message.max.bytes`, which is raised for greater records."""
FULL_WAIT_S = 0.01
SERVE_EVERY = 32
"""Records between two looks at what came of earlier ones."""
FLUSH_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class ProducePlan:
    """What is written."""

    bootstrap_servers: str
    topic: str
    num_records: int
    record_size: int
    """Bytes of a value."""
    throughput: float = -1
    """Records a second; below 0: as fast as can be."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of librdkafka's producer."""


def produce(plan: ProducePlan, say: Callable[[str], object]) -> dict[str, Any]:
    """Rates and latencies of all records; `say` gets a sentence every few seconds.

    Raises KafkaError if a record is not acknowledged, ConfigError for a bad property.
    """
    defaults = {
        "queue.buffering.max.kbytes": BUFFER_KIB,
        "message.max.bytes": max(MESSAGE_BYTES_MIN, plan.record_size + BATCH_OVERHEAD),
    }
    producer = new_client(Producer, plan.bootstrap_servers, defaults, plan.properties)
    partitions_of(producer, plan.topic)
    run = _Run(producer, plan, say)
    seconds = run.write_all()
    size = plan.num_records * plan.record_size
    return rates(plan.num_records, size, seconds) | run.latencies.summary()


class _Run:
    """One run of one producer."""

    def __init__(self, producer: Producer, plan: ProducePlan, say: Callable[[str], object]) -> None:
        self._producer = producer
        self._plan = plan
        self._say = say
        self._refused: list[Any] = []
        self._told = 0
        self._tell_at = PROGRESS_S
        self.latencies = Latencies()

    def write_all(self) -> float:
        """Seconds from the first record given to the last one acknowledged."""
        plan, source = self._plan, random.Random(0)
        payloads = [_letters(source, plan.record_size) for _ in range(PAYLOADS)]
        began = time.perf_counter()
        for number in range(plan.num_records):
            if plan.throughput > 0:
                self._wait_until(began + number / plan.throughput)
            self._give(payloads[number % PAYLOADS])
            if number % SERVE_EVERY == 0:
                self._producer.poll(0)
                self._check(0)
                self._tell(time.perf_counter() - began)
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        seconds = time.perf_counter() - began
        self._check(left)
        return seconds

    def _give(self, payload: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._plan.topic, payload, on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(FULL_WAIT_S)
            except KafkaException as error:
                raise client_error(error.args[0].code(), error.args[0].str()) from None

    def _wait_until(self, due: float) -> None:
        while (left := due - time.perf_counter()) > 0:
            time.sleep(min(left, PROGRESS_S))
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.latencies.add(message.latency())
        else:
            self._refused.append(error)

    def _tell(self, elapsed_s: float) -> None:
        if elapsed_s < self._tell_at:
            return
        acknowledged = len(self.latencies)
        a_second = (acknowledged - self._told) / (elapsed_s - self._tell_at + PROGRESS_S)
        megabytes = a_second * self._plan.record_size / MEGABYTE
        self._say(f"{acknowledged} records sent, {a_second:.1f} records/s ({megabytes:.2f} MB/s)")
        self._told, self._tell_at = acknowledged, elapsed_s + PROGRESS_S

    def _check(self, left: int) -> None:
        if self._refused:
            first = self._refused[0]
            raise client_error(first.code(), f"a record was refused: {first.str()}")
        if left:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{left} records were not acknowledged within {FLUSH_TIMEOUT_S:g} s",
            )


def _letters(source: random.Random, size: int) -> bytes:
    return bytes(source.choices(range(ord("A"), ord("Z") + 1), k=size))
