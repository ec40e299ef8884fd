"""Where a consumer should read: from the replica that is closest by rack (row R7). Pure.

The rules are those of Apache Kafka's rack-aware selector (KIP-392): the leader, if it is in the
client's rack or nobody is; else of those in the rack the one that has most, then the one that was
caught up last, then the one of the lowest id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class ReplicaView(NamedTuple):
    """A replica that a consumer could read from, as the leader knows it."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    caught_up_ms: int
    """When it last had all that the leader had."""


def closest(client_rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int:
    """The broker id of the replica to read from; `client_rack` is empty if the client names none.

    The followers are in sync and have the record that the client wants next.
    """
    near = [replica for replica in followers if replica.rack == client_rack]
    if not client_rack or leader.rack == client_rack or not near:
        return leader.broker_id
    best = max(near, key=lambda one: (one.log_end_offset, one.caught_up_ms, -one.broker_id))
    return best.broker_id
