"""Metadata transactions: records in several batches that take effect together (row C1).

The records of a request stand in one batch, all or none. If they are too many for that, they stand
in several, between a record that begins a transaction and one that ends it:

    Begin, r1, r2, … │ … │ …, rn, End

The active controller replays them at once, like any others, and they are published when the last
one commits. Every other node holds them back until the end arrives. If the controller is deposed
before that, some may be committed without the end. The next controller aborts the transaction as
its first act; it has not replayed any of it.

Source: KIP-868.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.metadata.codec import pack_records
from raftctl.metadata.features import METADATA_VERSION_FEATURE, TRANSACTIONS_LEVEL, level_of
from raftctl.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    KvLockRecord,
    KvOwnerRecord,
    KvRecord,
    KvSessionRecord,
    RemoveKvLockRecord,
    RemoveKvSessionRecord,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record

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
    return known and _OUTSIDE.isdisjoint(map(type, records))


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
