"""The environment `sim`: a test's cluster in the deterministic world."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from jepsen.env.kv import RaftctlKeyValues
from jepsen.env.sim.cluster import CONTROLLER_PORT, Observer, SimCluster

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from jepsen.env.base import ClusterSpec, Link
    from jepsen.env.sim.world import World

ASK_S = 1.0
TERMINATE_S = 20.0


class SimEnvironment:
    """See `jepsen.env.base.Environment`."""

    faults = frozenset({"kill", "pause", "restart", "partition"})

    def __init__(self, world: World, spec: ClusterSpec) -> None:
        self._world = world
        self._cluster = SimCluster(world, spec.controllers, spec.brokers, spec.overrides)
        self._observer = Observer(self._cluster)

    @property
    def controllers(self) -> Sequence[str]:
        """See `Environment`."""
        return self._cluster.controller_names

    @property
    def brokers(self) -> Sequence[str]:
        """See `Environment`."""
        return self._cluster.broker_names

    @property
    def bootstrap_servers(self) -> str:
        """See `Environment`."""
        return ",".join(self._cluster.bootstrap)

    def start(self) -> None:
        """Starts every node."""
        self._cluster.start_all()

    async def wait_ready(self) -> None:
        """Returns when a controller leads and every broker is active."""
        wanted = len(self.brokers)

        def ready(status: dict[str, Any]) -> bool:
            return len([one for one in status["brokers"] if not one["fenced"]]) == wanted

        await self._observer.wait_for(ready)

    def kv_client(self, timeout_s: float, rng: random.Random) -> RaftctlKeyValues:
        """See `Environment`."""
        names = rng.sample(list(self.controllers), len(self.controllers))
        return RaftctlKeyValues([f"{name}:{CONTROLLER_PORT}" for name in names], timeout_s, rng)

    async def leader(self) -> str | None:
        """See `Environment`."""
        found = await self.leadership()
        return None if found is None else found[0]

    async def leadership(self) -> tuple[str, int] | None:
        """See `Environment`."""
        try:
            status = await self._observer.wait_for(lambda _: True, ASK_S)
        except TimeoutError:
            return None
        return f"controller-{status['leader_id']}", status["epoch"]

    async def kill(self, node: str) -> None:
        """See `Environment`."""
        if self._world.node(node).process is not None:
            self._world.kill(node)

    async def terminate(self, node: str) -> None:
        """See `Environment`."""
        process = self._world.node(node).process
        if process is None or not process.running:
            return
        self._world.terminate(node)
        done, _ = await asyncio.wait([process.done], timeout=TERMINATE_S)
        if not done:
            self._world.kill(node)

    async def start_node(self, node: str) -> None:
        """See `Environment`."""
        if self._world.node(node).process is None:
            self._cluster.start(node)

    async def pause(self, node: str) -> None:
        """See `Environment`."""
        if self._cluster.is_up(node):
            self._world.pause(node)

    async def resume(self, node: str) -> None:
        """See `Environment`."""
        if self._world.node(node).process is not None:
            self._world.resume(node)

    async def block(self, links: Sequence[Link]) -> None:
        """See `Environment`."""
        for source, target in links:
            self._world.block(source, target)

    async def unblock(self) -> None:
        """See `Environment`."""
        self._world.heal()
