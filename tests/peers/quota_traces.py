"""Traces of one client under a quota: what it asked, when it was answered, how long it was muted.

A client plays the same requests to Apache Kafka and to us; `python -m tests.peers.quota_traces`
records Apache Kafka's answers for the unit tests.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.protocol.codec import decode_response, encode_request
from broker.protocol.versions import ApiKey
from tests.bench.kafka.clusters import kafka_jars
from tests.peers.differential.systems import both
from tests.peers.tools import CACHE, KAFKA_VERSION
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.quotas.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers.differential.playing import System

GOLDEN = Path(__file__).parent.parent / "unit/broker/quotas/apache_kafka.json"
PRODUCE_BOUND, FETCH_BOUND, MUTATION_BOUND = 20_000, 20_000, 2
SIZES = (30_000, 60_000, 90_000, 40_000, 5_000, 20_000, 50_000, 10_000, 1_000, 70_000, 25_000)
PAUSES_S = (0.0, 0.3, 0.05, 1.2, 0.0, 0.7, 0.1)
STEPS = 22
PARTITIONS = (10, 20, 4, 6, 2, 6, 1, 1)
"""Of each creation: the second takes more than comes back in ten seconds, on a slow machine too."""


class Asking:
    """One connection with one request at a time, under its own client id."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id

    @classmethod
    async def to(cls, system: System, client_id: str) -> Asking:
        """Connect."""
        limit = 1 << 24
        return cls(*await asyncio.open_connection(system.host, system.port, limit=limit), client_id)

    async def ask(self, api: int, version: int, message: dict[str, Any]) -> tuple[Any, int, int]:
        """(answer, size of the request, size of the answer)."""
        frame = encode_request(api, version, 1, self._client_id, message)
        self._writer.write(frame)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        payload = await self._reader.readexactly(size)
        return decode_response(api, version, payload)[1], len(frame) - 4, size

    async def close(self) -> None:
        """End the connection."""
        self._writer.close()
        await self._writer.wait_closed()


async def bounded(system: System, client_id: str, key: str, value: float) -> None:
    """Give a client id a quota, and wait until the broker has it."""
    admin = await Asking.to(system, "admin")
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    ops = [{"key": key, "value": value, "remove": False}]
    entries = [{"entity": entity, "ops": ops}]
    answer, _, _ = await admin.ask(
        ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False}
    )
    assert answer["entries"][0]["error_code"] == 0, answer
    await admin.close()
    await asyncio.sleep(1)


def creation(topic: str, partitions: int) -> dict[str, Any]:
    """A CreateTopics."""
    new = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return {"topics": [new], "timeout_ms": 20_000, "validate_only": False}


async def with_topic(system: System, topic: str) -> None:
    """Create a topic of one partition, and wait until it has a leader."""
    admin = await Asking.to(system, "admin")
    await admin.ask(ApiKey.CREATE_TOPICS, 7, creation(topic, 1))
    for _ in range(100):
        answer, _, _ = await admin.ask(ApiKey.PRODUCE, 9, produced(topic, 10))
        if answer["responses"][0]["partition_responses"][0]["error_code"] == 0:
            break
        await asyncio.sleep(0.1)
    await admin.close()


def produced(topic: str, size: int) -> dict[str, Any]:
    """A Produce of one record."""
    partition = {"index": 0, "records": make_batch([b"x" * size])}
    topics = [{"name": topic, "partition_data": [partition]}]
    return {"acks": 1, "timeout_ms": 10_000, "topic_data": topics, "transactional_id": None}


def steps() -> Iterator[tuple[float, int]]:
    """(pause before, bytes) of each request."""
    for step in range(STEPS):
        yield PAUSES_S[step % len(PAUSES_S)], SIZES[step % len(SIZES)]


async def produce_trace(system: System) -> Trace:
    """Play produces of different sizes at different times."""
    await with_topic(system, "produced")
    await bounded(system, "producer", "producer_byte_rate", PRODUCE_BOUND)
    client, trace, began = await Asking.to(system, "producer"), Trace(PRODUCE_BOUND), 0.0
    for pause_s, size in steps():
        await asyncio.sleep(pause_s)
        answer, asked, _ = await client.ask(ApiKey.PRODUCE, 9, produced("produced", size))
        began = began or time.monotonic()
        at_ms = round((time.monotonic() - began) * 1000)
        trace.answers.append((at_ms, asked, answer["throttle_time_ms"]))
    await client.close()
    return trace


async def fetch_trace(system: System) -> Trace:
    """Play fetches of one batch each; one that is throttled asks again. Size 0: it was empty."""
    await with_topic(system, "fetched")
    admin = await Asking.to(system, "admin")
    for _, size in steps():
        await admin.ask(ApiKey.PRODUCE, 9, produced("fetched", size))
    await admin.close()
    await bounded(system, "consumer", "consumer_byte_rate", FETCH_BOUND)
    client, trace, began, offset = await Asking.to(system, "consumer"), Trace(FETCH_BOUND), 0.0, 1
    for pause_s, _ in steps():
        await asyncio.sleep(pause_s)
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "log_start_offset": -1,
            "partition_max_bytes": 1,
        }
        message = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": "fetched", "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer, _, size = await client.ask(ApiKey.FETCH, 11, message)
        began = began or time.monotonic()
        got = sum(len(p["records"] or b"") for t in answer["responses"] for p in t["partitions"])
        offset += bool(got)
        at_ms = round((time.monotonic() - began) * 1000)
        trace.answers.append((at_ms, size if got else 0, answer["throttle_time_ms"]))
    await client.close()
    return trace


async def mutation_trace(system: System) -> Trace:
    """Play creations of topics, one after the other; the size is that of partitions."""
    await bounded(system, "administrator", "controller_mutation_rate", MUTATION_BOUND)
    client, trace = await Asking.to(system, "administrator"), Trace(MUTATION_BOUND)
    began = unmuted = time.monotonic()
    for number, partitions in enumerate(PARTITIONS):
        message = creation(f"mutated-{number}", partitions)
        # Measured before the topic is created, which takes longest.
        at_ms = round((max(time.monotonic(), unmuted) - began) * 1000)
        answer, _, _ = await client.ask(ApiKey.CREATE_TOPICS, 7, message)
        accepted = answer["topics"][0]["error_code"] == 0
        trace.answers.append((at_ms, partitions if accepted else 0, answer["throttle_time_ms"]))
        unmuted = time.monotonic() + answer["throttle_time_ms"] / 1000
    await client.close()
    return trace


TRACES = {"produce": produce_trace, "fetch": fetch_trace, "mutations": mutation_trace}


def main() -> None:
    """Record Apache Kafka's answers."""
    jars = kafka_jars(KAFKA_VERSION, CACHE)
    with tempfile.TemporaryDirectory() as directory, both(Path(directory), jars) as (kafka, _):
        found = {name: asyncio.run(play(kafka)) for name, play in TRACES.items()}
    document = {
        "version": KAFKA_VERSION,
        **{name: {"bound": t.bound, "answers": t.answers} for name, t in found.items()},
    }
    GOLDEN.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{GOLDEN}\n")


if __name__ == "__main__":
    main()
