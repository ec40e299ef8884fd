"""What real administrators send: every request that an unmodified client can be made to send.

The broker refuses most of it, since its controller here knows little; what counts is the frames.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from typing import TYPE_CHECKING, Any
from uuid import UUID

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from broker.protocol import codec
from broker.protocol.versions import SERVED, ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_S = 5
_RULE = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*")


def confluent(address: str) -> None:
    """All that librdkafka's administrator can do with topics, configs, rules and credentials."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    change = ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET)
    incremental = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[change])
    rule = AclBinding(*_RULE, AclOperation.READ, AclPermissionType.ALLOW)
    rules = AclBindingFilter(*_RULE, AclOperation.ANY, AclPermissionType.ANY)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    credential = UserScramCredentialUpsertion("alice", info, b"pencil", b"salt")
    calls: list[Callable[[], Any]] = [
        lambda: admin.create_topics([NewTopic("made", 1, 1)]),
        lambda: admin.delete_topics(["made"]),
        lambda: admin.create_partitions([NewPartitions("t", 3)]),
        lambda: admin.delete_records([ConfluentPartition("t", 0, 0)]),
        lambda: admin.elect_leaders(ElectionType.PREFERRED, [ConfluentPartition("t", 0)]),
        lambda: admin.incremental_alter_configs([incremental]),
        lambda: admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]),
        lambda: admin.describe_cluster(),
        lambda: admin.create_acls([rule]),
        lambda: admin.describe_acls(rules),
        lambda: admin.delete_acls([rules]),
        lambda: admin.alter_user_scram_credentials([credential]),
        lambda: admin.describe_user_scram_credentials(["alice"]),
    ]
    for call in calls:
        answer = call()
        for future in answer.values() if isinstance(answer, dict) else [answer]:
            with contextlib.suppress(Exception):
                future.result(_TIMEOUT_S)


def kafka_python(address: str) -> None:
    """What only kafka-python's administrator sends."""
    with warnings.catch_warnings():
        # It reads its schemas in a way that Python 3.11 deprecates.
        warnings.simplefilter("ignore")
        kafka = importlib.import_module("kafka")
        partition, replica = kafka.TopicPartition("t", 0), kafka.TopicPartitionReplica("t", 0, 1)
        admins = importlib.import_module("kafka.admin")
        admin = admins.KafkaAdminClient(
            bootstrap_servers=address, request_timeout_ms=1000 * _TIMEOUT_S
        )
        calls: list[Callable[[], Any]] = [
            lambda: admin.alter_partition_reassignments({partition: [2]}),
            lambda: admin.list_partition_reassignments(),
            lambda: admin.update_features({"eligible.leader.replicas.version": 1}),
            lambda: admin.describe_cluster(),
            lambda: admin.describe_metadata_quorum(),
            lambda: admin.describe_log_dirs(),
            lambda: admin.alter_replica_log_dirs({replica: "/elsewhere"}),
            lambda: admin.list_config_resources(["topic"]),
            lambda: admin.describe_topic_partitions(["t"]),
            lambda: admin.delete_records({partition: 0}),
        ]
        try:
            for call in calls:
                with contextlib.suppress(Exception):
                    call()
        finally:
            admin.close()


