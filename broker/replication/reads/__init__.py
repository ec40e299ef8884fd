"""Reads: the answers to Fetch and ListOffsets, from memory where possible.

`Reads` serves a Fetch at once, or hands it to the purgatory while there are too few bytes.
Within a fetch session only partitions that changed are read. `OffsetLookups` finds offsets by
timestamp and by leader epoch. `cold_reads` brings pages into memory on workers first, so that
a slow disk does not stall the event loop.

Decides which bytes a reader gets within its limits, whether a consumer should read from a
closer replica, and what must be read from disk beforehand. Must not know sessions on the
wire, nor what a follower's position means for the high watermark.

Invariants:

- a consumer sees nothing at or above the high watermark, or the last stable offset when it
  reads committed records only;
- the order of partitions rotates, so that byte limits starve none of them;
- one read-ahead of a partition is under way at a time;
- everything that may block runs on a worker.

Source: KIP-74 (response limits), KIP-227 (fetch sessions), KIP-392 (fetch from the closest
replica), KIP-98 (read committed).
"""

from broker.replication.reads._reads import BrokerDirectory, OffsetLookups, Reads

__all__ = [
    "BrokerDirectory",
    "OffsetLookups",
    "Reads",
]
