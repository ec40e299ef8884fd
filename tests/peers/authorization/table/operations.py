"""Requests that ask for the operations that a principal may do (KIP-430)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.protocol.versions import ApiKey
from raftctl.metadata.acls import Operation, ResourceType
from tests.peers.authorization.cases import DENY, PREFIX, Case, Given
from tests.peers.authorization.rows import SHARED, Row
from tests.peers.authorization.table.data import committed
from tests.peers.authorization.table.groups import joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DESCRIBE = Operation.DESCRIBE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
OF_CLUSTERS = 10
"""The last version of Metadata that knows a cluster's operations."""


def _allowed(operation: Operation) -> Case:
    return Case(f"{operation.name.title().replace('_', '')} allowed", (Given(operation=operation),))


_ALL = Given(operation=Operation.ALL)
CASES: Sequence[Case] = (
    Case("no rule"),
    *map(_allowed, (DESCRIBE, Operation.READ, Operation.ALTER, Operation.ALTER_CONFIGS)),
    _allowed(Operation.ALL),
    Case("all allowed by prefix", (Given(operation=Operation.ALL, on=PREFIX),)),
    Case("all allowed, Describe denied", (_ALL, Given(DENY, operation=DESCRIBE))),
    Case("all allowed, Alter denied", (_ALL, Given(DENY, operation=Operation.ALTER))),
    Case("super user", is_super=True),
)


def rows() -> Iterator[Row]:
    """All of them."""
    named = {"topics": [{"name": "$r"}]}
    asked = {"include_topic_authorized_operations": True}
    at = "topic_authorized_operations"
    api = ApiKey.METADATA
    yield Row(api, DESCRIBE, TOPIC, {**named, **asked}, topics=["$r"], operations=at)
    asked = {"include_cluster_authorized_operations": True}
    at = "cluster_authorized_operations"
    body = {"topics": [], **asked}
    yield Row(api, DESCRIBE, CLUSTER, body, version=OF_CLUSTERS, operations=at)
    yield Row(
        ApiKey.DESCRIBE_CLUSTER,
        DESCRIBE,
        CLUSTER,
        {"endpoint_type": 1, **asked},
        operations=at,
    )
    yield Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        DESCRIBE,
        TOPIC,
        {**named, "response_partition_limit": 10},
        topics=["$r"],
        operations="topic_authorized_operations",
    )
    asked = {"include_authorized_operations": True}
    yield Row(
        ApiKey.DESCRIBE_GROUPS,
        DESCRIBE,
        GROUP,
        {"groups": ["$r"], **asked},
        prepared=[committed("$r", SHARED)],
        operations="authorized_operations",
    )
    yield Row(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        DESCRIBE,
        GROUP,
        {"group_ids": ["$r"], **asked},
        prepared=[joined("$r", SHARED)],
        also=[(DESCRIBE, TOPIC, SHARED)],
        operations="authorized_operations",
    )
