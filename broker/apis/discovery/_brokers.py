"""Brokers as they appear in answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.handler import authorization
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Collection

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import data as wire
    from broker.types import LeaderHint

OPERATIONS_NOT_ASKED = -(2**31)
"""The value of authorized operations where the client does not ask for them (KIP-430)."""


def cluster_operations(context: ApiContext, request: Request[Any], *, asked: bool) -> int:
    """Return what the principal may do with the cluster, as answers have it; 0 without DESCRIBE."""
    if not asked:
        return OPERATIONS_NOT_ASKED
    cluster = ResourceType.CLUSTER
    if not authorization.is_allowed(context, request, Operation.DESCRIBE, cluster, CLUSTER_NAME):
        return 0
    return authorization.authorized_operations(context, request, cluster, CLUSTER_NAME)


def controller_id(context: ApiContext) -> int:
    """Return the broker to which clients shall send what changes metadata.

    The controllers do not speak Kafka's protocol and every broker forwards (KIP-590), so it is this
    broker, or while it is fenced any that is not; -1 if there is none.
    """
    live = context.metadata.live_brokers(context.listener)
    return context.config.node_id if context.config.node_id in live else next(iter(live), -1)


def node_endpoints(
    context: ApiContext, broker_ids: Collection[int]
) -> list[wire.FetchResponseNodeEndpoint]:
    """Return the endpoints of the named leaders, so that a client need not ask (KIP-951)."""
    if not broker_ids:
        return []
    return [
        {"node_id": broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
        for broker_id, (broker, endpoint) in context.metadata.live_brokers(context.listener).items()
        if broker_id in broker_ids
    ]


def current_leader(hint: LeaderHint | None) -> wire.FetchResponseLeaderIdAndEpoch | None:
    """Return the leader as it is sent with NOT_LEADER_OR_FOLLOWER (KIP-951).

    That there is none goes without saying: librdkafka (2.6 to 2.16 at least) counts such a
    partition among those with a leader, and then reads memory that it has not written.
    """
    if hint is None or hint.leader_id < 0:
        return None
    return {"leader_id": hint.leader_id, "leader_epoch": hint.leader_epoch}
