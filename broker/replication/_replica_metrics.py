"""Metrics of replicas, named as those of Apache Kafka's ReplicaManager, Partition, Log (row O1).

Sums follow each change (`Conditions`), or come from a walk over all replicas before a scrape, a few
at a time. Partitions have series of their own by `metrics.partitions`, while they fit into
`metrics.series.max`; the others are summed up in series whose topic is `(other)`. So a sum over all
series is right whatever the setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from broker.metrics import OTHERS
from broker.replication.partition import Condition
from raftctl.metrics import Family, Metric, Sample, counter, gauge, single

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker.replication._replica_manager import ReplicaManager
    from broker.replication.fetcher import Fetchers
    from broker.replication.partition import Partition
    from raftctl.metrics import Metrics
    from raftctl.runtime import Slices

_MANAGER = "kafka_server_replicamanager"
CONDITIONS = {
    Condition.LEADS: gauge(f"{_MANAGER}_leadercount", "Partitions that this broker leads."),
    Condition.UNDER_REPLICATED: gauge(
        f"{_MANAGER}_underreplicatedpartitions",
        "Partitions led here with a replica that is not in sync.",
    ),
    Condition.UNDER_MIN_ISR: gauge(
        f"{_MANAGER}_underminisrpartitioncount",
        "Partitions led here with too few replicas in sync for acks=all.",
    ),
    Condition.AT_MIN_ISR: gauge(
        f"{_MANAGER}_atminisrpartitioncount",
        "Partitions led here with just enough replicas in sync for acks=all.",
    ),
    Condition.REASSIGNING: gauge(
        f"{_MANAGER}_reassigningpartitions", "Partitions led here that are being reassigned."
    ),
}
"""Each with the metric that counts its replicas."""
PARTITIONS = gauge(f"{_MANAGER}_partitioncount", "Replicas on this broker.")
OFFLINE = gauge(
    f"{_MANAGER}_offlinereplicacount", "Replicas on this broker whose log directory has failed."
)
PRODUCERS = gauge(f"{_MANAGER}_produceridcount", "Producers that the partitions here remember.")
SHRINKS = counter(f"{_MANAGER}_isrshrinks_total", "ISRs that this broker's proposals made smaller.")
EXPANDS = counter(f"{_MANAGER}_isrexpands_total", "ISRs that this broker's proposals made larger.")
FAILED_UPDATES = counter(
    f"{_MANAGER}_failedisrupdates_total", "Proposed ISRs that the controller refused."
)
MAX_LAG = gauge(
    "kafka_server_replicafetchermanager_maxlag",
    "Committed records that the replica here lacks which lacks the most.",
    "clientId",
)
DELAYED = gauge(
    "kafka_server_delayedoperationpurgatory_numdelayedoperations",
    "Requests that wait.",
    "delayedOperation",
)
WATCHED = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Partitions that waiting requests watch, each as often as it is watched.",
    "delayedOperation",
)
WITHOUT_SERIES = gauge(
    "raftctl_metrics_partitions_without_series", "Replicas that are counted as (other)."
)
_AT_ONCE = 100
"""Replicas of the walk: a fraction of a millisecond."""
_ALL_FETCHERS = "Replica"
"""The client id under which Apache Kafka has the sums over fetchers."""


def _of_partition(name: str, says: str) -> Metric:
    return gauge(name, says, "topic", "partition")


SIZE = _of_partition("kafka_log_log_size", "Bytes of a replica's log.")
SEGMENTS = _of_partition("kafka_log_log_numlogsegments", "Segments of a replica's log.")
START = _of_partition("kafka_log_log_logstartoffset", "Where a replica's log begins.")
END = _of_partition("kafka_log_log_logendoffset", "Where a replica's log ends.")
REPLICAS = _of_partition(
    "kafka_cluster_partition_replicascount", "Replicas of a partition that is led here."
)
IN_SYNC = _of_partition(
    "kafka_cluster_partition_insyncreplicascount",
    "Replicas in sync of a partition that is led here.",
)
UNDER_REPLICATED = _of_partition(
    "kafka_cluster_partition_underreplicated",
    "1 if a partition that is led here has a replica that is not in sync.",
)
UNDER_MIN_ISR = _of_partition(
    "kafka_cluster_partition_underminisr",
    "1 if a partition that is led here has too few replicas in sync for acks=all.",
)
AT_MIN_ISR = _of_partition(
    "kafka_cluster_partition_atminisr",
    "1 if a partition that is led here has just enough replicas in sync for acks=all.",
)
STABLE_LAG = _of_partition(
    "kafka_cluster_partition_laststableoffsetlag",
    "Committed records of a partition that is led here that transactions still hold back.",
)
LAG = gauge(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "Committed records that a replica here lacks.",
    "clientId",
    "topic",
    "partition",
)
_SUMMED = (SIZE, SEGMENTS, REPLICAS, IN_SYNC, UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR)
"""Those of which a sum over partitions says something."""
_LEADERS = (REPLICAS, IN_SYNC, UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR, STABLE_LAG)
SERIES = len((SIZE, SEGMENTS, START, END, *_LEADERS))
"""Of a partition that is led here; one that follows has fewer."""


@dataclass(slots=True)
class _Sums:
    """What the walk over all replicas finds."""

    size: int = 0
    segments: int = 0
    producers: int = 0
    lag_max: int = 0

    def add(self, replicas: Iterable[Partition], fetchers: Fetchers) -> None:
        """Add replicas, and how far `fetchers` are behind with them."""
        for replica in replicas:
            log, state = replica.log, replica.state
            self.size += log.size
            self.segments += log.segment_count
            self.producers += len(log.producers)
            if not state.is_leader and (copied := fetchers.lag_of(replica.partition)) is not None:
                self.lag_max = max(self.lag_max, copied[1])


class ReplicaMetrics:
    """What a `ReplicaManager` is asked at a scrape; see `raftctl.metrics.Details`."""

    series_min = len(_SUMMED) + 1

    def __init__(self, replicas: ReplicaManager, partitions: str, metrics: Metrics) -> None:
        """`partitions`: of `metrics.partitions`."""
        self._replicas = replicas
        self._setting = partitions
        self._sums = _Sums()
        replicas.topics.register(metrics)
        metrics.add(self._collect)
        metrics.add_details(self)

    async def prepare(self, slices: Slices) -> None:
        """Sum up what no change is followed of: sizes, and how far replicas lag."""
        sums = _Sums()
        replicas = list(self._replicas.partitions.values())
        for first in range(0, len(replicas), _AT_ONCE):
            sums.add(replicas[first : first + _AT_ONCE], self._replicas.fetchers)
            await slices.rest()
        self._sums = sums

    def _collect(self) -> Iterator[Family]:
        replicas = self._replicas
        for condition, metric in CONDITIONS.items():
            yield single(metric, replicas.conditions.count(condition))
        yield single(PARTITIONS, len(replicas.partitions))
        offline = replicas.conditions.count(Condition.OFFLINE)
        yield single(OFFLINE, offline + replicas.refused)
        yield single(PRODUCERS, self._sums.producers)
        yield single(SHRINKS, replicas.isr.shrinks)
        yield single(EXPANDS, replicas.isr.expansions)
        yield single(FAILED_UPDATES, replicas.isr.refused)
        yield Family(MAX_LAG, [Sample((_ALL_FETCHERS,), self._sums.lag_max)])
        waiting = replicas.waiting.items()
        yield Family(DELAYED, [Sample((kind,), len(purgatory)) for kind, purgatory in waiting])
        yield Family(WATCHED, [Sample((kind,), purgatory.watches) for kind, purgatory in waiting])

    # --- partitions -------------------------------------------------------------------------------

    def collect(self, room: int) -> Iterator[Family]:
        """Yield the series of partitions that fit into the room, and the sums over the others."""
        shown = self._shown(max(room - self.series_min, 0) // SERIES)
        yield single(WITHOUT_SERIES, len(self._replicas.partitions) - len(shown))
        families: dict[Metric, list[Sample]] = {
            metric: [] for metric in (SIZE, SEGMENTS, START, END, *_LEADERS, LAG)
        }
        for replica in shown:
            topic, number = replica.partition
            labels = topic, str(number)
            for metric, value in self._values(replica).items():
                families[metric].append(Sample(labels, value))
            copied = self._replicas.fetchers.lag_of(replica.partition)
            if copied is not None:
                client_id, lag = copied
                families[LAG].append(Sample((client_id, *labels), lag))
        if not shown or len(shown) < len(self._replicas.partitions):
            self._add_others(families)
        for metric, samples in families.items():
            yield Family(metric, samples)

    def _shown(self, fit: int) -> list[Partition]:
        """Return the replicas with series of their own, `fit` at most."""
        here = self._replicas.partitions
        if self._setting == "none":
            return []
        if len(here) <= fit:
            return [here[partition] for partition in sorted(here)]
        shown = self._replicas.conditions.problems(fit)
        if self._setting == "all":
            named = set(shown)
            # In the order in which they came here: to sort them all would take long.
            others = (partition for partition in here if partition not in named)
            shown += islice(others, fit - len(shown))
        return [here[partition] for partition in shown]

    def _values(self, replica: Partition) -> dict[Metric, int]:
        log, state = replica.log, replica.state
        values = {
            SIZE: log.size,
            SEGMENTS: log.segment_count,
            START: log.log_start_offset,
            END: log.log_end_offset,
        }
        condition = self._replicas.conditions[replica.partition]
        if Condition.LEADS in condition:
            values |= {
                REPLICAS: len(state.replicas),
                IN_SYNC: len(state.isr),
                UNDER_REPLICATED: int(Condition.UNDER_REPLICATED in condition),
                UNDER_MIN_ISR: int(Condition.UNDER_MIN_ISR in condition),
                AT_MIN_ISR: int(Condition.AT_MIN_ISR in condition),
                STABLE_LAG: state.high_watermark - replica.last_stable_offset,
            }
        return values

    def _add_others(self, families: dict[Metric, list[Sample]]) -> None:
        sums, conditions = self._sums, self._replicas.conditions
        led, count = conditions.totals(), conditions.count
        totals = {
            SIZE: sums.size,
            SEGMENTS: sums.segments,
            REPLICAS: led.replicas,
            IN_SYNC: led.in_sync,
            UNDER_REPLICATED: count(Condition.UNDER_REPLICATED),
            UNDER_MIN_ISR: count(Condition.UNDER_MIN_ISR),
            AT_MIN_ISR: count(Condition.AT_MIN_ISR),
        }
        for metric in _SUMMED:
            samples = families[metric]
            # A log may have grown since the walk.
            rest = max(totals[metric] - _total(samples), 0)
            samples.append(Sample((OTHERS, OTHERS), rest))


def _total(samples: Iterable[Sample]) -> int:
    return sum(int(value) for _, value in samples if isinstance(value, int))
