"""The quota of requests that create or delete partitions (KIP-599, row S5).

It is counted where the request arrives, so each broker has the whole bound for itself. Apache Kafka
counts on the controller, after its authorizer has decided. So what this broker's authorizer denies
is not counted here: else a client could learn from its throttling that a topic exists which is
hidden from it. Topics that are created on first use do not count.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from broker.apis.handler import throttling
from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request

Item = TypeVar("Item")


def accepted(
    context: ApiContext,
    request: Request[Any],
    items: Iterable[tuple[Item, int | None]],
    *,
    strict_since: int,
) -> tuple[list[Item], list[tuple[Item, KafkaError]]]:
    """Return the items that the client's quota lets through, and the others with the refusal.

    Each comes with the number of partitions that it creates or deletes; None: it changes nothing,
    or is denied, so the controller refuses it whatever the quota is. Versions below
    `strict_since` do not know the refusal: everything goes through, and the client waits after.
    """
    pairs = list(items)
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    principal = request.context.connection.principal
    strict = request.version >= strict_since
    quota = None
    if context.quotas.is_active:
        quota = context.quotas.mutations(principal, request.client_id, now_ms, strict=strict)
    if quota is None:
        return [item for item, _ in pairs], []
    through: list[Item] = []
    refused: list[tuple[Item, KafkaError]] = []
    for item, partitions in pairs:
        if partitions is None:
            through.append(item)
            continue
        try:
            quota.record(partitions, now_ms)
        except KafkaError as error:
            refused.append((item, error))
        else:
            through.append(item)
    throttling.mute(request, quota.throttle_ms(now_ms))
    return through, refused
