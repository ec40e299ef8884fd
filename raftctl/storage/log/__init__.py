"""The metadata log on disk: segments of batches, written by one worker, readable at once.

The event loop owns the shape of the log: its offsets, which segment holds which batch, and the
writes that are still queued. `RecordLog.append` and `RecordLog.truncate` change the shape at
once; `RecordLog.flush` hands the queued writes to the worker, which performs and syncs them in
order.

The package decides when a segment rolls, what a flush covers and how a log is recovered. It
must not know who leads or what is committed; the core decides where to append and where to cut.

Invariants:

- Batches follow each other without a gap, and their epochs never shrink.
- A reported flush covers every write queued before it.
- Recovery scans from the recovery point: what lies below it was synced before it was written.
- Only the last segment may end in a torn batch; damage anywhere else is `CorruptLogError`.

Sources: Raft §5.3; Kafka's `recovery-point-offset-checkpoint`;
`docs/decisions/0005-recovery-point.md`.
"""

from raftctl.storage.log._record_log import LOG_START, SEGMENT_BYTES, RecordLog, segment_bases
from raftctl.storage.log._recovery_point import damaged_note, read_recovery_point
from raftctl.storage.log._segment import CorruptLogError, batch_bytes, scan, why_not_torn

__all__ = [
    "LOG_START",
    "SEGMENT_BYTES",
    "CorruptLogError",
    "RecordLog",
    "batch_bytes",
    "damaged_note",
    "read_recovery_point",
    "scan",
    "segment_bases",
    "why_not_torn",
]
