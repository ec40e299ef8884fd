"""A process with all members of a group: `... BOOTSTRAP TOPIC PARTITIONS GROUP PROTOCOL MEMBERS`.

Tells the seconds from the first subscription until every partition has an owner and every member
its share. The members know the cluster already, and one thread looks after all of them.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer

TIMEOUT_S = 180.0
TURN_S = 0.005
KNOWN_TIMEOUT_S = 30.0


def rebalance(
    bootstrap: str, topic: str, partitions: int, group: str, protocol: str, members: int
) -> dict[str, Any]:
    """How long it is from joining to all assigned."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "log_level": 0,
    }
    consumers = [Consumer(settings) for _ in range(members)]
    for consumer in consumers:
        consumer.list_topics(topic, timeout=KNOWN_TIMEOUT_S)
    began = time.perf_counter()
    for consumer in consumers:
        consumer.subscribe([topic])
    while not _shared(consumers, partitions):
        if time.perf_counter() > began + TIMEOUT_S:
            raise TimeoutError(f"after {TIMEOUT_S} s: {[_owned(one) for one in consumers]}")
        time.sleep(TURN_S)
    elapsed = time.perf_counter() - began
    for consumer in consumers:
        consumer.close()
    return {"seconds": elapsed}


def _shared(consumers: list[Consumer], partitions: int) -> bool:
    for consumer in consumers:
        message = consumer.poll(0)
        error = None if message is None else message.error()
        if error is not None and error.fatal():
            raise RuntimeError(error)
    owned = [_owned(consumer) for consumer in consumers]
    least = partitions // len(consumers)
    even = all(least <= len(one) <= least + 1 for one in owned)
    return even and len(set().union(*owned)) == sum(map(len, owned)) == partitions


def _owned(consumer: Consumer) -> set[int]:
    return {one.partition for one in consumer.assignment()}


if __name__ == "__main__":
    bootstrap, topic, partitions, group, protocol, members = sys.argv[1:]
    found = rebalance(bootstrap, topic, int(partitions), group, protocol, int(members))
    sys.stdout.write(json.dumps(found))
