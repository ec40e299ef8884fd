"""Consumer groups: membership, assignment of partitions, committed offsets.

One core holds all groups of one partition of `__consumer_offsets`. It runs in a shard of
`broker.coordinator`: requests (`requests`) and time come in, records and answers go out.

    classic   the classic protocol: JoinGroup and SyncGroup, assignment by a member
    consumer  the protocol of KIP-848: heartbeats, assignment by the broker

A group belongs to one of the two protocols and may be converted, with its members, to the other
(KIP-848, "Migration"). Offsets are the same for both.

The package must not know partitions' logs, connections, or versions of requests. The newest
metadata image says which topics exist.

Invariants:

- A group id names one group, of one protocol.
- The generation of a classic group and the epoch of a KIP-848 group only grow.
- An offset is committed only by a current member, or by a caller from outside while the group
  has no members.
- Offsets of an open transaction are invisible until its marker commits them.

Source: Apache Kafka's group coordinator; KIP-211 (expiry of offsets), KIP-345 (static members),
KIP-447 (offsets in transactions), KIP-848.
"""

from broker.groups._core import group_coordinator, loaded_groups
from broker.groups._messages import join_error
from broker.groups._records import NO_EXPIRY, UNSTABLE, CommittedOffset

__all__ = [
    "NO_EXPIRY",
    "UNSTABLE",
    "CommittedOffset",
    "group_coordinator",
    "join_error",
    "loaded_groups",
]
