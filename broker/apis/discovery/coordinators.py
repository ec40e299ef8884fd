"""FindCoordinator: which broker holds a group, or a transactional id (row G1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.internal_topics import partition_of
from broker.types import CONSUMER_OFFSETS, TRANSACTION_STATE
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.apis.handler import Answer, ApiContext
    from broker.protocol.codec import Request

_TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
"""By the type of the key: 0 for groups, 1 for transactional ids."""
_NOBODY = {"node_id": -1, "host": "", "port": -1}


def handle(context: ApiContext, request: Request) -> Answer | Coroutine[Any, Any, Answer]:
    """The brokers that lead the partitions of the keys; creates the topic when it is first asked
    for. COORDINATOR_NOT_AVAILABLE while there is no leader.
    """
    topic = _TOPICS.get(request.body.get("key_type", 0))
    if topic is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if context.metadata.image.topics.by_name(topic) is None:
        return _create_and_answer(context, request, topic)
    return _answer(context, request, topic)


def refuse(_context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The error alone (up to version 3) and for each key (from version 4 on)."""
    refusal = {"error_code": error.code, "error_message": error.message, **_NOBODY}
    keys = request.body.get("coordinator_keys", ())
    return {**refusal, "coordinators": [{"key": key, **refusal} for key in keys]}


async def _create_and_answer(context: ApiContext, request: Request, topic: str) -> Answer:
    await context.internal_topics.ensure(topic)
    return _answer(context, request, topic)


def _answer(context: ApiContext, request: Request, topic: str) -> Answer:
    if request.version >= 4:
        keys = request.body["coordinator_keys"]
        return {"coordinators": [_coordinator(context, topic, key) for key in keys]}
    found = _coordinator(context, topic, request.body["key"])
    # As Apache Kafka says it, for which some old clients look.
    return found if found["error_code"] else {**found, "error_message": "NONE"}


def _coordinator(context: ApiContext, topic: str, key: str) -> dict[str, Any]:
    image = context.metadata.image.topics.by_name(topic)
    leader = -1
    if image is not None:
        leader = image.partitions[partition_of(key, len(image.partitions))].leader
    found = context.metadata.live_brokers(context.listener).get(leader)
    if found is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return {"key": key, "error_code": code, "error_message": code.text, **_NOBODY}
    _, endpoint = found
    return {
        "key": key,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "node_id": leader,
        "host": endpoint.host,
        "port": endpoint.port,
    }
