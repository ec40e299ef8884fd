"""What readers of committed records see, while it comes in and to the end."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.integration.kafka_clients import assigned_consumer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

TIMEOUT_S = 60
AT_ONCE_S = 0.2


def _consumer(bootstrap: str, topics: Sequence[str], partitions: int, *, eof: bool) -> Consumer:
    more = {"isolation.level": "read_committed", "enable.partition.eof": eof}
    consumer = assigned_consumer(bootstrap, **more)
    consumer.assign([TopicPartition(topic, n, 0) for topic in topics for n in range(partitions)])
    return consumer


def records(bootstrap: str, topics: Sequence[str], partitions: int) -> Iterator[Message]:
    """Every record up to where each partition ends for readers of committed records."""
    consumer = _consumer(bootstrap, topics, partitions, eof=True)
    ended = set[tuple[str | None, int | None]]()
    deadline_s = time.monotonic() + TIMEOUT_S
    with contextlib.closing(consumer):
        while len(ended) < len(topics) * partitions:
            # It returns early only when it has as many as it was asked for.
            messages = consumer.consume(1000, AT_ONCE_S)
            if messages:
                deadline_s = time.monotonic() + TIMEOUT_S
            assert time.monotonic() < deadline_s, f"ended: {sorted(map(str, ended))}"
            for one in messages:
                error = one.error()
                if error is None:
                    yield one
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add((one.topic(), one.partition()))
                else:
                    raise KafkaException(error)


class Progress:
    """How many different values each topic has come to hold."""

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int) -> None:
        self._values = {topic: set[bytes]() for topic in topics}
        self._consumer = _consumer(bootstrap, topics, partitions, eof=False)

    def read(self) -> dict[str, int]:
        """The numbers, with what has come since."""
        for one in self._consumer.consume(1000, AT_ONCE_S):
            topic = one.topic()
            if one.error() is None and topic is not None:
                self._values[topic].add(one.value() or b"")
        return {topic: len(values) for topic, values in self._values.items()}

    def close(self) -> None:
        """Frees the consumer."""
        self._consumer.close()
