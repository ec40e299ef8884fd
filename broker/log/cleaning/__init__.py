"""Log cleaning: compaction, and the periodic work on all logs of a broker.

`Housekeeping` runs one task each for checkpoints, flushes by time, retention, compaction,
removals and moves. Compaction itself has a pure part, which decides per batch what remains,
and a part that writes new segments on a worker, one step at a time.

Decides which log is compacted next, which records of it remain, and when segments expire.
Must not know leaders or followers: the last stable offset of the log bounds what may be
compacted.

Invariants:

- the newest record of each key remains, and no record changes its offset;
- the active segment and everything above the last stable offset stay untouched;
- a tombstone or a transaction marker remains until its delete horizon has passed (KIP-534);
- the last batch of a producer remains at least as a header, for its sequence number;
- a rewritten segment is durable before it replaces the old ones, and ends at the same offset.

Work is cut into pieces: between two logs, or two steps of one compaction, other tasks run.

Source: Apache Kafka's LogCleaner and Cleaner, KIP-534 (delete horizon), KIP-58 (compaction
lag).
"""

from broker.log.cleaning._housekeeping import Housekeeping

__all__ = [
    "Housekeeping",
]
