"""Partitions to bytes and back, many at a time.

Millions of partitions make a snapshot, and tens of thousands a batch. As records, one by one, they
would cost several times of what they cost as rows and columns; the bytes are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.metadata.codec._record_codec import RECORD_CODEC
from raftctl.metadata.image import PartitionImage, shared
from raftctl.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from raftctl.codec import Row
    from raftctl.metadata.image import MetadataDelta, TopicImage, TopicsImage

PIECE_RECORDS = 1_000
"""So many at a time, and as many again of the last topic."""
_PARTITION = PartitionRecord.TYPE_ID
_DIRECTORIES = PartitionImage._fields.index("directories")


def pack_topics(topics: TopicsImage) -> Iterator[tuple[int, bytes]]:
    """(number of records, those) of all topics, in the order of an image's records."""
    rows: list[Row] = []
    for topic in topics.in_order():
        rows.append(RECORD_CODEC.to_row(TopicRecord(topic.name, topic.topic_id)))
        for first in range(0, len(topic.partitions), PIECE_RECORDS):
            rows += _rows(topic, first)
            if len(rows) >= PIECE_RECORDS:
                yield len(rows), RECORD_CODEC.pack_rows(rows)
                rows = []
    if rows:
        yield len(rows), RECORD_CODEC.pack_rows(rows)


def _rows(topic: TopicImage, first: int) -> list[Row]:
    """What PartitionRecords of some partitions from `first` on would be as rows."""
    partitions = topic.partitions
    ids = range(first, min(first + PIECE_RECORDS, len(partitions)))
    head = (_PARTITION, topic.topic_id.bytes)
    return [(*head, number, *_plain(partitions[number])) for number in ids]


def _plain(partition: PartitionImage) -> Row:
    if not partition.directories:
        return partition
    directories = tuple([one.bytes for one in partition.directories])
    return (*partition[:_DIRECTORIES], directories)


def replay_payload(delta: MetadataDelta, payload: bytes, count: int, base_offset: int) -> None:
    """Adds the `count` records of a batch's payload. CodecError if it holds anything else."""
    offset = base_offset
    for rows in RECORD_CODEC.unpack_runs(payload, count):
        if (created := RECORD_CODEC.columns_of(PartitionRecord, rows)) is not None:
            _create(delta, *created)
        elif (changed := RECORD_CODEC.columns_of(PartitionChangeRecord, rows)) is not None:
            delta.change_partitions(zip(*changed, strict=True))
        else:
            delta.replay_all(RECORD_CODEC.from_run(rows), offset)
        offset += len(rows)


def _create(
    delta: MetadataDelta,
    topic_ids: Sequence[UUID],
    partition_ids: Sequence[int],
    replicas: Sequence[tuple[int, ...]],
    isr: Sequence[tuple[int, ...]],
    *others: Sequence[Any],
) -> None:
    fields = zip(map(shared, replicas), map(shared, isr), *others, strict=True)
    delta.add_partitions(topic_ids, partition_ids, [*map(PartitionImage._make, fields)])
