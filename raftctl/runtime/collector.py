"""Keeps the pauses short that Python's cyclic garbage collector makes in a process of many objects.

A full collection looks at every object that is there, and millions of partitions are millions of
objects: it would stop event loop and workers for seconds. Nearly all of them stay, and hold no
cycles. So whatever has survived a full collection that took long is not looked at again
(`gc.freeze`): it is still freed when nobody refers to it any more, and only cycles that are closed
later among what was frozen are never found. The interpreter considers a full collection after
`FULL_AFTER` younger ones, and starts it when there is a quarter more than the last one has seen; so
pauses are in proportion to what is new, however much there is.
Source: the `gc` module of the Python standard library.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PAUSE_S = 0.01
"""A full collection that took longer was a long one."""
FULL_AFTER = 2
_OLDEST = 2


class Collector:
    """Watches the collector of this process; for a process that is one node, not for a library."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._began_s = 0.0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Begins with freezing what is there, so that the imported modules are not looked at."""
        gc.freeze()
        gc.set_threshold(self._thresholds[0], self._thresholds[1], FULL_AFTER)
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Leaves the collector as it was found."""
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            self._began_s = self._clock()
        elif self._clock() - self._began_s > PAUSE_S:
            gc.freeze()
