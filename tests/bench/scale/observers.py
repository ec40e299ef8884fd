"""Observers that replay the log of the controllers: how far behind they are, and what it costs."""

from __future__ import annotations

import asyncio
import statistics
from time import perf_counter
from typing import TYPE_CHECKING, Any

from raftctl.metadata.requests.admin import DescribeQuorumRequest
from raftctl.metadata.requests.cluster import CreateTopicsRequest, NewTopic
from tests.bench.scale.records import longest_stall
from tests.bench.scale.watched import AWAITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.scale.fleet import Controllers
    from tests.bench.scale.records import WatchedNode

LOOK_S = 0.05
PATIENCE_S = 1_200.0
CHANGES = 9
TOGETHER = 4
"""So many start at the same time."""


class Observers:
    """Nodes that follow; none votes."""

    def __init__(self, controllers: Controllers, nodes: Sequence[WatchedNode]) -> None:
        self._controllers = controllers
        self._nodes = nodes
        self._reached = 0

    async def start(self) -> None:
        """Starts them, a few together, and waits until they follow: to start takes processors."""
        for first in range(0, len(self._nodes), TOGETHER):
            some = self._nodes[first : first + TOGETHER]
            for node in some:
                node.start()
            await self._caught_up(some)

    async def measure_following(self, began: float, ended: float) -> dict[str, Any]:
        """After something that changed much from then till then: until all have replayed it."""
        await self._caught_up(self._nodes)
        return {
            "observers_behind_s": round(perf_counter() - ended, 2),
            **await self._cost((began, perf_counter())),
            **await self._one_change(),
        }

    async def measure_joining(self) -> dict[str, Any]:
        """New ones join, with nothing on their disks, and take the controllers' snapshot."""
        began = perf_counter()
        await self.start()
        figures = {
            "observer_joins_s": round(perf_counter() - began, 2),
            **await self._cost((began, perf_counter())),
            **await self._one_change(),
        }
        for node in self._nodes:
            node.kill()
            node.wipe()
        return figures

    async def _caught_up(self, nodes: Sequence[WatchedNode]) -> None:
        """Waits until these have published what is committed now."""
        answer = await self._controllers.call(DescribeQuorumRequest())
        await asyncio.wait_for(self._published(nodes, answer.high_watermark - 1), PATIENCE_S)

    async def _published(self, nodes: Sequence[WatchedNode], offset: int) -> None:
        for node in nodes:
            while True:
                newest = node.notes("image")[-1:]
                if newest and newest[0]["offset"] >= offset:
                    break
                await asyncio.sleep(LOOK_S)

    async def _cost(self, span: tuple[float, float]) -> dict[str, Any]:
        stalls = await longest_stall(self._nodes, span)
        mib = [node.resident_mib() for node in self._nodes]
        return {
            **{f"observer_{key}": value for key, value in stalls.items()},
            "observer_rss_mib": max(mib),
            "observers_rss_mib": round(sum(mib)),
        }

    async def _one_change(self) -> dict[str, Any]:
        """From asking for a topic until the images have it: of all observers, and the slowest."""
        medians, slowest = [], []
        for _ in range(CHANGES):
            name = AWAITED.format(self._reached)
            self._reached += 1
            began = perf_counter()
            await self._controllers.call(CreateTopicsRequest((NewTopic(name, 1, 3),)))
            reached = [(await self._reached_at(node, name) - began) * 1000 for node in self._nodes]
            medians.append(statistics.median(reached))
            slowest.append(max(reached))
        return {
            "change_to_image_ms": round(statistics.median(medians), 1),
            "change_to_all_images_ms": round(statistics.median(slowest), 1),
        }

    async def _reached_at(self, node: WatchedNode, name: str) -> float:
        while True:
            for note in reversed(node.notes("topic")):
                if note["name"] == name:
                    return float(note["at"])
            await asyncio.sleep(LOOK_S)
