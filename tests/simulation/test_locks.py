"""Locks of whole clusters are held by one at a time, and stale tokens are worth nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

TARGET = "tests.simulation.lock_scenarios:locks_stay_safe"
SUSPENDED = "tests.simulation.lock_scenarios:locks_stay_safe_on_suspended_machines"


@pytest.mark.req("Q10", "Q11", "J1")
@pytest.mark.parametrize("seed", [1, 2, 18])
def test_locks_stay_safe(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(TARGET, seed)
    assert result.ok, result.output


@pytest.mark.req("Q10", "Q11", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_locks_stay_safe_on_suspended_machines(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(SUSPENDED, seed)
    assert result.ok, result.output
