"""Consumers of a group in a process, for tests that stop, kill and pause it.

They print each value that they read on a line and then commit it. SIGTERM makes them leave.

Usage: python -m tests.peers.members BOOTSTRAP GROUP TOPIC PROTOCOL COUNT
"""

from __future__ import annotations

import signal
import sys
import threading

from confluent_kafka import Consumer


def member(bootstrap: str, group: str, topic: str, protocol: str) -> Consumer:
    """A consumer that has subscribed."""
    classic = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        **(classic if protocol == "classic" else {}),
    }
    made = Consumer(settings)
    made.subscribe([topic])
    return made


def main(bootstrap: str, group: str, topic: str, protocol: str, count: str) -> None:
    """Reads until it is told to stop."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    members = [member(bootstrap, group, topic, protocol) for _ in range(int(count))]
    while not stopping.is_set():
        for one in members:
            messages = [found for found in one.consume(100, 0.02) if found.error() is None]
            for found in messages:
                sys.stdout.write(f"{(found.value() or b'').decode()}\n")
            sys.stdout.flush()
            if messages:
                one.commit(asynchronous=True)
    for one in members:
        one.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
