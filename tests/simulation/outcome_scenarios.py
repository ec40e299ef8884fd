"""Two bad moments of a transaction: between PREPARE and COMPLETE, and when a late EndTxn comes.

What is checked is what `transaction_scenarios` checks: a transaction is all or nothing, and none
stays open.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from broker.coordinator.internal_topics import partition_of
from broker.protocol.versions import ApiKey
from broker.types import TRANSACTION_STATE
from jepsen.simulator.cluster import BROKER_PORT
from raftctl.errors import ErrorCode, KafkaError
from tests.simulation.rig import Rig
from tests.simulation.transaction_scenarios import (
    PARTITIONS,
    QUICK,
    TOPIC,
    WRITERS,
    Outcomes,
    create_payments,
    judge_at_the_end,
    write_transactions,
)
from tests.unit.broker.server.fakes import Client

if TYPE_CHECKING:
    from broker.transactions import Transaction
    from jepsen.simulator.world import SimRuntime, World

ROUNDS = 3
MARKERS_LATE_MS = 300.0
"""How long markers are on their way, and answers to the followers, without whom PREPARE waits."""
INIT = (ApiKey.INIT_PRODUCER_ID, 4)
PRODUCE = (ApiKey.PRODUCE, 12)
END = (ApiKey.END_TXN, 5)
AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


class TransactionRig(Rig):
    """A cluster whose transaction coordinators can be looked at."""

    def __init__(self, world: World) -> None:
        super().__init__(world, QUICK)

    async def begin(self) -> None:
        """Starts everything; returns when the topic is there."""
        self.cluster.start_all()
        await self.until(self.all_active, "all brokers are active")
        await self.run("admin", partial(create_payments, self.cluster.bootstrap))

    def leader_of(self, topic_name: str, number: int | None = None, key: str = "") -> str | None:
        """The broker that leads a partition, or the one of a key."""
        node = self.active()
        topic = None if node is None else node.loader.image.topics.by_name(topic_name)
        if topic is None:
            return None
        if number is None:
            number = partition_of(key, len(topic.partitions))
        leader = topic.partitions[number].leader
        return None if leader < 0 else f"broker-{leader}"

    def coordinator_of(self, transactional_id: str) -> str | None:
        """The broker that holds a transactional id."""
        return self.leader_of(TRANSACTION_STATE, key=transactional_id)

    def known(self, name: str, transactional_id: str) -> Transaction | None:
        """What a broker knows of a transactional id."""
        broker: Any = self.cluster.nodes[name].broker
        try:
            found: Transaction | None = broker._transactions.core_of(transactional_id).known.get(
                transactional_id
            )
        except KafkaError:
            return None
        return found


async def coordinator_dies_between_prepare_and_complete(world: World) -> None:
    """Whoever takes over must bring the markers, of the outcome that the dead one had written."""
    rig, outcomes = TransactionRig(world), Outcomes()
    await rig.begin()
    for number in range(WRITERS):
        write = partial(write_transactions, rig.cluster.bootstrap, number, outcomes)
        world.start(f"writer-{number}", write)
    for round_number in range(ROUNDS):
        transactional_id = f"writer-{round_number % WRITERS}"
        name = await _prepared(rig, transactional_id)
        # Sometimes the markers have been sent by then, or some of them written.
        await asyncio.sleep(world.random.uniform(0.0, MARKERS_LATE_MS / 1_000))
        found = rig.known(name, transactional_id)
        assert found is not None, f"{name} is the coordinator"
        world.trace.add(name, "dies", found.state.text)
        world.kill(name)
        world.network.restore_links()
        await rig.until(partial(_took_over, rig, transactional_id, name), "another")
        rig.cluster.start(name)
        await rig.until(rig.all_active, "all brokers are active")
    await judge_at_the_end(rig, outcomes)
    assert outcomes.committed


def _took_over(rig: TransactionRig, transactional_id: str, dead: str) -> bool:
    return rig.coordinator_of(transactional_id) not in (None, dead)


async def _prepared(rig: TransactionRig, transactional_id: str) -> str:
    """Slows the coordinator down and returns its name when it has written PREPARE."""
    name = rig.coordinator_of(transactional_id)
    while name is None:
        await asyncio.sleep(0.02)
        name = rig.coordinator_of(transactional_id)
    for other in rig.cluster.broker_names:
        if other != name:
            rig.delay(name, other, MARKERS_LATE_MS)
    await rig.until(lambda: _is_prepared(rig.known(name, transactional_id)), "PREPARE is written")
    return name


def _is_prepared(found: Transaction | None) -> bool:
    return found is not None and found.state.is_prepared


class Producer:
    """A producer of transaction version 2 that speaks the protocol itself."""

    def __init__(self, rig: TransactionRig, name: str) -> None:
        self._rig = rig
        self._name = name
        self._identity = (-1, -1)
        self._sequences: dict[int, int] = {}

    async def begin(self) -> None:
        """Gets its id."""
        message = {"transactional_id": self._name, "transaction_timeout_ms": 5_000}
        self._go_on(await self._ask(None, INIT, message))

    async def write(self, value: bytes, number: int) -> None:
        """A record of the transaction, to one partition."""
        sequence = self._sequences.get(number, 0)
        builder: Any = DefaultRecordBatchBuilder(2, 0, 1, *self._identity, sequence, 10_000)
        builder.append(0, 1, None, value, [])
        self._sequences[number] = sequence + 1
        partition = {"index": number, "records": bytes(builder.build())}
        topics = [{"name": TOPIC, "partition_data": [partition]}]
        message = {"transactional_id": self._name, "acks": -1, "timeout_ms": 3_000}
        await self._ask(number, PRODUCE, {**message, "topic_data": topics})

    def end_message(self) -> dict[str, Any]:
        """The wish to commit what is open now."""
        who = {"producer_id": self._identity[0], "producer_epoch": self._identity[1]}
        return {"transactional_id": self._name, **who, "committed": True}

    async def commit(self) -> None:
        """Ends the transaction; the next one has another epoch."""
        self._go_on(await self._ask(None, END, self.end_message()))

    def _go_on(self, answer: dict[str, Any]) -> None:
        self._identity = (answer["producer_id"], answer["producer_epoch"])
        self._sequences.clear()

    async def _ask(
        self, number: int | None, api: tuple[ApiKey, int], message: dict[str, Any]
    ) -> dict[str, Any]:
        """Asks the leader of a partition, or the coordinator, until it has an answer."""
        while True:
            name = self._rig.coordinator_of(self._name)
            name = name if number is None else self._rig.leader_of(TOPIC, number)
            answer = await ask(name or self._rig.cluster.broker_names[0], api, message)
            error = _error_of(answer)
            if error not in AGAIN:
                if error:
                    raise KafkaError(ErrorCode(error), api[0].name)
                return answer
            await _look_for_coordinator(self._rig, self._name)


async def ask(name: str, api: tuple[ApiKey, int], message: dict[str, Any]) -> dict[str, Any]:
    """One question on a connection of its own."""
    client = Client(*await asyncio.open_connection(name, BROKER_PORT))
    try:
        return await client.ask(*api, message)
    finally:
        client.writer.close()


async def _look_for_coordinator(rig: TransactionRig, transactional_id: str) -> None:
    question = {"key_type": 1, "coordinator_keys": [transactional_id]}
    await ask(rig.cluster.broker_names[0], (ApiKey.FIND_COORDINATOR, 4), question)
    await asyncio.sleep(0.05)


def _error_of(answer: dict[str, Any]) -> int:
    if "responses" not in answer:
        return int(answer["error_code"])
    (topic,) = answer["responses"]
    (partition,) = topic["partition_responses"]
    return int(partition["error_code"])


async def late_end_comes_in_the_next_transaction(world: World) -> None:
    """A network holds an EndTxn back; the producer has sent it again and is a transaction further.

    Its commit must not be that of the next transaction (KAFKA-17754).
    """
    rig, outcomes = TransactionRig(world), Outcomes()
    await rig.begin()
    producer, answered = Producer(rig, "payer"), asyncio.Event()

    async def pay(runtime: SimRuntime) -> None:
        await producer.begin()
        for number in range(PARTITIONS):
            await producer.write(b"first", number)
        coordinator = rig.coordinator_of("payer") or ""
        rig.delay("slow-path", coordinator, runtime.random.uniform(300, 1_000))
        world.start("slow-path", partial(_send, coordinator, producer.end_message(), answered))
        await producer.commit()
        outcomes.committed.add(b"first")
        outcomes.unknown.add(b"second")
        await producer.write(b"second", 0)
        assert not answered.is_set(), "the request is late"
        await answered.wait()
        # If it should be refused it is for the readers to say what has become of the transaction.
        with contextlib.suppress(KafkaError):
            await producer.write(b"second", 1)
            await producer.commit()
            outcomes.unknown.remove(b"second")
            outcomes.committed.add(b"second")

    await rig.run("payer", pay)
    await judge_at_the_end(rig, outcomes)
    assert not outcomes.unknown, "the producer was not disturbed"


async def _send(
    coordinator: str, message: dict[str, Any], answered: asyncio.Event, runtime: SimRuntime
) -> None:
    del runtime
    await ask(coordinator, END, message)
    answered.set()
