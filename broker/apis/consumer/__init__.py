"""Handlers for consumer groups: membership, offsets, administration.

    groups           JoinGroup, SyncGroup, Heartbeat, LeaveGroup (the classic protocol)
    consumer_groups  ConsumerGroupHeartbeat, ConsumerGroupDescribe (KIP-848)
    group_offsets    OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit
    group_admin      DescribeGroups, ListGroups, DeleteGroups

The handlers find the shard that holds a group and hand it a request of
`broker.groups.requests`. They translate versions and error forms; membership and offsets are
decided in `broker.groups`.
"""
