"""From a call of `produce` to the record's arrival at a consumer, as Kafka's EndToEndLatency.

Apache Kafka's tool sends a record when the one before has arrived; with a throughput, records are
given at a steady pace instead, whatever becomes of them, so that a stall shows in all that wait.
"""

from __future__ import annotations

import secrets
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer

from raftctl.bench._latencies import Latencies
from raftctl.bench.clients import assign_to_end, kafka_errors, new_client, partitions_of, rates
from raftctl.errors import ErrorCode, KafkaError, client_error

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = struct.Struct(">8sQ")
"""Which run a record belongs to, and its number."""
RECORD_SIZE_MIN = HEAD.size
POLL_S = 0.1
ARRIVAL_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class EndToEndPlan:
    """What is sent through the cluster."""

    bootstrap_servers: str
    topic: str
    num_records: int
    record_size: int = 100
    """Bytes of a value, at least `RECORD_SIZE_MIN`."""
    acks: str = "all"
    throughput: float = -1
    """Records a second; below 0: the next one when the last has arrived."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of librdkafka's producer and consumer; each ignores what belongs to the other."""


def end_to_end(plan: EndToEndPlan, say: Callable[[str], object]) -> dict[str, Any]:
    """Rates and latencies. Raises KafkaError if a record is refused or does not arrive."""
    reading = {"group.id": "raftctl-bench", "enable.auto.commit": False}
    consumer = new_client(Consumer, plan.bootstrap_servers, reading, plan.properties)
    writing = {"acks": plan.acks, "linger.ms": 0}
    producer = new_client(Producer, plan.bootstrap_servers, writing, plan.properties)
    try:
        partitions = partitions_of(consumer, plan.topic)
        assign_to_end(consumer, plan.topic, partitions)
        say(f"sends {plan.num_records} records through {len(partitions)} partitions")
        run = _Run(producer, consumer, plan, partitions)
        seconds = run.send_all()
    finally:
        consumer.close()
    size = plan.num_records * plan.record_size
    return rates(plan.num_records, size, seconds) | run.latencies.summary()


class _Run:
    """One thread gives records, another one receives them."""

    def __init__(
        self, producer: Producer, consumer: Consumer, plan: EndToEndPlan, partitions: list[int]
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._plan = plan
        self._partitions = partitions
        self._tag = secrets.token_bytes(8)
        self._given: list[float | None] = []
        """When each record was given, by its number; None once it has arrived."""
        self._arrived = threading.Condition()
        self._ending = False
        self._failure: KafkaError | None = None
        self.latencies = Latencies()

    def send_all(self) -> float:
        """Seconds from the first record given to the last one received."""
        receiver = threading.Thread(target=self._receive, daemon=True)
        receiver.start()
        began = time.perf_counter()
        try:
            for number in range(self._plan.num_records):
                self._send(number, began)
            self._wait_for(self._plan.num_records)
            return time.perf_counter() - began
        finally:
            self._ending = True
            receiver.join()
            self._producer.flush(ARRIVAL_TIMEOUT_S)

    def _send(self, number: int, began: float) -> None:
        if self._plan.throughput > 0:
            due = began + number / self._plan.throughput
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
        else:
            self._wait_for(number)
        filler = b"x" * (self._plan.record_size - HEAD.size)
        value = HEAD.pack(self._tag, number) + filler
        self._given.append(time.perf_counter())
        partition = self._partitions[number % len(self._partitions)]
        with kafka_errors():
            self._producer.produce(
                self._plan.topic, value, partition=partition, on_delivery=self._delivered
            )
        self._producer.poll(0)
        self._check()

    def _wait_for(self, count: int) -> None:
        deadline = time.monotonic() + ARRIVAL_TIMEOUT_S
        while len(self.latencies) < count:
            with self._arrived:
                self._arrived.wait_for(lambda: len(self.latencies) >= count, POLL_S)
            self._producer.poll(0)
            self._check()
            if time.monotonic() > deadline:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{count - len(self.latencies)} of {count} records have not arrived within "
                    f"{ARRIVAL_TIMEOUT_S:g} s",
                )

    def _receive(self) -> None:
        while not self._ending and self._failure is None:
            message = self._consumer.poll(POLL_S)
            now = time.perf_counter()
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self._failure = client_error(error.code(), error.str())
                return
            self._take(message.value() or b"", now)

    def _take(self, value: bytes, now: float) -> None:
        if len(value) < HEAD.size:
            return
        tag, number = HEAD.unpack_from(value)
        # Others may write to the topic meanwhile, and a retry may write a record twice.
        given = self._given[number] if tag == self._tag else None
        if given is not None:
            self._given[number] = None
            with self._arrived:
                self.latencies.add(now - given)
                self._arrived.notify()

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failure = client_error(error.code(), f"a record was refused: {error.str()}")

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
