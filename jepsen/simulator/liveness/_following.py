"""Every node follows the leader once all faults are healed, judged by each node's belief.

`every_node_follows`: within `FOLLOWS_S` after the last fault, every voter of the newest voter set,
every other controller and every broker runs, takes the same node for the leader of the same epoch,
is heard by that leader, and has published the metadata that was committed when the wait began.

Availability alone does not show it: a majority commits, whichever other nodes are stuck.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jepsen.simulator.properties import Violation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from jepsen.simulator.cluster import SimCluster
    from raftctl.node import Node
    from raftctl.quorum import RaftDriver
    from raftctl.raft.voters import VoterSet

FOLLOWS_S = 20.0
"""Recovery of a disk, an election and a snapshot take a few seconds at most with short timeouts."""
LOOK_S = 0.05


async def every_node_follows(cluster: SimCluster, gone: Collection[str] = ()) -> None:
    """Return as soon as it holds; raise `Violation` with the nodes that do not, and why.

    `gone`: nodes that vote no more and were ended for good.
    """
    loop = cluster.world.loop
    begun_s = loop.time()
    committed = max((d.high_watermark for d in _drivers(cluster)), default=0)
    while wrong := list(astray(cluster, committed, gone)):
        if loop.time() - begun_s > FOLLOWS_S:
            complaint = f"{FOLLOWS_S:g} s after all was healed: {'; '.join(wrong)}"
            raise Violation("every_node_follows", complaint)
        await asyncio.sleep(LOOK_S)
    cluster.world.trace.add("-", "follows", f"all after {loop.time() - begun_s:.2f} s")


def astray(cluster: SimCluster, committed: int, gone: Collection[str] = ()) -> Iterator[str]:
    """Yield the fault of each node that does not follow, and its belief.

    `committed`: the end offset of the metadata that every node is to have published by now.
    """
    leaders = [driver for driver in _drivers(cluster) if driver.is_leader]
    leader = max(leaders, key=lambda driver: driver.epoch, default=None)
    if leader is None:
        yield f"nobody leads: {'; '.join(_belief(cluster, name) for name in _names(cluster))}"
        return
    yield from _lost_voters(cluster, leader.core.voters)
    heard = _heard_lately(cluster, leader)
    for name in _names(cluster):
        if name in gone:
            continue
        node = cluster.nodes.get(name)
        wrong = _wrong(node, leader, committed) if cluster.is_up(name) else "does not run"
        if not wrong and name not in heard:
            wrong = f"does not fetch from {leader.leader_id}"
        if wrong:
            yield f"{wrong}: {_belief(cluster, name)}"


def _wrong(node: Node | None, leader: RaftDriver, committed: int) -> str:
    if node is None or node.driver is None or node.loader is None:
        return "has not recovered"
    driver = node.driver
    if (driver.epoch, driver.leader_id) != (leader.epoch, leader.leader_id):
        return f"does not follow {leader.leader_id} in epoch {leader.epoch}"
    if driver.high_watermark < committed or node.loader.image.offset < committed - 1:
        return f"lacks metadata that is committed to {committed}"
    return ""


def _lost_voters(cluster: SimCluster, voters: VoterSet) -> Iterator[str]:
    """Voters whose disk is in no node: what they promise nobody keeps."""
    for voter in voters.voters:
        number, directory_id = voter.replica.node_id, voter.replica.directory_id
        if directory_id not in (None, cluster.directory_ids.get(number)):
            yield f"{number} votes with the disk {directory_id}, which is gone"


def _heard_lately(cluster: SimCluster, leader: RaftDriver) -> set[str]:
    """Return the leader and the nodes that fetched from it within the check-quorum timeout."""
    process = cluster.world.node(f"controller-{leader.leader_id}").process
    # By the leader's own clock.
    status = leader.status() if process is None else process.context.copy().run(leader.status)
    since_ms = status.now_ms - 1000 * cluster.check_quorum_s
    fetching = {
        one.node_id
        for one in (*status.voters, *status.observers)
        if one.last_fetch_ms is not None and one.last_fetch_ms >= since_ms
    }
    fetching.add(leader.leader_id)
    return {name for name in _names(cluster) if int(name.partition("-")[2]) in fetching}


def _belief(cluster: SimCluster, name: str) -> str:
    node = cluster.nodes.get(name)
    if node is None or node.driver is None:
        return name
    driver, image = node.driver, node.loader.image.offset if node.loader else None
    return (
        f"{name} is {driver.core.role} of {driver.leader_id} in epoch {driver.epoch}, committed to "
        f"{driver.high_watermark}, has published {image}"
    )


def _names(cluster: SimCluster) -> list[str]:
    return cluster.names


def _drivers(cluster: SimCluster) -> Iterator[RaftDriver]:
    for name in filter(cluster.is_up, _names(cluster)):
        node = cluster.nodes.get(name)
        if node is not None and node.driver is not None:
            yield node.driver
