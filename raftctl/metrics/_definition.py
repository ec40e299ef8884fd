"""What a metric is: its name as it is scraped, its kind, its labels and what it says.

The names are those that the rules of Strimzi's JMX exporter make of Apache Kafka's MBeans, since
dashboards and alerts are written for them. Each definition stands once, beside what measures it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import NamedTuple

from raftctl.errors import invariant

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_COUNTER_SUFFIX = "_total"


class Kind(enum.Enum):
    """What a metric's value is."""

    COUNTER = "counter"
    """A total since the start of the process; it never falls."""
    GAUGE = "gauge"
    """A value as it is now."""
    SUMMARY = "summary"
    """A `Distribution`: count, sum and quantiles."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of a metric."""

    name: str
    """As scraped, `_total` of a counter included."""
    kind: Kind
    says: str
    """One sentence; the unit of the value is in it."""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        invariant(_NAME.fullmatch(self.name) is not None, f"{self.name}: a name is lower case")
        is_counter, ends = self.kind is Kind.COUNTER, self.name.endswith(_COUNTER_SUFFIX)
        invariant(is_counter == ends, f"{self.name}: counters end in {_COUNTER_SUFFIX}")


@dataclass(frozen=True, slots=True)
class Summary:
    """What is scraped of a distribution. Values are in the unit of the metric."""

    count: int
    """Of all values since the start."""
    total: float
    """The sum of all values since the start."""
    quantiles: tuple[tuple[float, float], ...]
    """Pairs of quantile and value, of the recent past."""


class Sample(NamedTuple):
    """One series of a metric."""

    labels: tuple[str, ...]
    """A value for each label of the definition, in its order."""
    value: float | Summary


class Family(NamedTuple):
    """A metric with all its series at one moment."""

    metric: Metric
    samples: list[Sample]


def counter(name: str, says: str, *labels: str) -> Metric:
    """Define a total; `name` ends in `_total`."""
    return Metric(name, Kind.COUNTER, says, labels)


def gauge(name: str, says: str, *labels: str) -> Metric:
    """Define a value as it is now."""
    return Metric(name, Kind.GAUGE, says, labels)


def summary(name: str, says: str, *labels: str) -> Metric:
    """Define a distribution."""
    return Metric(name, Kind.SUMMARY, says, labels)


def single(metric: Metric, value: float) -> Family:
    """The family of a metric without labels."""
    return Family(metric, [Sample((), value)])
