"""The metrics of one node: who is asked for them, and their text for Prometheus.

Nothing is global to the process, since several nodes share one in the simulation. A component
registers a collector, which is asked at each scrape. Between two families the event loop has its
turn, so a scrape of many series does not keep requests waiting.

Series of topics and partitions are details: they get the room that all others leave of
`metrics.series.max`, and what has none is counted in a series for the rest.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from raftctl.errors import invariant
from raftctl.metrics._definition import Family, Summary, counter, gauge, single
from raftctl.metrics._meter import TICK_SECONDS
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Ticking(Protocol):
    """Something that forgets with time: a meter, a distribution, what counts at intervals."""

    def tick(self) -> None:
        """Go on by `TICK_SECONDS`."""


Collect = Callable[[], Iterable[Family]]
"""Yields the families of a component as they are now. Not to be held across a turn of the loop:
what it reads may change between two families."""


class Details(Protocol):
    """Series that may be too many, such as those of topics."""

    series_min: int
    """Those that it yields whatever the room, such as sums for the rest."""

    async def prepare(self, slices: Slices) -> None:
        """Look at what takes long, in slices of the scrape; called before each."""

    def collect(self, room: int) -> Iterable[Family]:
        """Yield families of `room` series at most, or of `series_min`, if that is more."""


SERIES_MAX = 1_500
"""Of `metrics.series.max`."""
_SLICE_S = 0.001
"""Of a scrape. What comes in during one slice has its turn after the next: it waits for two."""
_SERIES = gauge("raftctl_metrics_series", "Series of the scrape before this one.")
_SCRAPES = counter("raftctl_metrics_scrapes_total", "Scrapes that were answered.")


class Metrics:
    """The collectors of a node, and its meters and distributions, which need a tick."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"
    """Of the text of a scrape."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        """`series_max`: from this number on, details have no series of their own."""
        self.series_max = series_max
        self._collectors: list[Collect] = []
        self._details: list[Details] = []
        self._ticking: list[Ticking] = []
        self._series = 0
        self._scrapes = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, collect: Collect) -> None:
        """Ask a component at each scrape."""
        self._collectors.append(collect)

    def add_details(self, details: Details) -> None:
        """Ask for details at each scrape, after all others and those added before."""
        self._details.append(details)

    def keep(self, *measured: Ticking) -> None:
        """Tick meters and distributions every `TICK_SECONDS` from now on."""
        self._ticking.extend(measured)

    def start(self) -> None:
        """Tick from now on, on the event loop that runs."""
        loop = asyncio.get_running_loop()

        def tick() -> None:
            self.tick()
            self._timer = loop.call_later(TICK_SECONDS, tick)

        self._timer = loop.call_later(TICK_SECONDS, tick)

    def stop(self) -> None:
        """Tick no more."""
        if self._timer is not None:
            self._timer.cancel()

    def tick(self) -> None:
        """Let rates and windows go on by `TICK_SECONDS`."""
        for one in self._ticking:
            one.tick()

    def families(self) -> Iterator[Family]:
        """Every family as it is now. Each name comes once, with each of its series."""
        seen: set[str] = set()
        series = 0
        for family in self._plain():
            _check(family, seen)
            series += _width(family)
            yield family
        later = sum(details.series_min for details in self._details)
        for details in self._details:
            later -= details.series_min
            for family in details.collect(max(self.series_max - series - later, 0)):
                _check(family, seen)
                series += _width(family)
                yield family
        self._series = series

    def _plain(self) -> Iterator[Family]:
        yield single(_SERIES, self._series)
        yield single(_SCRAPES, self._scrapes)
        for collect in self._collectors:
            yield from collect()

    @staticmethod
    def load() -> None:
        """Import what `text` needs: a tenth of a second, which a node that nobody scrapes saves.

        For a worker to do before the first scrape.
        """
        importlib.import_module("raftctl.metrics._exposition")

    async def text(self) -> AsyncIterator[bytes]:
        """The text of a scrape, as much at a time as a slice has made."""
        from raftctl.metrics._exposition import texts_of

        slices = Slices(_SLICE_S)
        for details in self._details:
            await details.prepare(slices)
            await slices.rest()
        pieces: list[bytes] = []
        for family in self.families():
            for piece in texts_of(family):
                pieces.append(piece)
                if slices.is_over():
                    # Each piece of its own would be a call of the system.
                    yield b"".join(pieces)
                    pieces.clear()
                    await asyncio.sleep(0)
        self._scrapes += 1
        yield b"".join(pieces)


def _check(family: Family, seen: set[str]) -> None:
    """Check a family against those before it. Prometheus drops a scrape that has a series twice."""
    metric, labels = family.metric, [sample.labels for sample in family.samples]
    invariant(metric.name not in seen, f"{metric.name} has one collector")
    invariant(len(set(labels)) == len(labels), f"{metric.name}: a series comes once")
    invariant(
        all(len(one) == len(metric.labels) for one in labels),
        f"{metric.name}: a sample has a value for each label",
    )
    seen.add(metric.name)


def _width(family: Family) -> int:
    """How many series a family is."""
    return sum(
        len(value.quantiles) + 2 if isinstance(value, Summary) else 1 for _, value in family.samples
    )
