"""Transactions of unmodified clients on virtual time, replayed by seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

OUTCOMES = "tests.simulation.outcome_scenarios"


@pytest.mark.req("T2", "T3", "T4", "J1")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_transactions_are_all_or_nothing_whatever_fails(simulator: ForkServers, seed: int) -> None:
    scenario = "tests.simulation.transaction_scenarios:transactions_survive_faults"
    result = simulator.run(scenario, seed)
    assert result.ok, result.output


@pytest.mark.req("T2", "J1")
def test_whoever_takes_over_after_prepare_brings_the_markers(simulator: ForkServers) -> None:
    result = simulator.run(f"{OUTCOMES}:coordinator_dies_between_prepare_and_complete", 1)
    assert result.ok, result.output


@pytest.mark.req("T3", "J1")
def test_a_late_end_does_not_end_the_next_transaction(simulator: ForkServers) -> None:
    result = simulator.run(f"{OUTCOMES}:late_end_comes_in_the_next_transaction", 1)
    assert result.ok, result.output
