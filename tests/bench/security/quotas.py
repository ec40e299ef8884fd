"""Of quotas: how near a greedy client comes to its bound, and what another waits meanwhile.

One broker of Apache Kafka and one of ours at the same time, the same clients. The greedy one sends
all that it can for half a minute. With the windows of the default it bursts each time its last
burst leaves them, so half a minute swings by a quarter in either system. Two windows hold the
bound. `tests/unit/broker/quotas/test_rates.py` has both on virtual time.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from tests.bench.figures import figure
from tests.peers.differential.systems import Settings, listening
from tests.peers.quota_traces import Asking, bounded, produced, with_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.peers.differential.playing import System

BOUND = 200_000
RATE_S, WARM_UP_S, ALONE_S = 30.0, 12.0, 10.0
WINDOWS = {"11 windows": (11, "swings as Apache Kafka's"), "2 windows": (2, "0.97 to 1.03")}
"""Value of `quota.window.num`, and what is expected of half a minute."""


def run(turns: int, jars: Path | None) -> dict[str, Any]:
    """Measure both systems side by side; nothing without Apache Kafka."""
    figures: dict[str, Any] = {}
    if jars is None:
        return figures
    for windows, (number, goal) in WINDOWS.items():
        rates: dict[str, list[float]] = {}
        delays: dict[str, list[float]] = {}
        settings = Settings(both={"quota.window.num": str(number)})
        for _ in range(turns):
            with (
                tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory,
                listening(Path(directory), jars, settings) as both,
            ):
                systems = [next(iter(one.values())) for one in both]
                for system, found in zip(systems, asyncio.run(_beside(systems)), strict=True):
                    rate, alone_s, beside_s = found
                    rates.setdefault(system.name, []).append(rate / BOUND)
                    delays.setdefault(system.name, []).append((beside_s - alone_s) * 1000)
        for name, values in rates.items():
            figures[f"rate to bound, {windows}, {name}"] = figure(values, "x", goal)
        for name, values in delays.items():
            figures[f"p99 of another, {windows}, {name}"] = figure(values, "ms more", "below 5")
    return figures


async def _beside(systems: Sequence[System]) -> list[tuple[float, float, float]]:
    return await asyncio.gather(*(_greedy_beside_another(one) for one in systems))


def _p99(waits: list[float]) -> float:
    return sorted(waits)[len(waits) * 99 // 100]


async def _greedy_beside_another(system: System) -> tuple[float, float, float]:
    """Bytes a second of a client that sends all it can; p99 of another without it and beside it."""
    await with_topic(system, "bounded")
    await bounded(system, "greedy", "producer_byte_rate", BOUND)
    greedy, other = await Asking.to(system, "greedy"), await Asking.to(system, "other")
    waits: list[float] = []

    async def watch() -> None:
        while True:
            began = time.monotonic()
            await other.ask(ApiKey.PRODUCE, 9, produced("bounded", 100))
            waits.append(time.monotonic() - began)
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(ALONE_S)
    alone_s = _p99(waits)
    waits.clear()
    began, first_s, last_s, sent = time.monotonic(), 0.0, 0.0, 0
    while last_s < WARM_UP_S + RATE_S:
        _, size, _ = await greedy.ask(ApiKey.PRODUCE, 9, produced("bounded", 10_000))
        last_s = time.monotonic() - began
        if first_s:
            sent += size
        elif last_s >= WARM_UP_S:
            first_s = last_s
    watching.cancel()
    await asyncio.wait([watching])
    for client in (greedy, other):
        await client.close()
    return sent / (last_s - first_s), alone_s, _p99(waits)
