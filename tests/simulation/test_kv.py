"""Keys and values of whole clusters are linearizable whatever happens to the leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

TARGET = "tests.simulation.kv_scenarios:keys_stay_linearizable"
HTTP_TARGET = "tests.simulation.kv_scenarios:keys_stay_linearizable_over_http"


@pytest.mark.req("Q9", "Q10", "Q11", "J1")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_keys_stay_linearizable(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(TARGET, seed)
    assert result.ok, result.output


@pytest.mark.req("Q9", "Q10", "Q11", "J1")
@pytest.mark.parametrize("seed", [1])
def test_keys_stay_linearizable_over_http(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(HTTP_TARGET, seed)
    assert result.ok, result.output
