"""Counts with rates, and distributions: what hot paths add to.

To add costs an addition. What takes longer, such as decay, is done at a tick, every five seconds.
Source: Apache Kafka's metrics are those of Yammer's library: moving averages like a Unix load.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from raftctl.errors import invariant
from raftctl.metrics._definition import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

TICK_SECONDS = 5.0
"""Between two ticks."""
RATE_MINUTES = (1, 5, 15)
_KEPT = tuple(math.exp(-TICK_SECONDS / 60 / minutes) for minutes in RATE_MINUTES)


class Meter:
    """A count, and how much it grows a second: averages that forget over 1, 5 and 15 minutes."""

    __slots__ = ("_averages", "_counted", "count")

    def __init__(self) -> None:
        self.count = 0
        """The total; for its owner to add to."""
        self._counted = 0
        self._averages: list[float] | None = None

    @property
    def rates(self) -> dict[int, float]:
        """Minutes (1, 5, 15) to how much a second over them; 0 before the first tick."""
        return dict(zip(RATE_MINUTES, self._averages or (0.0, 0.0, 0.0), strict=True))

    def tick(self) -> None:
        """Take what was added since the last tick into the averages."""
        invariant(self.count >= self._counted, "a meter only grows")
        rate = (self.count - self._counted) / TICK_SECONDS
        self._counted = self.count
        if self._averages is None:
            self._averages = [rate] * len(RATE_MINUTES)
            return
        for index, kept in enumerate(_KEPT):
            self._averages[index] = self._averages[index] * kept + rate * (1 - kept)


_STEPS = 8
"""Buckets for each doubling of a value: one is at most 12.5 % wide."""
_STEP_BITS = 3
_DOUBLINGS = 40
_BUCKETS = _STEPS * (_DOUBLINGS + 1)
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those that Apache Kafka's histograms have."""
WINDOW_TICKS = 12
"""A minute: quantiles are of the last whole one and what came after it."""


class Distribution:
    """How often which values came: count, sum, and quantiles of the last one to two minutes.

    Values are integers from 0, such as microseconds. The error of a quantile is at most 12.5 %.
    """

    __slots__ = ("_before", "_now", "_ticks", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self._now = [0] * _BUCKETS
        self._before = [0] * _BUCKETS
        self._ticks = 0

    def add(self, value: int) -> None:
        """Count a value; what is below 0 counts as 0, what is huge as the largest bucket."""
        if value < 0:
            value = 0
        self.count += 1
        self.total += value
        self._now[bucket_of(value)] += 1

    def tick(self) -> None:
        """Begin a new window, if the time of the present one is over."""
        self._ticks += 1
        if self._ticks == WINDOW_TICKS:
            self._ticks = 0
            self._before, self._now = self._now, [0] * _BUCKETS

    @property
    def is_empty(self) -> bool:
        """Whether no value came in the time that quantiles are of."""
        return not (any(self._now) or any(self._before))

    def summary(self, scale: float = 1.0, asked: Sequence[float] = QUANTILES) -> Summary:
        """What is scraped, with each value multiplied by `scale`; the quantiles rise."""
        counts = [now + before for now, before in zip(self._now, self._before, strict=True)]
        found = zip(asked, quantiles(counts, asked), strict=True)
        pairs = tuple((quantile, value * scale) for quantile, value in found)
        return Summary(self.count, self.total * scale, pairs)


def bucket_of(value: int) -> int:
    """The bucket that a value from 0 falls into: exact below 8, then eight for each doubling."""
    if value < _STEPS:
        return value
    doublings = value.bit_length() - _STEP_BITS - 1
    bucket = _STEPS * doublings + (value >> doublings)
    return bucket if bucket < _BUCKETS else _BUCKETS - 1


def value_of(bucket: int) -> int:
    """The largest value that falls into a bucket."""
    if bucket < _STEPS:
        return bucket
    doublings, step = divmod(bucket, _STEPS)
    return ((step + _STEPS + 1) << (doublings - 1)) - 1


def quantiles(counts: Sequence[int], asked: Sequence[float]) -> list[int]:
    """The values below which the asked parts of all values are; `asked` rises. 0 of none."""
    total = sum(counts)
    found: list[int] = []
    seen = 0
    ranks = iter(max(1, math.ceil(part * total)) for part in asked)
    rank = next(ranks, None)
    for bucket, count in enumerate(counts):
        seen += count
        while rank is not None and seen >= rank:
            found.append(value_of(bucket))
            rank = next(ranks, None)
    return found or [0] * len(asked)
