"""`<offset>.snapshot`: the idempotent producers as the batches below the offset leave them.

With one at the recovery point a log is opened without reading its batches. The bytes are Apache
Kafka's (version 1): a version, the CRC32C of what follows it, a count, and entries of a fixed size.
Apache Kafka writes one entry for a producer, its last batch; here each of the last five batches
has one, oldest first, so that a restart recognises as many repetitions as before. Who reads one
entry for a producer takes the last, the newest batch. Each also says which transaction is open; a
producer of which there is only a marker has an entry without a batch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from broker.log.batches.record_batch import SEQUENCE_MAX
from broker.log.producers._producer_state import Producer, SentBatch
from raftctl.errors import ErrorCode, KafkaError
from raftctl.runtime.api import read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from raftctl.runtime.api import FileSystem

SUFFIX = "snapshot"
_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_BATCH = SentBatch(-1, -1, -1, -1, -1)


def pack(producers: Mapping[int, Producer]) -> bytes:
    """Return the content of a snapshot file."""
    entries = [
        _entry(producer_id, producer, sent)
        for producer_id, producer in producers.items()
        for sent in producer.batches or (_NO_BATCH,)
    ]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def _entry(producer_id: int, producer: Producer, sent: SentBatch) -> bytes:
    is_newest = not producer.batches or sent is producer.batches[-1]
    return _ENTRY.pack(
        producer_id,
        producer.epoch,
        sent.last_sequence,
        sent.last_offset,
        sent.last_offset - sent.base_offset,
        producer.timestamp if is_newest else sent.timestamp,
        producer.coordinator_epoch,
        producer.open_from,
    )


def unpack(path: str, data: bytes) -> dict[int, Producer]:
    """Return the producers in a snapshot; KafkaError(KAFKA_STORAGE_ERROR) names a bad file."""
    body = memoryview(data)[_HEAD.size :]
    if len(body) < _COUNT.size:
        raise _damaged(path, "it is too short")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise _damaged(path, f"version {version} is not known")
    if crc != crc32c(body):
        raise _damaged(path, "its CRC32C is wrong")
    (count,) = _COUNT.unpack_from(body)
    if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
        raise _damaged(path, f"{count} entries do not fill it")
    producers: dict[int, Producer] = {}
    for entry in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, *transaction = entry
        known = producers.get(producer_id)
        batches = known.batches if known is not None and known.epoch == epoch else ()
        if last_offset != _NO_BATCH.last_offset:
            first_sequence = (last_sequence - delta) % (SEQUENCE_MAX + 1)
            base_offset = last_offset - delta
            sent = SentBatch(first_sequence, last_sequence, base_offset, last_offset, timestamp)
            batches = (*batches, sent)
        producers[producer_id] = Producer(epoch, batches, timestamp, *transaction)
    return producers


def write(files: FileSystem, path: str, producers: Mapping[int, Producer]) -> None:
    """Replace a snapshot; blocks."""
    replace_file(files, path, pack(producers))


def read(files: FileSystem, path: str) -> dict[int, Producer]:
    """Read a snapshot; blocks. Raises like `unpack`."""
    return unpack(path, read_file(files, path))


def offsets_in(names: Iterable[str]) -> list[int]:
    """Return the offsets of the snapshots among the sorted names of a directory."""
    parts = (name.rpartition(".") for name in names)
    return [int(stem) for stem, _, end in parts if end == SUFFIX and stem.isdigit()]


def _damaged(path: str, why: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged: {why}")
