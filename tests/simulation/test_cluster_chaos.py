"""Whole clusters under every fault at once: some seeds of `make sim`, and those that found bugs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jepsen.env.sim.determinism import run_in_subprocess
from jepsen.env.sim.faults import DIRECTORY_KINDS, DISK_KINDS, KINDS
from jepsen.env.sim.world import World
from tests.simulation.cluster_chaos import Chaos

if TYPE_CHECKING:
    from jepsen.env.sim.warm import WarmInterpreters

SCENARIO = "tests.simulation.cluster_chaos:chaos"
SEEDS = range(1, 7)


def found_seeds() -> list[int]:
    lines = Path(__file__).with_name("seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if not line.startswith("#")]


@pytest.mark.req("Q1", "Q3", "Q5", "Q11", "C2", "C5", "R1", "R2", "R3", "R4", "R6", "T1", "J1")
@pytest.mark.parametrize("seed", [*SEEDS, *found_seeds()])
def test_every_property_holds_whatever_goes_wrong(simulator: WarmInterpreters, seed: int) -> None:
    result = simulator.run(SCENARIO, seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("Q1", "Q3", "Q11", "C2", "C5", "R4", "R6", "J1")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "plan",
    [
        "brokers_lose_power",
        "controllers_lose_power",
        "controllers_lose_power_within_calls",
        "controllers_are_cut_off_for_long",
        "controllers_restart_amid_elections",
        "controllers_disks_fail",
        "brokers_disks_fail",
        "bits_flip",
        "rolling_restart",
    ],
)
def test_nothing_is_lost_when_power_fails_or_nodes_restart(
    simulator: WarmInterpreters, plan: str, seed: int
) -> None:
    result = simulator.run(f"tests.simulation.cluster_chaos:{plan}", seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("C14", "C5", "R3", "R4", "J1")
def test_nothing_is_lost_when_log_directories_fail_one_after_the_other(
    simulator: WarmInterpreters,
) -> None:
    result = simulator.run("tests.simulation.cluster_chaos:directories_fail", 1)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("Q11", "J1")
def test_every_fault_that_there_is_goes_wrong_in_some_seed_of_continuous_integration() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(200):
        with World(seed) as world:
            drawn.update(fault.kind for fault in Chaos(world).faults)
    assert set(drawn) == {*KINDS, *DISK_KINDS, *DIRECTORY_KINDS, "power_cut"}
    assert min(drawn.values()) >= 5


@pytest.mark.req("J1")
def test_chaos_replays_identically(simulator: WarmInterpreters) -> None:
    first, again = simulator.run(SCENARIO, 7), run_in_subprocess(SCENARIO, 7)
    assert first.ok, first.output[-10_000:]
    assert first.trace_hash == again.trace_hash != simulator.run(SCENARIO, 9).trace_hash
