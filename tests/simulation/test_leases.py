"""A broker believes in its session no longer than every controller does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.env.sim.warm import WarmInterpreters

TARGET = "tests.simulation.lease_scenarios:a_deposed_controller_keeps_no_session"


@pytest.mark.req("C2", "R6", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_deposed_controller_keeps_no_session(simulator: WarmInterpreters, seed: int) -> None:
    result = simulator.run(TARGET, seed)
    assert result.ok, result.output
