"""Percentiles are latencies that were measured, by the nearest rank."""

from __future__ import annotations

import pytest

from raftctl.cli.clients.bench import Latencies


def of(*seconds: float) -> Latencies:
    latencies = Latencies()
    for one in seconds:
        latencies.add(one)
    return latencies


@pytest.mark.req("A1")
def test_a_percentile_is_the_smallest_that_the_share_does_not_exceed() -> None:
    thousand = of(*(number / 1000 for number in range(1000, 0, -1)))
    assert len(thousand) == 1000
    assert thousand.summary() == {
        "avg_ms": 500.5,
        "max_ms": 1000.0,
        "p50_ms": 500.0,
        "p95_ms": 950.0,
        "p99_ms": 990.0,
        "p99_9_ms": 999.0,
    }


def test_one_latency_is_every_percentile() -> None:
    assert set(of(0.25).summary().values()) == {250.0}


def test_of_two_the_median_is_the_smaller() -> None:
    summary = of(0.002, 0.001).summary()
    assert (summary["p50_ms"], summary["p99_ms"]) == (1.0, 2.0)


def test_of_none_nothing_is_known() -> None:
    assert set(Latencies().summary().values()) == {None}
