"""The runs that whole clusters with a planted bug are put through, each in a process of its own.

`python -m jepsen.env.sim run tests.mutants.node_scenarios:<mutant> --seed N` replays a mutant with
a seed; the name of a scenario instead of a mutant's runs the product as it is.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING

from jepsen.env.sim.cluster import Observer, SimCluster
from tests.simulation.chaos_clients import TOPIC, Ledger, Writer, create_topic, follow, read_all
from tests.simulation.cluster_chaos import chaos

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from jepsen.env.sim.runtime import SimRuntime
    from jepsen.env.sim.world import World
    from raftctl.server.node import Node

    Scenario = Callable[[World], Coroutine[Any, Any, object]]

OPERATIONS = 400
PACE_S = 0.02
WRITTEN = 20
TOPICS = 8
TIMEOUT_S = 60
PATIENCE_S = 20
SLOWNESS = 300.0
LATENCY_MS = 500.0


class _Rig:
    """A cluster, its clients and their ledger; one topic of one partition with three replicas."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = SimCluster(world)
        self.ledger = Ledger()
        self.observer = Observer(self.cluster)
        self.writer = Writer("w0", self.cluster.bootstrap, self.ledger, 1, PATIENCE_S)

    async def begin(self) -> None:
        """Starts everything; returns when the topic is written to and read."""
        cluster = self.cluster
        cluster.start_all()
        await self.until(self._all_active, "all brokers are active")
        await self.run("admin", self._create)
        self.world.start("writer", partial(self.writer.write, OPERATIONS, PACE_S))
        self.world.start("reader", partial(follow, cluster.bootstrap, self.ledger, 1))
        await self.until(lambda: len(self.ledger.acknowledged) > WRITTEN, "records are written")

    async def end(self) -> None:
        """Everything runs again: what clients were promised must be there."""
        world, cluster = self.world, self.cluster
        world.heal()
        for name in (*cluster.controller_names, *cluster.broker_names):
            if not cluster.is_up(name):
                cluster.start(name)
        await self.until(self.whole, "all replicas are in sync")
        if world.node("writer").process is not None:
            world.kill("writer")
        last = Writer("w1", cluster.bootstrap, self.ledger, 1, PATIENCE_S)
        await self.run("last-writer", last.write_until_acknowledged)
        found = await self.run("final-reader", partial(read_all, cluster.bootstrap, 1))
        wrong = self.ledger.judge(found)
        assert not wrong, "\n".join(wrong)

    async def run(self, name: str, main: Callable[[SimRuntime], Coroutine[Any, Any, Any]]) -> Any:
        """A program on a node of its own, to its end."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.world.start(name, main).done

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for something to become true."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    if condition():
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not within {TIMEOUT_S} s: {what}") from None

    async def _create(self, runtime: SimRuntime) -> None:
        created = await create_topic(self.cluster.bootstrap, TOPIC, 1, patience=100)
        assert created, "the topic could not be created"

    # --- looking --------------------------------------------------------------------------------

    def active(self) -> Any:
        """The active controller's node, or None."""
        names = filter(self.cluster.is_up, self.cluster.controller_names)
        nodes = [self.cluster.nodes[name] for name in names if name in self.cluster.nodes]
        leaders = [n for n in nodes if n.driver is not None and n.driver.is_leader and n.loader]
        return max(leaders, key=_epoch, default=None)

    def partition(self) -> Any:
        """The partition in the active controller's image, or None."""
        node = self.active()
        topic = None if node is None else node.loader.image.topics.by_name(TOPIC)
        return None if topic is None else topic.partitions[0]

    def _all_active(self) -> bool:
        node = self.active()
        brokers = () if node is None else node.loader.image.brokers.values()
        return len([broker for broker in brokers if broker.active]) == self.cluster.brokers

    def whole(self) -> bool:
        """Whether all three replicas are in sync."""
        return self.has_in_sync(3)

    def has_in_sync(self, count: int) -> bool:
        """Whether so many replicas are in sync."""
        partition = self.partition()
        members: tuple[int, ...] = partition.isr if partition else ()
        return len(members) == count

    def is_led_after(self, controller_id: int) -> bool:
        """Whether another than this controller is active."""
        node = self.active()
        return node is not None and node.config.node_id != controller_id

    def isolate(self, name: str) -> None:
        """Cuts a node off from all other nodes of the cluster, but not from clients."""
        for other in (*self.cluster.controller_names, *self.cluster.broker_names):
            if other != name:
                self.world.block(name, other)
                self.world.block(other, name)


def _epoch(node: Node) -> int:
    return -1 if node.driver is None else node.driver.epoch


async def partition_leader_is_isolated(world: World) -> None:
    """Clients still reach a partition leader that the cluster does not: it must promise nothing."""
    rig = _Rig(world)
    await rig.begin()
    leader = rig.partition().leader
    rig.isolate(f"broker-{leader}")
    await rig.until(lambda: rig.partition() and rig.partition().leader != leader, "another leads")
    await asyncio.sleep(world.random.uniform(0.2, 7.0))
    await rig.end()


async def acknowledgement_is_lost(world: World) -> None:
    """A leader dies before its answer reaches the producer, which asks the next one again."""
    rig = _Rig(world)
    await rig.begin()
    leader = f"broker-{rig.partition().leader}"
    world.block(leader, "writer")
    await asyncio.sleep(world.random.uniform(0.2, 0.5))
    world.kill(leader)
    written = len(rig.ledger.acknowledged)
    await rig.until(lambda: len(rig.ledger.acknowledged) > written + 5, "the writer goes on")
    world.heal()
    rig.cluster.start(leader)
    await asyncio.sleep(world.random.uniform(0.5, 1.5))
    await rig.end()


