"""Brokers whose disks lie, or are older copies: nothing that was acknowledged is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

MODULE = "tests.simulation.disk_scenarios"


@pytest.mark.req("C2", "R3", "R4", "J1")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("scenario", ["brokers_disks_lie", "brokers_get_old_copies_of_their_disks"])
def test_a_broker_may_lose_what_others_have(
    simulator: ForkServers, scenario: str, seed: int
) -> None:
    result = simulator.run(f"{MODULE}:{scenario}", seed)
    assert result.ok, result.output[-10_000:]
