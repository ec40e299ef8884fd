"""A node's own clocks: how fast its time goes, and that it stands still while it is suspended.

Programs see CLOCK_MONOTONIC as `loop.time()` and CLOCK_BOOTTIME as `loop.lease_time()`: the second
goes on while the machine is suspended (clock_gettime(2)). Both go at the node's rate. Timers are
set by the first.
"""

from __future__ import annotations

import math


class NodeClock:
    """The clocks of one node, as functions of the world's time. All times are in seconds."""

    def __init__(self) -> None:
        self.rate = 1.0
        """Seconds of the node for each second of the world."""
        self._world_s = 0.0
        self._monotonic_s = 0.0
        """What the clock showed at that time of the world; since then it has gone at its rate."""
        self._asleep_s = 0.0
        """How much CLOCK_BOOTTIME is ahead."""
        self.suspended = False

    def monotonic_s(self, now_s: float) -> float:
        """What CLOCK_MONOTONIC shows at a time of the world."""
        if self.suspended:
            return self._monotonic_s
        return self._monotonic_s + (now_s - self._world_s) * self.rate

    def boottime_s(self, now_s: float) -> float:
        """What CLOCK_BOOTTIME shows at a time of the world."""
        going = self._monotonic_s + (now_s - self._world_s) * self.rate
        return going + self._asleep_s

    def world_s(self, when_s: float) -> float:
        """The first world time at which CLOCK_MONOTONIC shows no less; never if suspended."""
        if self.suspended:
            return math.inf
        world_s = self._world_s + (when_s - self._monotonic_s) / self.rate
        # A timer that comes too early by a rounding error would be set again and again.
        while self.monotonic_s(world_s) < when_s:
            world_s = math.nextafter(world_s, math.inf)
        return world_s

    def set_rate(self, now_s: float, rate: float) -> None:
        """From now on the clocks go at this rate."""
        self._anchor(now_s)
        self.rate = rate

    def suspend(self, now_s: float) -> None:
        """CLOCK_MONOTONIC stands still from now on."""
        self._anchor(now_s)
        self.suspended = True

    def wake(self, now_s: float) -> None:
        """CLOCK_MONOTONIC goes on; CLOCK_BOOTTIME shows how long it stood still."""
        self._anchor(now_s)
        self.suspended = False

    def _anchor(self, now_s: float) -> None:
        """Notes what both clocks show now, to go on from there."""
        boottime_s = self.boottime_s(now_s)
        self._monotonic_s = self.monotonic_s(now_s)
        self._asleep_s = boottime_s - self._monotonic_s
        self._world_s = now_s
