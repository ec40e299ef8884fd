"""When what is so now began: read from the end of the metadata log, once, in slices.

The page is mostly opened after something has gone wrong. This node was not asked before, so it has
not followed, but its log has the changes with their times. What began before that stretch of the
log has no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from raftctl.codec import NotKnownError
from raftctl.console._topic_health import Condition, conditions
from raftctl.metadata.codec import unpack_records
from raftctl.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    LeaderChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from raftctl.raft.messages import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from raftctl.console._topic_health import ClusterHealth
    from raftctl.metadata.image import MetadataImage, PartitionImage
    from raftctl.metadata.records import Record
    from raftctl.raft.batch import Batch

LOOK_BACK_BYTES = 2 * 1024 * 1024
"""Some 20,000 changes: a broker that goes changes a partition each."""
READ_BYTES = 64 * 1024
_LARGE_BYTES = 256 * 1024
"""Larger batches are those of operations on very many; to read one would hold others up."""


class LogStart(Protocol):
    """Where the log of this node begins."""

    @property
    def start_offset(self) -> int:
        """Below it the log holds nothing any more."""


class MetadataLog(Protocol):
    """The metadata log of this node (`raftctl.quorum.RaftDriver`); for reading only."""

    @property
    def high_watermark(self) -> int:
        """Every record below is committed."""

    @property
    def log(self) -> LogStart:
        """What is stored."""

    def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        """Return committed batches from the one that contains `offset`."""

    def bytes_from(self, offset: Offset) -> int:
        """Return about how many bytes of the log stand at and above the offset."""


class EpochStart(NamedTuple):
    """A leader of the quorum, and when its epoch began."""

    at_ms: int
    epoch: int
    leader_id: int


class History:
    """What the end of the log says of when things began. `look_back` reads it."""

    def __init__(self, log: MetadataLog, image: MetadataImage, health: ClusterHealth) -> None:
        """It is about what is wrong in the image; `health` is that of the image."""
        self._log = log
        self._image = image
        self._health = health
        self._topics = {topic_id for known in health.since for topic_id in known}
        self._began: dict[tuple[UUID, int], dict[Condition, int]] = {}
        self._fenced: dict[int, int] = {}
        self.elections: list[EpochStart] = []
        """The leaders in that stretch of the log, the oldest first."""
        self._elected: list[EpochStart] = []
        """Of these the ones without a time: control batches bear none, the next batch does."""

    def look_back(self) -> Iterator[None]:
        """Read a batch in each step."""
        offset = self._beginning()
        while offset < self._log.high_watermark:
            # Retention may take away what is being read.
            offset = max(offset, self._log.log.start_offset)
            batches = self._log.read(Offset(offset), READ_BYTES)
            if not batches:
                return
            for batch in batches:
                self._take(batch)
                yield
            offset = batches[-1].end_offset

    def topic_since(self, topic_id: UUID, condition: Condition) -> int | None:
        """Return since when a topic has partitions in this condition, which it has now.

        None if one of them has been so for longer than was read.
        """
        topic, health = self._image.topics.by_id(topic_id), self._health.topics.get(topic_id)
        if topic is None or health is None:
            return None
        times = [
            self._began.get((topic_id, number), {}).get(condition)
            for number, partition in topic.items()
            if conditions(partition, health.min_isr)[condition]
        ]
        known = [at for at in times if at is not None]
        return min(known) if known and len(known) == len(times) else None

    def fenced_since(self, broker_id: int) -> int | None:
        """Return since when a broker is fenced; None if for longer than was read."""
        return self._fenced.get(broker_id)

    def _beginning(self) -> int:
        """Return the offset from which about `LOOK_BACK_BYTES` follow."""
        low, high = self._log.log.start_offset, self._log.high_watermark
        if self._log.bytes_from(Offset(low)) <= LOOK_BACK_BYTES:
            return low
        while low < high:
            middle = (low + high) // 2
            if self._log.bytes_from(Offset(middle)) > LOOK_BACK_BYTES:
                low = middle + 1
            else:
                high = middle
        return low

    def _take(self, batch: Batch) -> None:
        if batch.control:
            self._take_control(batch)
            return
        self.elections += [one._replace(at_ms=batch.timestamp_ms) for one in self._elected]
        self._elected.clear()
        if len(batch.payload) <= _LARGE_BYTES:
            for record in unpack_records(batch.payload, batch.count):
                self._follow(record, batch.timestamp_ms)

    def _take_control(self, batch: Batch) -> None:
        try:
            records = unpack_records(batch.payload, batch.count)
        except NotKnownError:
            # Of the voters: the quorum has records of its own, which images do not.
            return
        for record in records:
            if isinstance(record, LeaderChangeRecord):
                self._elected.append(EpochStart(0, batch.epoch, record.leader_id))

    def _follow(self, record: Record, at_ms: int) -> None:
        if isinstance(record, PartitionRecord | PartitionChangeRecord):
            if record.topic_id in self._topics:
                partition = self._image.topics.topics[record.topic_id].partitions.get(
                    record.partition_id
                )
                if partition is not None:
                    self._follow_partition(record, partition, at_ms)
        elif isinstance(record, BrokerRegistrationChangeRecord | RegisterBrokerRecord):
            if record.fenced:
                self._fenced.setdefault(record.broker_id, at_ms)
            elif record.fenced is not None:
                self._fenced.pop(record.broker_id, None)

    def _follow_partition(
        self,
        record: PartitionRecord | PartitionChangeRecord,
        partition: PartitionImage,
        at_ms: int,
    ) -> None:
        """Take what a record says of a partition that is now like this."""
        replicas = len(partition.replicas)
        now: dict[Condition, bool] = {}
        if record.isr is not None:
            in_sync = len(record.isr)
            min_isr = self._health.topics[record.topic_id].min_isr
            now[Condition.UNDER_REPLICATED] = in_sync < replicas
            now[Condition.UNDER_MIN_ISR] = in_sync < min(min_isr, replicas)
        if record.leader != LEADER_UNCHANGED:
            now[Condition.OFFLINE] = record.leader == NO_LEADER
        if record.adding_replicas is not None or record.removing_replicas is not None:
            moving = record.adding_replicas or record.removing_replicas
            now[Condition.REASSIGNING] = bool(moving)
        began = self._began.setdefault((record.topic_id, record.partition_id), {})
        for condition, holds in now.items():
            if holds:
                began.setdefault(condition, at_ms)
            else:
                began.pop(condition, None)
