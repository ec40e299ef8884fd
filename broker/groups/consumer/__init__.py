"""Consumer groups of KIP-848: the broker assigns partitions, members converge by heartbeats.

Each heartbeat updates the member's subscription, computes a new target assignment if the group
changed, and moves the member one step from its current assignment to its target. A partition
that moves is first revoked by its owner, then given to the next.

`ConsumerGroups` holds the rules. `consumer_group` holds the state of one group as its records
say. Assignors and reconciliation are pure functions.

Invariants:

- Member epoch <= assignment epoch <= group epoch, and none of them goes back.
- A partition belongs to at most one member at a time, counting those that revoke it.
- The state follows from the records alone: replay of the log gives the same group.

Source: KIP-848 ("Group Membership", "Member Assignment"), KIP-1101 (hash of topics).
"""

from broker.groups.consumer._consumer_groups import (
    TIMERS,
    TURN,
    ConsumerGroups,
    ConsumerGroupSettings,
    Step,
)
from broker.groups.consumer._members import member_of, taken_over, unknown_member

__all__ = [
    "TIMERS",
    "TURN",
    "ConsumerGroupSettings",
    "ConsumerGroups",
    "Step",
    "member_of",
    "taken_over",
    "unknown_member",
]
