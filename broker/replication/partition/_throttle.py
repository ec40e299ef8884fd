"""Bounds the rate at which replicas named by an administrator are copied (KIP-73, row C7).

A leader sends, and a follower fetches, at most so many bytes a second for the replicas that a topic
names in `*.replication.throttled.replicas`. While the rate is above that, those partitions are left
out of fetches. A replica in sync is never left out: clients wait for it. Times are any clock's
milliseconds; pure.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from raftctl.errors import invariant
from raftctl.integers import LONG_MAX
from raftctl.metadata.records import BROKER_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.image import MetadataImage

WINDOWS = 11
"""Apache Kafka's `replication.quota.window.num`."""
WINDOW_MS = 1_000
"""Apache Kafka's `replication.quota.window.size.seconds`."""
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVING_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_EVERYONE = "*"


class SampledRate:
    """Bytes a second over the last windows, the one under way among them."""

    def __init__(self, windows: int = WINDOWS, window_ms: int = WINDOW_MS) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[tuple[int, int]] = deque()
        """(when it began, bytes), oldest first."""
        self._total = 0

    def invariants(self) -> None:
        """Check that the total is that of the samples, which are in order and few."""
        invariant(
            self._total == sum(size for _, size in self._samples), "the total is the samples'"
        )
        begins = [began for began, _ in self._samples]
        invariant(begins == sorted(begins), "samples are in the order of time")
        invariant(len(begins) <= self._windows + 1, "a sample is kept while it counts")

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes that pass now."""
        self._expire(now_ms)
        if self._samples and now_ms - self._samples[-1][0] < self._window_ms:
            began, known = self._samples[-1]
            self._samples[-1] = began, known + size
        else:
            self._samples.append((now_ms, size))
        self._total += size

    def per_second(self, now_ms: int) -> float:
        """Return the rate; all windows but the last count from the start, so that a burst is
        spread.
        """
        self._expire(now_ms)
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        return self._total * 1000 / max(elapsed_ms, (self._windows - 1) * self._window_ms)

    def _expire(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._windows * self._window_ms:
            self._total -= self._samples.popleft()[1]


class Throttle:
    """One direction: what is sent, what is fetched, or what moves to another log directory."""

    def __init__(self, key: str) -> None:
        """`key` is the broker's config that bounds the rate."""
        self._key = key
        self._rate = SampledRate()
        self.bytes_per_second = LONG_MAX

    def configure(self, image: MetadataImage, broker_id: int) -> None:
        """Take up the bound that the image has for this broker, or for all."""
        own = image.config(BROKER_RESOURCE, str(broker_id))
        everybody = image.config(BROKER_RESOURCE, "")
        self.bytes_per_second = int(own.get(self._key, everybody.get(self._key, LONG_MAX)))

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes of a throttled replica."""
        self._rate.record(size, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Return whether throttled replicas must wait."""
        if self.bytes_per_second == LONG_MAX:
            return False
        return self._rate.per_second(now_ms) > self.bytes_per_second


def names(throttled: Sequence[str], partition_id: int, broker_id: int) -> bool:
    """Return whether `*.replication.throttled.replicas` names this replica of a partition."""
    if not throttled:
        return False
    return _EVERYONE in throttled or f"{partition_id}:{broker_id}" in throttled


class Throttles:
    """All directions of a broker."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.sending, self.fetching = Throttle(LEADER_RATE), Throttle(FOLLOWER_RATE)
        self.moving = Throttle(MOVING_RATE)

    def configure(self, image: MetadataImage) -> None:
        """Take up the bounds that the image has."""
        self.sending.configure(image, self._broker_id)
        self.fetching.configure(image, self._broker_id)
        self.moving.configure(image, self._broker_id)
