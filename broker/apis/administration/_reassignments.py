"""AlterPartitionReassignments, forwarded to the active controller, and the list (KIP-455)."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from broker.apis.administration._forwarding import forward, result_of
from broker.apis.handler import authorization
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.requests.admin import AlterReassignmentsRequest, ItemOutcome, Reassignment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import administration as wire
    from raftctl.errors import KafkaError
    from raftctl.metadata.image import TopicImage


async def handle(
    context: ApiContext, request: Request[wire.AlterPartitionReassignmentsRequest]
) -> wire.AlterPartitionReassignmentsResponse:
    """Begin, change or cancel reassignments, each on its own (KIP-455)."""
    body = request.body
    partitions = _partitions(request)
    # KIP-860 lets a client refuse a change of the replication factor; before version 1 it may.
    may_change = body.get("allow_replication_factor_change", True)
    alter = AlterReassignmentsRequest(partitions, may_change)
    outcomes = await forward(context, request, alter, body["timeout_ms"])
    return {
        "allow_replication_factor_change": may_change,
        "error_code": ErrorCode.NONE,
        "responses": _responses(partitions, outcomes),
    }


def _partitions(
    request: Request[wire.AlterPartitionReassignmentsRequest],
) -> tuple[Reassignment, ...]:
    return tuple(
        Reassignment(
            topic["name"],
            one["partition_index"],
            # None cancels a reassignment, which brings back the replicas from before (KIP-455).
            None if one["replicas"] is None else tuple(one["replicas"]),
        )
        for topic in request.body["topics"]
        for one in topic["partitions"]
    )


def _responses(
    partitions: Sequence[Reassignment], outcomes: Sequence[ItemOutcome]
) -> list[wire.ReassignableTopicResponse]:
    pairs = zip(partitions, outcomes, strict=True)
    return [
        {
            "name": topic,
            "partitions": [
                {"partition_index": one.partition_id, **result_of(outcome)}
                for one, outcome in group
            ],
        }
        for topic, group in groupby(pairs, key=lambda pair: pair[0].topic)
    ]


def handle_list(
    context: ApiContext, request: Request[wire.ListPartitionReassignmentsRequest]
) -> wire.ListPartitionReassignmentsResponse:
    """Answer with the partitions that move, of those asked for or of all."""
    authorization.require(context, request, Operation.DESCRIBE, ResourceType.CLUSTER)
    asked = request.body["topics"]
    topics = context.metadata.image.topics
    if asked is None:
        named = [(topic, [*range(len(topic.partitions))]) for topic in topics.in_order()]
    else:
        found = [(topics.by_name(one["name"]), one["partition_indexes"]) for one in asked]
        # Unknown topics do not move: the answer has no place for an error of theirs.
        named = [(topic, numbers) for topic, numbers in found if topic is not None]
    moving = [(topic.name, _moving(topic, numbers)) for topic, numbers in named]
    return {
        "error_code": ErrorCode.NONE,
        "topics": [{"name": name, "partitions": found} for name, found in moving if found],
    }


def refuse_list(
    _context: ApiContext,
    request: Request[wire.ListPartitionReassignmentsRequest],
    error: KafkaError,
) -> wire.ListPartitionReassignmentsResponse:
    """Return the error, and each partition that is named without replicas."""
    return {
        "error_code": error.code,
        "error_message": error.message,
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": number,
                        "replicas": (),
                        "adding_replicas": (),
                        "removing_replicas": (),
                    }
                    for number in topic["partition_indexes"]
                ],
            }
            for topic in request.body["topics"] or ()
        ],
    }


def _moving(topic: TopicImage, numbers: Sequence[int]) -> list[wire.OngoingPartitionReassignment]:
    found: list[wire.OngoingPartitionReassignment] = []
    for number in numbers:
        one = topic.partitions.get(number)
        if one is not None and (one.adding_replicas or one.removing_replicas):
            found.append(
                {
                    "partition_index": number,
                    "replicas": one.replicas,
                    "adding_replicas": one.adding_replicas,
                    "removing_replicas": one.removing_replicas,
                }
            )
    return found
