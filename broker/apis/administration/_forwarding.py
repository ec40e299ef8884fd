"""Changes of metadata that the active controller decides on, item by item.

An answer waits until this broker's own image shows the change, so that a client that asks the same
broker next sees it; it comes without that when the client's timeout is over, since the change is
committed anyway.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from broker.apis.administration._mutations import accepted
from broker.apis.handler import authorization
from broker.apis.handler.forwarding import ask_controller
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.requests.admin import (
    AdminResponse,
    CreatePartitionsRequest,
    DescribeQuorumResponse,
    ElectLeadersResponse,
    ItemOutcome,
    NewPartitions,
)
from raftctl.metadata.requests.security import DelegationTokenResponse, DeleteAclsResponse

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import administration as wire
    from raftctl.metadata.requests import ForwardedRequest


Response = TypeVar(
    "Response",
    AdminResponse,
    DelegationTokenResponse,
    DeleteAclsResponse,
    DescribeQuorumResponse,
    ElectLeadersResponse,
)


_STRICT_SINCE = 3
"""The version of CreatePartitions that knows THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


class ItemError(TypedDict):
    """The two fields of a response that say whether an item of the request succeeded."""

    error_code: int
    error_message: str | None


async def ask(
    context: ApiContext,
    request: Request[Any],
    change: ForwardedRequest,
    kind: type[Response],
    timeout_ms: int,
) -> Response:
    """Return the active controller's answer, once this broker's image shows what it says.

    The controller asks its authorizer for the principal of the client's `request`. Raises
    KafkaError if all is refused.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    response = await ask_controller(context, request, change, timeout_ms)
    if not isinstance(response, kind):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "unexpected response type from the controller"
        )
    if response.error:
        raise KafkaError(response.error, response.message)
    # The result is not looked at: the change is committed, and an error now would make clients that
    # try again meet TOPIC_ALREADY_EXISTS and the like.
    left_ms = int((deadline - loop.time()) * 1000)
    await context.metadata.until(lambda image: image.offset >= response.offset, left_ms)
    return response


async def forward(
    context: ApiContext, request: Request[Any], change: ForwardedRequest, timeout_ms: int
) -> tuple[ItemOutcome, ...]:
    """Forward the change to the active controller; return an outcome for each item, in order."""
    return (await ask(context, request, change, AdminResponse, timeout_ms)).outcomes


def result_of(outcome: ItemOutcome) -> ItemError:
    """Return the two fields by which an answer gives an item's outcome."""
    message = (outcome.message or outcome.error.text) if outcome.error else None
    return {"error_code": outcome.error, "error_message": message}


def refusal_of(error: KafkaError) -> ItemError:
    """Return the same two fields for an item of a request that is refused as a whole."""
    return {"error_code": error.code, "error_message": error.message}


def own_message(error: KafkaError) -> str | None:
    """Return the message if it says more than the code; some answers have none otherwise."""
    return None if error.message == error.code.text else error.message


# --- partitions -----------------------------------------------------------------------------------


async def handle_create_partitions(
    context: ApiContext, request: Request[wire.CreatePartitionsRequest]
) -> wire.CreatePartitionsResponse:
    """Add partitions to topics, each on its own (KIP-195, row C3)."""
    body = request.body
    # As in Apache Kafka, neither of two wishes for a topic is carried out.
    named = Counter(topic["name"] for topic in body["topics"])
    once = [_new_partitions(one) for one in body["topics"] if named[one["name"]] == 1]
    sizes = ((topic, _added(context, request, topic)) for topic in once)
    wanted, refused = accepted(context, request, sizes, strict_since=_STRICT_SINCE)
    create = CreatePartitionsRequest(tuple(wanted), body["validate_only"])
    outcomes: tuple[ItemOutcome, ...] = ()
    if wanted or not refused:
        outcomes = await forward(context, request, create, body["timeout_ms"])
    pairs = zip(wanted, outcomes, strict=True)
    error = KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named twice")
    results: list[wire.CreatePartitionsTopicResult]
    results = [
        # A refusal of the authorizer has no text here, as in Apache Kafka.
        {**result_of(outcome), "name": topic.name, "error_message": outcome.message or None}
        for topic, outcome in pairs
    ]
    results += [{"name": name, **refusal_of(error)} for name, count in named.items() if count > 1]
    results += [{"name": topic.name, **refusal_of(refusal)} for topic, refusal in refused]
    return {"results": results}


def _added(
    context: ApiContext, request: Request[wire.CreatePartitionsRequest], wanted: NewPartitions
) -> int | None:
    """Return for how many partitions the quota of changes is asked; None: there is no change."""
    topic = context.metadata.image.topics.by_name(wanted.name)
    if topic is None or wanted.count <= len(topic.partitions):
        return None
    kind = ResourceType.TOPIC
    if not authorization.may_change(context, request, Operation.ALTER, kind, wanted.name):
        return None
    return wanted.count - len(topic.partitions)


def refuse_create_partitions(
    _context: ApiContext, request: Request[wire.CreatePartitionsRequest], error: KafkaError
) -> wire.CreatePartitionsResponse:
    """Return the same error for each topic."""
    names = dict.fromkeys(topic["name"] for topic in request.body["topics"])
    return {"results": [{"name": name, **refusal_of(error)} for name in names]}


def _new_partitions(topic: wire.CreatePartitionsTopic) -> NewPartitions:
    # None, as opposed to an empty list, leaves the placement to the controller.
    assignments = topic["assignments"]
    replicas = None if assignments is None else tuple(tuple(a["broker_ids"]) for a in assignments)
    return NewPartitions(topic["name"], topic["count"], replicas)
