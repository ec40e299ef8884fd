"""The chaos of `cluster_chaos`, while voters come, go and lose their disks (KIP-853).

Three of five controllers vote at first. The operator's changes come one after the other, so at most
one disk is lost at a time, and what is committed is on another one.

Disks fail, too. While a voter's disk is being replaced no other one is damaged, and no disk is
damaged or replaced unless a majority of the voters then still has disks that are whole. Controllers
lose the content of their disks by the operator alone, who then makes them voters again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.simulator.cluster import SimCluster, node_id
from jepsen.simulator.world import stream
from tests.simulation.cluster_chaos import Chaos
from tests.simulation.voter_changes import VoterOperator

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Mapping, Sequence, Set
    from uuid import UUID

    from jepsen.nemesis.plan import Fault
    from jepsen.simulator.world import SimRuntime, World
    from raftctl.raft.messages import Voter

SPARES = 2
VOTERS_MIN = 3
VOTERS_MAX = 5
CHANGES_MAX = 8
DAMAGING = ("bit_flip", "bit_rot", "sync_error", "wipe")
"""Faults of disks after which something that was written is wrong or gone."""


async def chaos(world: World) -> None:
    """One run; the seed also decides about the changes."""
    await VoterChaos(world).run()


class VoterChaos(Chaos):
    """With an operator."""

    _operator: VoterOperator | None = None

    def make_cluster(self, world: World, overrides: Mapping[str, str]) -> SimCluster:
        """Voters that can change, and others that could vote."""
        return SimCluster(world, overrides=overrides, dynamic=True, spares=SPARES)

    def begin_changes(self) -> list[asyncio.Future[Any]]:
        """Starts the operator."""
        cluster, world = self.cluster, self.world
        source = stream(world.seed, "voters")
        names = cluster.controller_names
        plan = planned(source, names, cluster.controllers, source.randint(1, CHANGES_MAX))
        operator = self._operator = VoterOperator(cluster, self._voters, self._may_lose_disk)

        async def main(runtime: SimRuntime) -> None:
            await operator.carry_out(plan, runtime)
            world.trace.add("-", "voters", " ".join(operator.done))

        return [world.start("voter-operator", partial(main)).done]

    def _guard(self, fault: Fault) -> bool:
        """As in the chaos of others; see the module for what is more."""
        controllers = self.cluster.controller_names
        if fault.kind in DAMAGING and fault.touches(controllers):
            busy = self._operator is not None and self._operator.replacing is not None
            if busy or not self._may_lose_disk(fault.nodes[0]):
                return False
        return super()._guard(fault)

    def _may_lose_disk(self, name: str) -> bool:
        """Whether a majority of the voters has disks that are whole, this one not counted."""
        damaged = {
            one
            for fault in self._nemesis.active.values()
            if fault.kind in DAMAGING
            for one in fault.nodes
        }
        damaged.add(name)
        voters = self._voters()
        return voters is not None and is_majority_whole(
            voters, self.cluster.directory_ids, {node_id(one) for one in damaged}
        )

    def _voters(self) -> tuple[Voter, ...] | None:
        active = self.active()
        return None if active is None else active.driver.core.voters.voters


def is_majority_whole(
    voters: Sequence[Voter], directory_ids: Mapping[int, UUID], damaged: Set[int]
) -> bool:
    """Whether most voters have the disk with which they became one, and it is not damaged.

    `directory_ids` are those of the disks that nodes have now; `damaged` are ids of nodes.
    """
    whole = [
        one.replica.node_id
        for one in voters
        if directory_ids.get(one.replica.node_id) == one.replica.directory_id
        and one.replica.node_id not in damaged
    ]
    return 2 * len(whole) > len(voters)


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
