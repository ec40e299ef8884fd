"""Codec of metadata records: objects to the bytes of a batch's payload and back.

A record is one MessagePack array, `[type id, field, ...]`. The payload of a batch is the
concatenation of its records; the batch's header counts them. `pack_records` and
`pack_payload` write payloads, `unpack_records` reads one.

Partitions come in millions. `pack_topics` writes a snapshot's topics and `replay_payload`
replays a batch by rows and columns, without an object for each record. The bytes are the
same.

Invariants: a reader refuses a record type or a field that it does not know, with CodecError.
Otherwise its state would differ from the others' without notice. Fields are only added at the
end, with a default that fills in what an older writer left out.

A request whose records are too many for a batch stands in several, between a record that begins
a metadata transaction and one that ends it (KIP-868, row C1):

    Begin, r1, r2, … │ … │ …, rn, End

The active controller replays them at once, and they are published when the last one commits.
Every other node holds them back until the end arrives. If the controller is deposed before that,
some may be committed without the end. The next controller aborts the transaction as its first
act; it has not replayed any of it.

The codec knows neither offsets nor the framing, compression and checksums of batches. Source:
KIP-631 for the records; the encoding is this project's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from raftctl.codec import Codec, types_of
from raftctl.metadata.features import METADATA_VERSION_FEATURE, TRANSACTIONS_LEVEL, level_of
from raftctl.metadata.image import PartitionImage
from raftctl.metadata.image.types import shared
from raftctl.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    KvLockRecord,
    KvOwnerRecord,
    KvRecord,
    KvSessionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveKvLockRecord,
    RemoveKvSessionRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from uuid import UUID

    from raftctl.codec import Row
    from raftctl.metadata.image import MetadataDelta, MetadataImage, TopicImage, TopicsImage

RECORD_CODEC: Codec[Record] = Codec.tagged(*get_args(Record), exact=True)


def pack_records(records: Iterable[Record]) -> list[bytes]:
    """Return the bytes of each record, as they stand in a batch's payload."""
    return [RECORD_CODEC.pack(record) for record in records]


def pack_payload(records: Iterable[Record]) -> bytes:
    """Return the payload of a batch of these records."""
    return RECORD_CODEC.pack_all(records)


def unpack_records(payload: bytes, count: int) -> list[Record]:
    """Return the `count` records of a payload. Raises CodecError if it holds anything else."""
    return RECORD_CODEC.unpack_many(payload, count)


# --- transactions ---------------------------------------------------------------------------------

_OUTSIDE = frozenset(
    (
        AbortTransactionRecord,
        KvRecord,
        KvSessionRecord,
        RemoveKvSessionRecord,
        KvOwnerRecord,
        KvLockRecord,
        RemoveKvLockRecord,
    )
)
"""Records that never stand in a transaction. The first ends one. The others take effect with their
batch, since watches of keys read the log itself."""


class Piece(NamedTuple):
    """Batch of a transaction: packed records, concatenated."""

    payload: bytes
    record_count: int


def may_be_transaction(image: MetadataImage, records: Sequence[Record]) -> bool:
    """Return whether the level in force knows transactions, and these records may stand in one."""
    known = level_of(image, METADATA_VERSION_FEATURE) >= TRANSACTIONS_LEVEL
    return known and _OUTSIDE.isdisjoint(types_of(records))


def as_transaction(records: Sequence[Record]) -> list[Record]:
    """Return the records between a begin record and an end record."""
    return [BeginTransactionRecord(), *records, EndTransactionRecord()]


def in_pieces(transaction: Sequence[Record], bytes_max: int) -> list[Piece]:
    """Return the batches of a transaction, none above `bytes_max` unless a single record is."""
    pieces = []
    payloads: list[bytes] = []
    size = 0
    for payload in pack_records(transaction):
        if payloads and size + len(payload) > bytes_max:
            pieces.append(Piece(b"".join(payloads), len(payloads)))
            payloads, size = [], 0
        payloads.append(payload)
        size += len(payload)
    return [*pieces, Piece(b"".join(payloads), len(payloads))]


# --- partitions, many at a time -------------------------------------------------------------------

PIECE_RECORDS = 1_000
"""Records of a piece; the last topic may add as many again."""
_PARTITION = PartitionRecord.TYPE_ID
_DIRECTORIES = PartitionImage._fields.index("directories")


def pack_topics(topics: TopicsImage) -> Iterator[tuple[int, bytes]]:
    """Yield (number of records, payload) of all topics, in the order of an image's records."""
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
    """Return the rows of up to `PIECE_RECORDS` PartitionRecords from `first` on."""
    partitions = topic.partitions
    ids = range(first, min(first + PIECE_RECORDS, len(partitions)))
    head = (_PARTITION, topic.topic_id.bytes)
    return [(*head, number, *_plain(partitions[number])) for number in ids]


def _plain(partition: PartitionImage) -> Row:
    if not partition.directories:
        return partition
    directories = tuple([directory.bytes for directory in partition.directories])
    return (*partition[:_DIRECTORIES], directories)


def replay_payload(delta: MetadataDelta, payload: bytes, count: int, base_offset: int) -> None:
    """Replay the `count` records of a batch's payload.

    Runs of equal records are decoded by columns: a batch of ten thousand partitions costs a
    fraction of as many objects. Raises CodecError if the payload holds anything else.
    """
    offset = base_offset
    for rows in RECORD_CODEC.unpack_runs(payload, count):
        if (created := RECORD_CODEC.columns_of(PartitionRecord, rows)) is not None:
            _create(delta, *created)
        elif (changed := RECORD_CODEC.columns_of(PartitionChangeRecord, rows)) is not None:
            delta.change_partitions(zip(*changed, strict=True))
        elif (written := RECORD_CODEC.columns_of(KvRecord, rows)) is not None:
            keys, values, versions = written
            delta.set_keys(keys, values, versions, offset)
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
