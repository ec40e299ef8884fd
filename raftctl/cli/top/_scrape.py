"""One node's metrics at one time, and how fast its counters grow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Series = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Scrape:
    """What a node has answered to one scrape."""

    at_s: float
    """When, by a clock that does not jump."""
    series: Mapping[str, list[Series]]
    """(labels, value) of each series, by the name of the sample."""

    def matching(self, name: str, **labels: str) -> Iterator[Series]:
        """Yield the series of a name that have these labels; a label that is absent is empty."""
        for found, value in self.series.get(name, ()):
            if all(found.get(label, "") == wanted for label, wanted in labels.items()):
                yield found, value

    def total(self, name: str, **labels: str) -> float | None:
        """Return the sum of those series; None if there is none."""
        values = [value for _, value in self.matching(name, **labels)]
        return sum(values) if values else None

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the sums by the values of some labels, which all must have one."""
        sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for found, value in self.series.get(name, ()):
            key = tuple(found.get(label, "") for label in labels)
            if all(key):
                sums[key] += value
        return dict(sums)


def parse(text: str, at_s: float) -> Scrape:
    """Return the scrape of a text in Prometheus' format; ValueError if it is none."""
    # A tenth of a second to import, which other commands do without.
    from prometheus_client.parser import text_string_to_metric_families

    series: defaultdict[str, list[Series]] = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series[sample.name].append((sample.labels, sample.value))
    return Scrape(at_s, dict(series))


def rate(new: Scrape | None, old: Scrape | None, name: str, **labels: str) -> float | None:
    """Return by how much a counter grew each second; None if that is not known.

    A counter that has gone back is of a node that has started again.
    """
    if new is None or old is None or new.at_s <= old.at_s:
        return None
    now, before = new.total(name, **labels), old.total(name, **labels)
    if now is None or before is None or now < before:
        return None
    return (now - before) / (new.at_s - old.at_s)


def rates_by(
    pairs: Iterable[tuple[Scrape, Scrape | None]], name: str, label: str
) -> dict[str, float]:
    """Return how fast a counter grew on all nodes together, by the values of a label."""
    sums: defaultdict[str, float] = defaultdict(float)
    for new, old in pairs:
        if old is None or new.at_s <= old.at_s:
            continue
        before = old.by(name, label)
        for key, value in new.by(name, label).items():
            grown = value - before.get(key, 0.0)
            sums[key[0]] += max(grown, 0.0) / (new.at_s - old.at_s)
    return dict(sums)
