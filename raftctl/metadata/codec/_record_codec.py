"""Records to bytes and back: one MessagePack object a record, `[type id, field, ...]`.

The payload of a batch is the concatenation of its records; the batch knows their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from raftctl.codec import Codec
from raftctl.metadata.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORD_CODEC: Codec[Record] = Codec.tagged(*get_args(Record), exact=True)


def pack_records(records: Iterable[Record]) -> list[bytes]:
    """Each record as the bytes that stand in a batch's payload."""
    return [RECORD_CODEC.pack(record) for record in records]


def pack_payload(records: Iterable[Record]) -> bytes:
    """The payload of a batch of these records."""
    return RECORD_CODEC.pack_all(records)


def unpack_records(payload: bytes, count: int) -> list[Record]:
    """The `count` records of a batch's payload. Raises CodecError if it holds anything else."""
    return RECORD_CODEC.unpack_many(payload, count)
