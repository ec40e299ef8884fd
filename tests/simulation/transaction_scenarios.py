"""Unmodified transactional producers while brokers die and are cut off, each run with a seed.

A transaction writes one value to every partition. A reader of committed records must find it in all
of them or in none, according to what its producer was told, and no transaction stays open.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from tests.simulation.chaos_clients import ERRORS, PAUSE_S, REQUEST_TIMEOUT_MS, create_topic
from tests.simulation.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.simulator.world import SimRuntime, World

TOPIC = "payments"
PARTITIONS = 2
WRITERS = 2
ROUNDS = 4
TOLD = 10
"""Outcomes that are told before the next fault."""
THINKING_S = 0.2
"""A writer waits up to so long between transactions: more of them would show no more."""
PATIENCE_S = 15
QUICK = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "5",
}
WHERE = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]


@dataclass
class Outcomes:
    """What producers were told of each value, and what a reader saw meanwhile."""

    committed: set[bytes] = field(default_factory=set)
    aborted: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)
    seen: Counter[bytes] = field(default_factory=Counter)

    @property
    def told(self) -> int:
        """How many outcomes are known."""
        return len(self.committed) + len(self.aborted)

    def has_told(self, more_than: int) -> bool:
        """Whether more outcomes are known than that."""
        return self.told > more_than

    def judge(self, found: Counter[bytes]) -> list[str]:
        """What is wrong with what a reader of committed records found in the end."""
        wrong = [
            f"{value!r} was aborted and is read" for value in sorted(self.aborted) if found[value]
        ]
        wrong += [
            f"{value!r} was aborted and was read" for value in sorted(self.aborted & set(self.seen))
        ]
        wrong += [
            f"{value!r} is there in part: {found[value]}"
            for value in sorted(self.committed)
            if found[value] != PARTITIONS
        ]
        wrong += [
            f"{value!r} is there in part: {found[value]}"
            for value in sorted(self.unknown)
            if found[value] not in (0, PARTITIONS)
        ]
        return wrong


async def transactions_survive_faults(world: World) -> None:
    """Brokers die and are cut off one after the other while two producers write."""
    rig = Rig(world, QUICK)
    cluster, outcomes = rig.cluster, Outcomes()
    # Whose transaction took too long is fenced; its client has a future of that nobody awaits.
    world.tolerated += (ProducerFenced,)
    cluster.start_all()
    await rig.until(rig.all_active, "all brokers are active")
    await rig.run("admin", partial(create_payments, cluster.bootstrap))
    for number in range(WRITERS):
        world.start(
            f"writer-{number}", partial(write_transactions, cluster.bootstrap, number, outcomes)
        )
    world.start("reader", partial(_follow, cluster.bootstrap, outcomes))
    for round_number in range(ROUNDS):
        await rig.until(partial(outcomes.has_told, outcomes.told + TOLD), "outcomes are told")
        await asyncio.sleep(world.random.uniform(0, 0.3))
        name = world.random.choice(cluster.broker_names)
        if round_number % 2:
            rig.isolate(name)
        else:
            world.kill(name)
        await asyncio.sleep(world.random.uniform(1, 8))
        world.heal()
        if not cluster.is_up(name):
            cluster.start(name)
        await rig.until(rig.all_active, "all brokers are active")
    await judge_at_the_end(rig, outcomes)
    assert outcomes.committed
    assert outcomes.aborted


async def judge_at_the_end(rig: Rig, outcomes: Outcomes) -> None:
    """Lets writers end where they are: no transaction may stay open, nor be there in part."""
    world, bootstrap = rig.world, rig.cluster.bootstrap
    for number in range(WRITERS):
        if world.node(f"writer-{number}").process is not None:
            world.kill(f"writer-{number}")
    await rig.run("last-reader", partial(_nothing_is_open, bootstrap))
    found = await rig.run("final-reader", partial(_read_all, bootstrap))
    wrong = outcomes.judge(found)
    assert not wrong, "\n".join(wrong)


async def create_payments(bootstrap: Sequence[str], runtime: SimRuntime) -> None:
    """Creates the topic."""
    assert await create_topic(bootstrap, TOPIC, PARTITIONS, patience=100)


async def write_transactions(
    bootstrap: Sequence[str], number: int, outcomes: Outcomes, runtime: SimRuntime
) -> None:
    """Writes transactions until it is killed; after an error a new producer takes over."""
    count = 0
    while True:
        producer = AIOKafkaProducer(
            bootstrap_servers=list(bootstrap),
            transactional_id=f"writer-{number}",
            transaction_timeout_ms=5_000,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=50,
        )
        with contextlib.suppress(*ERRORS):
            async with asyncio.timeout(PATIENCE_S):
                await producer.start()
            while True:
                count += 1
                value = b"%d/%d" % (number, count)
                commit = runtime.random.random() < 0.7
                async with asyncio.timeout(PATIENCE_S):
                    await _transaction(producer, value, outcomes, commit=commit)
                await asyncio.sleep(runtime.random.uniform(0, THINKING_S))
        with contextlib.suppress(*ERRORS):
            async with asyncio.timeout(1):
                await producer.stop()
        await asyncio.sleep(PAUSE_S)


async def _transaction(
    producer: AIOKafkaProducer, value: bytes, outcomes: Outcomes, *, commit: bool
) -> None:
    outcomes.unknown.add(value)
    await producer.begin_transaction()
    for where in WHERE:
        await producer.send_and_wait(TOPIC, value, partition=where.partition)
    await (producer.commit_transaction() if commit else producer.abort_transaction())
    (outcomes.committed if commit else outcomes.aborted).add(value)
    outcomes.unknown.remove(value)


async def _consumer(bootstrap: Sequence[str], level: str) -> AIOKafkaConsumer:
    while True:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=list(bootstrap),
            enable_auto_commit=False,
            isolation_level=level,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=50,
        )
        with contextlib.suppress(*ERRORS):
            await consumer.start()
            return consumer
        await asyncio.sleep(PAUSE_S)


def _from_the_start(consumer: AIOKafkaConsumer) -> None:
    consumer.assign(WHERE)
    for where in WHERE:
        consumer.seek(where, 0)


async def _follow(bootstrap: Sequence[str], outcomes: Outcomes, runtime: SimRuntime) -> None:
    """Reads committed records while things go wrong, until killed."""
    consumer = await _consumer(bootstrap, "read_committed")
    _from_the_start(consumer)
    while True:
        record = await consumer.getone()
        outcomes.seen[record.value] += 1


async def _nothing_is_open(bootstrap: Sequence[str], runtime: SimRuntime) -> None:
    """Returns when the last stable offset of each partition is its end."""
    committed = await _consumer(bootstrap, "read_committed")
    every = await _consumer(bootstrap, "read_uncommitted")
    for _ in range(150):
        stable = await committed.end_offsets(WHERE)
        if stable == await every.end_offsets(WHERE):
            break
        await asyncio.sleep(0.2)
    else:
        raise AssertionError(f"a transaction is still open: {stable}")
    await committed.stop()
    await every.stop()


async def _read_all(bootstrap: Sequence[str], runtime: SimRuntime) -> Counter[bytes]:
    consumer = await _consumer(bootstrap, "read_committed")
    _from_the_start(consumer)
    found: Counter[bytes] = Counter()
    silent = 0
    while silent < 3:
        records = [
            one for some in (await consumer.getmany(timeout_ms=500)).values() for one in some
        ]
        found.update(record.value for record in records)
        silent = 0 if records else silent + 1
    await consumer.stop()
    return found
