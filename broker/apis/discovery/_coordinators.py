"""FindCoordinator: which broker holds a group, or a transactional id (row G1)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from broker.apis.handler import authorization
from broker.coordinator.internal_topics import partition_of
from broker.types import CONSUMER_OFFSETS, TRANSACTION_STATE
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import DENIED, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import discovery as wire

_TOPICS = {
    0: (CONSUMER_OFFSETS, ResourceType.GROUP),
    1: (TRANSACTION_STATE, ResourceType.TRANSACTIONAL_ID),
}
"""The topic of the coordinators, and what a key names, by its type: 0 for groups, 1 for
transactional ids."""
_SHARE_GROUP = 2
_SHARE_GROUPS_FROM = 6
_BATCHED_FROM = 4
"""The version that asks for several keys at once (KIP-699)."""


def handle(
    context: ApiContext, request: Request[wire.FindCoordinatorRequest]
) -> wire.FindCoordinatorResponse | Coroutine[Any, Any, wire.FindCoordinatorResponse]:
    """Answer with the brokers that lead the partitions of the keys; create the topic on first use.

    COORDINATOR_NOT_AVAILABLE while there is no leader.
    """
    key_type = request.body.get("key_type", 0)
    if key_type == _SHARE_GROUP and request.version >= _SHARE_GROUPS_FROM:
        # Only brokers look for the state of share groups; there is none yet.
        cluster = ResourceType.CLUSTER
        authorization.require(context, request, Operation.CLUSTER_ACTION, cluster)
    if key_type not in _TOPICS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    topic, kind = _TOPICS[key_type]
    is_batch = request.version >= _BATCHED_FROM
    keys = request.body["coordinator_keys"] if is_batch else [request.body["key"]]
    allowed = authorization.allowed_names(context, request, Operation.DESCRIBE, kind, keys)
    find = partial(_found, context, topic, allowed, DENIED[kind])
    if allowed and context.metadata.image.topics.by_name(topic) is None:
        return _create_and_answer(context, request, topic, find)
    return _answer(request, find)


def refuse(
    _context: ApiContext, request: Request[wire.FindCoordinatorRequest], error: KafkaError
) -> wire.FindCoordinatorResponse:
    """Return the error alone (up to version 3) and for each key (from version 4 on)."""
    keys = request.body.get("coordinator_keys", [])
    refused = [_refused(key, error.code, error.message) for key in keys]
    return {**_alone(_refused("", error.code, error.message)), "coordinators": refused}


async def _create_and_answer(
    context: ApiContext,
    request: Request[wire.FindCoordinatorRequest],
    topic: str,
    find: Callable[[str], wire.Coordinator],
) -> wire.FindCoordinatorResponse:
    await context.internal_topics.ensure(topic)
    return _answer(request, find)


def _answer(
    request: Request[wire.FindCoordinatorRequest], find: Callable[[str], wire.Coordinator]
) -> wire.FindCoordinatorResponse:
    if request.version >= _BATCHED_FROM:
        return {"coordinators": list(map(find, request.body["coordinator_keys"]))}
    found = _alone(find(request.body["key"]))
    code = ErrorCode(found["error_code"])
    # As Apache Kafka says it, for which some old clients look.
    found["error_message"] = code.text if code else "NONE"
    return found


def _alone(found: wire.Coordinator) -> wire.FindCoordinatorResponse:
    """Return the response for one key, up to version 3."""
    return {
        "error_code": found["error_code"],
        "error_message": found["error_message"],
        "node_id": found["node_id"],
        "host": found["host"],
        "port": found["port"],
    }


def _refused(key: str, error: ErrorCode, message: str | None) -> wire.Coordinator:
    return {
        "key": key,
        "error_code": error,
        "error_message": message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }


def _found(
    context: ApiContext, topic: str, allowed: Collection[str], denied: ErrorCode, key: str
) -> wire.Coordinator:
    if key not in allowed:
        return _refused(key, denied, "")
    return _coordinator(context, topic, key)


def _coordinator(context: ApiContext, topic: str, key: str) -> wire.Coordinator:
    image = context.metadata.image.topics.by_name(topic)
    leader = -1
    if image is not None:
        leader = image.partitions[partition_of(key, len(image.partitions))].leader
    found = context.metadata.live_brokers(context.listener).get(leader)
    if found is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _refused(key, code, code.text)
    _, endpoint = found
    return {
        "key": key,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "node_id": leader,
        "host": endpoint.host,
        "port": endpoint.port,
    }
