"""Metrics of a controller, under the names of Apache Kafka's KafkaController.

What concerns the whole cluster is served by the active controller alone: others say 0, so that a
sum over all controllers is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.metrics import Metric, gauge, single

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.admin._partition_counts import PartitionCounts
    from raftctl.loader import MetadataLoader
    from raftctl.metrics import Family, Metrics
    from raftctl.quorum import RaftDriver


def _controller(name: str, says: str) -> Metric:
    return gauge(f"kafka_controller_kafkacontroller_{name}", says)


ACTIVE = _controller("activecontrollercount", "1 on the active controller.")
OFFLINE = _controller("offlinepartitionscount", "Partitions without a leader.")
UNDER_REPLICATED = gauge(
    "raftctl_controller_underreplicatedpartitions", "Partitions whose ISR lacks a replica."
)
TOPICS = _controller("globaltopiccount", "Topics of the cluster.")
PARTITIONS = _controller("globalpartitioncount", "Partitions of the cluster.")
BROKERS = _controller("activebrokercount", "Brokers that are registered and not fenced.")
FENCED = _controller("fencedbrokercount", "Brokers that are registered and fenced.")
APPLIED = _controller("lastappliedrecordoffset", "Offset of the newest record of the image.")


class ControllerMetrics:
    """The cluster as the active controller sees it."""

    def __init__(
        self,
        driver: RaftDriver,
        loader: MetadataLoader,
        counts: PartitionCounts,
        metrics: Metrics,
    ) -> None:
        self._driver = driver
        self._loader = loader
        self._counts = counts
        metrics.add(self._collect)

    def _collect(self) -> Iterator[Family]:
        image, counts, active = self._loader.image, self._counts, int(self._driver.is_leader)
        fenced = sum(broker.fenced for broker in image.brokers.values())
        yield single(ACTIVE, active)
        yield single(OFFLINE, active * counts.offline)
        yield single(UNDER_REPLICATED, active * counts.under_replicated)
        yield single(TOPICS, active * len(image.topics.topics))
        yield single(PARTITIONS, active * counts.partitions)
        yield single(BROKERS, active * (len(image.brokers) - fenced))
        yield single(FENCED, active * fenced)
        yield single(APPLIED, image.offset)
