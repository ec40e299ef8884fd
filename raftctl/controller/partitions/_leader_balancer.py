"""Gives leadership back to preferred replicas when brokers lead unevenly (row C8).

At every check all partitions are looked at, a slice at a tick so that nothing else waits. A broker
that does not lead more than a percentage of the partitions whose preferred leader it is gets them
back, as far as it is in sync, again a slice at a tick.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from raftctl.controller.partitions._availability import availability
from raftctl.controller.partitions._elections import elect_preferred
from raftctl.errors import KafkaError
from raftctl.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from raftctl.controller._config import ControllerConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import PartitionChangeRecord

LOOKED_AT_MAX = 10_000
"""Partitions looked at in a tick; the last topic may go beyond."""
ELECTIONS_MAX = 1_000
"""Partitions that get their preferred leader in a tick."""


class LeaderBalancer:
    """The active controller's; between checks it holds nothing but the time of the next."""

    def __init__(self, config: ControllerConfig) -> None:
        self._enabled = config.leader_rebalance
        self._interval_ms = config.leader_imbalance_check_ms
        self._percentage = config.leader_imbalance_percentage
        self._due_ms: int | None = None
        self.stop()

    def start(self, now_ms: int) -> None:
        """The first check is due an interval from now."""
        self._due_ms = now_ms + self._interval_ms if self._enabled else None

    def stop(self) -> None:
        """Nothing is due."""
        self._due_ms = None
        self._begin(())

    def deadline_ms(self) -> int | None:
        """When to call `tick`."""
        return self._due_ms

    def tick(self, image: MetadataImage, now_ms: int) -> list[PartitionChangeRecord]:
        """Goes on with the check that is due."""
        if self._due_ms is None or now_ms < self._due_ms:
            return []
        if not self._topics and not self._displaced:
            self._begin(image.topics.topics)
        self._look(image)
        records = [] if self._topics else self._move(image)
        if not self._topics and not self._displaced:
            self._begin(())
            self._due_ms = now_ms + self._interval_ms
        return records

    def _begin(self, topic_ids: Iterable[UUID]) -> None:
        self._topics = deque(topic_ids)
        self._displaced: deque[tuple[UUID, int, int]] = deque()
        """(topic id, partition id, preferred leader) of partitions led by another broker."""
        self._preferred: Counter[int] = Counter()
        self._elsewhere: Counter[int] = Counter()

    def _look(self, image: MetadataImage) -> None:
        looked_at = 0
        while self._topics and looked_at < LOOKED_AT_MAX:
            topic = image.topics.by_id(self._topics.popleft())
            for partition_id, partition in () if topic is None else topic.items():
                looked_at += 1
                preferred = partition.replicas[0]
                self._preferred[preferred] += 1
                if partition.leader not in (preferred, NO_LEADER) and topic is not None:
                    self._elsewhere[preferred] += 1
                    self._displaced.append((topic.topic_id, partition_id, preferred))

    def _is_imbalanced(self, broker_id: int) -> bool:
        return self._elsewhere[broker_id] * 100 > self._preferred[broker_id] * self._percentage

    def _move(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        available = availability(image)
        records: list[PartitionChangeRecord] = []
        looked_at = 0
        while self._displaced and looked_at < LOOKED_AT_MAX and len(records) < ELECTIONS_MAX:
            topic_id, partition_id, preferred = self._displaced.popleft()
            looked_at += 1
            topic = image.topics.by_id(topic_id)
            if topic is None or not self._is_imbalanced(preferred):
                continue
            try:
                partition = topic.partitions[partition_id]
                active = available.replicas_of(partition)
                record = elect_preferred(topic, partition_id, partition, active)
            except KafkaError:
                continue  # It leads again, since the look.
            records += [] if record is None else [record]
        return records
