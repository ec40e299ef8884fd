"""Transactions of unmodified clients on virtual time, replayed by seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.env.sim.warm import WarmInterpreters


@pytest.mark.req("T2", "T3", "T4", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_transactions_are_all_or_nothing_whatever_fails(
    simulator: WarmInterpreters, seed: int
) -> None:
    scenario = "tests.simulation.transaction_scenarios:transactions_survive_faults"
    result = simulator.run(scenario, seed)
    assert result.ok, result.output
