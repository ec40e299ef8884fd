"""The clients of the chaos scenario, unmodified aiokafka on nodes of their own, and their ledger.

A writer sends a few records at a time and waits for their acknowledgements. One that fails may or
may not have been written: the writer then begins a new life as another idempotent producer and
never repeats it. So every value is to be found at most once, every acknowledged one exactly once,
and the values of one life of a writer in a partition in the order in which they were sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from broker.protocol.versions import ApiKey
from jepsen.simulator.cluster import BROKER_PORT
from raftctl.metadata.requests.admin import UPGRADE
from tests.unit.broker.server.fakes import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.simulator.world import SimRuntime

TOPIC = "events"
REQUEST_TIMEOUT_MS = 3_000
STOP_TIMEOUT_S = 5
PAUSE_S = 0.1
UPDATE_FEATURES_VERSION = 1
LAST_NUMBER = 1_000_000
ERRORS = (KafkaError, TimeoutError, OSError)


@dataclass
class Ledger:
    """What clients sent, were promised and saw."""

    sent: set[bytes] = field(default_factory=set)
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By (partition, offset)."""
    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """What the reader got while things went wrong."""
    topics: set[str] = field(default_factory=set)
    """Topics whose creation was acknowledged."""
    producers: dict[int, set[bytes]] = field(default_factory=dict)
    """Which lives of writers have written with each producer id."""
    failures: int = 0

    def judge(self, found: dict[tuple[int, int], bytes]) -> list[str]:
        """What is wrong with all that is there in the end."""
        wrong = [
            f"{where} is {found.get(where)!r}, acknowledged {value!r}"
            for where, value in self.acknowledged.items()
            if found.get(where) != value
        ]
        wrong += [
            f"{where} is {found.get(where)!r}, a reader saw {value!r}"
            for where, value in self.seen.items()
            if found.get(where) != value
        ]
        wrong += [
            f"producer id {number} was given to {sorted(lives)}"
            for number, lives in self.producers.items()
            if len(lives) > 1
        ]
        values = list(found.values())
        wrong += [f"{value!r} was never sent" for value in values if value not in self.sent]
        wrong += [f"{value!r} is there twice" for value in values if values.count(value) > 1]
        return wrong + list(_out_of_order(found))


def _out_of_order(found: dict[tuple[int, int], bytes]) -> Sequence[str]:
    newest: dict[tuple[int, bytes], int] = {}
    wrong = []
    for partition, offset in sorted(found):
        value = found[partition, offset]
        life, _, number = value.rpartition(b"/")
        if int(number) < newest.get((partition, life), -1):
            wrong.append(f"{value!r} at {partition, offset} is out of order")
        newest[partition, life] = int(number)
    return wrong


class Writer:
    """Writes `operations` records over the partitions, at its own random pace."""

    def __init__(
        self,
        name: str,
        bootstrap: Sequence[str],
        ledger: Ledger,
        partitions: int,
        patience_s: float,
    ) -> None:
        self._name = name
        self._bootstrap = list(bootstrap)
        self._ledger = ledger
        self._partitions = partitions
        self._patience_s = patience_s
        self._lives = 0
        self._producer: AIOKafkaProducer | None = None

    async def write(self, operations: int, pace_s: float, runtime: SimRuntime) -> None:
        """Writes them; what fails is left behind."""
        number = 0
        while number < operations:
            count = min(runtime.random.randint(1, 4), operations - number)
            await self._write(range(number, number + count), runtime.random.randrange(10_000))
            number += count
            await asyncio.sleep(runtime.random.uniform(0, 2 * pace_s * count))
        await self._end()

    async def write_until_acknowledged(self, runtime: SimRuntime) -> None:
        """Writes one record to each partition; with nothing wrong any more this must succeed."""
        for partition in range(self._partitions):
            number = LAST_NUMBER + partition
            while True:
                if await self._write(range(number, number + 1), partition):
                    break
                await asyncio.sleep(PAUSE_S)
        await self._end()

    async def _write(self, numbers: range, partition: int) -> bool:
        partition %= self._partitions
        try:
            producer = await self._connected()
            sent = []
            for number in numbers:
                value = b"%s.%d/%d" % (self._name.encode(), self._lives, number)
                self._ledger.sent.add(value)
                future = await producer.send(TOPIC, value, partition=partition)
                future.add_done_callback(_retrieve)
                sent.append((value, future))
            async with asyncio.timeout(self._patience_s):
                for value, future in sent:
                    self._ledger.acknowledged[partition, (await future).offset] = value
            life = b"%s.%d" % (self._name.encode(), self._lives)
            self._ledger.producers.setdefault(producer._txn_manager.producer_id, set()).add(life)
        except ERRORS:
            self._ledger.failures += 1
            await self._end()
            return False
        return True

    async def _connected(self) -> AIOKafkaProducer:
        if self._producer is None:
            self._lives += 1
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all",
                enable_idempotence=True,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                retry_backoff_ms=50,
            )
            self._producer = producer
            await producer.start()
        return self._producer

    async def _end(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer)


