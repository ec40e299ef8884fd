"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn of producers (row T2).

The responses are decided in `broker.transactions`, by the coordinator of the transactional id.
Clients of the first versions do not know PRODUCER_FENCED and get INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.apis.handler.authorization import (
    denied_names,
    is_allowed,
    is_allowed_somewhere,
    require,
)
from broker.transactions import TRANSACTION_V2, AddPartitions, EndTransaction, InitProducer
from broker.types import CONSUMER_OFFSETS, INTERNAL_TOPICS, TopicPartition, by_topic
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import transactional as wire
    from broker.transactions import ProducerGoesOn

_INIT_KNOWS_FENCED = 4
_OTHERS_KNOW_FENCED = 2
_ENDS_WITH_EPOCH = 5
"""From this version on EndTxn is of transaction version 2."""
_BATCHED = 4
"""From this version on AddPartitionsToTxn is for several transactions, and sent by brokers."""


def _code(error: ErrorCode, version: int, knows_fenced: int) -> ErrorCode:
    old = error is ErrorCode.PRODUCER_FENCED and version < knows_fenced
    return ErrorCode.INVALID_PRODUCER_EPOCH if old else error


# --- InitProducerId -------------------------------------------------------------------------------


async def handle_init(
    context: ApiContext, request: Request[wire.InitProducerIdRequest]
) -> wire.InitProducerIdResponse:
    """Answer with a producer id and epoch: the own ones of a transactional id, else fresh ones.

    Raises KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED; without an id
    CLUSTER_AUTHORIZATION_FAILED, unless the producer may write to some topic (KIP-679).
    """
    body = request.body
    name = body["transactional_id"]
    if name is not None:
        _require_writer(context, request, name)
    elif not _may_be_idempotent(context, request):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    before = body.get("producer_id", -1), body.get("producer_epoch", -1)
    # A producer that goes on after an error brings its id and epoch to have the epoch raised
    # (KIP-360); without both the coordinator could not tell it from one that it has fenced.
    if (before[0] == -1) != (before[1] == -1):
        text = f"producer id {before[0]} and epoch {before[1]} go together: one of them is missing"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if name is None:
        return {"producer_id": await context.producer_ids.take(), "producer_epoch": 0}
    # The coordinator cannot wait for the controller within its step, so the id is taken before.
    asked = InitProducer(name, body["transaction_timeout_ms"], *before)
    if context.transactions.core_of(name).needs_id(asked):
        asked = asked.with_id(await context.producer_ids.take())
    found: ProducerGoesOn = await context.transactions.ask(asked)
    return {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}


def _may_be_idempotent(context: ApiContext, request: Request[wire.InitProducerIdRequest]) -> bool:
    action, cluster = Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER
    if is_allowed(context, request, action, cluster, CLUSTER_NAME, log_if_denied=False):
        return True
    return is_allowed_somewhere(context, request, Operation.WRITE, ResourceType.TOPIC)


