"""Quotas beside Apache Kafka's: the same trace has the same throttle times; a bound is kept."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from broker.protocol.versions import ApiKey
from tests.bench.kafka.clusters import kafka_jars
from tests.peers.differential.systems import both
from tests.peers.quota_traces import TRACES, Asking, bounded, produced, with_topic
from tests.peers.tools import CACHE, INSTALL_TIMEOUT_S, KAFKA_VERSION, installing, need
from tests.unit.broker.quotas.traces import mismatches

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers.differential.playing import System

BOUND = 200_000
RATE_S, WARM_UP_S, ALONE_S = 30.0, 12.0, 10.0


@pytest.mark.req("S5")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 300)
@pytest.mark.xdist_group("differential")
def test_throttle_times_are_apache_kafkas(tmp_path: Path) -> None:
    need("java", "mvn")
    with installing():
        jars = kafka_jars(KAFKA_VERSION, CACHE)
    with both(tmp_path, jars) as (kafka, ours):
        for name, play in TRACES.items():
            # The machine delays the requests of each by something else, so each is compared with
            # the definition at its own times. Both must agree with that, so they agree.
            for system in (kafka, ours):
                trace = asyncio.run(play(system))
                while not trace.answers[-1][1]:
                    trace.answers.pop()
                assert sum(one[2] > 0 for one in trace.answers) >= 2, (system.name, trace)
                assert mismatches(name, trace) == [], (system.name, trace)


@pytest.mark.req("S5")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 300)
@pytest.mark.xdist_group("differential")
def test_a_throttled_client_is_kept_to_its_bound_and_delays_nobody(tmp_path: Path) -> None:
    need("java", "mvn")
    with installing():
        jars = kafka_jars(KAFKA_VERSION, CACHE)
    with both(tmp_path, jars) as (kafka, ours):
        theirs, _, _ = asyncio.run(greedy_beside_another(kafka))
        rate, alone_s, beside_s = asyncio.run(greedy_beside_another(ours))
    # Such a client bursts every ten seconds, so half a minute swings: see test_rates.py.
    assert 0.74 <= theirs / BOUND <= 1.13, theirs
    assert 0.74 <= rate / BOUND <= 1.13, rate
    assert beside_s - alone_s < 0.005, (alone_s, beside_s)


def p99(waits: list[float]) -> float:
    return sorted(waits)[len(waits) * 99 // 100]


async def greedy_beside_another(system: System) -> tuple[float, float, float]:
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
    alone_s = p99(waits)
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
    return sent / (last_s - first_s), alone_s, p99(waits)
