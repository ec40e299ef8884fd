"""Records, offsets and metadata of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.log.batches.record_batch import TRANSACTIONAL
from broker.protocol.versions import ApiKey
from raftctl.metadata.acls import Operation, ResourceType
from tests.peers.authorization.rows import SHARED, Prepared, Row
from tests.peers.differential.records import batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers.differential.language import Body

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
FOLLOWER = 2
"""A replica that is not there."""
FETCHED_BY_NAME, METADATA_BEFORE_IDS = 12, 9
"""The last versions of Fetch and Metadata that know topics by name alone."""
ANYWAY = (Operation.DESCRIBE, TOPIC, "$t")
CREATED_AS_ASKED: Body = {"allow_auto_topic_creation": True}
NOT_CREATED: Body = {"allow_auto_topic_creation": False}
THERE = "a topic that is there"
_WITHOUT_IDEMPOTENCE = batch(b"v")
_IDEMPOTENT = batch(b"v", producer=(7, 0, 0))
_TRANSACTIONAL = batch(b"v", producer=(7, 0, 0), attributes=TRANSACTIONAL)


def rows() -> Iterator[Row]:
    """All of this family."""
    yield from _produce()
    yield from _fetch()
    yield from _metadata()
    yield from _topics()
    yield from _epochs()


def produced(records: bytes, topic: str, transactional_id: str | None = None) -> Body:
    """The body of a Produce of one batch."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    settings = {"acks": -1, "timeout_ms": 1000, "transactional_id": transactional_id}
    return {**settings, "topic_data": data}


def committed(group: str, topic: str) -> Prepared:
    """A commit of an offset by no member, which makes the group."""
    offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
    body = {"group_id": group, "generation_id_or_member_epoch": -1}
    topics = [{"name": topic, "partitions": [offset]}]
    return Prepared(ApiKey.OFFSET_COMMIT, 9, {**body, "topics": topics})


def _produce() -> Iterator[Row]:
    write, api = Operation.WRITE, ApiKey.PRODUCE
    yield Row(
        api,
        write,
        TRANSACTION,
        produced(_TRANSACTIONAL, "$t", "$r"),
        also=[(write, TOPIC, "$t")],
    )
    yield Row(
        api,
        Operation.IDEMPOTENT_WRITE,
        CLUSTER,
        produced(_IDEMPOTENT, "$t"),
        also=[(write, TOPIC, "$t")],
    )
    yield Row(api, write, TOPIC, produced(_WITHOUT_IDEMPOTENCE, "$r"))
    yield Row(api, write, TOPIC, produced(_IDEMPOTENT, "$r"), "idempotent")
    yield Row(
        api,
        write,
        TOPIC,
        produced(_TRANSACTIONAL, "$r", "$x"),
        "in a transaction",
        also=[(write, TRANSACTION, "$x")],
    )


def fetched(name: str, **more: Any) -> Body:
    """The body of a Fetch that does not wait, of a topic by name and by id."""
    asked = {"partition": 0, "current_leader_epoch": -1, "partition_max_bytes": 1000}
    asked |= {"last_fetched_epoch": -1, "log_start_offset": -1}
    topic = {"topic": name, "topic_id": f"{name}.id", "partitions": [asked]}
    return {"max_bytes": 1000, "session_epoch": -1, "topics": [topic], **more}


def _fetch() -> Iterator[Row]:
    api, read = ApiKey.FETCH, Operation.READ
    consumer = {"replica_id": -1, "replica_state": {"replica_id": -1, "replica_epoch": -1}}
    replica = {"replica_id": FOLLOWER, "replica_epoch": -1}
    follower = {"replica_id": FOLLOWER, "replica_state": replica}
    versions = {"": -1, "by name": FETCHED_BY_NAME}
    for how, version in versions.items():
        body = fetched(SHARED, **follower)
        yield Row(api, Operation.CLUSTER_ACTION, CLUSTER, body, how, version)
    for how, version in versions.items():
        yield Row(api, read, TOPIC, fetched("$r", **consumer), how, version, topics=["$r"])
    described = Operation.DESCRIBE
    yield Row(ApiKey.LIST_OFFSETS, described, TOPIC, _offsets())
    yield Row(ApiKey.LIST_OFFSETS, described, TOPIC, _offsets(), THERE, topics=["$r"])


def _offsets() -> Body:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    return {"replica_id": -1, "topics": [{"name": "$r", "partitions": [asked]}]}


