"""Logins in virtual time: production code on both sides, and unmodified clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

SCENARIOS = "tests.simulation.login_scenarios"


@pytest.mark.req("S3", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_clients_and_brokers_log_in(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(f"{SCENARIOS}:clients_and_brokers_log_in", seed)
    assert result.ok, result.output


@pytest.mark.req("S3", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_tokens_expire(simulator: ForkServers, seed: int) -> None:
    result = simulator.run("tests.simulation.token_scenarios:tokens_expire", seed)
    assert result.ok, result.output
