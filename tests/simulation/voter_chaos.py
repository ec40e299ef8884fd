"""The chaos of `cluster_chaos`, while voters come, go and lose their disks (KIP-853).

Three of five controllers vote at first. The operator's changes come one after the other, so at most
one disk is lost at a time, and what is committed is on another one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.env.sim.cluster import SimCluster
from jepsen.env.sim.runtime import stream
from tests.simulation.cluster_chaos import Chaos
from tests.simulation.voter_changes import VoterOperator

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Mapping

    from jepsen.env.sim.runtime import SimRuntime
    from jepsen.env.sim.world import World
    from raftctl.raft.messages import Voter

SPARES = 2
VOTERS_MIN = 3
VOTERS_MAX = 5
CHANGES_MAX = 8


async def chaos(world: World) -> None:
    """One run; the seed also decides about the changes."""
    await VoterChaos(world).run()


class VoterChaos(Chaos):
    """With an operator."""

    def make_cluster(self, world: World, overrides: Mapping[str, str]) -> SimCluster:
        """Voters that can change, and others that could vote."""
        return SimCluster(world, overrides=overrides, dynamic=True, spares=SPARES)

    def disk_faults(self) -> None:
        """The operator alone exchanges disks: at most one at a time may be without its content."""

    def begin_changes(self) -> list[asyncio.Future[Any]]:
        """Starts the operator."""
        cluster, world = self.cluster, self.world
        source = stream(world.seed, "voters")
        names = cluster.controller_names
        plan = planned(source, names, cluster.controllers, source.randint(1, CHANGES_MAX))
        operator = VoterOperator(cluster, self._voters)

        async def main(runtime: SimRuntime) -> None:
            await operator.carry_out(plan, runtime)
            world.trace.add("-", "voters", " ".join(operator.done))

        return [world.start("voter-operator", partial(main)).done]

    def _voters(self) -> tuple[Voter, ...] | None:
        active = self.active()
        return None if active is None else active.driver.core.voters.voters


def planned(
    source: random.Random, names: list[str], voting: int, count: int
) -> list[tuple[str, str]]:
    """Changes that leave at least three voters, and no more than there are controllers."""
    voters, others = names[:voting], names[voting:]
    plan: list[tuple[str, str]] = []
    for _ in range(count):
        possible = ["replace"]
        possible += ["add"] if others and len(voters) < VOTERS_MAX else []
        possible += ["remove"] if len(voters) > VOTERS_MIN else []
        what = source.choice(possible)
        group = others if what == "add" else voters
        name = source.choice(group)
        if what != "replace":
            group.remove(name)
            (voters if what == "add" else others).append(name)
        plan.append((what, name))
    return plan
