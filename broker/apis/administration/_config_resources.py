"""ListConfigResources: what may have configs (row C9, KIP-714, KIP-1142)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import administration as wire

_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, _BROKER_LOGGER, _CLIENT_METRICS, GROUP_RESOURCE)
_TYPES_IN_VERSION_0 = (_CLIENT_METRICS,)
"""Version 0 was ListClientMetricsResources."""


def handle(
    context: ApiContext, request: Request[wire.ListConfigResourcesRequest]
) -> wire.ListConfigResourcesResponse:
    """Every topic and broker, and the groups that have configs; of all types or those asked for.

    There are none of the other types, whose configs DescribeConfigs does not offer either. A type
    that nobody knows is UNSUPPORTED_VERSION for the whole request.
    """
    known = _TYPES if request.version else _TYPES_IN_VERSION_0
    asked = request.body.get("resource_types") or known
    for kind in asked:
        if kind not in known:
            text = f"resource type {kind} is not one of {', '.join(map(str, known))}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    return {
        "error_code": ErrorCode.NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in dict.fromkeys(asked)
            for name in _names(context, kind)
        ],
    }


def _names(context: ApiContext, kind: int) -> list[str]:
    image = context.metadata.image
    if kind == TOPIC_RESOURCE:
        return [topic.name for topic in image.topics.in_order()]
    if kind == BROKER_RESOURCE:
        return [str(broker_id) for broker_id in context.metadata.live_brokers(context.listener)]
    if kind == GROUP_RESOURCE:
        return sorted(name for owner, name in image.configs if owner == kind)
    return []
