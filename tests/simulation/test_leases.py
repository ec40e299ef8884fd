"""A broker believes in its session no longer than every controller does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

MODULE = "tests.simulation.lease_scenarios"
SCENARIOS = (
    "a_deposed_controller_keeps_no_session",
    "a_broker_that_is_held_up_keeps_no_session",
    "a_broker_that_is_suspended_keeps_no_session",
    "a_broker_that_stalls_keeps_no_session",
)


@pytest.mark.req("C2", "R6", "J1")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_fenced_broker_is_not_sure_of_its_session(
    simulator: ForkServers, scenario: str, seed: int
) -> None:
    result = simulator.run(f"{MODULE}:{scenario}", seed)
    assert result.ok, result.output
