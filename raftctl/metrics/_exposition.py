"""The text of a family as Prometheus reads it: format 0.0.4, written by `prometheus-client`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from raftctl.errors import invariant
from raftctl.metrics._definition import Family, Kind, Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric as ExposedFamily

_SAMPLES_AT_ONCE = 100
"""Less than a millisecond."""
_HEAD_LINES = 2
"""What a metric is for, and its kind."""


def texts_of(family: Family) -> Iterator[bytes]:
    """Yield the lines of one family, some samples at a time."""
    samples = family.samples
    for first in range(0, max(len(samples), 1), _SAMPLES_AT_ONCE):
        some = Family(family.metric, samples[first : first + _SAMPLES_AT_ONCE])
        text = exposition.generate_latest(_One(_exposed(some)))
        yield text if first == 0 else text.split(b"\n", _HEAD_LINES)[_HEAD_LINES]


class _One(Collector):
    def __init__(self, family: ExposedFamily) -> None:
        self._family = family

    def collect(self) -> Iterable[ExposedFamily]:
        """Return the one family."""
        return (self._family,)


def _exposed(family: Family) -> ExposedFamily:
    metric = family.metric
    if metric.kind is Kind.SUMMARY:
        return _exposed_summary(family)
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    exposed = kind(metric.name, metric.says, labels=metric.labels)
    for labels, value in family.samples:
        if isinstance(value, Summary):
            invariant(False, f"{metric.name} is a number")
        else:
            exposed.add_metric(labels, value)
    return exposed


def _exposed_summary(family: Family) -> ExposedFamily:
    metric = family.metric
    exposed = SummaryMetricFamily(metric.name, metric.says, labels=metric.labels)
    for labels, value in family.samples:
        if isinstance(value, Summary):
            exposed.add_metric(labels, value.count, value.total)
            named = dict(zip(metric.labels, labels, strict=True))
            for quantile, at in value.quantiles:
                exposed.add_sample(metric.name, {**named, "quantile": _label(quantile)}, at)
        else:
            invariant(False, f"{metric.name} is a summary")
    return exposed


def _label(quantile: float) -> str:
    """The quantile as the rules of Strimzi's exporter write it: of two digits or more."""
    return str(quantile).ljust(len("0.50"), "0")
