"""FindCoordinator: which broker holds a group, or a transactional id (row G1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.internal_topics import partition_of
from broker.types import CONSUMER_OFFSETS, TRANSACTION_STATE
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import discovery as wire

_TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
"""By the type of the key: 0 for groups, 1 for transactional ids."""


def handle(
    context: ApiContext, request: Request[wire.FindCoordinatorRequest]
) -> wire.FindCoordinatorResponse | Coroutine[Any, Any, wire.FindCoordinatorResponse]:
    """Answer with the brokers that lead the partitions of the keys; create the topic on first use.

    COORDINATOR_NOT_AVAILABLE while there is no leader.
    """
    topic = _TOPICS.get(request.body.get("key_type", 0))
    if topic is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if context.metadata.image.topics.by_name(topic) is None:
        return _create_and_answer(context, request, topic)
    return _answer(context, request, topic)


def refuse(
    _context: ApiContext, request: Request[wire.FindCoordinatorRequest], error: KafkaError
) -> wire.FindCoordinatorResponse:
    """Return the error alone (up to version 3) and for each key (from version 4 on)."""
    keys = request.body.get("coordinator_keys", [])
    refused = [_refused(key, error.code, error.message) for key in keys]
    return {**_alone(_refused("", error.code, error.message)), "coordinators": refused}


async def _create_and_answer(
    context: ApiContext, request: Request[wire.FindCoordinatorRequest], topic: str
) -> wire.FindCoordinatorResponse:
    await context.internal_topics.ensure(topic)
    return _answer(context, request, topic)


def _answer(
    context: ApiContext, request: Request[wire.FindCoordinatorRequest], topic: str
) -> wire.FindCoordinatorResponse:
    if request.version >= 4:
        keys = request.body["coordinator_keys"]
        return {"coordinators": [_coordinator(context, topic, key) for key in keys]}
    found = _alone(_coordinator(context, topic, request.body["key"]))
    if not found["error_code"]:
        # As Apache Kafka says it, for which some old clients look.
        found["error_message"] = "NONE"
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
