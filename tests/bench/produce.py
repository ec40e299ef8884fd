"""Produce throughput of one librdkafka producer in its own process: acks=all, three replicas."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.bench.cluster import create_topic, local_cluster
from tests.bench.figures import figure

RECORD_BYTES = 1024
TURN_BYTES = 256 << 20
PARTITIONS = 6


def run(turns: int) -> dict[str, Any]:
    """Megabytes (10^6) of record values acknowledged a second."""
    speeds = []
    with local_cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap, "log_level": 2})
        for turn in range(turns):
            create_topic(admin, f"produce-{turn}", PARTITIONS)
            command = [sys.executable, "-m", "tests.bench.produce", cluster.layout.bootstrap]
            output = subprocess.run(
                [*command, f"produce-{turn}"], check=True, capture_output=True, text=True
            )
            speeds.append(json.loads(output.stdout)["megabytes_per_s"])
    goal = f"{RECORD_BYTES} B records, {PARTITIONS} partitions; floor: 40"
    return {"produce_acks_all": figure(speeds, "MB/s", goal, 1)}


def main(bootstrap: str, topic: str) -> None:
    """The producer process."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 65536,
            "queue.buffering.max.kbytes": 65536,
            "log_level": 2,
        }
    )
    failed: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    value = bytes(range(256)) * (RECORD_BYTES // 256)
    count = TURN_BYTES // RECORD_BYTES
    began = time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, callback=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(120)
    elapsed = time.perf_counter() - began
    if failed or left:
        raise SystemExit(f"{len(failed)} failed, {left} not acknowledged: {failed[:1]}")
    sys.stdout.write(json.dumps({"megabytes_per_s": count * RECORD_BYTES / elapsed / 1e6}))


if __name__ == "__main__":
    main(*sys.argv[1:])
