"""A process of transactional producers: `... BOOTSTRAP TOPIC PRODUCERS RECORDS WARM_S SECONDS`.

Each producer, a thread, commits one transaction after the other. RECORDS are those of one
transaction, of 1 KiB.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from confluent_kafka import Producer

RECORD_BYTES = 1024
MEGABYTE = 10**6
INIT_TIMEOUT_S = 60.0
CLIENT: dict[str, Any] = {"linger.ms": 5, "log_level": 0}


class _Writer:
    """One producer."""

    def __init__(self, bootstrap: str, topic: str, name: str, records: int) -> None:
        self._topic = topic
        self._records = records
        self._value = os.urandom(RECORD_BYTES)
        named = {"bootstrap.servers": bootstrap, "transactional.id": name}
        self._producer = Producer({**CLIENT, **named})
        self._producer.init_transactions(INIT_TIMEOUT_S)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._broken: BaseException | None = None
        self._done = 0

    def start(self) -> None:
        """Begins to write."""
        self._thread.start()

    @property
    def done(self) -> int:
        """The transactions that are committed. Raises what has ended the thread."""
        if self._broken is not None:
            raise self._broken
        return self._done

    def stop(self) -> None:
        """After the transaction that is open."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._producer.begin_transaction()
                for _ in range(self._records):
                    self._producer.produce(self._topic, self._value)
                self._producer.commit_transaction()
                self._done += 1
        except BaseException as error:
            self._broken = error
            raise


def load(
    bootstrap: str, topic: str, producers: int, records: int, warm_s: float, seconds: float
) -> dict[str, Any]:
    """Rates after some seconds that count only in the number of all transactions."""
    names = [f"{topic}-{number}" for number in range(producers)]
    writers = [_Writer(bootstrap, topic, name, records) for name in names]
    for writer in writers:
        writer.start()
    try:
        time.sleep(warm_s)
        before, began, counted = _done(writers), time.perf_counter(), 0
        while not counted:
            # However slow the machine is, one is counted.
            time.sleep(seconds)
            counted = _done(writers) - before
        elapsed = time.perf_counter() - began
    finally:
        for writer in writers:
            writer.stop()
    rate = counted / elapsed
    return {
        "transactions_per_s": rate,
        "megabytes_per_s": rate * records * RECORD_BYTES / MEGABYTE,
        "transactions": _done(writers),
    }


def _done(writers: list[_Writer]) -> int:
    return sum(writer.done for writer in writers)


if __name__ == "__main__":
    bootstrap, topic, producers, records, warm_s, seconds = sys.argv[1:]
    found = load(bootstrap, topic, int(producers), int(records), float(warm_s), float(seconds))
    sys.stdout.write(json.dumps(found))
