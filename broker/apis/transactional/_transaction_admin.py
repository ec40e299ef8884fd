"""WriteTxnMarkers, and what operators see of transactions (rows T2, T3).

DescribeTransactions, ListTransactions and DescribeProducers show a transaction that hangs;
WriteTxnMarkers ends it in a partition, and is what coordinators send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.apis.handler import Reply
from broker.apis.handler.authorization import denied_names, is_allowed, require
from broker.coordinator import STEP_ITEMS
from broker.coordinator.topic_patterns import check_pattern, matching
from broker.protocol import EncodedArray
from broker.transactions import Transaction, TransactionState
from broker.types import ALL_IN_SYNC, CONSUMER_OFFSETS, EndMarker, TopicPartition, by_topic
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.metadata.topic_names import name_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import transactional as wire
    from broker.types import AppendResult, ProducerFacts

_STATES = {state.text: state for state in TransactionState}

# --- WriteTxnMarkers ------------------------------------------------------------------------------


def handle_markers(
    context: ApiContext, request: Request[wire.WriteTxnMarkersRequest]
) -> wire.WriteTxnMarkersResponse | Reply[wire.WriteTxnMarkersResponse]:
    """Write each marker to its partitions; answer when all in-sync replicas have them (KIP-98).

    Raises KafkaError(CLUSTER_AUTHORIZATION_FAILED) for a client that may neither alter the cluster,
    as an operator does who ends a transaction, nor act for it, as a coordinator does;
    INVALID_REQUEST for a marker of no producer.
    """
    alter, cluster = Operation.ALTER, ResourceType.CLUSTER
    if not is_allowed(context, request, alter, cluster, CLUSTER_NAME, log_if_denied=False):
        require(context, request, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    # The request has no timeout. The coordinator sends a marker again until it is written.
    body = request.body
    entries = list(_entries(body))
    if any(marker.producer_id < 0 for _, marker in entries):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a marker ends the transaction of a producer")
    timeout_ms = context.config.replica_socket_timeout_ms
    results = context.replicas.append(ALL_IN_SYNC, timeout_ms, entries)
    if isinstance(results, list):
        return _written(context, body, entries, results)
    return Reply(results, lambda: _written(context, body, entries, results.result()))


def refuse_markers(
    _context: ApiContext, request: Request[wire.WriteTxnMarkersRequest], error: KafkaError
) -> wire.WriteTxnMarkersResponse:
    """Return the same error for each partition."""
    return _written_all(request.body, [error.code] * len(list(_entries(request.body))))


def _entries(body: wire.WriteTxnMarkersRequest) -> Iterator[tuple[TopicPartition, EndMarker]]:
    for one in body["markers"]:
        marker = EndMarker(
            one["producer_id"],
            one["producer_epoch"],
            one["transaction_result"],
            one["coordinator_epoch"],
            one.get("transaction_version", 0),
        )
        for topic in one["topics"]:
            for number in topic["partition_indexes"]:
                yield TopicPartition(topic["name"], number), marker


def _written(
    context: ApiContext,
    body: wire.WriteTxnMarkersRequest,
    entries: list[tuple[TopicPartition, EndMarker]],
    results: list[AppendResult],
) -> wire.WriteTxnMarkersResponse:
    """The coordinator of groups sees a marker before the transaction's coordinator does."""
    for (partition, marker), result in zip(entries, results, strict=True):
        if partition.topic == CONSUMER_OFFSETS and result.error is ErrorCode.NONE:
            number, producer_id = partition.partition, marker.producer_id
            context.groups.ended(number, producer_id, commit=marker.commit)
    return _written_all(body, [result.error for result in results])


def _written_all(
    body: wire.WriteTxnMarkersRequest, errors: list[ErrorCode]
) -> wire.WriteTxnMarkersResponse:
    remaining = iter(errors)
    return {
        "markers": [
            {
                "producer_id": one["producer_id"],
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": [
                            {"partition_index": number, "error_code": next(remaining)}
                            for number in topic["partition_indexes"]
                        ],
                    }
                    for topic in one["topics"]
                ],
            }
            for one in body["markers"]
            if one["topics"]
        ]
    }


# --- DescribeTransactions, ListTransactions -------------------------------------------------------


def handle_describe(
    context: ApiContext, request: Request[wire.DescribeTransactionsRequest]
) -> wire.DescribeTransactionsResponse:
    """Describe the state of each transactional id (KIP-664).

    Topics that the client may not describe are left out.
    """
    names = request.body["transactional_ids"]
    return {"transaction_states": [_described(context, request, name) for name in names]}


