"""Segments: one file of record batches with its offset, time and aborted-transaction indexes.

A segment holds the batches from its base offset, which names its files, to the next segment's
base offset. Finding an offset is an index lookup and a scan of at most
`index.interval.bytes`.

Decides when a segment is full and where an offset or a timestamp is found in it. Must not
know leaders, producers, retention or other segments, except in `swap`, which replaces several
compacted segments by one so that a crash at any step is harmless.

Invariants:

- only the last segment of a log is appended to; after a failed append it is as before;
- batches are contiguous in the file, and their offsets ascend;
- index entries ascend in both fields and point at batches of the same segment;
- an index is a hint: damage in it costs time, never records, since batches rebuild it;
- aborted transactions are listed in the order of their markers.

A file without contents holds no descriptor (`LazyFile`): a broker may have tens of thousands
of empty replicas.

Source: Apache Kafka's LogSegment, OffsetIndex, TimeIndex and TransactionIndex, bytes
included.
"""

from broker.log.segments._index import OffsetIndex, TimeIndex
from broker.log.segments._lazy_file import LateFile
from broker.log.segments._reading import Limits, Place, bytes_between, find
from broker.log.segments._segment import (
    DAMAGED,
    NO_TIMESTAMP,
    OFFSET_MAX,
    BatchAt,
    Segment,
    segment_path,
)

__all__ = [
    "DAMAGED",
    "NO_TIMESTAMP",
    "OFFSET_MAX",
    "BatchAt",
    "LateFile",
    "Limits",
    "OffsetIndex",
    "Place",
    "Segment",
    "TimeIndex",
    "bytes_between",
    "find",
    "segment_path",
]
