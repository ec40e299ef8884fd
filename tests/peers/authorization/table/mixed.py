"""Requests for two resources of a kind, the right to one of which the principal has anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from raftctl.metadata.acls import Operation, ResourceType
from tests.peers.authorization.rows import SHARED, Row
from tests.peers.authorization.table.data import committed
from tests.peers.authorization.table.transactions import BY_CLIENTS
from tests.peers.differential.records import batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.peers.authorization.rows import Right
    from tests.peers.differential.language import Body

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTION = ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE, DELETE = (
    *(Operation.READ, Operation.WRITE),
    *(Operation.DESCRIBE, Operation.DELETE),
)
BOTH = ("$r", SHARED)
HOW = "beside one that is allowed"
TOPIC_CONFIGS = 2
"""The type of resources."""
OFFSET = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


def rows() -> Iterator[Row]:
    """All of this family."""
    yield from _records()
    yield from _topics()
    yield from _groups()
    yield from _transactions()


def _of_topics(
    api: ApiKey,
    operation: Operation,
    topic: Body,
    body: Body,
    also: Sequence[Right] = (),
    **more: Any,
) -> Row:
    """The row of a request with a list of topics; `topic` is an element without its name."""
    field = "topic" if api in (ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH) else "name"
    listed = [{field: name, "topic_id": f"{name}.id", **topic} for name in BOTH]
    if api not in (ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        listed = [{field: name, **topic} for name in BOTH]
    rights = [(operation, TOPIC, SHARED), *also]
    return Row(api, operation, TOPIC, {**body, "topics": listed}, HOW, also=rights, **more)


def _records() -> Iterator[Row]:
    # Not to the shared topic: the offset of its batch depends on the other cells.
    both = ["$r", "$t"]
    written = {"partition_data": [{"index": 0, "records": batch(b"v")}]}
    settings = {"acks": -1, "timeout_ms": 1000, "transactional_id": None}
    sent = {**settings, "topic_data": [{"name": name, **written} for name in both]}
    also = [(WRITE, TOPIC, "$t")]
    yield Row(ApiKey.PRODUCE, WRITE, TOPIC, sent, HOW, also=also, topics=both)
    place = {"partition": 0, "current_leader_epoch": -1, "partition_max_bytes": 1000}
    place |= {"last_fetched_epoch": -1, "log_start_offset": -1}
    state = {"replica_state": {"replica_id": -1, "replica_epoch": -1}}
    limits = {"max_bytes": 1000, "session_epoch": -1, **state}
    yield _of_topics(ApiKey.FETCH, READ, {"partitions": [place]}, limits, topics=["$r"])
    asked: Body = {
        "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    }
    yield _of_topics(ApiKey.LIST_OFFSETS, DESCRIBE, asked, {"replica_id": -1}, topics=["$r"])
    asked = {"partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
    api = ApiKey.OFFSET_FOR_LEADER_EPOCH
    yield _of_topics(api, DESCRIBE, asked, {"replica_id": -1}, topics=["$r"])
    emptied = {"partitions": [{"partition_index": 0, "offset": 0}]}
    yield _of_topics(ApiKey.DELETE_RECORDS, DELETE, emptied, {"timeout_ms": 1000}, topics=["$r"])
    asked = {"partition_indexes": [0]}
    yield _of_topics(ApiKey.DESCRIBE_PRODUCERS, READ, asked, {}, topics=["$r"])


def _topics() -> Iterator[Row]:
    yield _of_topics(ApiKey.METADATA, DESCRIBE, {}, {}, topics=["$r"])
    limit = {"response_partition_limit": 10}
    yield _of_topics(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DESCRIBE, {}, limit, topics=["$r"])
    limit = {"timeout_ms": 5000, "validate_only": True}
    new = {"num_partitions": 1, "replication_factor": 1}
    create = Operation.CREATE
    yield _of_topics(ApiKey.CREATE_TOPICS, create, new, limit, codes="error_code")
    yield _of_topics(ApiKey.CREATE_PARTITIONS, Operation.ALTER, {"count": 2}, limit, topics=["$r"])
    both = ["$r", "$t"]
    body: Body = {"topics": [{"name": name} for name in both], "timeout_ms": 5000}
    also = [(DELETE, TOPIC, "$t")]
    yield Row(ApiKey.DELETE_TOPICS, DELETE, TOPIC, body, HOW, also=also, topics=both)
    for api, operation in (
        (ApiKey.DESCRIBE_CONFIGS, Operation.DESCRIBE_CONFIGS),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, Operation.ALTER_CONFIGS),
        (ApiKey.ALTER_CONFIGS, Operation.ALTER_CONFIGS),
    ):
        keys: Body = {"configuration_keys": ["no.such.thing"]}
        if api != ApiKey.DESCRIBE_CONFIGS:
            keys = {"configs": []}
        named = [{"resource_type": TOPIC_CONFIGS, "resource_name": name, **keys} for name in BOTH]
        body = {"resources": named}
        if api != ApiKey.DESCRIBE_CONFIGS:
            body = {**body, "validate_only": True}
        also = [(operation, TOPIC, SHARED)]
        yield Row(api, operation, TOPIC, body, HOW, also=also, topics=["$r"])


def _groups() -> Iterator[Row]:
    group = (READ, GROUP, "$g")
    body: Body = {"group_id": "$g", "generation_id_or_member_epoch": -1}
    offsets: Body = {"partitions": [OFFSET]}
    api = ApiKey.OFFSET_COMMIT
    yield _of_topics(api, READ, offsets, body, also=[group], topics=["$r"])
    deleted = {"partitions": [{"partition_index": 0}]}
    api = ApiKey.OFFSET_DELETE
    group = (DELETE, GROUP, "$g")
    of_group = {"group_id": "$g"}
    made = [committed("$g", "$r")]
    yield _of_topics(api, READ, deleted, of_group, also=[group], topics=["$r"], prepared=made)
    topics = [{"topic_id": f"{name}.id", "partition_indexes": [0]} for name in BOTH]
    yield Row(
        ApiKey.OFFSET_FETCH,
        DESCRIBE,
        TOPIC,
        {"groups": [{"group_id": "$g", "member_epoch": -1, "topics": topics}]},
        HOW,
        also=[(DESCRIBE, TOPIC, SHARED), (DESCRIBE, GROUP, "$g")],
        topics=["$r"],
    )
    fetched = [{"group_id": name, "member_epoch": -1, "topics": None} for name in ("$r", "$g")]
    for api, operation, body in (
        (ApiKey.OFFSET_FETCH, DESCRIBE, {"groups": fetched}),
        (ApiKey.DESCRIBE_GROUPS, DESCRIBE, {"groups": ["$r", "$g"]}),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, DESCRIBE, {"group_ids": ["$r", "$g"]}),
        (ApiKey.DELETE_GROUPS, DELETE, {"groups_names": ["$r", "$g"]}),
        (ApiKey.FIND_COORDINATOR, DESCRIBE, {"key_type": 0, "coordinator_keys": ["$r", "$g"]}),
    ):
        yield Row(api, operation, GROUP, body, HOW, also=[(operation, GROUP, "$g")])


def _transactions() -> Iterator[Row]:
    topics = [{"name": name, "partitions": [0]} for name in BOTH]
    yield Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        WRITE,
        TOPIC,
        {
            "v3_and_below_transactional_id": "$x",
            "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": topics,
        },
        HOW,
        BY_CLIENTS,
        [(WRITE, TRANSACTION, "$x"), (WRITE, TOPIC, SHARED)],
        ["$r"],
    )
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    ids = {"transactional_id": "$x", "group_id": "$g", **PRODUCER, **member}
    rights = [(WRITE, TRANSACTION, "$x"), (READ, GROUP, "$g")]
    offsets = {"partitions": [OFFSET]}
    yield _of_topics(ApiKey.TXN_OFFSET_COMMIT, READ, offsets, ids, also=rights, topics=["$r"])
    body = {"transactional_ids": ["$r", "$x"]}
    also = [(DESCRIBE, TRANSACTION, "$x")]
    yield Row(ApiKey.DESCRIBE_TRANSACTIONS, DESCRIBE, TRANSACTION, body, HOW, also=also)
