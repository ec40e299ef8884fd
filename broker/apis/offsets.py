"""ListOffsets and OffsetForLeaderEpoch: positions in a log by time or by leader epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.context import Pending
from broker.types import EpochEndOffset, OffsetLookup, OffsetResult, TopicPartition

if TYPE_CHECKING:
    from broker.apis.context import Answer, ApiContext
    from broker.protocol.codec import Request
    from raftctl.errors import ErrorCode, KafkaError

_EARLIEST = -2
_EARLIEST_LOCAL = -4
"""Without tiered storage all is local."""
_READ_COMMITTED = 1
_UNKNOWN = EpochEndOffset(-1, -1)


def handle_list_offsets(context: ApiContext, request: Request) -> Answer | Pending:
    """The offset of the first record at or after a time, or of an end of the log."""
    body = request.body
    lookups = [
        OffsetLookup(
            TopicPartition(topic["name"], partition["partition_index"]),
            partition.get("current_leader_epoch", -1),
            _EARLIEST if partition["timestamp"] == _EARLIEST_LOCAL else partition["timestamp"],
            body.get("isolation_level") == _READ_COMMITTED,
        )
        for topic in body["topics"]
        for partition in topic["partitions"]
    ]
    found = context.replicas.list_offsets(lookups, body["replica_id"])
    if isinstance(found, list):
        return _listed(body, found)
    return Pending(found, lambda done: _listed(body, done))


def refuse_list_offsets(_context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The same error for each partition."""
    count = sum(len(topic["partitions"]) for topic in request.body["topics"])
    return _listed(request.body, [OffsetResult(error.code)] * count)


def _listed(body: dict[str, Any], results: list[OffsetResult]) -> Answer:
    remaining = iter(results)
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    _offset(asked["partition_index"], next(remaining))
                    for asked in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ]
    }


def _offset(index: int, result: OffsetResult) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": result.error,
        "timestamp": result.timestamp,
        "offset": result.offset,
        "leader_epoch": result.leader_epoch,
    }


def handle_leader_epochs(context: ApiContext, request: Request) -> Answer:
    """Where a leader epoch ends in the leader's log (KIP-101, KIP-320)."""
    body = request.body
    lookups = [
        (
            TopicPartition(topic["topic"], asked["partition"]),
            asked["current_leader_epoch"],
            asked["leader_epoch"],
        )
        for topic in body["topics"]
        for asked in topic["partitions"]
    ]
    return _ends(body, context.replicas.offsets_for_leader_epoch(lookups))


def refuse_leader_epochs(_context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The same error for each partition."""
    count = sum(len(topic["partitions"]) for topic in request.body["topics"])
    return _ends(request.body, [(error.code, _UNKNOWN)] * count)


def _ends(body: dict[str, Any], results: list[tuple[ErrorCode, EpochEndOffset]]) -> Answer:
    remaining = iter(results)
    return {
        "topics": [
            {
                "topic": topic["topic"],
                "partitions": [
                    _end(asked["partition"], *next(remaining)) for asked in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ]
    }


def _end(index: int, error: ErrorCode, end: EpochEndOffset) -> dict[str, Any]:
    return {
        "partition": index,
        "error_code": error,
        "leader_epoch": end.leader_epoch,
        "end_offset": end.end_offset,
    }
