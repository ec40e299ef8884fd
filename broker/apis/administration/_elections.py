"""ElectLeaders, forwarded to the active controller (KIP-460)."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from broker.apis.administration._forwarding import ask
from raftctl.errors import ErrorCode
from raftctl.metadata.records import NO_LEADER
from raftctl.metadata.requests.admin import (
    PREFERRED_ELECTION,
    ElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import administration as wire
    from raftctl.errors import KafkaError
    from raftctl.metadata.image import MetadataImage

PARTITIONS_MAX = 1_000
"""The number of partitions in one request to the controller."""
_NOTHING_TO_DO = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Left out where nobody named the partition: it was elected or deleted meanwhile."""


async def handle(
    context: ApiContext, request: Request[wire.ElectLeadersRequest]
) -> wire.ElectLeadersResponse:
    """Elect a leader for each partition, or for all if none are named (KIP-460).

    The controller receives one slice after the other, so that it serves other requests in between.
    Partitions elected before the time is over stay elected.
    """
    body = request.body
    # Before version 1 all elections were preferred ones.
    election_type = body.get("election_type", PREFERRED_ELECTION)
    deadline = asyncio.get_running_loop().time() + body["timeout_ms"] / 1000
    elect = partial(_elect, context, request, election_type, deadline=deadline)
    partitions = _partitions(request)
    if partitions is None:
        # An image that shows what the controller knew when it was asked.
        await elect(())
        displaced = [key async for key in _displaced(context.metadata.image, election_type)]
        results = [one for one in await elect(displaced) if one.error not in _NOTHING_TO_DO]
    else:
        # Named twice, a partition would be elected first and then need no election.
        results = await elect([*dict.fromkeys(partitions)])
    return {
        "error_code": ErrorCode.NONE,
        "replica_election_results": [
            {"topic": topic, "partition_result": [_result(one) for one in found]}
            for topic, found in groupby(_by_topic(results), lambda one: one.topic)
        ],
    }


async def _elect(
    context: ApiContext,
    request: Request[wire.ElectLeadersRequest],
    election_type: int,
    partitions: Sequence[tuple[str, int]],
    *,
    deadline: float,
) -> list[ElectionResult]:
    results: list[ElectionResult] = []
    # One request even for no partitions: the offset of its answer is what the image waits for.
    for first in range(0, max(1, len(partitions)), PARTITIONS_MAX):
        elect = ElectLeadersRequest(
            election_type, tuple(partitions[first : first + PARTITIONS_MAX])
        )
        left_ms = max(0, int((deadline - asyncio.get_running_loop().time()) * 1000))
        results += (await ask(context, request, elect, ElectLeadersResponse, left_ms)).results
    return results


async def _displaced(image: MetadataImage, election_type: int) -> AsyncIterator[tuple[str, int]]:
    """The partitions that an election may change, as the image shows them."""
    slices = Slices()
    for topic in image.topics.in_order():
        for partition_id, partition in topic.items():
            leader = partition.leader
            # An unclean election changes nothing where there is a leader (KIP-460).
            if leader == NO_LEADER or (
                election_type == PREFERRED_ELECTION and leader != partition.replicas[0]
            ):
                yield topic.name, partition_id
        await slices.rest()


def refuse(
    _context: ApiContext, request: Request[wire.ElectLeadersRequest], error: KafkaError
) -> wire.ElectLeadersResponse:
    """Return the error for all and for each partition named: version 0 has no other place."""
    results = [
        ElectionResult(*key, error.code, error.message) for key in _partitions(request) or ()
    ]
    return {
        "error_code": error.code,
        "replica_election_results": [
            {"topic": topic, "partition_result": [_result(one) for one in found]}
            for topic, found in groupby(_by_topic(results), lambda one: one.topic)
        ],
    }


def _partitions(request: Request[wire.ElectLeadersRequest]) -> tuple[tuple[str, int], ...] | None:
    topics = request.body["topic_partitions"]
    if topics is None:
        return None
    return tuple((one["topic"], number) for one in topics for number in one["partitions"])


def _by_topic(results: Sequence[ElectionResult]) -> list[ElectionResult]:
    return sorted(results, key=lambda one: one.topic)


def _result(result: ElectionResult) -> wire.PartitionResult:
    message = (result.message or result.error.text) if result.error else None
    return {
        "partition_id": result.partition_id,
        "error_code": result.error,
        "error_message": message,
    }
