"""Handlers for discovery: what a client sends before it reads or writes, or beside that.

`APIS` is the table of this family, from an api's key to its handler and its refusal.

    cluster       ApiVersions, DescribeCluster
    metadata      Metadata: brokers, topics, leaders of partitions
    coordinators  FindCoordinator: the broker that holds a group or a transactional id
    sasl          SaslHandshake, SaslAuthenticate, where they are out of place
    telemetry     GetTelemetrySubscriptions, PushTelemetry

All but telemetry are answered from this broker's newest metadata image, so answers of two brokers
may differ for as long as their images do. Only Metadata may change anything: it creates topics on
request if `auto.create.topics.enable` allows it.

The other names are the forms in which every family shows a topic, a partition or its leader, so
that two apis never describe the same thing differently.

Source: KIP-511 (ApiVersions), KIP-699 (FindCoordinator in batches), KIP-700 (DescribeCluster),
KIP-714 (telemetry).
"""

from broker.apis.discovery import _cluster, _coordinators, _metadata, _sasl, _telemetry
from broker.apis.discovery._brokers import (
    OPERATIONS_NOT_ASKED,
    current_leader,
    node_endpoints,
)
from broker.apis.discovery._metadata import is_internal, partition_message, unknown_name
from broker.apis.handler import Api
from broker.protocol.versions import ApiKey

APIS: dict[int, Api] = {
    ApiKey.METADATA: Api(_metadata.handle, _metadata.refuse),
    ApiKey.FIND_COORDINATOR: Api(_coordinators.handle, _coordinators.refuse),
    ApiKey.API_VERSIONS: Api(_cluster.handle_api_versions, _cluster.refuse_api_versions),
    ApiKey.SASL_HANDSHAKE: Api(_sasl.handle),
    ApiKey.SASL_AUTHENTICATE: Api(_sasl.handle),
    ApiKey.DESCRIBE_CLUSTER: Api(_cluster.handle_describe_cluster),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api(_telemetry.handle_subscriptions),
    ApiKey.PUSH_TELEMETRY: Api(_telemetry.handle_push),
}

__all__ = [
    "APIS",
    "OPERATIONS_NOT_ASKED",
    "current_leader",
    "is_internal",
    "node_endpoints",
    "partition_message",
    "unknown_name",
]
