"""The chaos of `cluster_chaos`, while administrators change metadata of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.cluster_chaos import Chaos

if TYPE_CHECKING:
    from jepsen.simulator.world import World


async def chaos(world: World) -> None:
    """One run."""
    await AdminChaos(world).run()


class AdminChaos(Chaos):
    """With administrators, whatever the seed draws."""

    beside = ("administrators",)