_ENTITY = [{"entity_type": "user", "entity_name": "u"}]
_EPOCH = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
_GROUP = {"group_id": "g", "generation_id": 1, "member_id": "m"}
_TRANSACTION = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
_PARTITIONS = {"name": "t", "partitions": [0]}
_COMMIT = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
NOBODY_SENDS: dict[int, dict[str, Any]] = {
    ApiKey.OFFSET_COMMIT: {
        **_GROUP,
        "generation_id_or_member_epoch": -1,
        "retention_time_ms": -1,
        "topics": [{"name": "t", "topic_id": None, "partitions": [_COMMIT]}],
    },
    ApiKey.OFFSET_FETCH: {
        "group_id": "g",
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "groups": [{"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}],
        "require_stable": False,
    },
    ApiKey.JOIN_GROUP: {
        **_GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    },
    ApiKey.SYNC_GROUP: {**_GROUP, "assignments": [{"member_id": "m", "assignment": b"x"}]},
    ApiKey.HEARTBEAT: _GROUP,
    ApiKey.LEAVE_GROUP: {**_GROUP, "members": [{"member_id": "m", "group_instance_id": None}]},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": "new",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: {
        "group_ids": ["new"],
        "include_authorized_operations": True,
    },
    ApiKey.DESCRIBE_GROUPS: {"groups": ["g"], "include_authorized_operations": True},
    ApiKey.LIST_GROUPS: {"states_filter": ["Stable"], "types_filter": ["classic"]},
    ApiKey.DELETE_GROUPS: {"groups_names": ["g"]},
    ApiKey.OFFSET_DELETE: {
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}],
    },
    ApiKey.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
    ApiKey.SASL_AUTHENTICATE: {"auth_bytes": b"\0alice\0secret"},
    ApiKey.CREATE_DELEGATION_TOKEN: {
        "owner_principal_type": "User",
        "owner_principal_name": "u",
        "renewers": [{"principal_type": "User", "principal_name": "r"}],
        "max_lifetime_ms": -1,
    },
    ApiKey.RENEW_DELEGATION_TOKEN: {"hmac": b"h", "renew_period_ms": -1},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"hmac": b"h", "expiry_time_period_ms": -1},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {
        "owners": [{"principal_type": "User", "principal_name": "u"}]
    },
    ApiKey.FIND_COORDINATOR: {"key": "g", "key_type": 0, "coordinator_keys": ["g"]},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {
        "replica_id": -1,
        "topics": [{"topic": "t", "partitions": [_EPOCH]}],
    },
    ApiKey.ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "t",
                "configs": [{"name": "retention.ms", "value": "5"}],
            }
        ],
        "validate_only": False,
    },
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {
        "components": [{"entity_type": "user", "match_type": 0, "match": "u"}],
        "strict": False,
    },
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "entries": [
            {
                "entity": _ENTITY,
                "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
            }
        ],
        "validate_only": False,
    },
    ApiKey.UNREGISTER_BROKER: {"broker_id": 9},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "transactions": [{**_TRANSACTION, "verify_only": False, "topics": [_PARTITIONS]}]
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {**_TRANSACTION, "group_id": "g"},
    ApiKey.END_TXN: {**_TRANSACTION, "committed": True},
    ApiKey.WRITE_TXN_MARKERS: {
        "markers": [
            {
                **_TRANSACTION,
                "transaction_result": True,
                "topics": [{"name": "t", "partition_indexes": [0]}],
                "coordinator_epoch": 0,
                "transaction_version": 1,
            }
        ]
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        **_TRANSACTION,
        **_GROUP,
        "topics": [{"name": "t", "partitions": [{**_COMMIT, "committed_leader_epoch": 0}]}],
    },
    ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": "t", "partition_indexes": [0]}]},
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["x"]},
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: {"client_instance_id": None},
    ApiKey.PUSH_TELEMETRY: {
        "client_instance_id": UUID(int=7),
        # Of this instance, where there are no subscriptions.
        "subscription_id": -725_132_327,
        "terminating": False,
        "compression_type": 0,
        # A gauge "g" with a point.
        "metrics": bytes.fromhex("0a14121212100a01672a0b0a0921000000000000f03f"),
    },
    ApiKey.LIST_TRANSACTIONS: {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
    },
}
"""Requests that these clients do not send here: for want of a group, another leader, a client."""


def written() -> list[bytes]:
    """Sound frames of what no client sends, in the newest version."""
    return [
        codec.encode_request(key, SERVED[key][-1], 1, "fuzz", message)
        for key, message in NOBODY_SENDS.items()
    ]
