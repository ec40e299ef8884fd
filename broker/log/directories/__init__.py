"""Log directories: one of `log.dirs`, with its logs, its worker, its checkpoints and its
failures.

`LogDirectory` runs everything that blocks on one worker, in order. `load` opens and recovers
its logs at the start. `Removals` takes the files of deleted logs away, a few at a time.
`FutureLogs` copies a log to another directory and puts the copy in its place.

Decides what a checkpoint says, when a directory counts as offline, and when a copy may
replace its log. Must not know leaders or retention, nor in which directory a new log goes.

Invariants:

- a directory that failed once stays offline until the node restarts (KIP-112);
- a checkpointed recovery point is at or below the high watermark, so no truncation falls
  below it;
- the clean-shutdown marker exists only after every log of the directory was flushed and
  closed;
- a copy replaces its log only when it has the same end offset and is at least as durable;
- at every step of a move a crash leaves exactly one complete log of the partition.

Source: KIP-112 (failing disks), KIP-113 (moves between directories), KIP-858 (directory ids),
KIP-966 (clean shutdown), and Apache Kafka's LogManager.
"""

from broker.log.directories._future_log import FutureLog, FutureLogs, recover_moves
from broker.log.directories._log_directory import (
    CLEAN_SHUTDOWN,
    METADATA_LOG,
    NO_EPOCH,
    LogDirectory,
    Removals,
    load,
)

__all__ = [
    "CLEAN_SHUTDOWN",
    "METADATA_LOG",
    "NO_EPOCH",
    "FutureLog",
    "FutureLogs",
    "LogDirectory",
    "Removals",
    "load",
    "recover_moves",
]
