"""DescribeQuorum, UpdateFeatures and UnregisterBroker, which the active controller answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.apis.administration._forwarding import ask, forward, own_message, result_of
from broker.apis.handler import authorization
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.requests.admin import (
    SAFE_DOWNGRADE,
    UPGRADE,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FeatureUpdate,
    QuorumNode,
    QuorumReplica,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import administration as wire
    from raftctl.errors import KafkaError

METADATA_TOPIC = "__cluster_metadata"
_TIMEOUT_MS = 30_000
"""Where the request names none."""


# --- DescribeQuorum -------------------------------------------------------------------------------


async def handle_describe(
    context: ApiContext, request: Request[wire.DescribeQuorumRequest]
) -> wire.DescribeQuorumResponse:
    """Answer with the replicas of the metadata log, partition 0 of its own topic (KIP-595).

    UNKNOWN_TOPIC_OR_PARTITION of each partition if others are asked for: they have no quorum.
    """
    topics = request.body["topics"]
    # As Apache Kafka has it: one more topic or partition, and the quorum is not described either.
    numbers = [one["partition_index"] for topic in topics for one in topic["partitions"]]
    if [topic["topic_name"] for topic in topics] != [METADATA_TOPIC] or numbers != [0]:
        # Of the metadata log it is the controller that asks for the same right.
        authorization.require(context, request, Operation.DESCRIBE, ResourceType.CLUSTER)
        unknown = [_without(topic) for topic in topics]
        return {"error_code": ErrorCode.NONE, "topics": unknown, "nodes": ()}
    quorum = await ask(
        context, request, DescribeQuorumRequest(), DescribeQuorumResponse, _TIMEOUT_MS
    )
    # Voters have one listener, and the metadata log keeps no name of it: this node's file does.
    listener = context.config.controller_listener_names[0]
    partition: wire.DescribeQuorumResponsePartitionData = {
        "partition_index": 0,
        "error_code": ErrorCode.NONE,
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "current_voters": [_replica(one) for one in quorum.voters],
        "observers": [_replica(one) for one in quorum.observers],
    }
    return {
        "error_code": ErrorCode.NONE,
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}],
        "nodes": [_node(one, listener) for one in quorum.nodes],
    }


def _without(
    topic: wire.DescribeQuorumRequestTopicData,
) -> wire.DescribeQuorumResponseTopicData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The numbers below have no value for "none" in the schema: a client looks at the error first.
    numbers = [one["partition_index"] for one in topic["partitions"]]
    partitions: list[wire.DescribeQuorumResponsePartitionData] = [
        {
            "partition_index": number,
            "error_code": code,
            "error_message": code.text,
            "leader_id": 0,
            "leader_epoch": 0,
            "high_watermark": 0,
            "current_voters": (),
            "observers": (),
        }
        for number in numbers
    ]
    return {"topic_name": topic["topic_name"], "partitions": partitions}


def _replica(one: QuorumReplica) -> wire.DescribeQuorumResponseReplicaState:
    return {
        "replica_id": one.replica_id,
        "replica_directory_id": one.directory_id,
        "log_end_offset": one.log_end_offset,
        "last_fetch_timestamp": one.last_fetch_ms,
        "last_caught_up_timestamp": one.last_caught_up_ms,
    }


def _node(one: QuorumNode, listener: str) -> wire.Node:
    address: wire.Listener = {"name": listener, "host": one.host, "port": one.port}
    return {"node_id": one.node_id, "listeners": [address]}


# --- UpdateFeatures -------------------------------------------------------------------------------


async def handle_features(
    context: ApiContext, request: Request[wire.UpdateFeaturesRequest]
) -> wire.UpdateFeaturesResponse:
    """Change the levels of features, all or none (KIP-584)."""
    body = request.body
    updates = tuple(map(_update, body["feature_updates"]))
    update = UpdateFeaturesRequest(updates, body.get("validate_only", False))
    outcomes = await forward(context, request, update, body["timeout_ms"])
    pairs = zip(updates, outcomes, strict=True)
    return {
        "error_code": ErrorCode.NONE,
        "results": [{"feature": one.feature, **result_of(outcome)} for one, outcome in pairs],
    }


def _update(one: wire.FeatureUpdateKey) -> FeatureUpdate:
    # Version 0 only says whether the level may go down.
    downgrade = SAFE_DOWNGRADE if one.get("allow_downgrade", False) else UPGRADE
    kind = one.get("upgrade_type", downgrade)
    return FeatureUpdate(one["feature"], one["max_version_level"], kind)


# --- UnregisterBroker -----------------------------------------------------------------------------


async def handle_unregister(
    context: ApiContext, request: Request[wire.UnregisterBrokerRequest]
) -> wire.UnregisterBrokerResponse:
    """Remove the registration of a broker that is gone for good (KIP-631)."""
    # A broker that still runs is not stopped by this: it notices in the log that its registration
    # is gone, and ends.
    await forward(context, request, UnregisterBrokerRequest(request.body["broker_id"]), _TIMEOUT_MS)
    return {"error_code": ErrorCode.NONE, "error_message": None}


def refuse_unregister(
    _context: ApiContext, _request: Request[wire.UnregisterBrokerRequest], error: KafkaError
) -> wire.UnregisterBrokerResponse:
    """Return the error, with a text if there is more to say."""
    return {"error_code": error.code, "error_message": own_message(error)}
