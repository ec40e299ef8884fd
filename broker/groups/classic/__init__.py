"""Classic consumer groups: members join, a leader among them assigns, all sync.

    EMPTY -> PREPARING -> COMPLETING -> STABLE -> PREPARING ...

`Group` is the state of one group, `Rebalancer` the rules that change it. Subscriptions and
assignments are bytes which only members read, with one exception: a group that is converted to
KIP-848 must be understood by the broker (`Subscription`, `assignment`).

Invariants:

- The generation grows with each rebalance.
- The leader is a member; the protocol is one that every member supports.
- Only a member of the current generation is assigned anything.

Source: "Kafka Client-side Assignment Proposal" and the group membership protocol of Apache
Kafka; KIP-62 (sessions), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member
ids).
"""

from broker.groups.classic._embedded_protocol import (
    Subscription,
    assignment,
    assignment_of,
    subscription_of,
)
from broker.groups.classic._group import CONSUMER_PROTOCOL, Group, Member, State
from broker.groups.classic._rebalance import GroupLimits, Rebalancer

__all__ = [
    "CONSUMER_PROTOCOL",
    "Group",
    "GroupLimits",
    "Member",
    "Rebalancer",
    "State",
    "Subscription",
    "assignment",
    "assignment_of",
    "subscription_of",
]