def _retrieve(future: asyncio.Future[object]) -> None:
    """When one of several fails, nobody asks the others."""
    if not future.cancelled():
        future.exception()


async def _stop(client: AIOKafkaProducer | AIOKafkaConsumer | AIOKafkaAdminClient) -> None:
    with contextlib.suppress(*ERRORS):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def create_topic(
    bootstrap: Sequence[str], name: str, partitions: int, *, patience: int = 1
) -> bool:
    """Creates a topic of three replicas; tells whether that was acknowledged."""
    topic = NewTopic(name, partitions, 3, topic_configs={"min.insync.replicas": "2"})
    for _ in range(patience):
        admin = AIOKafkaAdminClient(
            bootstrap_servers=list(bootstrap), request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        try:
            await admin.start()
            response = await admin.create_topics([topic])
            error = for_code(response.topic_errors[0][1])
            if error.errno in (0, TopicAlreadyExistsError.errno):
                return True
        except (*ERRORS, AttributeError):
            # The last is how aiokafka takes it that a broker knows of no other yet.
            pass
        finally:
            await _stop(admin)
        await asyncio.sleep(PAUSE_S)
    return False


def new_topic(name: str, timeout_ms: int) -> dict[str, Any]:
    """The body of a CreateTopics of one topic: one partition, three replicas."""
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 3,
        "assignments": [],
        "configs": [],
    }
    return {"topics": [topic], "timeout_ms": timeout_ms, "validate_only": False}


async def raise_feature(broker: str, name: str, level: int, runtime: SimRuntime) -> None:
    """Raises the level of a feature, asked of one broker."""
    update = {"feature": name, "max_version_level": level, "upgrade_type": UPGRADE}
    question = {"timeout_ms": 10_000, "feature_updates": [update], "validate_only": False}
    client = Client(*await asyncio.open_connection(broker, BROKER_PORT))
    answer = await client.ask(ApiKey.UPDATE_FEATURES, UPDATE_FEATURES_VERSION, question)
    client.writer.close()
    assert answer["error_code"] == 0, answer


async def _consumer(bootstrap: Sequence[str]) -> AIOKafkaConsumer:
    while True:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=list(bootstrap),
            enable_auto_commit=False,
            auto_offset_reset="none",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=50,
        )
        try:
            await consumer.start()
        except ERRORS:
            await _stop(consumer)
            await asyncio.sleep(PAUSE_S)
        else:
            return consumer


async def follow(
    bootstrap: Sequence[str], ledger: Ledger, partitions: int, runtime: SimRuntime
) -> None:
    """Reads on while things go wrong, until killed; an offset never changes its value."""
    consumer = await _consumer(bootstrap)
    where = [TopicPartition(TOPIC, partition) for partition in range(partitions)]
    consumer.assign(where)
    for partition in where:
        consumer.seek(partition, 0)
    while True:
        record = await consumer.getone()
        key = (record.partition, record.offset)
        known = ledger.seen.setdefault(key, record.value)
        assert known == record.value, f"{key} was {known!r} and is {record.value!r}"


async def read_all(
    bootstrap: Sequence[str], partitions: int, runtime: SimRuntime
) -> dict[tuple[int, int], bytes]:
    """Everything that is there, by (partition, offset)."""
    consumer = await _consumer(bootstrap)
    where = [TopicPartition(TOPIC, partition) for partition in range(partitions)]
    consumer.assign(where)
    ends = await consumer.end_offsets(where)
    found: dict[tuple[int, int], bytes] = {}
    for partition in where:
        consumer.seek(partition, 0)
    while sum(ends.values()) > len(found):
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found |= {(record.partition, record.offset): record.value for record in records}
    await _stop(consumer)
    return found
