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

The codec knows neither offsets nor the framing, compression and checksums of batches. Source:
KIP-631 for the records; the encoding is this project's own.
"""

from raftctl.metadata.codec._partition_rows import pack_topics, replay_payload
from raftctl.metadata.codec._record_codec import (
    RECORD_CODEC,
    pack_payload,
    pack_records,
    unpack_records,
)

__all__ = [
    "RECORD_CODEC",
    "pack_payload",
    "pack_records",
    "pack_topics",
    "replay_payload",
    "unpack_records",
]