async def replicas_leave_until_none_is_left(world: World) -> None:
    """Replicas go down one after the other; those that come back first lack the last records."""
    rig = _Rig(world)
    await rig.begin()
    leader = rig.partition().leader
    followers = [f"broker-{one}" for one in rig.partition().replicas if one != leader]
    for number, name in enumerate(followers):
        world.kill(name)
        await rig.until(partial(rig.has_in_sync, 2 - number), "a replica left")
        await asyncio.sleep(world.random.uniform(0.2, 0.6))
    world.kill(f"broker-{leader}")
    await rig.until(lambda: rig.partition().leader == -1, "nobody leads")
    for name in followers:
        rig.cluster.start(name)
        await asyncio.sleep(world.random.uniform(0.5, 1.5))
    await rig.end()


async def broker_comes_back_slowly(world: World) -> None:
    """A replica comes back, and what others send it, and what it writes, takes its time."""
    rig = _Rig(world)
    await rig.begin()
    partition = rig.partition()
    name = next(f"broker-{one}" for one in partition.replicas if one != partition.leader)
    world.kill(name)
    await rig.until(partial(rig.has_in_sync, 2), "a replica left")
    await asyncio.sleep(world.random.uniform(0.2, 0.6))
    world.node(name).disk.slowness = SLOWNESS
    links = [world.network.link(one, name) for one in rig.cluster.broker_names if one != name]
    latency_ms = links[0].latency_extra_mean_ms
    for link in links:
        link.latency_extra_mean_ms = LATENCY_MS
    rig.cluster.start(name)
    await rig.until(rig.whole, "all replicas are in sync")
    world.node(name).disk.slowness = 1.0
    for link in links:
        link.latency_extra_mean_ms = latency_ms
    await rig.end()


async def controller_is_isolated(world: World) -> None:
    """Brokers still reach an active controller that its quorum does not."""
    rig = _Rig(world)
    await rig.begin()
    controller = rig.active()
    name = f"controller-{controller.config.node_id}"
    for other in rig.cluster.controller_names:
        if other != name:
            world.block(name, other)
            world.block(other, name)
    topics: set[str] = set()

    async def create(runtime: SimRuntime) -> None:
        for number in range(TOPICS):
            if await create_topic(rig.cluster.bootstrap, f"created-{number}", 1):
                topics.add(f"created-{number}")

    creating = world.start("creator", create).done
    await rig.until(lambda: rig.active() not in (None, controller), "another controller is active")
    world.heal()
    async with asyncio.timeout(TIMEOUT_S):
        await creating
    await _let_lead(rig, name)
    await rig.end()
    image = rig.active().loader.image
    gone = sorted(name for name in topics if image.topics.by_name(name) is None)
    assert not gone, f"topic {gone[0]} is gone"


async def _let_lead(rig: _Rig, name: str) -> None:
    """Kills active controllers until this one is active."""
    controller_id = int(name.rpartition("-")[2])
    while (active := rig.active().config.node_id) != controller_id:
        killed = f"controller-{active}"
        rig.world.kill(killed)
        await rig.until(partial(rig.is_led_after, active), "another controller is active")
        rig.cluster.start(killed)
        await asyncio.sleep(1)


SCENARIOS: dict[str, Scenario] = {
    one.__name__: one
    for one in (
        chaos,
        partition_leader_is_isolated,
        acknowledgement_is_lost,
        replicas_leave_until_none_is_left,
        broker_comes_back_slowly,
        controller_is_isolated,
    )
}

COMPLAINTS = {
    ", acknowledged ": "acknowledged_record_stays",
    ", a reader saw ": "seen_record_stays",
    " was b": "seen_record_stays",
    "is there twice": "no_record_is_repeated",
    "is out of order": "records_stay_in_order",
    "is gone": "acknowledged_topic_stays",
    "was never sent": "no_record_from_nowhere",
    "OffsetOutOfRangeError": "seen_record_stays",
    "not within": "liveness",
    "not answered within": "liveness",
}
"""What the clients' judge complains of, and the property that it is about."""

_VIOLATION = re.compile(r"\bViolation: (\w+):")
_ASSERTION = re.compile(r"\bAssertionError: (.*)")
_INVARIANT = re.compile(r"\bInvariantViolation: (.*)")


def broken_property(output: str) -> str:
    """The property that a failed run names in its output."""
    for pattern in (_VIOLATION, _ASSERTION, _INVARIANT):
        found = pattern.search(output)
        if found is not None and pattern is _VIOLATION:
            return found[1]
        if found is not None:
            return next((n for part, n in COMPLAINTS.items() if part in found[1]), found[0])
    found_part = (name for part, name in COMPLAINTS.items() if part in output)
    return next(found_part, output.rstrip().rpartition("\n")[2])


def __getattr__(name: str) -> Scenario:
    from tests.mutants.node_catalog import NODE_MUTANTS

    mutant = next((one for one in NODE_MUTANTS if one.name == name), None)
    if mutant is None:
        raise AttributeError(name)

    async def run(world: World) -> None:
        mutant.plant()
        await SCENARIOS[mutant.scenario](world)

    return run
