"""Rules, configs, quotas, credentials, replicas, features and the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.protocol.versions import ApiKey
from raftctl.metadata.acls import Operation, Permission, ResourceType
from tests.peers.authorization.rows import Prepared, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers.differential.language import Body

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALTER, DESCRIBE = Operation.ALTER, Operation.DESCRIBE
ALTER_CONFIGS, DESCRIBE_CONFIGS = Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS
BROKER, CLIENT_METRICS, CONFIGS_OF_GROUP = 4, 16, 32
"""Types of resources with configs."""
NODE, NO_NODE = "1", 99
NOBODY = "User:nobody"
LITERAL = 3


def rows() -> Iterator[Row]:
    """All of this family."""
    yield from _handshakes()
    yield from _rules()
    yield from _configs()
    yield from _telemetry()
    yield from _quotas_and_users()
    yield from _tokens()
    yield from _replicas()
    yield from _cluster()


def _handshakes() -> Iterator[Row]:
    yield Row(ApiKey.SASL_HANDSHAKE, None, None, {"mechanism": "PLAIN"})
    software = {"client_software_name": "peer", "client_software_version": "1"}
    yield Row(ApiKey.API_VERSIONS, None, None, software)
    yield Row(ApiKey.SASL_AUTHENTICATE, None, None, {"auth_bytes": b"\0no\0password"})


def _rules() -> Iterator[Row]:
    rule = {"operation": Operation.READ, "permission_type": Permission.ALLOW}
    new = {
        "resource_type": TOPIC,
        "resource_name": "$t",
        "resource_pattern_type": LITERAL,
        "principal": NOBODY,
        "host": "*",
        **rule,
    }
    wanted = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "$t",
        "pattern_type_filter": LITERAL,
        "principal_filter": NOBODY,
        "host_filter": None,
        **rule,
    }
    yield Row(ApiKey.DESCRIBE_ACLS, DESCRIBE, CLUSTER, wanted)
    yield Row(ApiKey.CREATE_ACLS, ALTER, CLUSTER, {"creations": [new]})
    yield Row(ApiKey.DELETE_ACLS, ALTER, CLUSTER, {"filters": [wanted]})


def _configs() -> Iterator[Row]:
    kinds = ((CLUSTER, BROKER, NODE), (TOPIC, TOPIC, "$r"), (GROUP, CONFIGS_OF_GROUP, "$r"))
    for resource, kind, name in kinds:
        named = {"resource_type": kind, "resource_name": name}
        body: Body = {"resources": [{**named, "configuration_keys": ["no.such.thing"]}]}
        yield Row(ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS, resource, body)
        body = {"resources": [{**named, "configs": []}], "validate_only": True}
        yield Row(ApiKey.ALTER_CONFIGS, ALTER_CONFIGS, resource, body)
        yield Row(ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS, resource, body)
    yield Row(ApiKey.LIST_CONFIG_RESOURCES, DESCRIBE_CONFIGS, CLUSTER, {"resource_types": [2]})


def _telemetry() -> Iterator[Row]:
    """Client metrics, which any client may push."""
    named = {"resource_type": CLIENT_METRICS, "resource_name": "$r"}
    body: Body = {"resources": [{**named, "configuration_keys": ["metrics"]}]}
    yield Row(ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS, CLUSTER, body, "of client metrics")
    body = {"resources": [{**named, "configs": []}], "validate_only": True}
    alter = ApiKey.INCREMENTAL_ALTER_CONFIGS
    yield Row(alter, ALTER_CONFIGS, CLUSTER, body, "of client metrics")
    yield Row(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, None, None, {"client_instance_id": None})
    push: Body = {
        "client_instance_id": None,
        "subscription_id": 0,
        "terminating": False,
        "compression_type": 0,
        "metrics": b"",
    }
    yield Row(ApiKey.PUSH_TELEMETRY, None, None, push)


def _quotas_and_users() -> Iterator[Row]:
    yield Row(ApiKey.DESCRIBE_CLIENT_QUOTAS, DESCRIBE_CONFIGS, CLUSTER)
    entity = [{"entity_type": "user", "entity_name": "nobody"}]
    change = {"key": "producer_byte_rate", "value": 1e9, "remove": False}
    entry = {"entity": entity, "ops": [change]}
    body: Body = {"entries": [entry], "validate_only": True}
    yield Row(ApiKey.ALTER_CLIENT_QUOTAS, ALTER_CONFIGS, CLUSTER, body)
    body = {"users": [{"name": "nobody"}]}
    yield Row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DESCRIBE, CLUSTER, body)
    body = {"deletions": [{"name": "nobody", "mechanism": 1}]}
    yield Row(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ALTER, CLUSTER, body)


def _tokens() -> Iterator[Row]:
    create, user = ApiKey.CREATE_DELEGATION_TOKEN, ResourceType.USER
    own = {"owner_principal_type": None, "owner_principal_name": None, "max_lifetime_ms": -1}
    of = {**own, "owner_principal_type": "User", "owner_principal_name": "$r"}
    yield Row(create, None, None, own)
    yield Row(create, Operation.CREATE_TOKENS, user, of)
    yield Row(ApiKey.RENEW_DELEGATION_TOKEN, None, None, {"hmac": b"of none"})
    yield Row(ApiKey.EXPIRE_DELEGATION_TOKEN, None, None, {"hmac": b"of none"})
    # What the user may see is told by the tokens in the answer.
    made = Prepared(create, 3, of, {"$token": ["token_id"]})
    every: Body = {"owners": None}
    seen = ("tokens.token_id", "$token")
    described = ApiKey.DESCRIBE_DELEGATION_TOKEN
    yield Row(described, Operation.DESCRIBE_TOKENS, user, every, prepared=[made], among=seen)
    token = ResourceType.DELEGATION_TOKEN
    yield Row(described, DESCRIBE, token, every, prepared=[made], among=seen, name="$token")
    named: Body = {"owners": [{"principal_type": "User", "principal_name": "$r"}]}
    yield Row(
        described, DESCRIBE, token, named, "named", prepared=[made], among=seen, name="$token"
    )


def _replicas() -> Iterator[Row]:
    dirs = [{"path": "/no/such/directory", "topics": [{"name": "$t", "partitions": [0]}]}]
    yield Row(ApiKey.ALTER_REPLICA_LOG_DIRS, ALTER, CLUSTER, {"dirs": dirs})
    topics = [{"topic": "$t", "partitions": [0]}]
    yield Row(ApiKey.DESCRIBE_LOG_DIRS, DESCRIBE, CLUSTER, {"topics": topics})
    body: Body = {"election_type": 0, "topic_partitions": topics, "timeout_ms": 1000}
    yield Row(ApiKey.ELECT_LEADERS, Operation.CLUSTER_ACTION, CLUSTER, body)
    yield Row(ApiKey.ELECT_LEADERS, ALTER, CLUSTER, body)
    moved = {"name": "$t", "partitions": [{"partition_index": 0, "replicas": None}]}
    body = {"timeout_ms": 1000, "topics": [moved]}
    yield Row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, ALTER, CLUSTER, body)
    body = {"timeout_ms": 1000, "topics": [{"name": "$t", "partition_indexes": [0]}]}
    yield Row(ApiKey.LIST_PARTITION_REASSIGNMENTS, DESCRIBE, CLUSTER, body)


def _cluster() -> Iterator[Row]:
    topic = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    yield Row(ApiKey.DESCRIBE_QUORUM, DESCRIBE, CLUSTER, {"topics": [topic]})
    change = {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}
    body: Body = {"timeout_ms": 1000, "feature_updates": [change], "validate_only": True}
    yield Row(ApiKey.UPDATE_FEATURES, ALTER, CLUSTER, body)
    yield Row(ApiKey.DESCRIBE_CLUSTER, DESCRIBE, CLUSTER, {"endpoint_type": 1})
    yield Row(ApiKey.UNREGISTER_BROKER, ALTER, CLUSTER, {"broker_id": NO_NODE})
