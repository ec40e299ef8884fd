"""Segments: one file of record batches with its offset, time and aborted-transaction indexes.

A segment holds the batches from its base offset, which names its files, to the next segment's
base offset. Finding an offset is an index lookup and a scan of at most
`index.interval.bytes`.

`SegmentList` holds the segments of one log and makes look-ups that cross from one to the next.
`swap` replaces several compacted segments by one, so that a crash at any step is harmless.

Decides when a segment is full and where an offset or a timestamp is found. Must not know
leaders, producer states, or retention.

Invariants:

- each segment of a log begins where the one before it ends;
- only the last segment of a log is appended to; after a failed append it is as before;
- batches are contiguous in the file, and their offsets ascend;
- index entries ascend in both fields and point at batches of the same segment;
- an index is a hint: damage in it costs time, never records, since batches rebuild it;
- aborted transactions are listed in the order of their markers.

A file without contents need not exist, and holds no descriptor (`LazyFile`): a broker may have
tens of thousands of empty replicas.

Source: Apache Kafka's LogSegment, OffsetIndex, TimeIndex and TransactionIndex, bytes
included.
"""

from broker.log.segments._index import OffsetIndex, TimeIndex
from broker.log.segments._lazy_file import LazyFile
from broker.log.segments._segment import (
    DAMAGED,
    NO_TIMESTAMP,
    OFFSET_MAX,
    Segment,
    segment_path,
)
from broker.log.segments._segment_list import Limits, Place, SegmentList

__all__ = [
    "DAMAGED",
    "NO_TIMESTAMP",
    "OFFSET_MAX",
    "LazyFile",
    "Limits",
    "OffsetIndex",
    "Place",
    "Segment",
    "SegmentList",
    "TimeIndex",
    "segment_path",
]
