"""The series of what clients have pushed, as `/metrics` shows them.

A metric keeps the name that clients give it, with a prefix of this project and in the letters that
Prometheus allows. Its series are those of a kind of software: a name and a version. The points of
all its instances are added, or averaged: attributes of points, such as a topic, are too many to be
labels. The first instances, up to a number, have series of their own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from broker.telemetry._points import Kind
from raftctl.errors import invariant
from raftctl.ids import uuid_text
from raftctl.metrics import Family, Sample, counter, gauge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from uuid import UUID

    from broker.telemetry._points import Point

PREFIX = "raftctl_client_"
SOFTWARE_MAX = 20
"""Kinds of software that have series of their own at a time."""
VALUES_MAX = 100_000
"""Values of all instances that are remembered: gauges, and totals that deltas are made of."""
_KAFKA = "org.apache.kafka."
_LABELS = ("client_software_name", "client_software_version", "client_instance_id")
_AVERAGE, _GREATEST = "avg", "max"
_NAME_MAX = 150
_OTHER_LETTERS = re.compile("[^a-z0-9]+")
_TOTAL = "_total"
_SAYS = "A metric that clients push (KIP-714)."


class Owner(NamedTuple):
    """Whose a series is: the labels."""

    software_name: str
    software_version: str
    instance_id: str
    """Empty for all instances of the software."""


_OTHER = Owner("other", "other", "")


class _Gauge:
    """A metric whose points have values of now."""

    __slots__ = ("definition", "owners", "values")
    series_per_owner = 2

    def __init__(self, name: str) -> None:
        self.definition = gauge(name, _SAYS, *_LABELS, "aggregate")
        self.values: dict[UUID, tuple[Owner, float, float, int]] = {}
        """Of each instance: sum, greatest and number of the values in its last push."""
        self.owners: dict[Owner, int] = {}
        """The instances that each series is made of."""

    def forget(self, instance_id: UUID) -> int:
        """Drop what is of an instance; return how many values that are."""
        found = self.values.pop(instance_id, None)
        if found is None:
            return 0
        owner = found[0]
        self.owners[owner] -= 1
        if not self.owners[owner]:
            del self.owners[owner]
        return 1

    def samples(self) -> list[Sample]:
        """Average and greatest value of each series."""
        found: dict[Owner, tuple[float, float, int]] = {}
        for owner, total, greatest, count in self.values.values():
            before = found.get(owner, (0.0, greatest, 0))
            found[owner] = before[0] + total, max(before[1], greatest), before[2] + count
        return [
            Sample((*owner, how), value)
            for owner, (total, greatest, count) in found.items()
            for how, value in ((_AVERAGE, total / count), (_GREATEST, greatest))
        ]


class _Counter:
    """A metric whose points are totals, or what these grow by."""

    __slots__ = ("definition", "last", "owners")
    series_per_owner = 1

    def __init__(self, name: str) -> None:
        self.definition = counter(name, _SAYS, *_LABELS)
        self.owners: dict[Owner, float] = {}
        """The total of each series."""
        self.last: dict[UUID, dict[tuple[tuple[str, str], ...], tuple[int, float]]] = {}
        """Of each instance and point that bears totals: since when, and the last total."""

    def forget(self, instance_id: UUID) -> int:
        """Drop what is of an instance; return how many values that are. Its growth stays."""
        return len(self.last.pop(instance_id, ()))

    def samples(self) -> list[Sample]:
        """The total of each series."""
        return [Sample(tuple(owner), value) for owner, value in self.owners.items()]


class ClientSeries:
    """What all instances have pushed. A series that has no room is not begun."""

    def __init__(self, series_max: int, own_max: int) -> None:
        """`own_max` instances have series of their own."""
        self._series_max = series_max
        self._own_max = own_max
        self._metrics: dict[str, _Gauge | _Counter] = {}
        self._owners: dict[UUID, Owner] = {}
        self._instances: dict[Owner, int] = {}
        """The instances of each owner."""
        self._used: dict[UUID, set[str]] = {}
        """The metrics that remember something of an instance."""
        self._series = 0
        self._values = 0

    def add(self, instance_id: UUID, software: tuple[str, str], points: Iterable[Point]) -> int:
        """Take up what an instance has pushed; return how many points have no place.

        Points of a gauge replace those of the instance's last push that has any.
        """
        owner = self._owner(instance_id, software)
        dropped = 0
        gauges: dict[str, list[float]] = {}
        for point in points:
            name = series_name(point.name, is_total=point.kind is not Kind.GAUGE)
            if point.kind is Kind.GAUGE:
                gauges.setdefault(name, []).append(point.value)
            else:
                dropped += not self._grow(name, instance_id, owner, point)
        for name, values in gauges.items():
            dropped += 0 if self._set(name, instance_id, owner, values) else len(values)
        return dropped

    def forget(self, instance_id: UUID) -> None:
        """End what is of an instance, and the series of its software if it was the last one."""
        owner = self._owners.pop(instance_id, None)
        if owner is None:
            return
        for name in self._used.pop(instance_id, ()):
            metric = self._metrics[name]
            had = owner in metric.owners
            self._values -= metric.forget(instance_id)
            if had and owner not in metric.owners:
                self._end(name, metric)
        self._instances[owner] -= 1
        if not self._instances[owner]:
            del self._instances[owner]
            for name, metric in list(self._metrics.items()):
                if metric.owners.pop(owner, None) is not None:
                    self._end(name, metric)

    def families(self) -> Iterator[Family]:
        """Each metric with its series."""
        for metric in list(self._metrics.values()):
            yield Family(metric.definition, metric.samples())

    def invariants(self) -> None:
        """Check the bounds and the counts."""
        series = sum(len(one.owners) * one.series_per_owner for one in self._metrics.values())
        invariant(series == self._series <= self._series_max, "series are counted and bounded")
        invariant(0 <= self._values <= VALUES_MAX, "remembered values are bounded")
        invariant(self._used.keys() <= self._owners.keys(), "what is remembered has an instance")
        invariant(sum(self._instances.values()) == len(self._owners), "an instance has an owner")
        owners = {owner for one in self._metrics.values() for owner in one.owners}
        invariant(owners <= self._instances.keys(), "a series has instances")
        invariant(all(one.owners for one in self._metrics.values()), "a metric has series")

    def _owner(self, instance_id: UUID, software: tuple[str, str]) -> Owner:
        found = self._owners.get(instance_id)
        if found is not None:
            return found
        shared = Owner(*software, "")
        own = sum(1 for one in self._instances if one.instance_id)
        if own < self._own_max:
            owner = Owner(*software, uuid_text(instance_id))
        elif shared in self._instances or len(self._instances) - own < SOFTWARE_MAX:
            owner = shared
        else:
            owner = _OTHER
        self._owners[instance_id] = owner
        self._instances[owner] = self._instances.get(owner, 0) + 1
        return owner

    def _grow(self, name: str, instance_id: UUID, owner: Owner, point: Point) -> bool:
        """Add to a total, if it has room; return whether it has."""
        if not name:
            return False
        metric = self._metrics.get(name) or _Counter(name)
        if not isinstance(metric, _Counter) or not self._has_room(metric, owner):
            return False
        growth = point.value
        if point.kind is Kind.TOTAL:
            last = metric.last.get(instance_id, {})
            before = last.get(point.attributes)
            if before is None and not self._remember(name, instance_id):
                return False
            last[point.attributes] = point.since, point.value
            metric.last[instance_id] = last
            # A total that begins later, or is less, has begun again.
            if before is not None and before[0] == point.since and point.value >= before[1]:
                growth -= before[1]
        self._begin(name, metric, owner)
        metric.owners[owner] = metric.owners.get(owner, 0.0) + growth
        return True

    def _set(self, name: str, instance_id: UUID, owner: Owner, values: list[float]) -> bool:
        """Set a gauge of an instance, if it has room; return whether it has."""
        if not name:
            return False
        metric = self._metrics.get(name) or _Gauge(name)
        if not isinstance(metric, _Gauge) or not self._has_room(metric, owner):
            return False
        if instance_id not in metric.values:
            if not self._remember(name, instance_id):
                return False
            self._begin(name, metric, owner)
            metric.owners[owner] = metric.owners.get(owner, 0) + 1
        metric.values[instance_id] = owner, sum(values), max(values), len(values)
        return True

    def _has_room(self, metric: _Gauge | _Counter, owner: Owner) -> bool:
        more = 0 if owner in metric.owners else metric.series_per_owner
        return self._series + more <= self._series_max

    def _begin(self, name: str, metric: _Gauge | _Counter, owner: Owner) -> None:
        """Count a series that is new."""
        if owner not in metric.owners:
            self._series += metric.series_per_owner
            self._metrics[name] = metric

    def _end(self, name: str, metric: _Gauge | _Counter) -> None:
        """Count out a series; a metric that has no other ends with it."""
        self._series -= metric.series_per_owner
        if not metric.owners:
            del self._metrics[name]

    def _remember(self, name: str, instance_id: UUID) -> bool:
        if self._values >= VALUES_MAX:
            return False
        self._values += 1
        self._used.setdefault(instance_id, set()).add(name)
        return True


def series_name(name: str, *, is_total: bool) -> str:
    """Return the name of a client's metric as Prometheus has it; empty if nothing is left of it.

    That of a total ends in `_total`, and no other does.
    """
    short = name.lower().removeprefix(_KAFKA)
    words = _OTHER_LETTERS.sub("_", short).strip("_")[:_NAME_MAX]
    while words.endswith(_TOTAL) or words == "total":
        words = words.removesuffix("total").strip("_")
    if not words:
        return ""
    return f"{PREFIX}{words}{_TOTAL}" if is_total else f"{PREFIX}{words}"
