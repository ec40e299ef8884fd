"""The queue workload's clients on librdkafka, the library of most programs, by confluent-kafka.

Its calls block, so each runs on a thread; a client is used by one process only, one call at a time.
It has threads and clocks of its own, which is why it has no part in the simulation.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from jepsen.client import Completion, failed, ok, unknown

if TYPE_CHECKING:
    from jepsen.history import Op
    from jepsen.workloads.base import WorkloadOptions

DELIVERY_MS = 5_000
SLACK_S = 2.0
POLL_S = 0.2
POLL_RECORDS = 500
METADATA_S = 3.0
FINAL_S = 8.0
CERTAIN = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._QUEUE_FULL,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""Errors of a send after which no broker has appended the record, in no attempt."""


def sent_or_not(code: int, value: Any, why: str) -> Completion:
    """How a send ended that was not acknowledged: what may have been appended is unknown."""
    return (failed if code in CERTAIN else unknown)(value, why)


class LibrdkafkaQueueClient:
    """See `jepsen.workloads.queue.QueueClient`, which does the same by aiokafka."""

    def __init__(self, bootstrap: str, options: WorkloadOptions) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._positions: dict[str, int] = {}

    async def open(self) -> None:
        """Nothing is connected before it is needed."""

    async def close(self) -> None:
        """See `Client`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await asyncio.to_thread(consumer.close)

    async def invoke(self, op: Op) -> Completion:
        """See `Client`."""
        does = {
            "send": self._send,
            "poll": self._poll,
            "assign": self._assign,
            "final-poll": self._final_poll,
        }
        return await asyncio.to_thread(does[op.f], op)

    def _send(self, op: Op) -> Completion:
        sent: list[Any] = []
        for _, key, value in op.value:
            answers: list[tuple[Any, Any]] = []
            producer = self._connected_producer()
            try:
                producer.produce(
                    self._options.topic,
                    b"%d" % value,
                    partition=int(key),
                    on_delivery=lambda *told, into=answers: into.append(told),
                )
            except (BufferError, KafkaException) as error:
                return failed(op.value, repr(error)) if not sent else unknown(op.value, repr(error))
            producer.flush(DELIVERY_MS / 1000 + SLACK_S)
            problem, message = answers[0] if answers else (None, None)
            if message is None or problem is not None:
                why = "no word of its delivery" if problem is None else repr(problem)
                code = KafkaError._FAIL if problem is None or sent else problem.code()
                return sent_or_not(code, op.value, why)
            sent.append(["send", key, [message.offset(), value]])
        return ok(sent)

    def _poll(self, op: Op) -> Completion:
        if not self._positions:
            return ok([["poll", {}]])
        found: dict[str, list[list[int]]] = {}
        messages = self._connected_consumer().consume(POLL_RECORDS, POLL_S)
        errors = [message.error() for message in messages if message.error() is not None]
        if errors:
            self._reassign()
            return failed(op.value, repr(errors[0]))
        self._take(messages, found)
        return ok([["poll", found]])

    def _take(self, messages: list[Any], found: dict[str, list[list[int]]]) -> None:
        """Adds the records by key; the positions move on."""
        for message in messages:
            key = str(message.partition())
            found.setdefault(key, []).append([message.offset(), int(message.value())])
            self._positions[key] = message.offset() + 1

    def _assign(self, op: Op) -> Completion:
        """Goes on where it stood in the keys it keeps, and begins the others at their start."""
        self._positions = {key: self._positions.get(key, 0) for key in op.value}
        self._reassign()
        return ok(op.value)

    def _reassign(self) -> None:
        where = [
            TopicPartition(self._options.topic, int(key), position)
            for key, position in self._positions.items()
        ]
        self._connected_consumer().assign(where)

    def _final_poll(self, op: Op) -> Completion:
        """Everything, from the start to the end that there is when it begins."""
        found: dict[str, list[list[int]]] = {}
        consumer = self._connected_consumer()
        keys = [str(key) for key in range(self._options.keys)]
        try:
            ends = {
                key: consumer.get_watermark_offsets(
                    TopicPartition(self._options.topic, int(key)), timeout=METADATA_S
                )[1]
                for key in keys
            }
        except KafkaException as error:
            return failed(op.value, repr(error))
        self._positions = dict.fromkeys(keys, 0)
        self._reassign()
        for _ in range(int(FINAL_S / POLL_S)):
            messages = consumer.consume(POLL_RECORDS, POLL_S)
            self._take([one for one in messages if one.error() is None], found)
            if all(self._positions[key] >= end for key, end in ends.items()):
                return ok([["poll", found]])
        return failed(op.value, f"not at the end {ends} in time: {self._positions}")

    def _connected_producer(self) -> Producer:
        if self._producer is None:
            idempotent = self._options.acks == "all"
            self._producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "acks": self._options.acks,
                    "enable.idempotence": idempotent,
                    "delivery.timeout.ms": DELIVERY_MS,
                    "linger.ms": 0,
                    "retry.backoff.ms": 50,
                    "log_level": 0,
                }
            )
        return self._producer

    def _connected_consumer(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    # Wanted by the library; partitions are assigned by hand, nothing is committed.
                    "group.id": self._options.topic,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "log_level": 0,
                }
            )
        return self._consumer
