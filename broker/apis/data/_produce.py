"""Produce: hands record batches to the partitions' leaders (rows R5, T1, T3).

The records are appended before `handle` returns; only acks=all answers later. There are two
exceptions. A large batch is prepared by a worker first. For one that may begin a transaction its
coordinator is asked first. What the request brings for other partitions is appended meanwhile, so
that nothing overtakes it. With acks=0 there is no answer, so an error closes the connection, as
Apache Kafka does: a producer has no other way to learn of it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.apis.discovery import current_leader, node_endpoints
from broker.apis.handler import ApiContext, HangUpError, Reply
from broker.apis.handler.authorization import denied_names, require
from broker.log.batches.compression import ZSTD
from broker.log.batches.record_batch import (
    claims_a_transaction,
    is_packed_with,
    parse_header,
)
from broker.replication.partition import Sender
from broker.transactions import Check
from broker.types import INTERNAL_TOPICS, AppendResult, Prepared, TopicPartition
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.acls import Operation, ResourceType

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from broker.protocol.codec import Request
    from broker.protocol.messages import data as wire
    from broker.types import Appendable
    from raftctl.runtime.api import Buffer

    Entry = tuple[TopicPartition, Buffer]
    Results = list[AppendResult] | asyncio.Future[list[AppendResult]]
    _Answer = wire.ProduceResponse | None
    Held = Mapping[int, AppendResult | Check]
    """Index of an entry to why it is refused, or what must be asked first."""

_ACKS = (0, 1, -1)
_NOTHING: Mapping[int, AppendResult] = {}
_WITHOUT_ID = "records of a transaction without its transactional id"
_KNOWS_ABORTABLE = 11
"""TRANSACTION_ABORTABLE is known to Produce from this version on (KIP-890)."""
_TAKES_ZSTD = 7
"""From this version on clients can read what zstd compressed (KIP-110)."""
_ADDS_PARTITIONS = 12
"""From this version on Produce is of transaction version 2."""


def handle(
    context: ApiContext, request: Request[wire.ProduceRequest]
) -> _Answer | Reply[_Answer] | Coroutine[Any, Any, _Answer]:
    """Append at once, and answer when the records are as safe as `acks` asks.

    A worker prepares large batches first; the connection's next request waits for that. Raises
    KafkaError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED). Errors of a partition, besides those of the
    log: TOPIC_AUTHORIZATION_FAILED, INVALID_REQUIRED_ACKS.
    """
    body = request.body
    entries: list[Entry] = []
    for topic in body["topic_data"]:
        for data in topic["partition_data"]:
            # The request lets go of it, so that its frame is not kept until the answer leaves.
            batch, data["records"] = data["records"], None
            entries.append((TopicPartition(topic["name"], data["index"]), batch or b""))
    denied = _denied(context, request, entries)
    if body["acks"] not in _ACKS:
        wrong = AppendResult(ErrorCode.INVALID_REQUIRED_ACKS)
        results = [denied.get(index, wrong) for index in range(len(entries))]
        return _answer(context, body, results)
    for index in denied:
        # No worker looks at what the producer may not write.
        entries[index] = (entries[index][0], b"")
    prepared = context.prepare(entries)
    if isinstance(prepared, list):
        return _append_prepared(context, request, entries, prepared, denied)
    return _append_later(context, request, entries, prepared, denied)


def _denied(
    context: ApiContext, request: Request[wire.ProduceRequest], sent: Sequence[Entry]
) -> Mapping[int, AppendResult]:
    """Return the results of the batches that the producer may not write, by index.

    Raises KafkaError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED), which refuses the whole request as in
    Apache Kafka: no partition of it could be part of the transaction.
    """
    if any(claims_a_transaction(batch) for _, batch in sent):
        name = request.body["transactional_id"]
        if name is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _WITHOUT_ID)
        require(context, request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    if context.authorizer is None:
        return _NOTHING
    topics = (partition.topic for partition, _ in sent)
    denied = denied_names(context, request, Operation.WRITE, ResourceType.TOPIC, topics)
    result = AppendResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return {index: result for index, (one, _) in enumerate(sent) if one.topic in denied}


async def _append_later(
    context: ApiContext,
    request: Request[wire.ProduceRequest],
    sent: Sequence[Entry],
    prepared: Awaitable[list[Appendable]],
    denied: Mapping[int, AppendResult],
) -> _Answer:
    answer = _append_prepared(context, request, sent, await prepared, denied)
    if isinstance(answer, Reply):
        return await answer.wait()
    return await answer if isinstance(answer, Coroutine) else answer


def _append_prepared(
    context: ApiContext,
    request: Request[wire.ProduceRequest],
    sent: Sequence[Entry],
    prepared: Sequence[Appendable],
    denied: Mapping[int, AppendResult],
) -> _Answer | Reply[_Answer] | Coroutine[Any, Any, _Answer]:
    """Append what may be appended now; answer, or return what does so later.

    `sent` and `prepared` are of the same partitions, in the order of the request.
    """
    body = request.body
    entries = [(partition, one) for (partition, _), one in zip(sent, prepared, strict=True)]
    timeout_ms = min(body["timeout_ms"], context.wait_ms_max)
    append = partial(context.replicas.append, body["acks"], timeout_ms, request=request.context)
    held = _held(context, request, sent, prepared, denied)
    if held:
        free = [entry for index, entry in enumerate(entries) if index not in held]
        return _append_held(context, request, entries, held, append(free), append)
    results = append(entries)
    if isinstance(results, list):
        return _answer(context, body, results)
    return Reply(results, lambda: _answer(context, body, results.result()))


def _held(
    context: ApiContext,
    request: Request[wire.ProduceRequest],
    sent: Sequence[Entry],
    prepared: Sequence[Appendable],
    denied: Mapping[int, AppendResult],
) -> Held:
    """Return which batches are not appended now, by index; `denied` are among them."""
    held: dict[int, AppendResult | Check] = {}
    for index, ((partition, batch), one) in enumerate(zip(sent, prepared, strict=True)):
        if index in denied:
            held[index] = denied[index]
        elif partition.topic in INTERNAL_TOPICS:
            text = f"only coordinators write to {partition.topic}"
            held[index] = AppendResult(ErrorCode.INVALID_TOPIC_EXCEPTION, message=text)
        elif request.version < _TAKES_ZSTD and _is_packed_too_early(context, partition, batch):
            text = f"zstd needs Produce version {_TAKES_ZSTD} or later, not {request.version}"
            held[index] = AppendResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message=text)
        elif claims_a_transaction(batch):
            # Before its records are looked at, as Apache Kafka does: an older epoch is refused as
            # such, whatever it sends.
            header = one.header if isinstance(one, Prepared) else parse_header(batch)
            sender = Sender(header.producer_id, header.producer_epoch, header.base_sequence)
            check = context.verifier.begin(partition, sender, adds=_adds(request))
            if check is not None:
                held[index] = check
    return held


def _is_packed_too_early(context: ApiContext, partition: TopicPartition, batch: Buffer) -> bool:
    """Return whether zstd has packed the batch; False if the partition does not exist."""
    if not is_packed_with(ZSTD, batch):
        return False
    topic = context.metadata.image.topics.by_name(partition.topic)
    return topic is not None and partition.partition in topic.partitions


def _adds(request: Request[wire.ProduceRequest]) -> bool:
    return request.version >= _ADDS_PARTITIONS


async def _append_held(
    context: ApiContext,
    request: Request[wire.ProduceRequest],
    entries: Sequence[tuple[TopicPartition, Appendable]],
    held: Held,
    appended: Results,
    append: Callable[[list[tuple[TopicPartition, Appendable]]], Results],
) -> _Answer:
    """Ask about the held batches, append those that the coordinator allows, and answer for all."""
    checks = {index: one for index, one in held.items() if isinstance(one, Check)}
    results = {index: one for index, one in held.items() if isinstance(one, AppendResult)}
    results |= await _refused(context, request, checks)
    agreed = [index for index in checks if index not in results]
    appended_later = append([entries[index] for index in agreed])
    # The request may be answered only now, but its free batches were appended before the question.
    free = (index for index in range(len(entries)) if index not in held)
    results |= zip(free, await _done(appended), strict=True)
    results |= zip(agreed, await _done(appended_later), strict=True)
    return _answer(context, request.body, [results[index] for index in range(len(entries))])


async def _done(results: Results) -> list[AppendResult]:
    return results if isinstance(results, list) else await results


async def _refused(
    context: ApiContext, request: Request[wire.ProduceRequest], checks: Mapping[int, Check]
) -> dict[int, AppendResult]:
    """Return the results of the batches that may not be appended, by index.

    The others must be appended in the same turn: a marker may end the transaction in the next one.
    """
    if not checks:
        return {}
    name, adds = request.body["transactional_id"] or "", _adds(request)
    errors = await context.verifier.ask(name, list(checks.values()), adds=adds)
    refused = {}
    for index, check in checks.items():
        code = errors[check.partition]
        try:
            if code is not ErrorCode.NONE:
                raise KafkaError(_as_producers_know(code, request.version))
            context.verifier.end(check)
        except KafkaError as error:
            refused[index] = AppendResult(error.code, message=error.message)
    return refused


def _as_producers_know(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def refuse(
    context: ApiContext, request: Request[wire.ProduceRequest], error: KafkaError
) -> _Answer:
    """Return the same error for each partition."""
    count = sum(len(topic["partition_data"]) for topic in request.body["topic_data"])
    result = AppendResult(error.code, message=error.message)
    return _answer(context, request.body, [result] * count)


def _answer(context: ApiContext, body: wire.ProduceRequest, results: list[AppendResult]) -> _Answer:
    if body["acks"] == 0:
        # One failure is enough: what other partitions have appended stays.
        failed = next((r for r in results if r.error), None)
        if failed is not None:
            raise HangUpError(f"a produce with acks=0 failed: {failed.error.name}")
        return None
    remaining = iter(results)
    count = sum(len(topic["partition_data"]) for topic in body["topic_data"])
    invariant(len(results) == count, "each batch of the request has one result")
    leaders = {r.current_leader.leader_id for r in results if r.current_leader is not None}
    return {
        "responses": [
            {
                "name": topic["name"],
                "partition_responses": [
                    _partition(data["index"], next(remaining)) for data in topic["partition_data"]
                ],
            }
            for topic in body["topic_data"]
            if topic["partition_data"]
        ],
        "node_endpoints": node_endpoints(context, leaders),
    }


def _partition(index: int, result: AppendResult) -> wire.PartitionProduceResponse:
    return {
        "index": index,
        "error_code": result.error,
        "base_offset": result.base_offset,
        "log_append_time_ms": result.log_append_time_ms,
        "log_start_offset": result.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": why}
            for index, why in result.record_errors.items()
        ],
        "error_message": result.message,
        "current_leader": current_leader(result.current_leader),
    }
