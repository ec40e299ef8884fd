"""ListOffsets and OffsetForLeaderEpoch: positions in a log by time or by leader epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.apis.handler import Reply
from broker.apis.handler.authorization import denied_names, is_allowed
from broker.types import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    EpochEndOffset,
    OffsetLookup,
    OffsetResult,
    TopicPartition,
)
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import data as wire

_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
_KNOWN_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
"""A timestamp below 0 to the first version in which it has a meaning."""
_NEVER = 1 << 15
_OF_TIERS = (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD)
"""Without tiered storage there is no such offset, and all is local."""
_WITHOUT_TIERS = dict.fromkeys((_EARLIEST_LOCAL, *_OF_TIERS), EARLIEST)
"""The offset that is looked up instead. KIP-405 and KIP-1023 define the others."""
_ISOLATION_LEVELS = (0, 1)
_READ_COMMITTED = 1
_UNKNOWN = EpochEndOffset(-1, -1)
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def handle_list_offsets(
    context: ApiContext, request: Request[wire.ListOffsetsRequest]
) -> wire.ListOffsetsResponse | Reply[wire.ListOffsetsResponse]:
    """Answer with the offset of the first record at or after a time, or of an end of the log.

    TOPIC_AUTHORIZATION_FAILED for topics that may not be described, INVALID_REQUEST for a partition
    that is named twice or an isolation level that does not exist, UNSUPPORTED_VERSION for a
    timestamp below 0 that the version does not know.
    """
    body = request.body
    level = body.get("isolation_level", 0)
    if level not in _ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"isolation level {level} does not exist")
    asked = _asked(body)
    topics = (topic["name"] for topic in body["topics"])
    denied = denied_names(context, request, Operation.DESCRIBE, ResourceType.TOPIC, topics)
    refused = {
        one: code
        for one, named in asked.items()
        if (code := _DENIED if one.topic in denied else _refusal(request, named))
    }
    lookups = [
        OffsetLookup(
            partition,
            named[0].get("current_leader_epoch", -1),
            _WITHOUT_TIERS.get(named[0]["timestamp"], named[0]["timestamp"]),
            level == _READ_COMMITTED,
        )
        for partition, named in asked.items()
        if partition not in refused
    ]
    found = context.replicas.list_offsets(lookups, body["replica_id"])

    def shape(results: list[OffsetResult]) -> wire.ListOffsetsResponse:
        found = {one: OffsetResult(code) for one, code in refused.items()}
        for lookup, result in zip(lookups, results, strict=True):
            # Looked up all the same, for the error: that the partition is unknown or led elsewhere.
            is_tiered = asked[lookup.partition][0]["timestamp"] in _OF_TIERS
            found[lookup.partition] = OffsetResult(result.error) if is_tiered else result
        return _listed({one: found[one] for one in asked})

    return shape(found) if isinstance(found, list) else Reply(found, lambda: shape(found.result()))


def _asked(
    body: wire.ListOffsetsRequest,
) -> dict[TopicPartition, list[wire.ListOffsetsPartition]]:
    """Each partition to what the request says of it, in order; more than once is one too many."""
    asked: dict[TopicPartition, list[wire.ListOffsetsPartition]] = {}
    for topic in body["topics"]:
        for one in topic["partitions"]:
            asked.setdefault(TopicPartition(topic["name"], one["partition_index"]), []).append(one)
    return asked


def _refusal(
    request: Request[wire.ListOffsetsRequest], named: list[wire.ListOffsetsPartition]
) -> ErrorCode:
    # As Apache Kafka has it, both lose: the answer could not say which of the two it means.
    if len(named) > 1:
        return ErrorCode.INVALID_REQUEST
    timestamp = named[0]["timestamp"]
    known = timestamp >= 0 or request.version >= _KNOWN_SINCE.get(timestamp, _NEVER)
    return ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION


def refuse_list_offsets(
    _context: ApiContext, request: Request[wire.ListOffsetsRequest], error: KafkaError
) -> wire.ListOffsetsResponse:
    """Return the same error for each partition."""
    return _listed(dict.fromkeys(_asked(request.body), OffsetResult(error.code)))


def _listed(results: Mapping[TopicPartition, OffsetResult]) -> wire.ListOffsetsResponse:
    topics: dict[str, list[wire.ListOffsetsPartitionResponse]] = {}
    for partition, result in results.items():
        topics.setdefault(partition.topic, []).append(_offset(partition.partition, result))
    return {
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    }


def _offset(index: int, result: OffsetResult) -> wire.ListOffsetsPartitionResponse:
    return {
        "partition_index": index,
        "error_code": result.error,
        "timestamp": result.timestamp,
        "offset": result.offset,
        "leader_epoch": result.leader_epoch,
    }


def handle_leader_epochs(
    context: ApiContext, request: Request[wire.OffsetForLeaderEpochRequest]
) -> wire.OffsetForLeaderEpochResponse:
    """Answer with the end of a leader epoch in the leader's log (KIP-101, KIP-320).

    TOPIC_AUTHORIZATION_FAILED for a topic that may not be described. Followers ask as well, and may
    act for the cluster.
    """
    body = request.body
    denied = _not_described(context, request)
    lookups = [
        (
            TopicPartition(topic["topic"], asked["partition"]),
            asked["current_leader_epoch"],
            asked["leader_epoch"],
        )
        for topic in body["topics"]
        if topic["topic"] not in denied
        for asked in topic["partitions"]
    ]
    found = iter(context.replicas.offsets_for_leader_epoch(lookups))
    results = [
        (_DENIED, _UNKNOWN) if topic["topic"] in denied else next(found)
        for topic in body["topics"]
        for _ in topic["partitions"]
    ]
    return _ends(body, results)


def _not_described(
    context: ApiContext, request: Request[wire.OffsetForLeaderEpochRequest]
) -> frozenset[str]:
    action, cluster = Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    if is_allowed(context, request, action, cluster, CLUSTER_NAME, log_if_denied=False):
        return frozenset()
    names = (topic["topic"] for topic in request.body["topics"])
    return denied_names(context, request, Operation.DESCRIBE, ResourceType.TOPIC, names)


def refuse_leader_epochs(
    _context: ApiContext, request: Request[wire.OffsetForLeaderEpochRequest], error: KafkaError
) -> wire.OffsetForLeaderEpochResponse:
    """Return the same error for each partition."""
    count = sum(len(topic["partitions"]) for topic in request.body["topics"])
    return _ends(request.body, [(error.code, _UNKNOWN)] * count)


def _ends(
    body: wire.OffsetForLeaderEpochRequest, results: list[tuple[ErrorCode, EpochEndOffset]]
) -> wire.OffsetForLeaderEpochResponse:
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


def _end(
    index: int, error: ErrorCode, end: EpochEndOffset
) -> wire.OffsetForLeaderEpochResponseEpochEndOffset:
    return {
        "partition": index,
        "error_code": error,
        "leader_epoch": end.leader_epoch,
        "end_offset": end.end_offset,
    }