def _require_writer(context: ApiContext, request: Request[Any], name: str) -> None:
    """Raise KafkaError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED) unless the client may use the id."""
    require(context, request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def refuse_init(
    _context: ApiContext, request: Request[wire.InitProducerIdRequest], error: KafkaError
) -> wire.InitProducerIdResponse:
    """Return the error without an id."""
    code = _code(error.code, request.version, _INIT_KNOWS_FENCED)
    if code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
        # What clients of this request know as "try again".
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


# --- AddPartitionsToTxn, AddOffsetsToTxn ----------------------------------------------------------


async def handle_add_partitions(
    context: ApiContext, request: Request[wire.AddPartitionsToTxnRequest]
) -> wire.AddPartitionsToTxnResponse:
    """Add partitions to a transaction; answer with each one's error.

    Unknown ones, and those that the producer may not write, keep the others out. Raises KafkaError:
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and CLUSTER_AUTHORIZATION_FAILED for what only brokers
    send.
    """
    body = request.body
    if request.version >= _BATCHED:
        require(context, request, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        asking = (_added_of(context, one) for one in body["transactions"])
        return {"results_by_transaction": await asyncio.gather(*asking)}
    _require_writer(context, request, body["v3_and_below_transactional_id"])
    asked = AddPartitions(
        body["v3_and_below_transactional_id"],
        body["v3_and_below_producer_id"],
        body["v3_and_below_producer_epoch"],
        _partitions(body["v3_and_below_topics"]),
        patient=True,
    )
    # Brokers send batches for their own topics, too, so only the client's form is checked.
    errors = await _add(context, asked, _not_of_clients(context, request, asked.partitions))
    return {"results_by_topic_v3_and_below": _result(request, errors)}


def _result(
    request: Request[wire.AddPartitionsToTxnRequest], errors: dict[TopicPartition, ErrorCode]
) -> list[wire.AddPartitionsToTxnTopicResult]:
    """Topics of which no partition was named are in the response, too."""
    named = {topic["name"] for topic in request.body["v3_and_below_topics"]}
    empty = sorted(named - {one.topic for one in errors})
    results = _by_topic(errors, request.version)
    results += [{"name": name, "results_by_partition": ()} for name in empty]
    return results


def _not_of_clients(
    context: ApiContext,
    request: Request[wire.AddPartitionsToTxnRequest],
    partitions: frozenset[TopicPartition],
) -> frozenset[str]:
    """Return the topics that a client may not add: AddOffsetsToTxn is for the brokers' own."""
    names = (one.topic for one in partitions if one.topic not in INTERNAL_TOPICS)
    denied = denied_names(context, request, Operation.WRITE, ResourceType.TOPIC, names)
    return denied.union(INTERNAL_TOPICS)


def refuse_add_partitions(
    _context: ApiContext, request: Request[wire.AddPartitionsToTxnRequest], error: KafkaError
) -> wire.AddPartitionsToTxnResponse:
    """Return the same error for each partition, or for the whole."""
    if request.version >= _BATCHED:
        return {"error_code": error.code, "results_by_transaction": ()}
    partitions = _partitions(request.body["v3_and_below_topics"])
    errors = dict.fromkeys(partitions, error.code)
    return {"results_by_topic_v3_and_below": _result(request, errors)}


async def _added_of(
    context: ApiContext, one: wire.AddPartitionsToTxnTransaction
) -> wire.AddPartitionsToTxnResult:
    asked = AddPartitions(
        one["transactional_id"],
        one["producer_id"],
        one["producer_epoch"],
        _partitions(one["topics"]),
        one["verify_only"],
    )
    try:
        errors = await _add(context, asked)
    except KafkaError as error:
        errors = dict.fromkeys(asked.partitions, error.code)
    results = _by_topic(errors, _BATCHED)
    return {"transactional_id": asked.transactional_id, "topic_results": results}


async def _add(
    context: ApiContext, asked: AddPartitions, denied: frozenset[str] = frozenset()
) -> dict[TopicPartition, ErrorCode]:
    """All are added, or none: who could not write to one would not commit the others."""
    # To verify is only to look: what is unknown here is not in the transaction either.
    unknown = [one for one in asked.partitions if not context.metadata.has(one)]
    refused = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    hidden = [one for one in asked.partitions if one.topic in denied]
    refused |= dict.fromkeys(hidden, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if refused and not asked.verify_only:
        return dict.fromkeys(asked.partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
    errors: dict[TopicPartition, ErrorCode] = await context.transactions.ask(asked)
    return errors


def _partitions(topics: list[wire.AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic["name"], partition)
        for topic in topics
        for partition in topic["partitions"]
    )


def _by_topic(
    errors: dict[TopicPartition, ErrorCode], version: int
) -> list[wire.AddPartitionsToTxnTopicResult]:
    return [
        {
            "name": name,
            "results_by_partition": [
                {
                    "partition_index": number,
                    "partition_error_code": _code(
                        errors[TopicPartition(name, number)], version, _OTHERS_KNOW_FENCED
                    ),
                }
                for number in numbers
            ],
        }
        for name, numbers in by_topic(errors).items()
    ]


async def handle_add_offsets(
    context: ApiContext, request: Request[wire.AddOffsetsToTxnRequest]
) -> wire.AddOffsetsToTxnResponse:
    """Add the partition of the group's offsets to the transaction.

    Raises KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED.
    """
    body = request.body
    _require_writer(context, request, body["transactional_id"])
    require(context, request, Operation.READ, ResourceType.GROUP, body["group_id"])
    # The partition of a group follows from the number of partitions, so the topic must exist.
    await context.internal_topics.ensure(CONSUMER_OFFSETS)
    partition = context.groups.partition_of(body["group_id"])
    asked = AddPartitions(
        body["transactional_id"],
        body["producer_id"],
        body["producer_epoch"],
        frozenset({TopicPartition(CONSUMER_OFFSETS, partition)}),
        patient=True,
    )
    await context.transactions.ask(asked)
    return {"error_code": ErrorCode.NONE}


# --- EndTxn ---------------------------------------------------------------------------------------


async def handle_end(
    context: ApiContext, request: Request[wire.EndTxnRequest]
) -> wire.EndTxnResponse:
    """Respond when the outcome is decided; the markers may still be on their way.

    From version 5 on the answer is with which id and epoch the producer goes on (KIP-890). Raises
    KafkaError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED).
    """
    body = request.body
    _require_writer(context, request, body["transactional_id"])
    asked = EndTransaction(
        body["transactional_id"],
        body["producer_id"],
        body["producer_epoch"],
        body["committed"],
        TRANSACTION_V2 if request.version >= _ENDS_WITH_EPOCH else 0,
    )
    if context.transactions.core_of(asked.transactional_id).needs_id(asked):
        asked = asked.with_id(await context.producer_ids.take())
    found: ProducerGoesOn = await context.transactions.ask(asked)
    return {
        "error_code": ErrorCode.NONE,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
    }


def refuse_add_offsets(
    _context: ApiContext, request: Request[wire.AddOffsetsToTxnRequest], error: KafkaError
) -> wire.AddOffsetsToTxnResponse:
    """Return the error."""
    return {"error_code": _code(error.code, request.version, _OTHERS_KNOW_FENCED)}


def refuse_end(
    _context: ApiContext, request: Request[wire.EndTxnRequest], error: KafkaError
) -> wire.EndTxnResponse:
    """Return the error without an id."""
    code = _code(error.code, request.version, _OTHERS_KNOW_FENCED)
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
