"""Rates and distributions: what they forget, and how exact they are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.errors import InvariantViolation
from raftctl.metrics import Distribution, Meter
from raftctl.metrics._meter import QUANTILES, TICK_SECONDS, WINDOW_TICKS, bucket_of, value_of

VALUES = st.integers(0, 2**34)


@pytest.mark.req("N4")
def test_a_meter_counts_and_its_rates_approach_the_rate_at_which_it_grows() -> None:
    meter = Meter()
    meter.tick()
    assert meter.rates == {1: 0, 5: 0, 15: 0}
    for _ in range(int(60 / TICK_SECONDS)):
        meter.count += 500
        meter.tick()
    one, five, fifteen = meter.rates.values()
    assert meter.count == 6000
    assert one == pytest.approx(100 * (1 - math.exp(-1)))
    assert five == pytest.approx(100 * (1 - math.exp(-1 / 5)))
    assert fifteen == pytest.approx(100 * (1 - math.exp(-1 / 15)))


@pytest.mark.req("N4")
def test_the_first_rate_of_a_meter_is_the_one_seen_so_far() -> None:
    meter = Meter()
    meter.count += 50
    meter.tick()
    assert meter.rates == {1: 10, 5: 10, 15: 10}


def test_a_meter_that_falls_is_a_bug() -> None:
    meter = Meter()
    meter.count = 5
    meter.tick()
    meter.count = 4
    with pytest.raises(InvariantViolation, match="only grows"):
        meter.tick()


@given(VALUES)
def test_a_bucket_holds_what_falls_into_it_to_an_eighth(value: int) -> None:
    bucket = bucket_of(value)
    assert value <= value_of(bucket) <= value * 1.125 + 1
    assert bucket == 0 or value_of(bucket - 1) < value


@given(VALUES, VALUES)
def test_buckets_keep_the_order(one: int, other: int) -> None:
    if one < other:
        assert bucket_of(one) <= bucket_of(other)


def test_what_is_huge_or_negative_has_a_bucket_too() -> None:
    distribution = Distribution()
    distribution.add(2**80)
    distribution.add(-3)
    assert distribution.summary().count == 2


@pytest.mark.req("N4")
@given(st.lists(VALUES, min_size=1))
def test_a_distribution_has_count_sum_and_quantiles_as_a_sorted_list_has(values: list[int]) -> None:
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    found = distribution.summary()
    assert (found.count, found.total) == (len(values), sum(values))
    ordered = sorted(values)
    for quantile, at in found.quantiles:
        exact = ordered[max(0, math.ceil(quantile * len(values)) - 1)]
        assert exact <= at <= exact * 1.125 + 1


def test_a_summary_is_scaled_to_the_unit_of_its_metric() -> None:
    distribution = Distribution()
    distribution.add(4)
    found = distribution.summary(0.5)
    assert found.total == 2
    assert found.quantiles == tuple((quantile, 2.0) for quantile in QUANTILES)


@pytest.mark.req("N4")
def test_quantiles_forget_what_is_two_windows_old_and_totals_do_not() -> None:
    distribution = Distribution()
    distribution.add(1000)
    for _ in range(WINDOW_TICKS):
        distribution.tick()
    assert distribution.summary().quantiles[0][1] >= 1000
    distribution.add(1)
    for _ in range(WINDOW_TICKS):
        distribution.tick()
    found = distribution.summary()
    assert found.quantiles[-1][1] == 1
    assert (found.count, found.total) == (2, 1001)
    for _ in range(WINDOW_TICKS):
        distribution.tick()
    assert distribution.summary().quantiles[-1][1] == 0
