"""Handlers for records: appending, reading, and positions in a log.

`APIS` is the table of this family, from an api's key to its handler and its refusal.

    produce    Produce: record batches for the leaders of their partitions
    fetch      Fetch: records for consumers and followers, with sessions (KIP-227)
    offsets    ListOffsets, OffsetForLeaderEpoch: positions by time and by leader epoch
    log_admin  DeleteRecords, AlterReplicaLogDirs, DescribeLogDirs

The handlers translate between messages and the calls of the ReplicaManager. They must not know
logs: partitions, offsets and acknowledgements are decided there. Records pass through as opaque
batches, without a copy.

Invariants:

- Batches are appended before the Produce handler returns, in the order of the request. Batches
  that a worker prepares, or whose transaction must be asked about first, are the exception: their
  reply says that it has not acted, and the connection starts no later request before it.
- Each partition has its own error code: one that fails does not fail the others.
- A Produce with acks=0 has no response; its failure closes the connection.

Source: Apache Kafka's protocol guide; KIP-98 (idempotent producers), KIP-227 (fetch sessions),
KIP-320 (leader epochs), KIP-951 (new leaders in responses).
"""

from broker.apis.data import _fetch, _log_admin, _offsets, _produce
from broker.apis.handler import Api
from broker.protocol.versions import ApiKey

APIS: dict[int, Api] = {
    ApiKey.PRODUCE: Api(_produce.handle, _produce.refuse),
    ApiKey.FETCH: Api(_fetch.handle, _fetch.refuse),
    ApiKey.LIST_OFFSETS: Api(_offsets.handle_list_offsets, _offsets.refuse_list_offsets),
    ApiKey.DELETE_RECORDS: Api(_log_admin.handle_delete_records, _log_admin.refuse_delete_records),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(
        _offsets.handle_leader_epochs, _offsets.refuse_leader_epochs
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api(
        _log_admin.handle_alter_replica_log_dirs, _log_admin.refuse_alter_replica_log_dirs
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Api(_log_admin.handle_describe_log_dirs),
}

__all__ = [
    "APIS",
]
