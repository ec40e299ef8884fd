"""Points of metrics in what a client pushes: OpenTelemetry's MetricsData, read within bounds.

`opentelemetry-proto` decodes the bytes. It is imported at the first push, on the worker: it takes
tenths of a second, and most brokers have no subscription. Numbers are read; histograms and
summaries, which no client of Kafka pushes today, are counted as dropped.

Source: opentelemetry/proto/metrics/v1/metrics.proto.
"""

from __future__ import annotations

import enum
import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.log.batches.compression import decompress
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.runtime.api import Buffer

POINTS_MAX = 2_000
"""Points of one push that are looked at."""
_UNPACKED_FACTOR = 8
"""What unpacks to more than this times the allowed size is taken for broken."""
_DELTA = 1
"""AGGREGATION_TEMPORALITY_DELTA."""
_ATTRIBUTES_MAX = 16
_TEXT_MAX = 200
"""Characters of a name, and of an attribute's value."""


class Kind(enum.Enum):
    """What a point's value is."""

    GAUGE = "gauge"
    """As it is now."""
    DELTA = "delta"
    """What a total has grown by since the last push."""
    TOTAL = "total"
    """A total since the client began to count."""


class Point(NamedTuple):
    """One value of a metric."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    """Labels such as a topic, which other points of the metric have with other values; sorted."""
    kind: Kind
    value: float
    since: int
    """When its total began, in nanoseconds since 1970; 0 if unknown."""


class Points(NamedTuple):
    """What of a push is used."""

    points: list[Point]
    dropped: int
    """Points that are too many, not finite or of other kinds."""


def can_decode() -> bool:
    """Return whether what decodes the metrics is installed: the extra `telemetry`."""
    try:
        return find_spec("opentelemetry.proto") is not None
    except ModuleNotFoundError:
        return False


def read_points(codec: int, packed: Buffer, bytes_max: int) -> Points:
    """Return the points of a push; may take long.

    Raises KafkaError: TELEMETRY_TOO_LARGE if it unpacks to more than `bytes_max`; INVALID_RECORD if
    it unpacks to many times that, or cannot be unpacked or decoded.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        # A codec says of a buffer that is too small what it says of broken bytes.
        data = bytes(decompress(codec, packed, _UNPACKED_FACTOR * bytes_max))
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from None
    if len(data) > bytes_max:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"it unpacks to more than {bytes_max}")
    try:
        message = MetricsData.FromString(data)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"no MetricsData: {error}") from None
    points: list[Point] = []
    dropped = 0
    for name, kind, point in _numbers(message):
        found = _point(name, kind, point) if len(points) < POINTS_MAX else None
        if found is None:
            dropped += 1
        else:
            points.append(found)
    return Points(points, dropped)


def _numbers(message: Any) -> Iterator[tuple[str, Kind | None, Any]]:
    """Each point with the name and the kind of its metric; the kind is None of what is not used."""
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield from _numbers_of(metric)


def _numbers_of(metric: Any) -> Iterator[tuple[str, Kind | None, Any]]:
    which = metric.WhichOneof("data")
    if which is None:
        return
    data = getattr(metric, which)
    kind = None
    if which == "gauge":
        kind = Kind.GAUGE
    elif which == "sum":
        is_delta = data.aggregation_temporality == _DELTA
        kind = _kind_of_sum(is_delta=is_delta, only_grows=data.is_monotonic)
    for point in data.data_points:
        yield metric.name, kind, point


def _kind_of_sum(*, is_delta: bool, only_grows: bool) -> Kind | None:
    """The kind of a sum. One that falls too is a gauge, which changes alone do not give."""
    if only_grows:
        return Kind.DELTA if is_delta else Kind.TOTAL
    return None if is_delta else Kind.GAUGE


def _point(name: str, kind: Kind | None, point: Any) -> Point | None:
    """The point; None of no kind, of a long name, and of a value that is no number of its kind."""
    if kind is None:
        return None
    which = point.WhichOneof("value")
    if which is None or len(name) > _TEXT_MAX or len(point.attributes) > _ATTRIBUTES_MAX:
        return None
    value = float(getattr(point, which))
    if not math.isfinite(value) or (value < 0 and kind is not Kind.GAUGE):
        return None
    attributes = tuple(sorted((one.key[:_TEXT_MAX], _text(one.value)) for one in point.attributes))
    return Point(name, attributes, kind, value, point.start_time_unix_nano)


def _text(value: Any) -> str:
    which = value.WhichOneof("value")
    if which not in ("string_value", "int_value", "bool_value", "double_value"):
        return ""
    return str(getattr(value, which))[:_TEXT_MAX]
