"""Consumer groups while their coordinators and members are broken (rows G1-G3).

The members are unmodified aiokafka consumers that read, commit and join again whatever happens.
Two promises hold all along: in one generation a partition has one owner, and an offset whose commit
was acknowledged never goes back by itself. At the end everything is read and committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

from broker.coordinator.internal_topics import partition_of
from broker.types import CONSUMER_OFFSETS
from tests.simulation.chaos_clients import ERRORS, REQUEST_TIMEOUT_MS, TOPIC, Writer, create_topic
from tests.simulation.rig import PACE_S, PATIENCE_S, Rig

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiokafka import TopicPartition

    from jepsen.simulator.world import SimRuntime, World

GROUP = "readers"
PARTITIONS = 4
MEMBERS = 3
ROUNDS = 4
OPERATIONS = 600
QUICK = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "offsets.commit.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@dataclass
class Journal:
    """What members were assigned and promised."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """The member id to which (generation, partition) was given."""
    committed: dict[int, int] = field(default_factory=dict)
    """The highest offset of each partition whose commit was acknowledged."""
    assigned: dict[str, list[int]] = field(default_factory=dict)
    """What each running member has now."""
    commits: int = 0
    wrong: list[str] = field(default_factory=list)
    """What listeners found: aiokafka keeps what they raise to itself."""

    def own(self, name: str, member_id: str, generation: int, partitions: list[int]) -> None:
        """A member is given partitions."""
        self.assigned[name] = partitions
        for number in partitions:
            owner = self.owners.setdefault((generation, number), member_id)
            text = f"partition {number} has two owners in generation {generation}"
            if owner != member_id:
                self.wrong.append(f"{text}: {owner} and {member_id}")

    def acknowledge(self, offsets: dict[int, int]) -> None:
        """A commit was acknowledged."""
        self.commits += 1
        for number, offset in offsets.items():
            self.committed[number] = max(offset, self.committed.get(number, 0))

    def check(self, number: int, known: int, found: int | None) -> None:
        """What a later fetch may not fall behind."""
        text = f"the committed offset of partition {number} went back"
        assert (found or 0) >= known, f"{text}: {found} after {known}"


class Member:
    """One life of a consumer after the other; the listener of each."""

    def __init__(self, name: str, bootstrap: Sequence[str], journal: Journal) -> None:
        self._name = name
        self._bootstrap = list(bootstrap)
        self._journal = journal
        self._consumer: Any = None
        ConsumerRebalanceListener.register(Member)

    async def run(self, runtime: SimRuntime) -> None:
        """Reads and commits until it is killed."""
        del runtime
        while True:
            self._consumer = consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                group_id=GROUP,
                client_id=self._name,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=2_000,
                heartbeat_interval_ms=300,
                rebalance_timeout_ms=3_000,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                retry_backoff_ms=50,
            )
            consumer.subscribe([TOPIC], listener=self)
            try:
                await consumer.start()
                await self._work(consumer)
            except ERRORS:
                await asyncio.sleep(0.1)
            finally:
                self._journal.assigned.pop(self._name, None)
                with contextlib.suppress(*ERRORS):
                    async with asyncio.timeout(5):
                        await consumer.stop()

    async def _work(self, consumer: Any) -> None:
        while True:
            await consumer.getmany(timeout_ms=200)
            assert not self._journal.wrong, self._journal.wrong[0]
            for one in sorted(consumer.assignment()):
                known = self._journal.committed.get(one.partition, 0)
                self._journal.check(one.partition, known, await consumer.committed(one))
            positions = {one: await consumer.position(one) for one in consumer.assignment()}
            if positions:
                await consumer.commit(positions)
                self._journal.acknowledge({p.partition: o for p, o in positions.items()})

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Part of the listener."""
        del revoked
        self._journal.assigned.pop(self._name, None)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Part of the listener."""
        known = self._consumer._coordinator
        partitions = sorted(one.partition for one in assigned)
        self._journal.own(self._name, known.member_id, known.generation, partitions)


class GroupRig(Rig):
    """A cluster, a writer to four partitions and the members of a group."""

    def __init__(self, world: World) -> None:
        super().__init__(world, QUICK)
        self.journal = Journal()
        self.writer = Writer("w0", self.cluster.bootstrap, self.ledger, PARTITIONS, PATIENCE_S)
        self.members = [f"member-{number}" for number in range(MEMBERS)]

    async def begin(self) -> None:
        """Starts everything; returns when all partitions are read."""
        self.cluster.start_all()
        await self.until(self.all_active, "all brokers are active")
        creating = partial(self._create_partitions)
        await self.run("admin", creating)
        self.world.start("writer", partial(self.writer.write, OPERATIONS, PACE_S))
        for name in self.members:
            self.start_member(name)
        await self.until(self.all_assigned, "all partitions have owners")
        await self.until(lambda: bool(self.journal.committed), "offsets are committed")

    def start_member(self, name: str) -> None:
        """A member on a node of its own."""
        self.world.start(name, Member(name, self.cluster.bootstrap, self.journal).run)

    def kill_member(self, name: str) -> None:
        """A member ends without a word."""
        self.world.kill(name)

    def all_assigned(self) -> bool:
        """Whether every partition is read by a member that knows of it."""
        given = sorted(one for part in self.journal.assigned.values() for one in part)
        return given == list(range(PARTITIONS))

    def coordinator(self) -> str | None:
        """The broker that leads the group's partition."""
        node = self.active()
        topic = None if node is None else node.loader.image.topics.by_name(CONSUMER_OFFSETS)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(GROUP, len(topic.partitions))].leader
        return None if leader < 0 else f"broker-{leader}"

    async def break_one(self, kind: str) -> None:
        """Breaks the coordinator, or one of the members."""
        name = self.coordinator() or ""
        match kind:
            case "member":
                self.kill_member(self.world.random.choice(self.members))
            case "isolate":
                self.isolate(name)
            case "stop":
                await self.stop(name)
            case _:
                self.world.kill(name)

    def start_all(self) -> None:
        """Starts what does not run."""
        for name in self.cluster.broker_names:
            if not self.cluster.is_up(name):
                self.cluster.start(name)
        for name in self.members:
            if self.world.node(name).process is None:
                self.start_member(name)

    async def end(self) -> None:
        """Everything runs again: the group must read and commit all there is."""
        world, cluster = self.world, self.cluster
        await self.until(self.whole, "all replicas are in sync")
        if world.node("writer").process is not None:
            world.kill("writer")
        last = Writer("w1", cluster.bootstrap, self.ledger, PARTITIONS, PATIENCE_S)
        await self.run("last-writer", last.write_until_acknowledged)
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for number, offset in self.ledger.acknowledged:
            ends[number] = max(ends[number], offset + 1)
        committed = self.journal.committed
        await self.until(
            lambda: all(committed.get(n, 0) >= end for n, end in ends.items()), "all is committed"
        )
        await self.until(self.all_assigned, "all partitions have owners")
        assert not self.journal.wrong, self.journal.wrong[0]

    async def _create_partitions(self, runtime: SimRuntime) -> None:
        del runtime
        assert await create_topic(self.cluster.bootstrap, TOPIC, PARTITIONS, patience=10)


