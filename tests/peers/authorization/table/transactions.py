"""Producer ids and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from raftctl.metadata.acls import Operation, ResourceType
from tests.peers.authorization.rows import SHARED, Prepared, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers.differential.language import Body

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
BY_CLIENTS = 3
"""The last version of AddPartitionsToTxn that clients send: later ones are for brokers."""
PRODUCER: Body = {"producer_id": 7, "producer_epoch": 0}


def rows() -> Iterator[Row]:
    """All of this family."""
    yield from _producer_ids()
    yield from _added()
    yield from _committed()
    yield from _administration()


def begun(transactional_id: str) -> Prepared:
    """An InitProducerId, which makes the transactional id known; keeps its producer."""
    keep = {"$p": ["producer_id"], "$e": ["producer_epoch"]}
    return Prepared(ApiKey.INIT_PRODUCER_ID, 4, _initialized(transactional_id), keep)


def _initialized(transactional_id: str | None) -> Body:
    unknown = {"producer_id": -1, "producer_epoch": -1}
    return {"transactional_id": transactional_id, "transaction_timeout_ms": 600_000, **unknown}


def _producer_ids() -> Iterator[Row]:
    api = ApiKey.INIT_PRODUCER_ID
    yield Row(api, WRITE, TRANSACTION, _initialized("$r"))
    yield Row(api, Operation.IDEMPOTENT_WRITE, CLUSTER, _initialized(None))
    yield Row(api, WRITE, TOPIC, _initialized(None), "any topic")


def _added() -> Iterator[Row]:
    api = ApiKey.ADD_PARTITIONS_TO_TXN
    also = [(WRITE, TOPIC, SHARED)]
    yield Row(api, WRITE, TRANSACTION, _partitions("$r", SHARED), "", BY_CLIENTS, also)
    also = [(WRITE, TRANSACTION, "$x")]
    yield Row(api, WRITE, TOPIC, _partitions("$x", "$r"), "", BY_CLIENTS, also)
    topics = [{"name": SHARED, "partitions": [0]}]
    verified = {"transactional_id": "$x", **PRODUCER, "verify_only": True, "topics": topics}
    yield Row(
        api,
        Operation.CLUSTER_ACTION,
        CLUSTER,
        {"transactions": [verified]},
        "between brokers",
    )
    api = ApiKey.ADD_OFFSETS_TO_TXN
    body = {"transactional_id": "$r", **PRODUCER, "group_id": "$g"}
    yield Row(api, WRITE, TRANSACTION, body, also=[(READ, GROUP, "$g")])
    body = {"transactional_id": "$x", **PRODUCER, "group_id": "$r"}
    yield Row(api, READ, GROUP, body, also=[(WRITE, TRANSACTION, "$x")])


def _partitions(transactional_id: str, topic: str, producer_id: Any = 7, epoch: Any = 0) -> Body:
    topics = [{"name": topic, "partitions": [0]}]
    producer = {"v3_and_below_producer_id": producer_id, "v3_and_below_producer_epoch": epoch}
    named = {"v3_and_below_transactional_id": transactional_id}
    return {**named, **producer, "v3_and_below_topics": topics}


def _committed() -> Iterator[Row]:
    ended = {"transactional_id": "$r", **PRODUCER, "committed": True}
    yield Row(ApiKey.END_TXN, WRITE, TRANSACTION, ended)
    api = ApiKey.WRITE_TXN_MARKERS
    topics = [{"name": SHARED, "partition_indexes": [0]}]
    marker = {**PRODUCER, "transaction_result": True, "topics": topics}
    for operation in (Operation.ALTER, Operation.CLUSTER_ACTION):
        yield Row(api, operation, CLUSTER, {"markers": [marker]})
    api = ApiKey.TXN_OFFSET_COMMIT
    group, topic = (READ, GROUP, "$g"), (READ, TOPIC, SHARED)
    transaction = (WRITE, TRANSACTION, "$x")
    yield Row(api, WRITE, TRANSACTION, _offsets("$r", "$g", SHARED), "", -1, [group, topic])
    yield Row(api, READ, GROUP, _offsets("$x", "$r", SHARED), "", -1, [transaction, topic])
    yield Row(api, READ, TOPIC, _offsets("$x", "$g", "$r"), "", -1, [transaction, group])


def _offsets(transactional_id: str, group: str, topic: str) -> Body:
    offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    topics = [{"name": topic, "partitions": [offset]}]
    ids = {"transactional_id": transactional_id, "group_id": group}
    return {**ids, **PRODUCER, **member, "topics": topics}


def _administration() -> Iterator[Row]:
    yield Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        DESCRIBE,
        TRANSACTION,
        {"transactional_ids": ["$r"]},
    )
    added = Prepared(ApiKey.ADD_PARTITIONS_TO_TXN, BY_CLIENTS, _partitions("$x", "$r", "$p", "$e"))
    yield Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        DESCRIBE,
        TOPIC,
        {"transactional_ids": ["$x"]},
        "topics of a transaction",
        also=[(DESCRIBE, TRANSACTION, "$x")],
        topics=["$r"],
        prepared=[begun("$x"), added],
        among=("transaction_states.topics.topic", "$r"),
    )
    yield Row(
        ApiKey.LIST_TRANSACTIONS,
        DESCRIBE,
        TRANSACTION,
        {"duration_filter": -1},
        prepared=[begun("$r")],
        among=("transaction_states.transactional_id", "$r"),
    )
