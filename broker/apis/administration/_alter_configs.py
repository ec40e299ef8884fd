"""AlterConfigs and IncrementalAlterConfigs, forwarded to the active controller (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from broker.apis.administration._forwarding import change, result_of
from raftctl.errors import ErrorCode
from raftctl.metadata.records import TOPIC_RESOURCE
from raftctl.metadata.requests.admin import (
    AlterConfigsRequest,
    AlterOperation,
    ConfigAlteration,
    ConfigChange,
    ItemOutcome,
)
from raftctl.metadata.topic_names import name_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import administration as wire

_TIMEOUT_MS = 30_000
"""The requests name none."""

if TYPE_CHECKING:
    _Request = wire.AlterConfigsRequest | wire.IncrementalAlterConfigsRequest
    _Resource = (
        wire.AlterConfigsRequestAlterConfigsResource
        | wire.IncrementalAlterConfigsRequestAlterConfigsResource
    )


class _Name(TypedDict):
    """The fields of a response that name a resource."""

    resource_type: int
    resource_name: str


async def handle_incremental(
    context: ApiContext, request: Request[wire.IncrementalAlterConfigsRequest]
) -> wire.IncrementalAlterConfigsResponse:
    """Set, delete, append to and subtract from the configs of each resource (KIP-339)."""
    return await _alter(context, request, tuple(map(_incremental, request.body["resources"])))


async def handle(
    context: ApiContext, request: Request[wire.AlterConfigsRequest]
) -> wire.AlterConfigsResponse:
    """Replace the configs of each resource by those given (KIP-133)."""
    return await _alter(context, request, tuple(map(_whole, request.body["resources"])))


async def _alter(
    context: ApiContext, request: Request[_Request], resources: tuple[ConfigAlteration, ...]
) -> wire.AlterConfigsResponse:
    # What is refused here stays out of the request, since the controller's outcomes have no names:
    # they are matched to the resources by their order.
    asked: Sequence[_Resource] = request.body["resources"]
    refusals = list(map(_refusal, asked))
    allowed = tuple(one for one, no in zip(resources, refusals, strict=True) if no is None)
    alter = AlterConfigsRequest(allowed, request.body["validate_only"])
    outcomes = iter(await change(context, alter, _TIMEOUT_MS) if allowed else ())
    found = [next(outcomes) if refusal is None else refusal for refusal in refusals]
    pairs = zip(asked, found, strict=True)
    return {
        "responses": [{**_named(resource), **result_of(outcome)} for resource, outcome in pairs]
    }


def _refusal(resource: _Resource) -> ItemOutcome | None:
    """Return the refusal of a resource with an impossible topic name or missing values, or None.

    The controller need not look at these. An empty name is that of all brokers' defaults; topics
    have no such defaults.
    """
    null = [
        one["name"]
        for one in resource["configs"]
        if one["value"] is None
        and one.get("config_operation", AlterOperation.SET) != AlterOperation.DELETE
    ]
    if null:
        text = f"Null value not supported for: {', '.join(null)}"
        return ItemOutcome(ErrorCode.INVALID_REQUEST, text)
    name = resource["resource_name"]
    problem = name_problem(name) if resource["resource_type"] == TOPIC_RESOURCE else None
    if problem is not None and not name:
        return ItemOutcome(ErrorCode.INVALID_REQUEST, "there are no configs of all topics")
    return None if problem is None else ItemOutcome(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _named(resource: _Resource) -> _Name:
    return {
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
    }


def _incremental(
    resource: wire.IncrementalAlterConfigsRequestAlterConfigsResource,
) -> ConfigAlteration:
    changes = tuple(
        ConfigChange(one["name"], one["config_operation"], one["value"])
        for one in resource["configs"]
    )
    return ConfigAlteration(resource["resource_type"], resource["resource_name"], changes)


def _whole(resource: wire.AlterConfigsRequestAlterConfigsResource) -> ConfigAlteration:
    # A config that the request does not name goes back to its default: two clients that alter
    # different configs undo each other, which is why KIP-339 has the incremental form.
    changes = tuple(
        ConfigChange(one["name"], AlterOperation.SET, one["value"]) for one in resource["configs"]
    )
    kind, name = resource["resource_type"], resource["resource_name"]
    return ConfigAlteration(kind, name, changes, replace=True)
