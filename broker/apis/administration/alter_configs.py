"""AlterConfigs and IncrementalAlterConfigs, forwarded to the active controller (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.administration.forwarding import change, refused, told
from raftctl.errors import ErrorCode
from raftctl.metadata.image import TOPIC_RESOURCE
from raftctl.metadata.requests.admin import (
    AlterConfigsRequest,
    AlterOperation,
    ConfigAlteration,
    ConfigChange,
    Outcome,
)
from raftctl.metadata.topic_names import name_problem

if TYPE_CHECKING:
    from broker.apis.handler import Answer, ApiContext
    from broker.protocol.codec import Request
    from raftctl.errors import KafkaError

_TIMEOUT_MS = 30_000
"""The requests name none."""


async def handle_incremental(context: ApiContext, request: Request) -> Answer:
    """Sets, deletes, appends to and subtracts from the configs of each resource."""
    return await _alter(context, request, tuple(map(_incremental, request.body["resources"])))


async def handle(context: ApiContext, request: Request) -> Answer:
    """Replaces the configs of each resource by those given."""
    return await _alter(context, request, tuple(map(_whole, request.body["resources"])))


def refuse(_context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The same error for each resource."""
    return {"responses": refused(error, [_named(one) for one in request.body["resources"]])}


async def _alter(
    context: ApiContext, request: Request, resources: tuple[ConfigAlteration, ...]
) -> Answer:
    asked = request.body["resources"]
    refusals = list(map(_refusal, asked))
    allowed = tuple(one for one, no in zip(resources, refusals, strict=True) if no is None)
    alter = AlterConfigsRequest(allowed, request.body["validate_only"])
    outcomes = iter(await change(context, alter, _TIMEOUT_MS) if allowed else ())
    found = [next(outcomes) if refusal is None else refusal for refusal in refusals]
    pairs = zip(asked, found, strict=True)
    return {"responses": [_named(resource) | told(outcome) for resource, outcome in pairs]}


def _refusal(resource: dict[str, Any]) -> Outcome | None:
    """What no controller needs to look at: a topic's name that cannot be one, values that are not
    there.
    """
    null = [
        one["name"]
        for one in resource["configs"]
        if one["value"] is None
        and one.get("config_operation", AlterOperation.SET) != AlterOperation.DELETE
    ]
    if null:
        text = f"Null value not supported for: {', '.join(null)}"
        return Outcome(ErrorCode.INVALID_REQUEST, text)
    name = resource["resource_name"]
    problem = name_problem(name) if resource["resource_type"] == TOPIC_RESOURCE else None
    if problem is not None and not name:
        return Outcome(ErrorCode.INVALID_REQUEST, "there are no configs of all topics")
    return None if problem is None else Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


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
        ConfigChange(one["name"], AlterOperation.SET, one["value"]) for one in resource["configs"]
    )
    kind, name = resource["resource_type"], resource["resource_name"]
    return ConfigAlteration(kind, name, changes, replace=True)
