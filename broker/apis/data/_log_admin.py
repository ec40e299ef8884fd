"""DeleteRecords, AlterReplicaLogDirs and DescribeLogDirs: what an administrator does with logs."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from broker.apis.handler import Reply
from broker.apis.handler.authorization import denied_names, require
from broker.types import INTERNAL_TOPICS, DeletedRecords, TopicPartition
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import data as wire
    from broker.types import LogDirectoryFacts
    from raftctl.errors import KafkaError


# --- DeleteRecords (row L7, KIP-107) --------------------------------------------------------------


def handle_delete_records(
    context: ApiContext, request: Request[wire.DeleteRecordsRequest]
) -> wire.DeleteRecordsResponse | Reply[wire.DeleteRecordsResponse]:
    """Hide the records below an offset; answer when all live replicas do (KIP-107).

    Errors of a partition: TOPIC_AUTHORIZATION_FAILED for a topic that the client may not delete,
    INVALID_TOPIC_EXCEPTION for the brokers' own topics, POLICY_VIOLATION if the topic's
    `cleanup.policy` does not delete, OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT if a replica has not followed in time.
    """
    body = request.body
    asked = _asked(body)
    refused = _refused(context, request)
    allowed = [(key, offset) for key, offset in asked if key.topic not in refused]
    timeout_ms = min(max(body["timeout_ms"], 0), context.wait_ms_max)
    results = context.replicas.delete_records(timeout_ms, allowed)
    if isinstance(results, list):
        return _deleted(asked, results, refused)
    return Reply(results, lambda: _deleted(asked, results.result(), refused))


def _refused(
    context: ApiContext, request: Request[wire.DeleteRecordsRequest]
) -> dict[str, ErrorCode]:
    """Return the topics from which nothing is deleted, and why."""
    names = [topic["name"] for topic in request.body["topics"]]
    denied = denied_names(context, request, Operation.DELETE, ResourceType.TOPIC, names)
    # Coordinators load their topics from the start: with a part of it they would lose groups.
    refused = dict.fromkeys(INTERNAL_TOPICS, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return refused | dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def refuse_delete_records(
    _context: ApiContext, request: Request[wire.DeleteRecordsRequest], error: KafkaError
) -> wire.DeleteRecordsResponse:
    """Return the same error for each partition."""
    asked = _asked(request.body)
    return _deleted(asked, [DeletedRecords(error.code)] * len(asked), {})


def _asked(body: wire.DeleteRecordsRequest) -> list[tuple[TopicPartition, int]]:
    return [
        (TopicPartition(topic["name"], one["partition_index"]), one["offset"])
        for topic in body["topics"]
        for one in topic["partitions"]
    ]


def _deleted(
    asked: Sequence[tuple[TopicPartition, int]],
    results: list[DeletedRecords],
    refused: Mapping[str, ErrorCode],
) -> wire.DeleteRecordsResponse:
    remaining = iter(results)
    found = []
    for key, _ in asked:
        code = refused.get(key.topic)
        found.append((key, next(remaining) if code is None else DeletedRecords(code)))
    return {
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": key.partition,
                        "low_watermark": result.low_watermark,
                        "error_code": result.error,
                    }
                    for key, result in group
                ],
            }
            for topic, group in groupby(found, key=lambda one: one[0].topic)
        ]
    }


# --- AlterReplicaLogDirs (row C14, KIP-113) -------------------------------------------------------


def handle_alter_replica_log_dirs(
    context: ApiContext, request: Request[wire.AlterReplicaLogDirsRequest]
) -> wire.AlterReplicaLogDirsResponse:
    """Begin to move replicas of this broker to other log directories (KIP-113).

    Errors of a partition: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION, and
    REPLICA_NOT_AVAILABLE for one that is not here yet: when it comes, it is made there. Raises
    KafkaError(CLUSTER_AUTHORIZATION_FAILED).
    """
    require(context, request, Operation.ALTER, ResourceType.CLUSTER)
    return _altered(request, context.replicas.move_log)


def refuse_alter_replica_log_dirs(
    _context: ApiContext, request: Request[wire.AlterReplicaLogDirsRequest], error: KafkaError
) -> wire.AlterReplicaLogDirsResponse:
    """Return the same error for each partition."""
    return _altered(request, lambda _partition, _path: error.code)


def _altered(
    request: Request[wire.AlterReplicaLogDirsRequest],
    alter: Callable[[TopicPartition, str], ErrorCode],
) -> wire.AlterReplicaLogDirsResponse:
    topics: dict[str, list[wire.AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.body["dirs"]:
        for topic in directory["topics"]:
            results = topics.setdefault(topic["name"], [])
            for number in topic["partitions"]:
                error = alter(TopicPartition(topic["name"], number), directory["path"])
                results.append({"partition_index": number, "error_code": error})
    return {
        "results": [{"topic_name": name, "partitions": results} for name, results in topics.items()]
    }


# --- DescribeLogDirs (row C14, KIP-113, KIP-827) --------------------------------------------------


async def handle_describe_log_dirs(
    context: ApiContext, request: Request[wire.DescribeLogDirsRequest]
) -> wire.DescribeLogDirsResponse:
    """Describe each log directory, with the partitions asked for or all (KIP-113).

    Raises KafkaError(CLUSTER_AUTHORIZATION_FAILED).
    """
    require(context, request, Operation.DESCRIBE, ResourceType.CLUSTER)
    asked = request.body["topics"]
    wanted = None
    if asked is not None:
        wanted = frozenset(
            TopicPartition(one["topic"], number) for one in asked for number in one["partitions"]
        )
    # A failed directory is in the answer, with its error: tools count on seeing all of `log.dirs`.
    facts = await context.replicas.log_directories()
    return {"error_code": ErrorCode.NONE, "results": [_result(one, wanted) for one in facts]}


def _result(
    facts: LogDirectoryFacts, wanted: frozenset[TopicPartition] | None
) -> wire.DescribeLogDirsResult:
    shown = [one for one in facts.logs if wanted is None or one.partition in wanted]
    return {
        "error_code": facts.error,
        "log_dir": facts.path,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": one.partition.partition,
                        "partition_size": one.size,
                        "offset_lag": one.offset_lag,
                        "is_future_key": one.is_future,
                    }
                    for one in group
                ],
            }
            for topic, group in groupby(shown, key=lambda one: one.partition.topic)
        ],
        "total_bytes": facts.total_bytes,
        "usable_bytes": facts.usable_bytes,
    }
