"""The clients of the chaos scenario, unmodified aiokafka on nodes of their own, and their history.

A writer sends a few records at a time and waits for their acknowledgements. One that fails may or
may not have been written: the writer then begins a new life as another idempotent producer and
never repeats it. Each life is a process of the history, which `jepsen.checkers.kafka` judges.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from broker.protocol.versions import ApiKey
from jepsen.history import Op, OpType
from jepsen.simulator.cluster import BROKER_PORT
from jepsen.simulator.kernel import START_S
from raftctl.metadata.requests.admin import UPGRADE
from tests.unit.broker.server.fakes import Client

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jepsen.simulator.world import SimRuntime, World

TOPIC = "events"
REQUEST_TIMEOUT_MS = 3_000
STOP_TIMEOUT_S = 5
PAUSE_S = 0.1
UPDATE_FEATURES_VERSION = 1
LAST_NUMBER = 1_000_000
ERRORS = (KafkaError, TimeoutError, OSError)


@dataclass
class Ledger:
    """The history of what clients sent and polled, and what scenarios wait for meanwhile."""

    history: list[Op] = field(default_factory=list)
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By (partition, offset)."""
    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """What the reader got while things went wrong."""
    topics: set[str] = field(default_factory=set)
    """Topics whose creation was acknowledged."""
    producers: dict[int, set[bytes]] = field(default_factory=dict)
    """Which lives of writers have written with each producer id."""
    failures: int = 0
    _processes: int = 0
    _ended: set[int] = field(default_factory=set)
    """The lines of the operations that have succeeded."""

    def process(self) -> int:
        """The number of another process of the history."""
        self._processes += 1
        return self._processes

    def invoke(self, process: int, f: str, value: list[Any]) -> Op:
        """An operation begins; one that fails is left open, since it may have happened."""
        self.history.append(Op(len(self.history), _now_ns(), process, OpType.INVOKE, f, value))
        return self.history[-1]

    def succeed(self, invoked: Op, value: list[Any]) -> None:
        """The operation has happened."""
        self._ended.add(invoked.index)
        self.history.append(replace(invoked, time=_now_ns(), type=OpType.OK, value=value))

    def hand_over(
        self,
        world: World,
        found: Mapping[tuple[int, int], bytes],
        faults: Sequence[Op] = (),
    ) -> None:
        """Notes the history in the world, which has it judged; `found` is all there in the end."""
        logs: dict[str, list[tuple[int, bytes]]] = {}
        for (partition, offset), value in sorted(found.items()):
            logs.setdefault(str(partition), []).append((offset, value))
        last = Op(0, _now_ns(), self.process(), OpType.INVOKE, "final-poll", [["poll"]])
        polled = [last, replace(last, type=OpType.OK, value=[["poll", logs]])]
        began_ns = round(START_S * 1e9)
        history = [
            replace(op, time=op.time - began_ns, value=_text(op.value))
            for op in (*self._by_outcome(), *(polled if found else ()))
        ]
        for at, op in enumerate(sorted([*history, *faults], key=lambda op: op.time)):
            world.note(replace(op, index=at))
        world.checkers.append("kafka")

    def judge(self, found: dict[tuple[int, int], bytes]) -> list[str]:
        """What is wrong with all that is there in the end, beside what the checker finds."""
        # The checker does not count on a last poll that is complete; this one is.
        wrong = [
            f"{where} is gone from the log, a reader saw {value!r}"
            for where, value in self.seen.items()
            if where not in found
        ]
        return wrong + [
            f"producer id {number} was given to {sorted(lives)}"
            for number, lives in self.producers.items()
            if len(lives) > 1
        ]

    def _by_outcome(self) -> Iterator[Op]:
        """The history in which of an open operation all that was acknowledged has happened."""
        offsets = {value: offset for (_, offset), value in self.acknowledged.items()}
        late: list[Op] = []
        for op in self.history:
            if op.type is not OpType.INVOKE or op.f != "send" or op.index in self._ended:
                yield op
                continue
            acknowledged = [one for one in op.value if one[2] in offsets]
            if acknowledged:
                yield replace(op, value=acknowledged)
                told = [["send", key, [offsets[value], value]] for _, key, value in acknowledged]
                late.append(replace(op, time=_now_ns(), type=OpType.OK, value=told))
            unknown = [one for one in op.value if one[2] not in offsets]
            if unknown:
                yield replace(op, process=self.process(), value=unknown)
        yield from late


def _text(value: Any) -> Any:
    """The value with text for bytes, as JSON has it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Mapping):
        return {key: _text(one) for key, one in value.items()}
    return [_text(one) for one in value] if isinstance(value, list | tuple) else value


def _now_ns() -> int:
    return round(asyncio.get_running_loop().time() * 1e9)


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
        self._process = 0
        """Of the present life."""
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
            values = [b"%s.%d/%d" % (self._name.encode(), self._lives, one) for one in numbers]
            key = str(partition)
            sending = self._ledger.invoke(
                self._process, "send", [["send", key, value] for value in values]
            )
            sent = []
            for value in values:
                future = await producer.send(TOPIC, value, partition=partition)
                future.add_done_callback(_retrieve)
                sent.append((value, future))
            done: list[Any] = []
            async with asyncio.timeout(self._patience_s):
                for value, future in sent:
                    offset = (await future).offset
                    self._ledger.acknowledged[partition, offset] = value
                    done.append(["send", key, [offset, value]])
            self._ledger.succeed(sending, done)
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
            self._process = self._ledger.process()
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
    """Reads on while things go wrong, until killed."""
    consumer = await _consumer(bootstrap)
    where = [TopicPartition(TOPIC, partition) for partition in range(partitions)]
    consumer.assign(where)
    for partition in where:
        consumer.seek(partition, 0)
    process = ledger.process()
    while True:
        poll = ledger.invoke(process, "poll", [["poll"]])
        record = await consumer.getone()
        ledger.seen[record.partition, record.offset] = record.value
        found = {str(record.partition): [(record.offset, record.value)]}
        ledger.succeed(poll, [["poll", found]])


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
