"""Of quotas: how near a greedy client comes to its bound, and what another waits meanwhile.

One broker of Apache Kafka and one of ours, the same clients. For half a minute the greedy one
sends all that it can. It bursts each time its last burst leaves the windows, so half a minute
swings by an eighth: `tests/unit/broker/quotas/test_rates.py` has the bounds on virtual time. Needs
Java and Maven.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from tests.bench.figures import figure
from tests.bench.kafka.clusters import kafka_jars
from tests.peers.differential.systems import both
from tests.peers.quota_traces import Asking, bounded, produced, with_topic
from tests.peers.tools import CACHE, KAFKA_VERSION

if TYPE_CHECKING:
    from tests.peers.differential.playing import System

BOUND = 200_000
RATE_S, WARM_UP_S, ALONE_S = 30.0, 12.0, 10.0


def run(turns: int, _rules: int) -> dict[str, Any]:
    """Measure both systems in each turn, one after the other."""
    rates: dict[str, list[float]] = {"kafka": [], "raftctl": []}
    delays: dict[str, list[float]] = {"kafka": [], "raftctl": []}
    jars = kafka_jars(KAFKA_VERSION, CACHE)
    for _ in range(turns):
        with (
            tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory,
            both(Path(directory), jars) as systems,
        ):
            for system in systems:
                rate, alone_s, beside_s = asyncio.run(_greedy_beside_another(system))
                rates[system.name].append(rate / BOUND)
                delays[system.name].append((beside_s - alone_s) * 1000)
    return {
        **{f"rate to bound, {name}": figure(rates[name], "x", "0.97 to 1.03") for name in rates},
        **{f"p99 of another, {name}": figure(delays[name], "ms more", "below 5") for name in rates},
    }


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
