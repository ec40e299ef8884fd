"""Handlers for discovery: requests that a client sends before it reads or writes.

    cluster       ApiVersions, DescribeCluster
    metadata      Metadata: brokers, topics, leaders of partitions
    coordinators  FindCoordinator: the broker that holds a group or a transactional id
    sasl          SaslHandshake, SaslAuthenticate: refused, as no listener knows SASL

All are answered from this broker's newest metadata image, so answers of two brokers may differ
for as long as their images do. Only Metadata may change anything: it creates topics on request
if `auto.create.topics.enable` allows it.

Source: KIP-511 (ApiVersions), KIP-699 (FindCoordinator in batches), KIP-700 (DescribeCluster).
"""

from broker.apis.discovery._brokers import (
    ALL_TOPIC_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    current_leader,
    node_endpoints,
)

__all__ = [
    "ALL_TOPIC_OPERATIONS",
    "OPERATIONS_NOT_ASKED",
    "current_leader",
    "node_endpoints",
]
