"""Brokers are stopped and started again as an operator does it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.env.sim.cluster import BROKER_PORT
from raftctl.metadata.admin_requests import UPGRADE
from raftctl.metadata.features import ELR_FEATURE
from raftctl.metadata.records import NO_LEADER
from tests.simulation.rig import Rig
from tests.unit.broker_server.fakes import Client

if TYPE_CHECKING:
    from jepsen.env.sim.runtime import SimRuntime
    from jepsen.env.sim.world import World

UPDATE_FEATURES = (57, 1)
OFTEN_BALANCED = {"leader.imbalance.check.interval.seconds": "5"}


async def eligible_leader_comes_back(world: World) -> None:
    """All replicas are stopped, one after the other; the one that comes back first may lead,

    although the last was alone in sync, since it stopped cleanly while nothing could be committed
    without it (KIP-966). When all are back the preferred leader leads again by itself.
    """
    rig = Rig(world, OFTEN_BALANCED)
    await rig.begin()
    await rig.run("features", partial(_raise_elr, rig))
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


async def _raise_elr(rig: Rig, _runtime: SimRuntime) -> None:
    update = {"feature": ELR_FEATURE, "max_version_level": 1, "upgrade_type": UPGRADE}
    question: dict[str, Any] = {
        "timeout_ms": 10_000,
        "feature_updates": [update],
        "validate_only": False,
    }
    reader, writer = await asyncio.open_connection(rig.cluster.broker_names[0], BROKER_PORT)
    answer = await Client(reader, writer).ask(*UPDATE_FEATURES, question)
    writer.close()
    assert answer["error_code"] == 0, answer
