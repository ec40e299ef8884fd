"""Brokers that crash or shut down: until their leaders are moved, and until nothing names them.

Each time others, which nobody has missed yet: who comes back is in no in-sync set, since nothing
is replicated here, and would have nothing to lose. So at a size that was grown from a smaller one
they lead what was created since then, and what the brokers before them have left behind.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

from raftctl.localcluster.status import ask_controller
from tests.bench.scale.fleet import SESSION_MS
from tests.bench.scale.records import longest_stall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.bench.scale.fleet import Pings, SilentBroker
    from tests.bench.scale.records import WatchedNode

STEPS = {"crash_of_1": 1, "shutdown": 1, "crash_of_3": 3, "crash_of_10": 10}
"""How many leave together; three of thirty lead as much as one of ten."""
STAYING = 3
"""So many brokers live in any case."""
LOOK_S = 0.05
QUIET_S = 0.5
QUIET_SHARE = 0.4
"""Of a core, which answers and heartbeats do not take."""


class Leaving:
    """What is measured of brokers that leave, at one size."""

    def __init__(
        self,
        brokers: Sequence[SilentBroker],
        nodes: Sequence[WatchedNode],
        active: Callable[[], WatchedNode],
        pings: Pings,
    ) -> None:
        self._brokers = brokers
        self._nodes = nodes
        self._active = active
        self._pings = pings

    async def measure(self) -> dict[str, Any]:
        """All of it, as far as there are brokers enough."""
        found: dict[str, Any] = {}
        used = 0
        for prefix, count in STEPS.items():
            leaving = self._brokers[used : used + count]
            used += count
            if used > len(self._brokers) - STAYING:
                break
            await self.quiet()
            leave = self._shut_down if prefix == "shutdown" else self._crash
            figures = await self._watched(leaving, leave)
            found |= {f"{prefix}_{name}": figure for name, figure in figures.items()}
        await self.quiet()
        return found

    async def quiet(self) -> None:
        """Waits until the active controller has nothing left to do."""
        while True:
            before = self._active().processor_s()
            await asyncio.sleep(QUIET_S)
            if self._active().processor_s() - before < QUIET_SHARE * QUIET_S:
                return

    async def _watched(
        self,
        leaving: Sequence[SilentBroker],
        leave: Callable[[Sequence[SilentBroker]], Awaitable[dict[str, float]]],
    ) -> dict[str, Any]:
        led = await self._led_by(leaving)
        began = perf_counter()
        self._pings.longest_ms()
        figures: dict[str, Any] = {"leaders": led, **await leave(leaving)}
        figures["longest_wait_ms"] = round(self._pings.longest_ms(), 1)
        return {**figures, **await longest_stall(self._nodes, (began, perf_counter()))}

    async def _crash(self, brokers: Sequence[SilentBroker]) -> dict[str, float]:
        """Seconds from the end of the last session.

        Nothing counts on the dead any more when their next incarnations are taken.
        """
        for broker in brokers:
            await broker.crash()
        ended = max(broker.heard_s for broker in brokers) + SESSION_MS / 1000
        await asyncio.sleep(ended - perf_counter())
        moved = asyncio.create_task(self._lead_nothing(brokers))
        await asyncio.gather(*(broker.start() for broker in brokers))
        settled = perf_counter()
        return {"leaders_moved_s": since(ended, moved, settled), "s": round(settled - ended, 2)}

    async def _shut_down(self, brokers: Sequence[SilentBroker]) -> dict[str, float]:
        """Seconds from the request; in the end the broker is let go."""
        began = perf_counter()
        moved = asyncio.create_task(self._lead_nothing(brokers))
        await asyncio.gather(*(broker.leave() for broker in brokers))
        gone = perf_counter()
        found = {"leaders_moved_s": since(began, moved, gone), "s": round(gone - began, 2)}
        await asyncio.gather(*(broker.start() for broker in brokers))
        return found

    async def _lead_nothing(self, brokers: Sequence[SilentBroker]) -> float:
        """When the committed image of the active controller had no leaders on them."""
        while True:
            if not await self._led_by(brokers):
                return perf_counter()
            await asyncio.sleep(LOOK_S)

    async def _led_by(self, brokers: Sequence[SilentBroker]) -> int:
        """How many partitions they lead."""
        while True:
            answer = await asyncio.to_thread(ask_controller, self._active().address)
            if answer is not None:
                leaders = {one["broker_id"]: one["leaders"] for one in answer["brokers"]}
                return sum(leaders[broker.broker_id] for broker in brokers)


def since(began: float, moved: asyncio.Future[float], settled: float) -> float:
    """Seconds until leaders had moved. Who is let go, or taken again, led nothing by then: if that
    was not seen it was between two looks, and now they may lead again.
    """
    seen = moved.result() if moved.done() else settled
    moved.cancel()
    return round(seen - began, 2)
