"""Ends, replicas and leaders of the partitions that a broker leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.metrics import OTHERS
from raftctl.metrics import Family, Metric, Sample, gauge
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from broker.replication.partition import Partition
    from broker.types import TopicPartition
    from raftctl.metadata.image import MetadataImage

_PREFIX = "kafka_topic_partition"


def _partition(name: str, says: str) -> Metric:
    return gauge(f"{_PREFIX}_{name}", says, "topic", "partition")


PARTITIONS = gauge(
    "kafka_topic_partitions", "Partitions of the topic, by the leader of the first.", "topic"
)
LEADER = _partition("leader", "Broker id of the leader.")
SUMMED = {
    "current_offset": _partition("current_offset", "High watermark: the end for consumers."),
    "oldest_offset": _partition("oldest_offset", "Offset of the first record that is there."),
    "replicas": _partition("replicas", "Replicas that are assigned."),
    "in_sync_replica": _partition("in_sync_replica", "Replicas in sync."),
    "is_under_replicated": _partition(
        "under_replicated_partition", "1 if a replica is not in sync; of others, how many."
    ),
    "is_led_as_preferred": _partition(
        "leader_is_preferred", "1 if the first replica leads; of others, how many."
    ),
}
"""By the field of a row; of partitions without series of their own, a sum."""


class _Row(NamedTuple):
    topic: str
    partition: int
    leader: int
    current_offset: int
    oldest_offset: int
    replicas: int
    in_sync_replica: int
    is_under_replicated: int
    is_led_as_preferred: int


_SERIES_EACH = len(SUMMED) + 1


class PartitionOffsets:
    """The partitions led by one broker; `raftctl.metrics.Details`."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        image: Callable[[], MetadataImage],
    ) -> None:
        """`partitions` are those of which this broker has a replica."""
        self._partitions = partitions
        self._image = image
        self._rows: list[_Row] = []
        self._topics: dict[str, int] = {}

    async def prepare(self) -> None:
        """See `raftctl.metrics.Details`."""
        slices, rows, topics = Slices(), [], {}
        for key, partition in list(self._partitions.items()):
            if partition.state.is_leader:
                rows.append(_row(key, partition))
                if key.partition == 0:
                    topic = self._image().topics.by_name(key.topic)
                    topics[key.topic] = 0 if topic is None else len(topic.partitions)
            await slices.rest()
        self._rows = sorted(rows, key=_order)
        self._topics = topics

    def collect(self, room: int) -> Iterator[Family]:
        """See `raftctl.metrics.Details`."""
        room = max(0, room - _SERIES_EACH)  # of the rest
        count = min(len(self._topics), room // 2)
        names = sorted(self._topics)
        yield Family(
            PARTITIONS,
            [Sample((name,), self._topics[name]) for name in names[:count]]
            + _others((), sum(self._topics[name] for name in names[count:])),
        )
        count = min(len(self._rows), (room - count) // _SERIES_EACH)
        own, rest = self._rows[:count], self._rows[count:]
        yield Family(LEADER, [Sample(_labels(row), row.leader) for row in own])
        for name, metric in SUMMED.items():
            samples = [Sample(_labels(row), getattr(row, name)) for row in own]
            if rest:
                samples += _others(("",), sum(getattr(row, name) for row in rest))
            yield Family(metric, samples)


def _row(key: TopicPartition, partition: Partition) -> _Row:
    state = partition.state
    return _Row(
        key.topic,
        key.partition,
        state.leader_id,
        state.high_watermark,
        partition.log.log_start_offset,
        len(state.replicas),
        len(state.isr),
        int(len(state.isr) < len(state.replicas)),
        int(state.replicas[:1] == (state.leader_id,)),
    )


def _order(row: _Row) -> tuple[bool, str, int]:
    """Those with a problem first."""
    return not row.is_under_replicated, row.topic, row.partition


def _labels(row: _Row) -> tuple[str, str]:
    return row.topic, str(row.partition)


def _others(labels: tuple[str, ...], value: int) -> list[Sample]:
    return [Sample((OTHERS, *labels), value)] if value else []
