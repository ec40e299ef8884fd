"""The nouns that the broker's layers share: apis speak them to the ReplicaManager and back.

    connection -> dispatch -> apis/* -> ReplicaManager -> Partition -> PartitionLog -> Segment

Record batches are opaque bytes (magic 2, 61-byte header) on all of these seams.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.errors import ErrorCode, KafkaError
from raftctl.runtime.api import Buffer, Piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

_EPOCH_PER_TRANSACTION = 2
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""The brokers' own topics, with the state of their coordinators."""
CONSUMER = -1
"""The replica id of a client that is not a broker."""
ANY_REPLICA = -2
"""The replica id of a tool that asks each replica for the offsets of its own log."""
ALL_IN_SYNC = -1
"""The acks value of a producer that waits for every in-sync replica."""
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""Timestamps of a look-up that stand for an end of the log, or for its largest timestamp."""


class TopicPartition(NamedTuple):
    """A partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return each topic with its partitions, both in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """The current leader, sent to a client with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""

    leader_id: int
    leader_epoch: int


class EndMarker(NamedTuple):
    """A marker to append instead of records: a producer's transaction ends in the partition."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    """2: it bears the epoch of the producer's next transaction, so no later marker is the same."""

    @property
    def bears_next_epoch(self) -> bool:
        """True if the epoch is that of the producer's next transaction."""
        return self.transaction_version >= _EPOCH_PER_TRANSACTION


class OwnBatch(NamedTuple):
    """A batch that the broker writes itself: of a producer's transaction, without a sequence."""

    data: bytes


class Prepared(NamedTuple):
    """A produced batch as its topic stores it, but for its offsets and the broker's own time."""

    batch: Buffer
    header: Any
    """Parsed; of a type that only the log knows."""


Appendable = Buffer | Prepared | KafkaError | OwnBatch | EndMarker
"""What may be appended to a partition. An error says what a produced batch is refused for."""


_NO_ERRORS: Mapping[int, str] = MappingProxyType({})


class AppendResult(NamedTuple):
    """The result of appending to one partition."""

    error: ErrorCode
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    current_leader: LeaderHint | None = None
    record_errors: Mapping[int, str] = _NO_ERRORS
    """The refused records of the batch by index, with the reason (KIP-467)."""


class FetchParams(NamedTuple):
    """The part of a Fetch that holds for all its partitions."""

    replica_id: int
    """CONSUMER, or the id of the following broker."""
    replica_epoch: int
    """The broker epoch of the follower; -1 if not given."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    client_rack: str = ""
    leader_only: bool = True
    """Whether only a partition's leader may answer (KIP-392)."""
    first: int = 0
    """Index of the partition to read first: the limits may leave nothing for the last (R10)."""
    may_be_deposed: bool = False
    """Whether another broker may lead what this one led, because its session may have ended."""


class FetchKey(NamedTuple):
    """A partition as a client's Fetch names it: by name up to version 12, by id from 13 on."""

    topic: str | UUID | None
    partition: int


class FetchPartition(NamedTuple):
    """One partition of a Fetch."""

    partition: TopicPartition
    topic_id: UUID | None
    current_leader_epoch: int
    """The epoch the client believes in; -1: does not say."""
    fetch_offset: int
    last_fetched_epoch: int
    """Followers: epoch of their last record, for divergence (KIP-595); -1: does not say."""
    log_start_offset: int
    max_bytes: int

    @property
    def key(self) -> FetchKey:
        """As the client named it; a client that names ids gives each an id."""
        topic = self.partition.topic if self.topic_id is None else self.topic_id
        return FetchKey(topic, self.partition.partition)


class EpochEndOffset(NamedTuple):
    """The end offset (exclusive) of a leader epoch; (-1, -1) for an unknown one."""

    leader_epoch: int
    end_offset: int


class FetchResult(NamedTuple):
    """The result of one partition of a Fetch."""

    error: ErrorCode
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Piece] = ()
    diverging: EpochEndOffset | None = None
    current_leader: LeaderHint | None = None
    preferred_read_replica: int = -1
    aborted_transactions: tuple[tuple[int, int], ...] | None = None
    """(producer id, first offset); None unless read_committed."""

    @property
    def size(self) -> int:
        """Bytes of records."""
        return sum(map(len, self.records))


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """One partition of a ListOffsets."""

    partition: TopicPartition
    current_leader_epoch: int
    timestamp: int
    """Milliseconds, or -1 latest, -2 earliest, -3 the record of the largest timestamp."""
    read_committed: bool = False
    """Whether the last stable offset counts as the end."""


@dataclass(frozen=True, slots=True)
class OffsetResult:
    """The offset that was found; -1 if no record qualifies."""

    error: ErrorCode
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The result of one partition of a DeleteRecords."""

    error: ErrorCode
    low_watermark: int = -1
    """The least log start of all live replicas."""


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """A producer as a partition knows it; -1 for a field without a value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    open_from: int
    """The first offset of the transaction that is open."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One log in a log directory."""

    partition: TopicPartition
    size: int
    """Bytes of batches."""
    offset_lag: int
    """By how much the log ends before the high watermark that is known, or before the log of which
    it is a copy.
    """
    is_future: bool = False
    """Whether it is a copy that will take the log's place."""


@dataclass(frozen=True, slots=True)
class LogDirectoryFacts:
    """One of `log.dirs`; sizes in bytes, -1 if the disk does not report them."""

    error: ErrorCode
    path: str
    logs: tuple[LogFacts, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
