"""Metadata transactions: many records that take effect together (row C1, KIP-868).

The records of an operation stand in one batch, all or none. Where they are too many for that they
stand in several, between a record that begins a transaction and one that ends it:

    Begin, r1, r2, … │ … │ …, rn, End

The active controller replays them at once, like any others, and has them published when the last
one commits. Everybody else keeps them apart until the end comes. If the controller is deposed
before that, some may be committed without the end; the next one aborts what has begun, as its first
act, and has never seen it itself.
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
"""The first ends one; the others take effect with their batch: watches read the log itself."""


class Piece(NamedTuple):
    """A batch of a transaction: packed records, one after the other."""

    payload: bytes
    record_count: int


def may_be_transaction(image: MetadataImage, records: Sequence[Record]) -> bool:
    """Whether the cluster knows transactions, and these records may stand in one."""
    known = level_of(image, METADATA_VERSION_FEATURE) >= TRANSACTIONS_LEVEL
    return known and _OUTSIDE.isdisjoint(map(type, records))


def as_transaction(records: Sequence[Record]) -> list[Record]:
    """The records between a beginning and an end."""
    return [BeginTransactionRecord(), *records, EndTransactionRecord()]


def in_pieces(transaction: Sequence[Record], bytes_max: int) -> list[Piece]:
    """The batches of a transaction, none longer than that unless a single record is."""
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
