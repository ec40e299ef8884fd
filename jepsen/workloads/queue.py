"""Jepsen's Kafka workload: sends and polls of partitions, with consumers that assign themselves.

A key is a partition, as text. Values are numbers that nobody sends twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from jepsen.checkers.kafka.check import check_kafka
from jepsen.checkers.simple import check_availability
from jepsen.client import Completion, failed, ok, unknown
from jepsen.generator.combinators import Cycle, UntilOk, once, phases, reserve
from jepsen.generator.core import Endless, Numbered, Todo
from jepsen.workloads.base import Workload, WorkloadOptions

if TYPE_CHECKING:
    import random

    from jepsen.client import Client
    from jepsen.env.base import Environment
    from jepsen.generator.core import Context
    from jepsen.history import Op

REQUEST_TIMEOUT_MS = 3_000
POLL_MS = 200
POLL_RECORDS = 500
PREPARE_S = 60.0
PAUSE_S = 0.2
ASSIGN_CHANCE = 1 / 32
LAST_VALUES = 1_000_000_000
CERTAIN = (MessageSizeTooLargeError, TopicAuthorizationFailedError)
"""What a broker says of a record it has certainly not appended, in no attempt."""


@dataclass
class QueueClient:
    """An idempotent producer and a consumer of one process, both opened when first needed."""

    bootstrap: str
    options: WorkloadOptions
    _producer: AIOKafkaProducer | None = None
    _consumer: AIOKafkaConsumer | None = None
    _positions: dict[str, int] = field(default_factory=dict)

    async def open(self) -> None:
        """Nothing is connected before it is needed."""

    async def close(self) -> None:
        """See `Client`."""
        producer, consumer = self._producer, self._consumer
        self._producer = self._consumer = None
        for one in (producer, consumer):
            if one is not None:
                with contextlib.suppress(KafkaError, OSError):
                    await one.stop()

    async def invoke(self, op: Op) -> Completion:
        """See `Client`."""
        does = {
            "send": self._send,
            "poll": self._poll,
            "assign": self._assign,
            "final-poll": self._final_poll,
        }
        return await does[op.f](op)

    async def _send(self, op: Op) -> Completion:
        try:
            producer = await self._connected_producer()
        except (KafkaError, OSError, TimeoutError) as error:
            return failed(op.value, f"no producer: {error!r}")
        sent: list[Any] = []
        for _, key, value in op.value:
            body = b"%d" % value
            try:
                at = await producer.send_and_wait(self.options.topic, body, partition=int(key))
            except CERTAIN as error:
                return failed(op.value, repr(error))
            except (KafkaError, OSError) as error:
                return unknown([*sent, *op.value[len(sent) :]], repr(error))
            sent.append(["send", key, [at.offset, value]])
        return ok(sent)

    async def _poll(self, op: Op) -> Completion:
        try:
            consumer = await self._connected_consumer()
            if not self._positions:
                return ok([["poll", {}]])
            batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
        except (KafkaError, OSError, TimeoutError) as error:
            # What it may have been given is asked for again.
            await self._seek()
            return failed(op.value, repr(error))
        return ok([["poll", self._taken(batches)]])

    def _taken(self, batches: Any) -> dict[str, list[list[int]]]:
        """The records by key; the positions move on."""
        found: dict[str, list[list[int]]] = {}
        for where, records in batches.items():
            key = str(where.partition)
            found[key] = [[record.offset, int(record.value)] for record in records]
            self._positions[key] = records[-1].offset + 1
        return found

    async def _assign(self, op: Op) -> Completion:
        """Goes on where it stood in the keys it keeps, and begins the others at their start."""
        try:
            consumer = await self._connected_consumer()
        except (KafkaError, OSError, TimeoutError) as error:
            return failed(op.value, repr(error))
        self._positions = {key: self._positions.get(key, 0) for key in op.value}
        consumer.assign([self._partition(key) for key in op.value])
        await self._seek()
        return ok(op.value)

    async def _seek(self) -> None:
        if self._consumer is not None:
            for key, position in self._positions.items():
                self._consumer.seek(self._partition(key), position)

    async def _final_poll(self, op: Op) -> Completion:
        """Everything, from the start to the end that there is when it begins."""
        found: dict[str, list[list[int]]] = {}
        try:
            consumer = await self._connected_consumer()
            where = [self._partition(str(key)) for key in range(self.options.keys)]
            self._positions = {str(one.partition): 0 for one in where}
            consumer.assign(where)
            await self._seek()
            ends = await consumer.end_offsets(where)
            while any(self._positions[str(one.partition)] < ends[one] for one in where):
                batches = await consumer.getmany(timeout_ms=POLL_MS)
                for key, pairs in self._taken(batches).items():
                    found.setdefault(key, []).extend(pairs)
        except (KafkaError, OSError, TimeoutError) as error:
            return failed(op.value, repr(error))
        return ok([["poll", found]])

    def _partition(self, key: str) -> TopicPartition:
        return TopicPartition(self.options.topic, int(key))

    async def _connected_producer(self) -> AIOKafkaProducer:
        if self._producer is None:
            acks: str | int = (
                self.options.acks if self.options.acks == "all" else int(self.options.acks)
            )
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks=acks,
                enable_idempotence=acks == "all",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                retry_backoff_ms=50,
            )
            await _started(producer)
            self._producer = producer
        return self._producer

    async def _connected_consumer(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                enable_auto_commit=False,
                auto_offset_reset="none",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                retry_backoff_ms=50,
            )
            await _started(consumer)
            self._consumer = consumer
        return self._consumer


async def _started(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    try:
        await client.start()
    except BaseException:
        with contextlib.suppress(KafkaError, OSError):
            await client.stop()
        raise


async def create_topic(environment: Environment, options: WorkloadOptions) -> None:
    """Creates the topic; raises TimeoutError if that does not succeed."""
    insync = str(max(1, options.replication - 1))
    configs = {"min.insync.replicas": insync}
    topic = NewTopic(options.topic, options.keys, options.replication, topic_configs=configs)
    attempts = int(PREPARE_S / PAUSE_S)
    for _ in range(attempts):
        if await _created(environment.bootstrap_servers, topic):
            return
        await asyncio.sleep(PAUSE_S)
    raise TimeoutError(f"the topic {options.topic} was not created in {attempts} attempts")


async def _created(bootstrap: str, topic: NewTopic) -> bool:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await admin.start()
        answer = await admin.create_topics([topic])
        return for_code(answer.topic_errors[0][1]).errno in (0, TopicAlreadyExistsError.errno)
    except (KafkaError, OSError, TimeoutError, AttributeError):
        # The last is how aiokafka takes it that a broker knows of no other yet.
        return False
    finally:
        with contextlib.suppress(KafkaError, OSError):
            await admin.close()


def _send(number: int, keys: int) -> Todo:
    return Todo("send", [["send", str(number % keys), number]])


def _poll(context: Context, keys: int) -> Todo:
    if context.random.random() < ASSIGN_CHANCE:
        count = context.random.randint(1, keys)
        return Todo(
            "assign", [str(key) for key in sorted(context.random.sample(range(keys), count))]
        )
    return Todo("poll", [["poll"]])


def _client(
    options: WorkloadOptions, environment: Environment, process: int, rng: random.Random
) -> Client:
    if options.client == "librdkafka":
        # Not imported in the simulation, where it has no part.
        from jepsen.workloads.librdkafka import LibrdkafkaQueueClient

        return LibrdkafkaQueueClient(environment.bootstrap_servers, options)
    return QueueClient(environment.bootstrap_servers, options)


def queue(options: WorkloadOptions) -> Workload:
    """Half of the threads send, half poll; at the end everything is read from the start."""
    senders = max(1, options.concurrency // 2)
    sends = Numbered(partial(_send, keys=options.keys))
    # Values of its own: what is whole again must take writes.
    last_sends = Numbered(partial(_send, keys=options.keys), LAST_VALUES)
    polls = Endless(partial(_poll, keys=options.keys))
    return Workload(
        "queue",
        partial(_client, options),
        reserve(senders, sends, polls),
        {"kafka": check_kafka, "availability": check_availability},
        # What is acknowledged while it is polled for the last time would count as unseen.
        final=phases(UntilOk(last_sends), UntilOk(Cycle(once("final-poll", [["poll"]])))),
        prepare=partial(create_topic, options=options),
    )
