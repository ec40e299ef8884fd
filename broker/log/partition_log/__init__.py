"""The log of one partition: its segments, leader epochs, producer states and bounds.

`open_log` recovers a log from its directory and `create_log` makes an empty one; both return
a `PartitionLog`. `Flusher` is the group commit of one log directory: callers that wait for
the same log share an fsync. `retention` decides which segments have expired; `fsync_marker` is
the marker file that exists until a flush fails.

Decides at which offset a batch is stored, what a read returns, what a truncation removes,
what recovery keeps and what a flush must write. Must not know leaders, followers or requests:
the high watermark is only stored here, because reads, retention and checkpoints are bounded
by it.

Invariants:

- log start offset <= high watermark <= log end offset; recovery point <= log end offset;
- the first segment begins at or below the log start offset;
- each segment begins at the end offset of the one before it;
- leader epochs increase strictly, and none begins above the log end offset;
- a flush counts only if the log was not truncated while it ran.

Nothing here waits for the disk except the calls in a `FlushPlan`, which run on the
directory's worker in the order in which the plans were made.

`PartitionLog.invariants()` checks this list after each event in tests, and after each step of a
node in the simulator. Production checks only where a state changes, since it reads every index.

Source: Apache Kafka's UnifiedLog and LogLoader, KIP-101 and KIP-279 (leader epochs), KIP-107.
"""

from broker.log.partition_log._flush import Flusher, FlushTimes
from broker.log.partition_log._opening import create_log, open_log
from broker.log.partition_log._partition_log import PartitionLog

__all__ = [
    "FlushTimes",
    "Flusher",
    "PartitionLog",
    "create_log",
    "open_log",
]
