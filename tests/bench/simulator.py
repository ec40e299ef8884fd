"""How fast simulated clusters run: whole nodes on all cores, an hour of one cluster, bare cores."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from jepsen.simulator.runner.fork_server import ForkServers
from tests.bench.figures import figure
from tests.simulation.test_raft_cores import chaos

if TYPE_CHECKING:
    from jepsen.simulator.runner.determinism import RunResult

CHAOS = "tests.simulation.cluster_chaos:chaos"
HOUR = "tests.simulation.cluster_chaos:one_hour"
HOUR_TIMEOUT_S = 3_600.0
SEEDS_PER_TURN = 20
CORE_SEEDS_PER_TURN = 20


def run(turns: int) -> dict[str, Any]:
    """Seeds a minute, simulated seconds and events a second, seconds for an hour, core events."""
    processes = os.cpu_count() or 1
    seeds, simulated, events = [], [], []
    with ForkServers(processes) as interpreters:
        _all_ok(interpreters, processes, range(processes))
        for turn in range(turns):
            first = 1 + turn * SEEDS_PER_TURN
            began = time.perf_counter()
            results = _all_ok(interpreters, processes, range(first, first + SEEDS_PER_TURN))
            elapsed_s = time.perf_counter() - began
            seeds.append(60 * len(results) / elapsed_s)
            simulated.append(sum(result.simulated_s for result in results) / elapsed_s)
            events.append(sum(result.events for result in results) / elapsed_s)
        hour_s, hour_processor_s = _hour(interpreters)
    return {
        "simulator_seeds": figure(seeds, "seeds/minute", "goal: at least 100", 1),
        "simulator_time": figure(simulated, "simulated s/s", "no goal", 1),
        "simulator_events": figure(events, "events/s", "no goal", 0),
        "simulated_hour": figure([hour_s], "s", "goal: at most 60", 1),
        "simulated_hour_processor": figure([hour_processor_s], "s", "no goal", 1),
        "simulated_core_events": figure(
            [_core_events() for _ in range(turns)], "events/minute and core", "goal: a million", 0
        ),
    }


def _all_ok(interpreters: ForkServers, processes: int, seeds: range) -> list[RunResult]:
    with ThreadPoolExecutor(max_workers=processes) as pool:
        results = list(pool.map(lambda seed: interpreters.run(CHAOS, seed), seeds))
    failed = [result for result in results if not result.ok]
    if failed:
        raise RuntimeError(f"seed {failed[0].seed} failed: {failed[0].output}")
    return results


def _hour(interpreters: ForkServers) -> tuple[float, float]:
    """Wall and processor seconds for an hour of three controllers and three brokers.

    With the default timeouts and a burst of faults a minute.
    """
    began = time.perf_counter()
    result = interpreters.run(HOUR, 1, timeout_s=HOUR_TIMEOUT_S)
    elapsed_s = time.perf_counter() - began
    if not result.ok:
        raise RuntimeError(f"the hour failed: {result.output}")
    hours = result.simulated_s / 3_600
    return elapsed_s / hours, result.processor_s / hours


def _core_events() -> float:
    began = time.perf_counter()
    events = sum(chaos(seed).events for seed in range(CORE_SEEDS_PER_TURN))
    return 60 * events / (time.perf_counter() - began)
