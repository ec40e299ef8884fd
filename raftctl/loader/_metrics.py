"""How far a node has applied the metadata: Apache Kafka's broker-metadata-metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.metrics import Metric, gauge, single

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.loader._loader import MetadataLoader
    from raftctl.metrics import Family, Metrics


def _metadata(name: str, says: str) -> Metric:
    return gauge(f"kafka_server_broker_metadata_metrics_{name}", says)


OFFSET = _metadata("last_applied_record_offset", "Offset of the newest record that is applied.")
TIMESTAMP = _metadata(
    "last_applied_record_timestamp", "Its timestamp in milliseconds since 1970; 0 before the first."
)
LAG = _metadata(
    "last_applied_record_lag_ms",
    "Milliseconds since that timestamp, which the controller moves now and then; 0 before it.",
)
ERRORS = (
    _metadata(
        "metadata_load_error_count",
        "Records that could not be read: a node that meets one ends, so it stays 0.",
    ),
    _metadata(
        "metadata_apply_error_count",
        "Images that could not be applied: a node that meets one ends, so it stays 0.",
    ),
)


class LoaderMetrics:
    """What the newest image of a node says of it."""

    def __init__(
        self, loader: MetadataLoader, wall_ms: Callable[[], int], metrics: Metrics
    ) -> None:
        self._loader = loader
        self._wall_ms = wall_ms
        metrics.add(self._collect)

    def _collect(self) -> Iterator[Family]:
        image = self._loader.image
        written_ms = image.timestamp_ms if image.offset >= 0 else 0
        yield single(OFFSET, image.offset)
        yield single(TIMESTAMP, written_ms)
        yield single(LAG, max(0, self._wall_ms() - written_ms) if written_ms else 0)
        for metric in ERRORS:
            yield single(metric, 0)
