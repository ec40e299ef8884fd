"""Programs that speak HTTP to controllers of a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp

from jepsen.simulator.cluster import CONTROLLER_PORT, Observer
from raftctl.runtime.connector import LoopConnector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jepsen.simulator.cluster import SimCluster
    from jepsen.simulator.world import SimRuntime, World

PATH = "/api/v1/kv"


class Program:
    """A program that speaks HTTP to one controller."""

    def __init__(self, name: str) -> None:
        self.url = f"http://{name}:{CONTROLLER_PORT}{PATH}"
        self.http = aiohttp.ClientSession(connector=LoopConnector(limit=0))

    async def get(self, path: str, **query: str) -> tuple[int, Any]:
        async with self.http.get(self.url + path, params=query) as answer:
            return answer.status, await answer.json()


P = TypeVar("P", bound=Program)


def tell(
    world: World,
    cluster: SimCluster,
    make: Callable[[str], P],
    story: Callable[[P, P], Awaitable[None]],
) -> None:
    """Runs the story with a program of the active controller and one of another."""
    cluster.start_all()

    async def main(runtime: SimRuntime) -> None:
        status = await Observer(cluster).wait_for(lambda status: status["high_watermark"] > 1)
        active = f"controller-{status['leader_id']}"
        other = next(name for name in cluster.controller_names if name != active)
        programs = make(active), make(other)
        try:
            await story(*programs)
        finally:
            for program in programs:
                await program.http.close()

    async def scenario() -> None:
        await world.start("program", main).done

    world.run(scenario())
