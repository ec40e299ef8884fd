"""What keeps a node from being ready, by its role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.admin import Problem
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.loader import MetadataLoader
    from raftctl.metadata.image import MetadataImage
    from raftctl.quorum import RaftDriver


def problems_of_replica(driver: RaftDriver, loader: MetadataLoader) -> list[Problem]:
    """Return what keeps a node from knowing the newest metadata."""
    found = []
    if driver.leader_id < 0:
        found.append(Problem("no_leader", "no leader of the quorum is known"))
    if not loader.caught_up:
        behind = max(0, driver.high_watermark - loader.next_offset)
        why = f"{behind} committed records are not applied yet"
        found.append(Problem("behind", why if behind else "what is committed is not known yet"))
    return found


def problems_of_broker(
    node_id: int, image: MetadataImage, has_session: Callable[[], bool]
) -> list[Problem]:
    """Return what keeps clients from a broker."""
    broker = image.brokers.get(node_id)
    if broker is None:
        return [Problem("not_registered", "the broker is not registered", at_once=True)]
    if broker.fenced:
        return [Problem("fenced", "the controller fences the broker", at_once=True)]
    if broker.in_controlled_shutdown:
        return [Problem("shutting_down", "the broker shuts down", at_once=True)]
    if not has_session():
        return [Problem("no_session", "the broker has no session with the controller")]
    return []


async def replicas_out_of_sync(node_id: int, image: MetadataImage) -> list[Problem]:
    """Look at all partitions, a topic in each step, for replicas of the broker not in sync."""
    slices, count = Slices(), 0
    for topic in image.topics.topics.values():
        for partition in topic.partitions.values():
            count += node_id in partition.replicas and node_id not in partition.isr
        await slices.rest()
    what = f"{count} replicas of the broker are not in sync since its start"
    return [Problem("out_of_sync", what)] if count else []
