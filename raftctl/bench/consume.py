"""Reads records as fast as can be, in the way of `kafka-consumer-perf-test`.

All partitions are assigned, without a group, so that what is measured is fetching alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from raftctl.bench.clients import (
    MEGABYTE,
    PROGRESS_S,
    assign_to_end,
    kafka_errors,
    new_client,
    partitions_of,
    rates,
)
from raftctl.errors import ErrorCode, KafkaError, client_error

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 1_000
"""Records that the client hands over at once. With ten times as many they have left the processor's
caches when they are looked at, and the client takes half as long again.
"""
POLL_S = 0.1
QUEUE_BACKOFF_MS = 5
"""How long the client stops fetching when 100,000 records wait in it. Its default, a second, would
be what is measured: the sooner brokers answer, the sooner the client stops."""


@dataclass(frozen=True, slots=True)
class ConsumePlan:
    """What is read."""

    bootstrap_servers: str
    topic: str
    num_records: int
    from_latest: bool = False
    """Begin at the end of the log instead of its start."""
    fetch_size: int = 1024 * 1024
    """Bytes of one partition in one fetch."""
    timeout_ms: int = 10_000
    """The longest time without a record."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of librdkafka's consumer."""


def consume(plan: ConsumePlan, say: Callable[[str], object]) -> dict[str, Any]:
    """Rates of at least so many records, and seconds until the first one came.

    Raises KafkaError if no more records come, ConfigError for a bad property.
    """
    defaults = {
        "group.id": "raftctl-bench",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "max.partition.fetch.bytes": plan.fetch_size,
        "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
    }
    consumer = new_client(Consumer, plan.bootstrap_servers, defaults, plan.properties)
    try:
        partitions = partitions_of(consumer, plan.topic)
        began = time.perf_counter()
        if plan.from_latest:
            assign_to_end(consumer, plan.topic, partitions)
        else:
            consumer.assign([TopicPartition(plan.topic, p, OFFSET_BEGINNING) for p in partitions])
        return _read(consumer, plan, began, say)
    finally:
        consumer.close()


def _read(
    consumer: Consumer, plan: ConsumePlan, began: float, say: Callable[[str], object]
) -> dict[str, Any]:
    records, size, first_s = 0, 0, 0.0
    last = told = began
    while records < plan.num_records:
        with kafka_errors():
            messages = consumer.consume(min(AT_ONCE, plan.num_records - records), POLL_S)
        now = time.perf_counter()
        for message in messages:
            error = message.error()
            if error is not None:
                raise client_error(error.code(), error.str())
            size += len(message)
        if messages:
            first_s = first_s or now - began
            last = now
            records += len(messages)
        elif (now - last) * 1000 > plan.timeout_ms:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no record for {plan.timeout_ms} ms after {records} of {plan.num_records}: "
                "lower --num-records or raise --timeout",
            )
        if now - told > PROGRESS_S:
            say(f"{records} records read, {size / (now - began) / MEGABYTE:.2f} MB/s")
            told = now
    seconds = last - began
    return rates(records, size, seconds) | {"seconds_to_first_record": round(first_s, 4)}
