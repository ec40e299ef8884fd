"""Rates over samples and token buckets, against a literal reading of Apache Kafka's definition."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.quotas._rates import SampledRate, TokenBucket, Windows
from tests.unit.broker.quotas.traces import Trace, mismatches

SECOND = 1_000
DAY_MS = 24 * 3_600 * SECOND
WINDOWS = Windows()


class Ring:
    """The definition: a ring of one sample more than windows, each reset when it counts no more."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.samples: list[list[float]] = []
        """[began, last event, value]"""
        self.current = 0

    def record(self, value: float, now: int) -> None:
        if not self.samples:
            self.samples.append([now, now, 0.0])
        sample = self.samples[self.current]
        if now - sample[0] >= self.windows.size_ms:
            self.current = (self.current + 1) % (self.windows.number + 1)
            if self.current == len(self.samples):
                self.samples.append([now, now, 0.0])
            sample = self.samples[self.current]
            sample[:] = [now, now, 0.0]
        sample[1], sample[2] = now, sample[2] + value

    def window(self, now: int) -> float:
        for sample in self.samples:
            if now - sample[1] >= self.windows.number * self.windows.size_ms:
                sample[:] = [now, now, 0.0]
        elapsed = now - min((sample[0] for sample in self.samples), default=now)
        full = elapsed // self.windows.size_ms
        if full < self.windows.number - 1:
            elapsed += (self.windows.number - 1 - full) * self.windows.size_ms
        return max(elapsed, 1)

    def rate(self, now: int) -> float:
        window = self.window(now)
        return sum(sample[2] for sample in self.samples) / (window / 1000)


WAITS = st.one_of(st.integers(0, 300), st.integers(900, 1_100), st.integers(0, 30_000))
EVENTS = st.lists(st.tuples(WAITS, st.integers(-100, 10_000)), max_size=60)


@pytest.mark.req("S5")
@given(st.builds(Windows, st.integers(1, 12), st.sampled_from([500, 1_000, 2_000])), EVENTS)
def test_the_rate_is_apache_kafkas(windows: Windows, events: list[tuple[int, int]]) -> None:
    rate, ring, now = SampledRate(windows), Ring(windows), 5
    for wait, value in events:
        now += wait
        rate.record(value, now)
        ring.record(value, now)
        assert rate.per_second(now) == pytest.approx(ring.rate(now))
        bound = 100.0
        excess = (ring.rate(now) - bound) / bound * ring.window(now)
        assert rate.throttle_ms(bound, now) == max(0, math.floor(excess + 0.5))


def test_the_first_request_is_spread_over_windows_that_were_empty() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(10_000, 7)
    assert rate.per_second(7) == 1_000


def test_a_throttle_time_brings_the_rate_down_to_the_bound() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(15_000, 0)
    assert rate.throttle_ms(1_000, 0) == 5_000
    # Apache Kafka adds what lacks to whole windows: within one the rate does not fall.
    rate.record(0, 5_000)
    assert rate.throttle_ms(1_000, 5_000) == 5_000
    rate.record(0, 15_000)
    assert rate.per_second(15_000) == 0


def test_what_is_taken_back_was_never_counted() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(500, 0)
    before = rate.per_second(20)
    rate.record(9_999, 20)
    rate.record(-9_999, 20)
    assert rate.per_second(20) == before


@pytest.mark.req("S5")
@pytest.mark.parametrize("size", [100, 1_000])
def test_a_day_of_windows_keeps_the_bound(size: int) -> None:
    """A client that obeys its throttle times comes to within 3 % of the bound."""
    rate, bound, now, sent = SampledRate(WINDOWS), 1_000.0, 0, 0
    minutes: list[int] = []
    while now < DAY_MS:
        rate.record(size, now)
        sent += size
        now += max(rate.throttle_ms(bound, now), 20)
        while now // 60_000 > len(minutes):
            minutes.append(sent)
    steady = [after - before for before, after in pairwise(minutes[1:])]
    assert len(steady) > 1_400
    assert abs((minutes[-1] - minutes[1]) / (60 * len(steady)) / bound - 1) <= 0.03


def greedy_shares(windows: Windows, round_trip_ms: int) -> tuple[list[float], float]:
    """Shares of its bound that a client gets in each half minute, and over all minutes.

    It sends 10,000 bytes whenever it may, of 200,000 a second.
    """
    rate, bound, size, now = SampledRate(windows), 200_000, 10_000, 0
    sent: list[int] = []
    while now < 400_000:
        rate.record(size, now)
        sent.append(now)
        now += rate.throttle_ms(bound, now) + round_trip_ms

    def share(begin: int, end: int) -> float:
        return sum(size for at in sent if begin <= at < end) * 1000 / (end - begin) / bound

    begins = range(windows.total_ms + 1_000, 360_000, 500)
    return [share(begin, begin + 30_000) for begin in begins], share(windows.total_ms, 400_000)


@pytest.mark.req("S5")
@pytest.mark.parametrize("round_trip_ms", [2, 40])
def test_half_a_minute_of_a_greedy_client_swings_as_with_apache_kafka(round_trip_ms: int) -> None:
    """It bursts each time that its last burst expires; only over minutes it comes to the bound."""
    swings, all_in_all = greedy_shares(WINDOWS, round_trip_ms)
    assert 0.74 <= min(swings) < 1 < max(swings) <= 1.13
    assert all_in_all == pytest.approx(1, abs=0.03)


@pytest.mark.req("S5")
def test_with_two_windows_each_half_minute_comes_to_the_bound() -> None:
    swings, all_in_all = greedy_shares(Windows(number=2), 2)
    assert 0.96 <= min(swings) < max(swings) <= 1.03
    assert all_in_all == pytest.approx(1, abs=0.01)


def test_a_bucket_is_full_at_first_and_takes_one_large_request_whole() -> None:
    bucket = TokenBucket(WINDOWS)
    bucket.take(56 + 4, 5, 1_000)
    # 55 tokens were there: 11 windows of a second at 5 a second.
    assert bucket.throttle_ms(5, 1_000) == 1_000
    assert bucket.throttle_ms(5, 1_500) == 500
    assert bucket.throttle_ms(5, 2_000) == 0


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 50)), max_size=50))
def test_a_bucket_never_holds_more_than_its_burst(events: list[tuple[int, int]]) -> None:
    bucket, tokens, last, now = TokenBucket(WINDOWS), 22.0, 0, 0
    for wait, count in events:
        now += wait
        tokens = min(22.0, tokens + 2 * (now - last) / 1000) - count
        last = now
        bucket.take(count, 2, now)
        assert bucket.throttle_ms(2, now) == max(0, math.floor(-tokens / 2 * 1000 + 0.5))


GOLDEN = json.loads((Path(__file__).parent / "apache_kafka.json").read_text(encoding="utf-8"))
"""What a client saw of Apache Kafka, by `python -m tests.peers.quota_traces`."""


@pytest.mark.req("S5")
@pytest.mark.parametrize("name", ["produce", "fetch", "mutations"])
def test_throttle_times_are_those_that_apache_kafka_answered(name: str) -> None:
    answers = [tuple(answer) for answer in GOLDEN[name]["answers"]]
    # The records that the last fetches would have had are not known.
    while name == "fetch" and not answers[-1][1]:
        answers.pop()
    assert sum(throttle_ms > 0 for _, _, throttle_ms in answers) >= 2
    assert mismatches(name, Trace(GOLDEN[name]["bound"], answers)) == []
