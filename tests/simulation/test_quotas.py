"""Quotas in virtual time: 24 hours of windows in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.properties import Violation
from tests.simulation.quota_scenarios import Grants

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers


@pytest.mark.req("S5", "J1")
def test_quotas_hold_all_day(simulator: ForkServers) -> None:
    result = simulator.run("tests.simulation.quota_scenarios:quotas_hold_all_day", 1)
    assert result.ok, result.output


def test_an_interval_with_more_than_its_share_is_found_wherever_it_is() -> None:
    even = Grants(1.0, 1.0, [float(n) for n in range(1_000)], [1.0] * 1_000)
    even.judge("even", used_up_over_s=1_000.0)
    flood = Grants(1.0, 1.0, list(even.times), list(even.amounts))
    flood.amounts[500] = 700.0
    with pytest.raises(Violation, match="granted_rate_is_bounded"):
        flood.judge("flood", used_up_over_s=None)
    with pytest.raises(Violation, match="quota_is_used_up"):
        even.judge("even", used_up_over_s=2_000.0)
