"""Metrics of a controller, under the names of Apache Kafka's KafkaController.

What concerns the whole cluster is served by the active controller alone: others say 0, so that a
sum over all controllers is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.metrics import Distribution, Family, Metric, Sample, counter, gauge, single, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.admin._partition_counts import PartitionCounts
    from raftctl.loader import MetadataLoader
    from raftctl.metrics import Metrics
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
ELECTIONS = counter(
    "raftctl_controller_leaderelections_total",
    "Partitions that got another leader by this controller.",
)
UNCLEAN = counter(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "Partitions whose new leader may lack committed records, by this controller.",
)
ELECTION_RATES = {
    "elections": gauge(
        "raftctl_controller_leaderelectionspersec",
        "Partitions a second that got another leader, averaged over some minutes.",
        "minutes",
    ),
    "unclean_elections": gauge(
        "kafka_controller_controllerstats_uncleanleaderelectionspersec",
        "Unclean elections a second, averaged over some minutes.",
        "minutes",
    ),
}
"""By the meter of `PartitionCounts`."""
_EVENTS = "kafka_controller_controllereventmanager"
QUEUE_TIME = summary(
    f"{_EVENTS}_eventqueuetimems", "Milliseconds a request waited until it was decided on."
)
PROCESSING_TIME = summary(
    f"{_EVENTS}_eventqueueprocessingtimems",
    "Milliseconds to decide on a request, or on puts together.",
)
_MS_OF_US = 0.001


class EventTimes(NamedTuple):
    """Microseconds of the controller's requests."""

    queue: Distribution
    processing: Distribution


class ControllerMetrics:
    """The cluster as the active controller sees it."""

    def __init__(
        self,
        driver: RaftDriver,
        loader: MetadataLoader,
        counts: PartitionCounts,
        times: EventTimes,
        metrics: Metrics,
    ) -> None:
        self._driver = driver
        self._loader = loader
        self._counts = counts
        self._times = times
        metrics.keep(counts.elections, counts.unclean_elections, *times)
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
        yield single(ELECTIONS, counts.elections.count)
        yield single(UNCLEAN, counts.unclean_elections.count)
        for name, metric in ELECTION_RATES.items():
            rates = getattr(counts, name).rates
            yield Family(metric, [Sample((str(minutes),), rate) for minutes, rate in rates.items()])
        yield Family(QUEUE_TIME, [Sample((), self._times.queue.summary(_MS_OF_US))])
        yield Family(PROCESSING_TIME, [Sample((), self._times.processing.summary(_MS_OF_US))])
