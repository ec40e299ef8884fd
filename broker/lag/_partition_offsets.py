"""Ends, replicas and leaders of the partitions that a broker leads."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from broker.metrics import OTHERS
from broker.replication.partition import Condition
from raftctl.metrics import Family, Metric, Sample, gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from broker.replication.partition import Conditions, Partition
    from broker.types import TopicPartition
    from raftctl.metadata.image import MetadataImage
    from raftctl.runtime import Slices

_PREFIX = "kafka_topic_partition"


def _partition(name: str, says: str) -> Metric:
    return gauge(f"{_PREFIX}_{name}", says, "topic", "partition")


PARTITIONS = gauge(
    "kafka_topic_partitions", "Partitions of the topic, by the leader of the first.", "topic"
)
LEADER = _partition("leader", "Broker id of the leader.")
CURRENT = _partition("current_offset", "High watermark: the end for consumers.")
OLDEST = _partition("oldest_offset", "Offset of the first record that is there.")
REPLICAS = _partition("replicas", "Replicas that are assigned.")
IN_SYNC = _partition("in_sync_replica", "Replicas in sync.")
UNDER_REPLICATED = _partition(
    "under_replicated_partition",
    "1 if a replica is not in sync that a reassignment does not add; of others, how many.",
)
PREFERRED = _partition("leader_is_preferred", "1 if the first replica leads; of others, how many.")
SUMMED = (REPLICAS, IN_SYNC, UNDER_REPLICATED, PREFERRED)
"""Those of which a sum over partitions without series of their own says something."""
_OF_EACH = (LEADER, CURRENT, OLDEST, *SUMMED)
_AT_ONCE = 1_000
"""Partitions of which the first of a topic are looked for: a fraction of a millisecond."""


class PartitionOffsets:
    """The partitions led by one broker; `raftctl.metrics.Details`."""

    series_min = len(SUMMED) + 1

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        conditions: Conditions,
        image: Callable[[], MetadataImage],
    ) -> None:
        """`partitions` are those of which this broker has a replica, `conditions` theirs."""
        self._partitions = partitions
        self._conditions = conditions
        self._image = image
        self._topics: dict[str, int] = {}
        """Those of which the first partition is led here, to how many they have."""

    async def prepare(self, slices: Slices) -> None:
        """See `raftctl.metrics.Details`."""
        found = {}
        keys = list(self._partitions)
        for first in range(0, len(keys), _AT_ONCE):
            for key in [key for key in keys[first : first + _AT_ONCE] if key.partition == 0]:
                replica = self._partitions.get(key)
                if replica is not None and replica.state.is_leader:
                    topic = self._image().topics.by_name(key.topic)
                    found[key.topic] = 0 if topic is None else len(topic.partitions)
            await slices.rest()
        self._topics = found

    def collect(self, room: int) -> Iterator[Family]:
        """See `raftctl.metrics.Details`."""
        room = max(0, room - self.series_min)
        topics = dict(islice(self._topics.items(), room // 2))
        yield Family(
            PARTITIONS,
            [Sample((name,), count) for name, count in topics.items()]
            + _others((), sum(self._topics.values()) - sum(topics.values())),
        )
        shown = self._shown((room - len(topics)) // len(_OF_EACH))
        samples: dict[Metric, list[Sample]] = {metric: [] for metric in _OF_EACH}
        for replica in shown:
            labels = replica.partition.topic, str(replica.partition.partition)
            for metric, value in self._values(replica).items():
                samples[metric].append(Sample(labels, value))
        totals = self._conditions.totals()
        whole = {
            REPLICAS: totals.replicas,
            IN_SYNC: totals.in_sync,
            UNDER_REPLICATED: self._conditions.count(Condition.UNDER_REPLICATED),
            PREFERRED: totals.led_as_preferred,
        }
        for metric, total in whole.items():
            own = sum(value for _, value in samples[metric] if isinstance(value, int))
            samples[metric] += _others(("",), total - own)
        for metric in _OF_EACH:
            yield Family(metric, samples[metric])

    def _shown(self, fit: int) -> list[Partition]:
        """Return so many that are led here: those with a problem, then those here for longest."""
        here, count = self._partitions, self._conditions.count
        fit = min(fit, count(Condition.LEADS))
        # An offline replica leads nothing, and comes before all others.
        troubled = self._conditions.problems(fit + count(Condition.OFFLINE))
        named = dict.fromkeys(troubled)
        order = chain(troubled, (key for key in here if key not in named))
        return list(islice((here[key] for key in order if self._leads(key)), fit))

    def _leads(self, partition: TopicPartition) -> bool:
        return Condition.LEADS in self._conditions[partition]

    def _values(self, replica: Partition) -> dict[Metric, int]:
        state = replica.state
        condition = self._conditions[replica.partition]
        return {
            LEADER: state.leader_id,
            CURRENT: state.high_watermark,
            OLDEST: replica.log.log_start_offset,
            REPLICAS: len(state.replicas),
            IN_SYNC: len(state.isr),
            UNDER_REPLICATED: int(Condition.UNDER_REPLICATED in condition),
            PREFERRED: int(state.replicas[:1] == (state.leader_id,)),
        }


def _others(labels: tuple[str, ...], value: int) -> list[Sample]:
    return [Sample((OTHERS, *labels), value)] if value else []
