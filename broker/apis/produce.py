"""Produce: hands record batches to the partitions' leaders (rows R5, T1).

The records are appended before `handle` returns; only acks=all answers later. With acks=0 there is
no answer, so an error closes the connection: it is the only way to tell the producer, as Apache
Kafka does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.brokers import current_leader, node_endpoints
from broker.apis.context import ApiContext, HangUpError, Pending
from broker.types import AppendResult, TopicPartition
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.apis.context import Answer
    from broker.protocol.codec import Request
    from raftctl.runtime.api import Buffer

_ACKS = (0, 1, -1)


def handle(context: ApiContext, request: Request) -> Answer | Pending:
    """Appends at once, answers when the records are as safe as `acks` asks."""
    body = request.body
    if body["acks"] not in _ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    entries = _entries(body)
    timeout_ms = context.bounded_wait_ms(body["timeout_ms"])
    results = context.replicas.append(body["acks"], timeout_ms, entries)
    if isinstance(results, list):
        return _answer(context, body, results)
    return Pending(results, lambda done: _answer(context, body, done))


def refuse(context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The same error for each partition."""
    count = sum(len(topic["partition_data"]) for topic in request.body["topic_data"])
    result = AppendResult(error.code, message=error.message)
    return _answer(context, request.body, [result] * count)


def _entries(body: dict[str, Any]) -> list[tuple[TopicPartition, Buffer]]:
    """The batches in order of the request, which drops its hold on them."""
    return [
        (TopicPartition(topic["name"], data["index"]), data.pop("records") or b"")
        for topic in body["topic_data"]
        for data in topic["partition_data"]
    ]


def _answer(context: ApiContext, body: dict[str, Any], results: list[AppendResult]) -> Answer:
    if body["acks"] == 0:
        failed = next((r for r in results if r.error), None)
        if failed is not None:
            raise HangUpError(f"a produce with acks=0 failed: {failed.error.name}")
        return None
    remaining = iter(results)
    leaders = {r.current_leader.leader_id for r in results if r.current_leader is not None}
    return {
        "responses": [
            {
                "name": topic["name"],
                "partition_responses": [
                    _partition(data["index"], next(remaining)) for data in topic["partition_data"]
                ],
            }
            for topic in body["topic_data"]
        ],
        "node_endpoints": node_endpoints(context, leaders),
    }


def _partition(index: int, result: AppendResult) -> dict[str, Any]:
    return {
        "index": index,
        "error_code": result.error,
        "base_offset": result.base_offset,
        "log_append_time_ms": result.log_append_time_ms,
        "log_start_offset": result.log_start_offset,
        "record_errors": (),
        "error_message": result.message,
        "current_leader": current_leader(result.current_leader),
    }
