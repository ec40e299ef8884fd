"""Fetch: records for consumers and followers (rows R1, R10).

Topics are named by name up to version 12 and by id from 13 on; ids are resolved here. Fetch
sessions (KIP-227) are not kept: every answer says session 0, after which a client sends all its
partitions each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.brokers import current_leader, node_endpoints
from broker.apis.context import ApiContext, Pending
from broker.types import FetchParams, FetchPartition, FetchResult, TopicPartition
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.apis.context import Answer
    from broker.protocol.codec import Request

_READ_COMMITTED = 1
_NO_REPLICA = {"replica_id": -1, "replica_epoch": -1}
_FINAL_EPOCH = -1
_FIRST_EPOCH = 0


def handle(context: ApiContext, request: Request) -> Answer | Pending:
    """Answers when there is enough to send, or after the client's wait."""
    body = request.body
    if body.get("session_id", 0) and body["session_epoch"] not in (_FIRST_EPOCH, _FINAL_EPOCH):
        return _refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    asked = list(_asked(context, body))
    known = [partition for partition in asked if partition is not None]
    results = context.replicas.fetch(_params(body), known)

    def shape(results: list[FetchResult]) -> Answer:
        found = iter(results)
        unknown = FetchResult(ErrorCode.UNKNOWN_TOPIC_ID)
        return _answer(context, body, [unknown if a is None else next(found) for a in asked])

    return shape(results) if isinstance(results, list) else Pending(results, shape)


def refuse(context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The same error for each partition."""
    count = sum(len(topic["partitions"]) for topic in request.body["topics"])
    return _answer(context, request.body, [FetchResult(error.code)] * count)


def _params(body: dict[str, Any]) -> FetchParams:
    replica = body.get("replica_state", _NO_REPLICA)
    return FetchParams(
        replica_id=body.get("replica_id", replica["replica_id"]),
        replica_epoch=replica["replica_epoch"],
        max_wait_ms=body["max_wait_ms"],
        min_bytes=body["min_bytes"],
        max_bytes=body["max_bytes"],
        read_committed=body["isolation_level"] == _READ_COMMITTED,
        client_rack=body.get("rack_id", ""),
    )


def _asked(context: ApiContext, body: dict[str, Any]) -> Iterator[FetchPartition | None]:
    """The partitions in order of the request; None where nobody knows the topic id."""
    for topic in body["topics"]:
        name, topic_id = topic.get("topic"), topic.get("topic_id")
        if name is None:
            found = None if topic_id is None else context.metadata.image.topics.by_id(topic_id)
            name = None if found is None else found.name
        for partition in topic["partitions"]:
            yield (
                None
                if name is None
                else FetchPartition(
                    partition=TopicPartition(name, partition["partition"]),
                    topic_id=topic_id,
                    current_leader_epoch=partition.get("current_leader_epoch", -1),
                    fetch_offset=partition["fetch_offset"],
                    last_fetched_epoch=partition.get("last_fetched_epoch", -1),
                    log_start_offset=partition.get("log_start_offset", -1),
                    max_bytes=partition["partition_max_bytes"],
                )
            )


def _refusal(code: ErrorCode) -> Answer:
    return {"error_code": code, "responses": ()}


def _answer(context: ApiContext, body: dict[str, Any], results: list[FetchResult]) -> Answer:
    remaining = iter(results)
    leaders = {r.current_leader.leader_id for r in results if r.current_leader is not None}
    return {
        "responses": [
            {
                "topic": topic.get("topic"),
                "topic_id": topic.get("topic_id"),
                "partitions": [
                    _partition(asked["partition"], next(remaining)) for asked in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ],
        "node_endpoints": node_endpoints(context, leaders),
    }


def _partition(index: int, result: FetchResult) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "partition_index": index,
        "error_code": result.error,
        "high_watermark": result.high_watermark,
        "last_stable_offset": result.last_stable_offset,
        "log_start_offset": result.log_start_offset,
        "preferred_read_replica": result.preferred_read_replica,
        "records": result.records,
        "current_leader": current_leader(result.current_leader),
    }
    if result.aborted_transactions is not None:
        answer["aborted_transactions"] = [
            {"producer_id": producer_id, "first_offset": first_offset}
            for producer_id, first_offset in result.aborted_transactions
        ]
    if (diverging := result.diverging) is not None:
        epoch, end_offset = diverging.leader_epoch, diverging.end_offset
        answer["diverging_epoch"] = {"epoch": epoch, "end_offset": end_offset}
    return answer
