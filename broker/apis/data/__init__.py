"""Handlers for records: appending, reading, and positions in a log.

    produce    Produce: record batches for the leaders of their partitions
    fetch      Fetch: records for consumers and followers, with sessions (KIP-227)
    offsets    ListOffsets, OffsetForLeaderEpoch: positions by time and by leader epoch
    log_admin  DeleteRecords, AlterReplicaLogDirs, DescribeLogDirs

The handlers translate between messages and the calls of the ReplicaManager; partitions, offsets
and acknowledgements are decided there. Records pass through as opaque batches, without a copy.

Invariants:

- Batches are appended before `produce.handle` returns, in the order of the request.
- Each partition has its own error code: one that fails does not fail the others.
"""
