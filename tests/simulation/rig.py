"""A cluster with one partition on three brokers, and clients that write and read it all along.

For scenarios that break one thing at the worst moment, unlike chaos.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import DATA, Observer, SimCluster, node_id
from jepsen.simulator.liveness import every_node_follows
from jepsen.simulator.network import Link
from tests.simulation.chaos_clients import TOPIC, Ledger, Writer, create_topic, follow, read_all

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from jepsen.simulator.world import SimRuntime, World
    from raftctl.node import Node

OPERATIONS = 400
PACE_S = 0.02
WRITTEN = 20
TIMEOUT_S = 60
PATIENCE_S = 20


class Rig:
    """A cluster, its clients and their ledger; one topic of one partition with three replicas."""

    def __init__(
        self,
        world: World,
        overrides: Mapping[str, str] | None = None,
        log_directories: tuple[str, ...] = (DATA,),
    ) -> None:
        self.world = world
        self.cluster = SimCluster(world, overrides=overrides or {}, log_directories=log_directories)
        self.ledger = Ledger()
        self.observer = Observer(self.cluster)
        self.writer = Writer("w0", self.cluster.bootstrap, self.ledger, 1, PATIENCE_S)

    async def begin(self) -> None:
        """Starts everything; returns when the topic is written to and read."""
        cluster = self.cluster
        cluster.start_all()
        await self.until(self.all_active, "all brokers are active")
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
        await every_node_follows(cluster)
        await self.until(self.whole, "all replicas are in sync")
        if world.node("writer").process is not None:
            world.kill("writer")
        last = Writer("w1", cluster.bootstrap, self.ledger, 1, PATIENCE_S)
        await self.run("last-writer", last.write_until_acknowledged)
        found = await self.run("final-reader", partial(read_all, cluster.bootstrap, 1))
        self.ledger.hand_over(self.world, found)
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

    def all_active(self) -> bool:
        """Whether no broker is fenced."""
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

    def has_written(self, count: int) -> bool:
        """Whether so many records are acknowledged."""
        return len(self.ledger.acknowledged) >= count

    def is_led_after(self, controller_id: int) -> bool:
        """Whether another than this controller is active."""
        node = self.active()
        return node is not None and node.config.node_id != controller_id

    async def stop(self, name: str) -> None:
        """Asks a node to end and waits until it has."""
        self.world.terminate(name)
        await self.until(lambda: self.world.node(name).process is None, f"{name} has ended")

    def is_active(self, name: str, observer: str) -> bool:
        """Whether a broker is not fenced, as another node knows it."""
        loader = self.cluster.nodes[observer].loader
        broker = None if loader is None else loader.image.brokers.get(node_id(name))
        return broker is not None and broker.active

    def state(self, name: str) -> Any:
        """The state of the partition as this broker knows it."""
        broker: Any = self.cluster.nodes[name].broker
        (replica,) = broker.replicas.partitions.values()
        return replica.state

    def delay(self, source: str, target: str, late_ms: float) -> None:
        """What one node sends to another takes at least so much longer."""
        self.world.network.link(source, target).latency_min_ms = Link().latency_min_ms + late_ms

    def isolate(self, name: str) -> None:
        """Cuts a node off from all other nodes of the cluster, but not from clients."""
        for other in (*self.cluster.controller_names, *self.cluster.broker_names):
            if other != name:
                self.world.block(name, other)
                self.world.block(other, name)


def _epoch(node: Node) -> int:
    return -1 if node.driver is None else node.driver.epoch