def _metadata() -> Iterator[Row]:
    api, describe, create = ApiKey.METADATA, Operation.DESCRIBE, Operation.CREATE
    named = {"topics": [{"name": "$r"}], **NOT_CREATED}
    by_id = {"topics": [{"name": None, "topic_id": "$r.id"}]}
    yield Row(api, describe, TOPIC, named)
    yield Row(api, describe, TOPIC, named, THERE, topics=["$r"])
    yield Row(api, describe, TOPIC, named, "before ids", METADATA_BEFORE_IDS, topics=["$r"])
    yield Row(api, describe, TOPIC, by_id, "by id", topics=["$r"])
    yield Row(
        api,
        describe,
        TOPIC,
        {"topics": None},
        "all topics",
        topics=["$r"],
        among=("topics.name", "$r"),
    )
    new = {"topics": [{"name": "$t"}], **CREATED_AS_ASKED}
    yield Row(api, create, CLUSTER, new, also=[ANYWAY])
    new = {"topics": [{"name": "$r"}], **CREATED_AS_ASKED}
    yield Row(api, create, TOPIC, new, also=[(describe, TOPIC, "$r")])
    yield Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        describe,
        TOPIC,
        {"topics": [{"name": "$r"}], "response_partition_limit": 10},
    )
    yield Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        describe,
        TOPIC,
        {"topics": [{"name": "$r"}], "response_partition_limit": 10},
        THERE,
        topics=["$r"],
    )
    yield Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        describe,
        TOPIC,
        {"topics": [], "response_partition_limit": 2000},
        "all topics",
        topics=["$r"],
        among=("topics.name", "$r"),
    )


def _topics() -> Iterator[Row]:
    create, delete = Operation.CREATE, Operation.DELETE
    yield Row(ApiKey.CREATE_TOPICS, create, CLUSTER, _created("$t"), codes="error_code")
    yield Row(ApiKey.CREATE_TOPICS, create, TOPIC, _created("$r"), codes="error_code")
    yield Row(
        ApiKey.CREATE_TOPICS,
        Operation.DESCRIBE_CONFIGS,
        TOPIC,
        _created("$r"),
        "configs in the answer",
        also=[(create, TOPIC, "$r")],
        codes="topic_config_error_code",
    )
    named: Body = {"topics": [{"name": "$r"}], "timeout_ms": 5000}
    by_id: Body = {"topics": [{"name": None, "topic_id": "$r.id"}], "timeout_ms": 5000}
    describe = [(Operation.DESCRIBE, TOPIC, "$r")]
    api = ApiKey.DELETE_TOPICS
    yield Row(api, delete, TOPIC, named, topics=["$r"])
    yield Row(api, delete, TOPIC, named, "a topic that is not there")
    yield Row(api, delete, TOPIC, named, "which may be described", topics=["$r"], also=describe)
    yield Row(api, delete, TOPIC, by_id, "by id", topics=["$r"])
    yield Row(api, delete, TOPIC, by_id, "by id, may be described", topics=["$r"], also=describe)
    emptied = {"partition_index": 0, "offset": 0}
    yield Row(
        ApiKey.DELETE_RECORDS,
        delete,
        TOPIC,
        {"topics": [{"name": "$r", "partitions": [emptied]}], "timeout_ms": 1000},
    )
    yield Row(
        ApiKey.CREATE_PARTITIONS,
        Operation.ALTER,
        TOPIC,
        {"topics": [{"name": "$r", "count": 2}], "timeout_ms": 5000, "validate_only": True},
    )
    asked = {"topics": [{"name": "$r", "partition_indexes": [0]}]}
    yield Row(ApiKey.DESCRIBE_PRODUCERS, Operation.READ, TOPIC, asked)


def _created(name: str) -> Body:
    new = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return {"topics": [new], "timeout_ms": 5000, "validate_only": True}


def _epochs() -> Iterator[Row]:
    api = ApiKey.OFFSET_FOR_LEADER_EPOCH
    asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    for operation, resource, name, replica in (
        (Operation.CLUSTER_ACTION, CLUSTER, SHARED, FOLLOWER),
        (Operation.DESCRIBE, TOPIC, "$r", -1),
    ):
        topics = [{"topic": name, "partitions": [asked]}]
        body = {"replica_id": replica, "topics": topics}
        yield Row(api, operation, resource, body)
