"""The clock by which leases are counted: it goes on while the machine is suspended.

Python's `time.monotonic`, and with it the event loop's time, stands still while a virtual machine
or a laptop is suspended. A holder that counted a lease by it would wake up and believe in what
others have long been given. Linux has CLOCK_BOOTTIME (clock_gettime(2)); where there is none, the
monotonic clock has to do, and `counts_suspension` is False.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import asyncio

CLOCK_MARGIN = 0.1
"""A lease is taken for shorter by this share: so much may its holder's clock be slower than that of
the controller which ends it."""
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)
counts_suspension = _BOOTTIME is not None
"""Whether time goes on for leases while this machine is suspended."""


class _LoopWithClock(Protocol):
    """An event loop with a time of its own, as a simulated world has."""

    def lease_time(self) -> float:
        """See `lease_time`."""


def lease_time(loop: asyncio.AbstractEventLoop) -> float:
    """Return the seconds since some moment; only differences mean anything.

    By the loop's own clock if it has one for this, as a simulated world does.
    """
    if hasattr(loop, "lease_time"):
        return cast("_LoopWithClock", loop).lease_time()
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def lease_ends(asked_at: float, timeout_s: float) -> float:
    """Until when a lease is believed in that was asked for at this time.

    The grantor has counted its timeout from later.
    """
    return asked_at + timeout_s * (1 - CLOCK_MARGIN)
