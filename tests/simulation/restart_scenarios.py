"""Brokers are stopped and started again as an operator does it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftctl.metadata.features import ELR_FEATURE
from raftctl.metadata.records import NO_LEADER
from tests.simulation.chaos_clients import raise_feature
from tests.simulation.rig import Rig

if TYPE_CHECKING:
    from jepsen.simulator.world import World

OFTEN_BALANCED = {"leader.imbalance.check.interval.seconds": "5"}


async def eligible_leader_comes_back(world: World) -> None:
    """All replicas are stopped, one after the other; the one that comes back first may lead,

    although the last was alone in sync, since it stopped cleanly while nothing could be committed
    without it (KIP-966). When all are back the preferred leader leads again by itself.
    """
    rig = Rig(world, OFTEN_BALANCED)
    await rig.begin()
    await rig.run("features", partial(raise_feature, rig.cluster.broker_names[0], ELR_FEATURE, 1))
    preferred, eligible, away = rig.partition().replicas
    for broker_id in (away, eligible, preferred):
        await rig.stop(f"broker-{broker_id}")
    await rig.until(lambda: rig.partition().leader == NO_LEADER, "nobody is left")
    assert set(rig.partition().elr) == {preferred, eligible}
    rig.cluster.start(f"broker-{eligible}")
    await rig.until(lambda: rig.partition().leader == eligible, "an eligible replica leads")
    assert not rig.partition().leader_recovering
    for broker_id in (away, preferred):
        rig.cluster.start(f"broker-{broker_id}")
    await rig.until(rig.whole, "all replicas are in sync")
    await rig.until(lambda: rig.partition().leader == preferred, "the preferred leader leads")
    await rig.end()
