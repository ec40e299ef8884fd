"""Which requests the broker answers, in which versions: what ApiVersions says (row N1).

The table is truthful with one exception that old clients force on every broker: Produce is said to
begin at version 0. Some clients (librdkafka up to 2.10) compress with gzip, snappy and lz4 only if
version 0 is offered, although they then send a newer one. Who really sends 0 to 2 is refused: those
carry message sets of magic 0 and 1.
"""

from __future__ import annotations

import enum


class ApiKey(enum.IntEnum):
    """The requests that the broker answers; ENVELOPE only to nodes."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


SERVED: dict[int, range] = {
    ApiKey.PRODUCE: range(3, 13),
    ApiKey.FETCH: range(4, 18),
    ApiKey.LIST_OFFSETS: range(1, 12),
    ApiKey.METADATA: range(14),
    ApiKey.OFFSET_COMMIT: range(2, 11),
    ApiKey.OFFSET_FETCH: range(1, 11),
    ApiKey.FIND_COORDINATOR: range(7),
    ApiKey.JOIN_GROUP: range(10),
    ApiKey.HEARTBEAT: range(5),
    ApiKey.LEAVE_GROUP: range(6),
    ApiKey.SYNC_GROUP: range(6),
    ApiKey.DESCRIBE_GROUPS: range(7),
    ApiKey.LIST_GROUPS: range(6),
    ApiKey.SASL_HANDSHAKE: range(2),
    ApiKey.API_VERSIONS: range(5),
    ApiKey.CREATE_TOPICS: range(2, 8),
    ApiKey.DELETE_TOPICS: range(1, 7),
    ApiKey.DELETE_RECORDS: range(3),
    ApiKey.INIT_PRODUCER_ID: range(6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: range(2, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: range(6),
    ApiKey.ADD_OFFSETS_TO_TXN: range(5),
    ApiKey.END_TXN: range(6),
    ApiKey.WRITE_TXN_MARKERS: range(1, 3),
    ApiKey.TXN_OFFSET_COMMIT: range(6),
    ApiKey.DESCRIBE_ACLS: range(1, 4),
    ApiKey.CREATE_ACLS: range(1, 4),
    ApiKey.DELETE_ACLS: range(1, 4),
    ApiKey.DESCRIBE_CONFIGS: range(1, 5),
    ApiKey.ALTER_CONFIGS: range(3),
    ApiKey.ALTER_REPLICA_LOG_DIRS: range(1, 3),
    ApiKey.DESCRIBE_LOG_DIRS: range(1, 6),
    ApiKey.SASL_AUTHENTICATE: range(3),
    ApiKey.CREATE_PARTITIONS: range(4),
    ApiKey.CREATE_DELEGATION_TOKEN: range(1, 4),
    ApiKey.RENEW_DELEGATION_TOKEN: range(1, 3),
    ApiKey.EXPIRE_DELEGATION_TOKEN: range(1, 3),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: range(1, 4),
    ApiKey.DELETE_GROUPS: range(3),
    ApiKey.ELECT_LEADERS: range(3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: range(2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: range(2),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: range(1),
    ApiKey.OFFSET_DELETE: range(1),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: range(2),
    ApiKey.ALTER_CLIENT_QUOTAS: range(2),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: range(1),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: range(1),
    ApiKey.DESCRIBE_QUORUM: range(3),
    ApiKey.UPDATE_FEATURES: range(3),
    ApiKey.DESCRIBE_CLUSTER: range(3),
    ApiKey.DESCRIBE_PRODUCERS: range(1),
    ApiKey.UNREGISTER_BROKER: range(1),
    ApiKey.DESCRIBE_TRANSACTIONS: range(1),
    ApiKey.LIST_TRANSACTIONS: range(3),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: range(2),
    ApiKey.CONSUMER_GROUP_DESCRIBE: range(2),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: range(1),
    ApiKey.PUSH_TELEMETRY: range(1),
    ApiKey.LIST_CONFIG_RESOURCES: range(2),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: range(1),
}
"""Api key to the versions that are answered to every client."""


def advertised() -> list[tuple[int, int, int]]:
    """(api key, lowest, highest version) as ApiVersions shows them, in order of the keys."""
    lowest = {key: versions.start for key, versions in SERVED.items()} | {ApiKey.PRODUCE: 0}
    return [(int(key), lowest[key], SERVED[key].stop - 1) for key in sorted(SERVED)]
