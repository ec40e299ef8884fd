"""Programs that use the client, each on a node of its own in the deterministic world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.simulator.cluster import CONTROLLER_PORT, Observer
from raftctl.client import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from typing import Any

    from jepsen.simulator.cluster import SimCluster
    from jepsen.simulator.world import SimRuntime, World
    from raftctl.client import Client

    Story = Callable[[Client], Awaitable[None]]


def addresses(names: Iterable[str]) -> list[str]:
    """Where these controllers are."""
    return [f"{name}:{CONTROLLER_PORT}" for name in names]


def program(cluster: SimCluster, story: Story) -> Callable[[SimRuntime], Coroutine[Any, Any, None]]:
    """The program of that story, for `World.start`."""

    async def main(runtime: SimRuntime) -> None:
        known = addresses(cluster.controller_names)
        async with connect(known, rng=runtime.random) as client:
            await story(client)

    return main


def run_program(world: World, cluster: SimCluster, story: Story) -> None:
    """Starts the cluster and runs the story to its end."""
    cluster.start_all()

    async def scenario() -> None:
        await world.start("program", program(cluster, story)).done

    world.run(scenario())


async def kill_leader(world: World, cluster: SimCluster) -> str:
    """Kills the active controller and returns its name."""
    status = await Observer(cluster).wait_for(lambda _: True)
    name = f"controller-{status['leader_id']}"
    world.kill(name)
    return name
