"""Partition logs: every record that this broker stores, over all of its `log.dirs`.

`LogManager` is the front door. It opens and recovers the logs at the start, creates, moves
and deletes them, and keeps them in shape: flushes, checkpoints, retention, compaction. The
layers below it, each importing only those under it:

    LogMetrics        what a scrape asks about the directories
    LogManager
    LogCleaner        compaction (`_cleaner`)
    directories       one log directory: its logs, its worker, its checkpoints; KIP-113 moves
    partition_log     one partition: segments, leader epochs, bounds, recovery, flushes
    producers         idempotent producers and transactions of one partition
    segments          one file of batches with its indexes
    batches           the record batch format, magic 2

Decides where a batch is stored, what a read returns, and what survives a crash. Must not know
leaders, followers, requests or metadata images: those belong to `broker.replication`.

Invariants:

- log start offset <= high watermark <= log end offset, and recovery point <= log end offset;
- segments follow each other without a gap or an overlap of offsets;
- leader epochs increase strictly, their start offsets never decrease;
- a partition has one log on this broker, apart from the copy of a move that is under way;
- nothing at or above the recovery point is trusted after a crash before it was checked.

The event loop decides and never waits for a disk; calls that block run on the worker of their
directory, in order. File names and formats are Apache Kafka's, so its tools read these files.

Source: Apache Kafka's storage layer (UnifiedLog, LogSegment, LogCleaner), KIP-98, KIP-101,
KIP-107, KIP-112, KIP-113, KIP-279, KIP-534.
"""

from broker.log._log_manager import LogListener, LogManager
from broker.log._log_metrics import LogMetrics

__all__ = [
    "LogListener",
    "LogManager",
    "LogMetrics",
]
