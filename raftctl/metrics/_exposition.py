"""The text of a family as Prometheus reads it: format 0.0.4, written by `prometheus-client`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from raftctl.errors import invariant
from raftctl.metrics._definition import Kind, Summary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric as ExposedFamily

    from raftctl.metrics._definition import Family


def text_of(family: Family) -> bytes:
    """Return the lines of one family."""
    return exposition.generate_latest(_One(_exposed(family)))


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
                exposed.add_sample(metric.name, {**named, "quantile": str(quantile)}, at)
        else:
            invariant(False, f"{metric.name} is a summary")
    return exposed
