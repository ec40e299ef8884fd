"""Consumer groups of unmodified clients while coordinators and members are broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

SCENARIOS = "tests.simulation.group_scenarios"


@pytest.mark.req("G1", "G2", "G3", "J1")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_partition_has_one_owner_and_committed_offsets_stay(
    simulator: ForkServers, seed: int
) -> None:
    result = simulator.run(f"{SCENARIOS}:groups_go_on", seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("G1", "G4", "J1")
def test_a_partition_has_one_owner_while_the_group_changes_its_protocol(
    simulator: ForkServers,
) -> None:
    result = simulator.run("tests.simulation.consumer_scenarios:protocols_change", 1)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("G1", "G4", "J1")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_partition_of_a_consumer_group_has_one_owner_and_committed_offsets_stay(
    simulator: ForkServers, seed: int
) -> None:
    result = simulator.run("tests.simulation.consumer_scenarios:consumers_go_on", seed)
    assert result.ok, result.output[-10_000:]