async def groups_go_on(world: World) -> None:
    """Coordinators die, are cut off from the cluster or end; members die: again and again."""
    await go_wrong(GroupRig(world), ("kill", "isolate", "stop", "member"))


async def coordinator_is_isolated(world: World) -> None:
    """Members still reach a coordinator that the cluster does not: it must promise nothing."""
    await go_wrong(GroupRig(world), ("isolate",))


async def coordinator_dies(world: World) -> None:
    """The next coordinator must know what the last one said."""
    await go_wrong(GroupRig(world), ("kill",))


async def go_wrong(rig: GroupRig, kinds: tuple[str, ...]) -> None:
    """Breaks the group or its coordinator a few times, lets it recover in between."""
    world = rig.world
    await rig.begin()
    for _ in range(ROUNDS):
        await rig.until(lambda: rig.coordinator() is not None, "there is a coordinator")
        await rig.break_one(world.random.choice(kinds))
        await asyncio.sleep(world.random.uniform(0.5, 4.0))
        world.heal()
        rig.start_all()
        await rig.until(rig.whole, "all replicas are in sync")
        await asyncio.sleep(world.random.uniform(0.0, 1.0))
    await rig.end()
    counts = f"commits={rig.journal.commits} assigned={len(rig.journal.owners)}"
    world.trace.add("-", "judged", counts)
