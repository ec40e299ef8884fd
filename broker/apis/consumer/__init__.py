"""Handlers for consumer groups: membership, offsets, administration.

`APIS` is the table of this family, from an api's key to its handler and its refusal.

    groups           JoinGroup, SyncGroup, Heartbeat, LeaveGroup (the classic protocol),
                     ConsumerGroupHeartbeat (KIP-848)
    group_offsets    OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit
    group_admin      DescribeGroups, ListGroups, DeleteGroups, ConsumerGroupDescribe

The handlers find the shard that holds a group and hand it a request of `broker.groups.requests`.
They translate versions and error forms. They must not know membership or offsets: these are
decided in `broker.groups`, in the order in which its shard takes the requests.

Invariants:

- A request about a group goes to one shard, that of the partition of `__consumer_offsets` that
  the group's id is hashed to. Requests about all groups ask every shard of this broker.
- Each group has its own error code; NOT_COORDINATOR when another broker holds its shard, and
  COORDINATOR_LOAD_IN_PROGRESS while this one still replays it.

Source: KIP-62 and KIP-345 (the classic protocol), KIP-848 (the consumer protocol), KIP-709
(OffsetFetch of many groups).
"""

from broker.apis.consumer import _group_admin, _group_offsets, _groups
from broker.apis.handler import Api, refuse_each
from broker.protocol.versions import ApiKey

APIS: dict[int, Api] = {
    ApiKey.OFFSET_COMMIT: Api(_group_offsets.handle_commit, refuse_each("topics")),
    ApiKey.OFFSET_FETCH: Api(_group_offsets.handle_fetch, _group_offsets.refuse_fetch),
    ApiKey.JOIN_GROUP: Api(_groups.handle_join, _groups.refuse_join),
    ApiKey.HEARTBEAT: Api(_groups.handle_heartbeat, _groups.refuse_heartbeat),
    ApiKey.LEAVE_GROUP: Api(_groups.handle_leave),
    ApiKey.SYNC_GROUP: Api(_groups.handle_sync),
    ApiKey.DESCRIBE_GROUPS: Api(_group_admin.handle_describe, _group_admin.refuse_describe),
    ApiKey.LIST_GROUPS: Api(_group_admin.handle_list),
    ApiKey.TXN_OFFSET_COMMIT: Api(
        _group_offsets.handle_commit_in_transaction, refuse_each("topics")
    ),
    ApiKey.OFFSET_DELETE: Api(_group_offsets.handle_delete),
    ApiKey.DELETE_GROUPS: Api(_group_admin.handle_delete, refuse_each("groups_names")),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api(_groups.handle_consumer_heartbeat),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api(
        _group_admin.handle_describe_consumer, refuse_each("group_ids")
    ),
}

__all__ = [
    "APIS",
]
