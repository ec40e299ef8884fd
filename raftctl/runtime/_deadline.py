"""A deadline that is set again and again, served by one timer of the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Deadline:
    """Calls back once when its time has come; it may be set again from within that call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._timer: asyncio.TimerHandle | None = None
        self.at_s: float | None = None
        """The loop's time of the call; None: there will be none."""

    def set(self, at_s: float | None) -> None:
        """Call at this time instead of any other; None: not at all."""
        if at_s == self.at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at_s is None else self._loop.call_at(at_s, self._fire)
        self.at_s = at_s

    def set_at_latest(self, at_s: float | None) -> None:
        """Do what `set` does unless the call comes earlier: that costs less than another timer."""
        if at_s is None or self.at_s is None or at_s < self.at_s:
            self.set(at_s)

    def close(self) -> None:
        """Never call again, and let go of the callee.

        Else an owner that hands over a method of its own is a cycle with its deadline, and lives
        until a full collection. One that was frozen before (`Collector`) would live for ever.
        """
        self.set(None)
        self._call = _nothing

    def _fire(self) -> None:
        self._timer = self.at_s = None
        self._call()


def _nothing() -> None:
    """In the place of a call that is let go."""
