"""Whole clusters whose members are held up: machines, event loops, clocks, connections, disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

MODULE = "tests.simulation.held_up_scenarios"


@pytest.mark.req("Q11", "J1")
@pytest.mark.parametrize(
    "scenario", ["the_active_controllers_disk_hangs", "the_other_voters_disks_hang"]
)
def test_what_waits_in_memory_is_bounded(simulator: ForkServers, scenario: str) -> None:
    result = simulator.run(f"tests.simulation.flood_scenarios:{scenario}", 1)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("Q1", "Q3", "Q11", "C2", "R4", "R6", "J1")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "scenario",
    [
        "machines_are_suspended",
        "event_loops_stall",
        "clocks_go_at_other_rates",
        "connections_break",
        "disks_hang",
        "bits_rot",
    ],
)
def test_nothing_is_lost_and_nobody_is_fooled(
    simulator: ForkServers, scenario: str, seed: int
) -> None:
    result = simulator.run(f"{MODULE}:{scenario}", seed)
    assert result.ok, result.output[-10_000:]
