"""A process with a producer at a steady pace and a consumer of what it writes.

`... BOOTSTRAP TOPIC RATE SIZE SETTLE_S SECONDS PID ...`: records of SIZE bytes, RATE a second. The
measured SECONDS begin after SETTLE_S; PIDs are those of the brokers. A record's latency runs from
the call of the producer to the consumer. Records that arrive within the measured time count.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

POLL_S = 0.1
SWITCH_S = 0.0002
"""The interpreter's: the default of 5 ms would show in the latencies."""
HEAD_BYTES = 8
TIMEOUT_S = 30.0
LOST_S = 1.0
"""After which one that has not arrived is waited for no longer."""
SETTINGS = {"log_level": 0, "socket.nagle.disable": True}


class Clients:
    """The producer and the consumer, each on a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, rate: int, size: int) -> None:
        """`rate` is of records a second; 0: each is sent when the one before has arrived."""
        self._topic = topic
        self._rate = rate
        self._filler = bytes(size - HEAD_BYTES)
        where = {**SETTINGS, "bootstrap.servers": bootstrap}
        self._producer = Producer({**where, "acks": "all", "linger.ms": 0})
        group = {"group.id": "bench-paced", "enable.auto.commit": False}
        self._consumer = Consumer({**where, **group, "fetch.error.backoff.ms": 5})
        found = self._consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        self._partitions = sorted(found.partitions)
        self._consumer.assign([TopicPartition(topic, one, OFFSET_END) for one in self._partitions])
        self._over = threading.Event()
        self._arrived = threading.Semaphore(0)
        """Of the records that arrived and let another one be sent, where there is no rate."""
        self._threads = [threading.Thread(target=one) for one in (self._send, self._receive)]
        self.sent = 0
        self.latencies_ns: list[int] = []
        """In order of arrival."""
        self.refused: list[str] = []

    def __enter__(self) -> Clients:
        # A consumer that starts from the end must know where that is before anything is written.
        for one in self._partitions:
            self._consumer.get_watermark_offsets(TopicPartition(self._topic, one), TIMEOUT_S)
        self._consumer.poll(POLL_S)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._producer.purge()
        self._consumer.close()

    def _send(self) -> None:
        began, count = time.perf_counter(), len(self._partitions)
        while not self._over.is_set():
            self._await_turn(began)
            value = time.perf_counter_ns().to_bytes(HEAD_BYTES, "big") + self._filler
            partition = self.sent % count
            try:
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(POLL_S)
                continue
            self.sent += 1
            self._producer.poll(0)

    def _await_turn(self, began: float) -> None:
        if not self._rate:
            if self.sent:
                self._arrived.acquire(timeout=LOST_S)
            return
        wait_s = began + self.sent / self._rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None and not self._over.is_set():
            self.refused.append(str(error))

    def _receive(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(POLL_S)
            now = time.perf_counter_ns()
            if message is None:
                continue
            value = message.value()
            if message.error() is None and value is not None:
                self.latencies_ns.append(now - int.from_bytes(value[:HEAD_BYTES], "big"))
                if not self._rate:
                    self._arrived.release()


def measure(clients: Clients, settle_s: float, seconds: float, pids: Sequence[int]) -> Any:
    """One turn, as `tests.bench.kafka.paced.Turn` has it."""
    brokers = [psutil.Process(pid) for pid in pids]
    time.sleep(settle_s)
    began, before = time.perf_counter(), _cpu_seconds(brokers)
    sent, first = clients.sent, len(clients.latencies_ns)
    time.sleep(seconds)
    last, sent = len(clients.latencies_ns), clients.sent - sent
    used, elapsed = _cpu_seconds(brokers) - before, time.perf_counter() - began
    latencies = sorted(clients.latencies_ns[first:last])
    if not latencies or clients.refused:
        raise RuntimeError(f"{len(latencies)} records arrived; refused: {clients.refused[:1]}")
    return {
        "sent_per_s": sent / elapsed,
        "arrived_per_s": len(latencies) / elapsed,
        "p50_ms": at(latencies, 0.5) / 1e6,
        "p99_ms": at(latencies, 0.99) / 1e6,
        "cpu_us": used * 1e6 / len(latencies),
    }


def at(ordered: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of all do not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in times)


def main(words: Sequence[str]) -> None:
    """Measures one turn and prints it as JSON."""
    bootstrap, topic, rate, size, settle_s, seconds, *pids = words
    sys.setswitchinterval(SWITCH_S)
    gc.disable()
    with Clients(bootstrap, topic, int(rate), int(size)) as clients:
        found = measure(clients, float(settle_s), float(seconds), [int(pid) for pid in pids])
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
