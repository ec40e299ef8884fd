"""Rates over samples and token buckets, as Apache Kafka's metrics compute them.

Sources: Apache Kafka's SampledStat, Rate, TokenBucket and QuotaUtils.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from raftctl.errors import invariant
from raftctl.integers import INT_MAX


class Windows(NamedTuple):
    """How a rate is sampled: `quota.window.num`, `quota.window.size.seconds`."""

    number: int = 11
    """Of samples, the one under way among them."""
    size_ms: int = 1_000

    @property
    def total_ms(self) -> int:
        """The age at which a sample counts no more."""
        return self.number * self.size_ms


BY_DEFAULT = Windows()


class _Sample:
    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = self.last_ms = began_ms
        self.value = 0.0


class SampledRate:
    """The rate of a quantity over the last windows, the one under way among them."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()
        """Oldest first; empty windows have none."""

    def record(self, value: float, now_ms: int) -> None:
        """Count `value` at this time; a negative one takes back what was counted in vain."""
        samples, windows = self._samples, self._windows
        if not samples or now_ms - samples[-1].began_ms >= windows.size_ms:
            invariant(not samples or now_ms >= samples[-1].last_ms, "time does not go back")
            samples.append(_Sample(now_ms))
            if len(samples) > windows.number + 1:
                samples.popleft()
        last = samples[-1]
        last.value += value
        last.last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        """Return the rate at this time."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return sum(sample.value for sample in self._samples) * 1000 / elapsed_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return how long the client must be quiet for the rate to come down to the bound.

        0 if it is not above. A rate of O over a time of W is T after (O - T) / T * W more.
        """
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = sum(sample.value for sample in self._samples) * 1000 / elapsed_ms
        if rate <= bound:
            return 0
        return min(_rounded((rate - bound) / bound * elapsed_ms), INT_MAX)

    def _elapsed_ms(self, now_ms: int) -> int:
        """Return the time that the rate is over; samples that count no more are dropped.

        A client that was quiet has windows with nothing in them: what is missing to one window less
        than all is added. Else the first request of a client would look like a flood.
        """
        samples, windows = self._samples, self._windows
        # A sample counts while anything in it does, even if it began before the windows.
        while samples and now_ms - samples[0].last_ms >= windows.total_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].began_ms if samples else 0
        missing = windows.number - 1 - elapsed_ms // windows.size_ms
        return max(elapsed_ms + max(missing, 0) * windows.size_ms, 1)


class TokenBucket:
    """Tokens that come at the bound's rate and go with each change; below none, the client waits.

    The bucket is full at first, and holds what comes within all windows.
    """

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = math.inf
        self._updated_ms = 0

    def take(self, count: float, bound: float, now_ms: int) -> None:
        """Take tokens, also more than there are."""
        self._tokens = self._refilled(bound, now_ms) - count
        self._updated_ms = now_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return after how long the bucket is no longer below 0; 0 if it is not."""
        tokens = self._refilled(bound, now_ms)
        return 0 if tokens >= 0 else min(_rounded(-tokens / bound * 1000), INT_MAX)

    def _refilled(self, bound: float, now_ms: int) -> float:
        most = bound * self._windows.total_ms / 1000
        return min(most, self._tokens + bound * (now_ms - self._updated_ms) / 1000)


def _rounded(value: float) -> int:
    """Return the nearest whole number, halves upwards, as Java does."""
    return math.floor(value + 0.5) if math.isfinite(value) else INT_MAX
