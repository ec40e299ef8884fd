"""How far a node has applied the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from raftctl.loader import LoaderMetrics, MetadataLoader
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metrics import Metrics
from raftctl.raft.messages import Offset

if TYPE_CHECKING:
    from raftctl.raft.batch import Batch

PREFIX = "kafka_server_broker_metadata_metrics_"


class Log:
    """A log that has nothing more."""

    high_watermark = Offset(0)

    def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        return []


def scraped(metrics: Metrics) -> dict[str, object]:
    return {
        family.metric.name.removeprefix(PREFIX): family.samples[0].value
        for family in metrics.families()
    }


@pytest.mark.req("N4", "O1")
async def test_the_newest_image_says_what_is_applied() -> None:
    metrics = Metrics()
    loader = MetadataLoader(Log())
    LoaderMetrics(loader, lambda: 10_500, metrics)
    found = scraped(metrics)
    assert found["last_applied_record_offset"] == -1
    assert found["last_applied_record_timestamp"] == found["last_applied_record_lag_ms"] == 0
    loader.image = MetadataDelta(EMPTY_IMAGE).apply(41, 2, 10_000)
    found = scraped(metrics)
    assert found["last_applied_record_offset"] == 41
    assert found["last_applied_record_timestamp"] == 10_000
    assert found["last_applied_record_lag_ms"] == 500
    assert found["metadata_load_error_count"] == found["metadata_apply_error_count"] == 0
