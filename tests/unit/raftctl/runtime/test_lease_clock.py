"""The clock of leases: it goes on in suspend, and no administrator sets it."""

from __future__ import annotations

import asyncio
import time

import pytest

from raftctl.runtime import lease_clock
from raftctl.runtime.lease_clock import CLOCK_MARGIN, lease_ends, lease_time

pytestmark = pytest.mark.req("R6")


@pytest.mark.skipif(not lease_clock.counts_suspension, reason="the system has no such clock")
async def test_a_lease_is_counted_by_the_clock_that_goes_on_in_suspend_and_is_never_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    boot_s = 5_000.0
    others_s = 100.0
    read = time.clock_gettime

    def shown(clock: int) -> float:
        return boot_s if clock == time.CLOCK_BOOTTIME else others_s

    def told() -> float:
        return others_s

    with monkeypatch.context() as clocks:
        clocks.setattr(time, "clock_gettime", shown)
        clocks.setattr(time, "monotonic", told)
        clocks.setattr(time, "time", told)
        clocks.setattr(loop, "time", told)
        assert lease_time(loop) == 5_000.0
        others_s = -7_200.0
        assert lease_time(loop) == 5_000.0, "the wall clock was set back"
        boot_s += 60.0
        assert lease_time(loop) == 5_060.0, "the machine was suspended for a minute"
    assert abs(lease_time(loop) - read(time.CLOCK_BOOTTIME)) < 5


async def test_without_that_clock_at_least_nobody_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_clock, "_BOOTTIME", None)
    loop = asyncio.get_running_loop()
    with monkeypatch.context() as clocks:
        clocks.setattr(time, "monotonic", lambda: 70.0)
        clocks.setattr(time, "time", lambda: 1e9)
        assert lease_time(loop) == 70.0


async def test_a_loop_with_a_clock_of_its_own_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "lease_time", lambda: 3.0, raising=False)
    assert lease_time(loop) == 3.0


def test_a_lease_ends_for_its_holder_before_it_does_for_whoever_gave_it() -> None:
    assert lease_ends(100.0, 10.0) == 100.0 + 10.0 * (1 - CLOCK_MARGIN)
    assert 100.0 < lease_ends(100.0, 10.0) < 110.0
