"""Runs in an environment of its own, with an old confluent-kafka: writes, then reads back.

Usage: old_client.py BOOTSTRAP TOPIC CODEC COUNT; prints the librdkafka version.
"""

from __future__ import annotations

import sys
import time

import confluent_kafka

LINE = b"the same words again and again " * 20


def main(bootstrap: str, topic: str, codec: str, count: int) -> None:
    """Writes `count` records and reads as many back."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 50,
        }
    )
    for _ in range(count):
        producer.produce(topic, LINE, partition=0)
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read, deadline_s = 0, time.monotonic() + 30
    while read < count:
        assert time.monotonic() < deadline_s, f"read {read} of {count}"
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            assert (message.offset(), message.value()) == (read, LINE)
            read += 1
    consumer.close()
    sys.stdout.write(confluent_kafka.libversion()[0])


main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
