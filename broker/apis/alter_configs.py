"""AlterConfigs and IncrementalAlterConfigs, forwarded to the active controller (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.admin import change, refused, told
from raftctl.metadata.admin_requests import (
    AlterConfigsRequest,
    AlterOperation,
    ConfigAlteration,
    ConfigChange,
)

if TYPE_CHECKING:
    from broker.apis.context import Answer, ApiContext
    from broker.protocol.codec import Request
    from raftctl.errors import KafkaError

_TIMEOUT_MS = 30_000
"""The requests name none."""


async def handle_incremental(context: ApiContext, request: Request) -> Answer:
    """Sets, deletes, appends to and subtracts from the configs of each resource."""
    return await _alter(context, request, tuple(map(_incremental, request.body["resources"])))


async def handle(context: ApiContext, request: Request) -> Answer:
    """Replaces the configs of each resource by those given; null resets one."""
    return await _alter(context, request, tuple(map(_whole, request.body["resources"])))


def refuse(_context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The same error for each resource."""
    return {"responses": refused(error, [_named(one) for one in request.body["resources"]])}


async def _alter(
    context: ApiContext, request: Request, resources: tuple[ConfigAlteration, ...]
) -> Answer:
    alter = AlterConfigsRequest(resources, request.body["validate_only"])
    outcomes = await change(context, alter, _TIMEOUT_MS)
    pairs = zip(request.body["resources"], outcomes, strict=True)
    return {"responses": [_named(resource) | told(outcome) for resource, outcome in pairs]}


def _named(resource: dict[str, Any]) -> dict[str, Any]:
    return {key: resource[key] for key in ("resource_type", "resource_name")}


def _incremental(resource: dict[str, Any]) -> ConfigAlteration:
    changes = tuple(
        ConfigChange(one["name"], one["config_operation"], one["value"])
        for one in resource["configs"]
    )
    return ConfigAlteration(resource["resource_type"], resource["resource_name"], changes)


def _whole(resource: dict[str, Any]) -> ConfigAlteration:
    changes = tuple(
        ConfigChange(
            one["name"],
            AlterOperation.DELETE if one["value"] is None else AlterOperation.SET,
            one["value"],
        )
        for one in resource["configs"]
    )
    kind, name = resource["resource_type"], resource["resource_name"]
    return ConfigAlteration(kind, name, changes, replace=True)
