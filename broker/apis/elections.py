"""ElectLeaders, forwarded to the active controller (KIP-460)."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from broker.apis.admin import ask
from raftctl.errors import ErrorCode
from raftctl.metadata.admin_requests import (
    PREFERRED_ELECTION,
    ElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.apis.context import Answer, ApiContext
    from broker.protocol.codec import Request
    from raftctl.errors import KafkaError


async def handle(context: ApiContext, request: Request) -> Answer:
    """Elects a leader for each partition, or for all if none are named."""
    body = request.body
    # Before version 1 all elections were preferred ones.
    election_type = body.get("election_type", PREFERRED_ELECTION)
    elect = ElectLeadersRequest(election_type, _partitions(request))
    response = await ask(context, elect, ElectLeadersResponse, body["timeout_ms"])
    return {
        "error_code": ErrorCode.NONE,
        "replica_election_results": [
            {"topic": topic, "partition_result": [_told(one) for one in results]}
            for topic, results in groupby(_by_topic(response.results), lambda one: one.topic)
        ],
    }


def refuse(_context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The error for all, and for each partition named: version 0 has no other place for it."""
    results = [
        ElectionResult(*key, error.code, error.message) for key in _partitions(request) or ()
    ]
    return {
        "error_code": error.code,
        "replica_election_results": [
            {"topic": topic, "partition_result": [_told(one) for one in found]}
            for topic, found in groupby(_by_topic(results), lambda one: one.topic)
        ],
    }


def _partitions(request: Request) -> tuple[tuple[str, int], ...] | None:
    topics = request.body["topic_partitions"]
    if topics is None:
        return None
    return tuple((one["topic"], number) for one in topics for number in one["partitions"])


def _by_topic(results: Sequence[ElectionResult]) -> list[ElectionResult]:
    return sorted(results, key=lambda one: one.topic)


def _told(result: ElectionResult) -> dict[str, Any]:
    message = (result.message or result.error.text) if result.error else None
    return {
        "partition_id": result.partition_id,
        "error_code": result.error,
        "error_message": message,
    }
