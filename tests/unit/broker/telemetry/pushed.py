"""What clients push, made as they make it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.proto.metrics.v1 import metrics_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DELTA, CUMULATIVE = 1, 2


def packed(*metrics: Any) -> bytes:
    """The bytes of MetricsData with these metrics."""
    scope = metrics_pb2.ScopeMetrics(metrics=metrics)
    resource = metrics_pb2.ResourceMetrics(scope_metrics=[scope])
    data: bytes = metrics_pb2.MetricsData(resource_metrics=[resource]).SerializeToString()
    return data


def gauge(name: str, *values: float) -> Any:
    """A gauge with a point for each value."""
    points = [point(value, {"n": str(number)}) for number, value in enumerate(values)]
    return metrics_pb2.Metric(name=name, gauge=metrics_pb2.Gauge(data_points=points))


def total(
    name: str, points: Iterable[Any], temporality: Any = DELTA, *, only_grows: bool = True
) -> Any:
    """A sum of these points."""
    data = metrics_pb2.Sum(
        data_points=points, aggregation_temporality=temporality, is_monotonic=only_grows
    )
    return metrics_pb2.Metric(name=name, sum=data)


def point(value: float, attributes: Mapping[str, str] | None = None, since: int = 1) -> Any:
    """A whole number is written as one."""
    number = {"as_int": value} if isinstance(value, int) else {"as_double": value}
    made = metrics_pb2.NumberDataPoint(start_time_unix_nano=since, **number)
    for key, text in (attributes or {}).items():
        attribute = made.attributes.add()
        attribute.key, attribute.value.string_value = key, text
    return made


def histogram(name: str) -> Any:
    """A metric that is no number."""
    points = [metrics_pb2.HistogramDataPoint(count=1, sum=2.0)]
    return metrics_pb2.Metric(name=name, histogram=metrics_pb2.Histogram(data_points=points))
