"""Keeps the pauses short that Python's cyclic garbage collector makes in a process of many objects.

A full collection looks at every object that is there, and millions of partitions are millions of
objects: it would stop event loop and workers for seconds. Nearly all of them stay, and hold no
cycles. So whatever has survived a full collection that took long is not looked at again
(`gc.freeze`): it is still freed when nobody refers to it any more, and only cycles that are closed
later among what was frozen are never found. So pauses are in proportion to what is new, however
much there is. `THRESHOLDS` let a batch of thousands of records come and go without being looked
at, and have a full collection begin when there are tens of thousands of new objects.

Python counts what is made less what is freed, so where new objects take the places of as many old
ones it does not begin before hundreds of thousands are new. Code that does so says it in
between (`look_now`).
Source: the `gc` module of the Python standard library.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PAUSE_S = 0.01
"""A full collection that took longer was a long one."""
THRESHOLDS = (5_000, 5, 2)
"""New objects until the youngest generation is looked at; so many of its collections until the next
generation is, and so many of those until all are."""
_OLDEST = 2


class Collector:
    """Watches the collector of this process; for a process that is one node, not for a library."""

    running: ClassVar[Collector | None] = None
    """The one of this process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._began_s = 0.0
        self.seconds = [0.0] * (_OLDEST + 1)
        """By generation: how long its collections have taken."""
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Begin with freezing what is there, so that the imported modules are not looked at."""
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._on_collection)
        Collector.running = self

    def stop(self) -> None:
        """Leave the collector as it was found."""
        Collector.running = None
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s = self._clock()
            return
        took_s = self._clock() - self._began_s
        self.seconds[info["generation"]] += took_s
        if info["generation"] == _OLDEST and took_s > PAUSE_S:
            gc.freeze()


def look_now() -> None:
    """Run a full collection, after some thousand objects have replaced others in a node."""
    if Collector.running is not None:
        gc.collect()