def _described(
    context: ApiContext, request: Request[wire.DescribeTransactionsRequest], name: str
) -> wire.DescribeTransactionsResponseTransactionState:
    # Read without a step of the coordinator: the state may change right after, as for any reader.
    try:
        require(context, request, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        found = context.transactions.core_of(name).known.get(name)
    except KafkaError as error:
        return _unknown(name, error.code)
    if found is None:
        return _unknown(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics = by_topic(found.partitions)
    hidden = denied_names(context, request, Operation.DESCRIBE, ResourceType.TOPIC, topics)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": name,
        "transaction_state": found.state.text,
        "transaction_timeout_ms": found.timeout_ms,
        "transaction_start_time_ms": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": numbers}
            for topic, numbers in topics.items()
            if topic not in hidden
        ],
    }


def _listed(name: str, found: Transaction) -> wire.ListTransactionsResponseTransactionState:
    return {
        "transactional_id": name,
        "producer_id": found.producer_id,
        "transaction_state": found.state.text,
    }


def _unknown(name: str, error: ErrorCode) -> wire.DescribeTransactionsResponseTransactionState:
    return {
        "error_code": error,
        "transactional_id": name,
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time_ms": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": (),
    }


async def handle_list(
    context: ApiContext, request: Request[wire.ListTransactionsRequest]
) -> wire.ListTransactionsResponse:
    """Answer with the transactional ids of the partitions that this broker holds, filtered.

    Those that the client may not describe are left out. Some are looked at in each turn of the
    event loop.
    """
    describe, kind = Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID
    body = request.body
    passes = _filter(body, context.wall_ms())
    pattern = body.get("transactional_id_pattern")
    if pattern:
        check_pattern(pattern)
    found = EncodedArray(request.api_key, request.version, "transaction_states")
    for core in context.transactions.cores():
        known = list(core.known.items())
        for start in range(0, len(known), STEP_ITEMS):
            await context.transactions.shards.turns.next()
            part = {name: one for name, one in known[start : start + STEP_ITEMS] if passes(one)}
            named = matching(pattern, part) if pattern else part
            hidden = denied_names(context, request, describe, kind, named)
            found.add([_listed(name, part[name]) for name in named if name not in hidden])
    return {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": [one for one in body["state_filters"] if one not in _STATES],
        "transaction_states": found,
    }


def _filter(body: wire.ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    """Whether the state, the producer and how long it has been going on are those asked for."""
    # An unknown state alone must match nothing, not all: `states` is not empty then.
    states, ids = body["state_filters"], frozenset(body["producer_id_filters"])
    wanted = frozenset(_STATES[name] for name in states if name in _STATES)
    at_least_ms: int = body.get("duration_filter", -1)

    def passes(one: Transaction) -> bool:
        if (states and one.state not in wanted) or (ids and one.producer_id not in ids):
            return False
        return at_least_ms < 0 or 0 <= one.started_ms < now_ms - at_least_ms

    return passes


# --- DescribeProducers ----------------------------------------------------------------------------


def handle_producers(
    context: ApiContext, request: Request[wire.DescribeProducersRequest]
) -> wire.DescribeProducersResponse:
    """Describe the producers of partitions led by this broker, with open transactions (KIP-664)."""
    body = request.body
    names = (topic["name"] for topic in body["topics"] if name_problem(topic["name"]) is None)
    denied = denied_names(context, request, Operation.READ, ResourceType.TOPIC, names)
    found = {one: _known(context, one, denied) for one in _asked(body)}
    return _producers(body, found)


def _known(
    context: ApiContext, partition: TopicPartition, denied: frozenset[str]
) -> tuple[ErrorCode, list[ProducerFacts]]:
    # Before the lookup, which would answer UNKNOWN_TOPIC_OR_PARTITION for an impossible name.
    if name_problem(partition.topic) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, []
    if partition.topic in denied:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
    return context.replicas.producers(partition)


def refuse_producers(
    _context: ApiContext, request: Request[wire.DescribeProducersRequest], error: KafkaError
) -> wire.DescribeProducersResponse:
    """Return the same error for each partition."""
    return _producers(request.body, {one: (error.code, []) for one in _asked(request.body)})


def _asked(body: wire.DescribeProducersRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic["name"], number)
        for topic in body["topics"]
        for number in topic["partition_indexes"]
    ]


def _producers(
    body: wire.DescribeProducersRequest,
    found: dict[TopicPartition, tuple[ErrorCode, list[ProducerFacts]]],
) -> wire.DescribeProducersResponse:
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    _partition(number, *found[TopicPartition(topic["name"], number)])
                    for number in topic["partition_indexes"]
                ],
            }
            for topic in body["topics"]
        ]
    }


def _partition(
    number: int, error: ErrorCode, producers: list[ProducerFacts]
) -> wire.PartitionResponse:
    return {
        "partition_index": number,
        "error_code": error,
        "error_message": None if error is ErrorCode.NONE else error.text,
        "active_producers": [
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "last_sequence": one.last_sequence,
                "last_timestamp": one.last_timestamp,
                "coordinator_epoch": one.coordinator_epoch,
                "current_txn_start_offset": one.open_from,
            }
            for one in producers
        ],
    }
