"""OffsetCommit, OffsetFetch, OffsetDelete: how far consumer groups have come (row G3)."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID

from broker.apis.consumer._groups import ask, ask_any, require_member
from broker.apis.handler import Reply
from broker.apis.handler.authorization import denied_names, require
from broker.groups import NO_EXPIRY, UNSTABLE, CommittedOffset
from broker.groups.requests import Caller, Commit, DeleteOffsets, FetchOffsets
from broker.replication.partition import Sender
from broker.types import CONSUMER_OFFSETS, TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import consumer as wire

_KNOWS_EPOCHS = 9
"""From this version on OffsetCommit may come from a member of KIP-848, with its epoch."""
_BY_TOPIC_ID = 10
_FETCHES_IN_BATCHES = 8
"""One OffsetFetch is for several groups then (KIP-709)."""
_KNOWS_LOADING = 2
"""Producers of earlier versions of TxnOffsetCommit fail if a coordinator loads (KAFKA-7296)."""
_KNOWS_ABORTABLE = 4
"""TRANSACTION_ABORTABLE is known to TxnOffsetCommit from this version on (KIP-890)."""
_ADDS_PARTITION = 5
"""From this version on TxnOffsetCommit is of transaction version 2."""
_LATER = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_TIMESTAMP_MAX = 2**63 - 1
"""Of a record: what would expire later is kept until then."""
_NONE = CommittedOffset(-1, -1, "", -1)
Errors = dict[TopicPartition, ErrorCode]

if TYPE_CHECKING:
    _FetchedTopic = wire.OffsetFetchRequestTopic | wire.OffsetFetchRequestTopics
    _Fetched = Sequence[wire.OffsetFetchRequestTopic] | Sequence[wire.OffsetFetchRequestTopics]
    _ByName = wire.TxnOffsetCommitRequestTopic | wire.OffsetDeleteRequestTopic
    _Asked = wire.OffsetCommitRequestTopic | _FetchedTopic | _ByName


class _Name(TypedDict, total=False):
    """Name or id of a topic, whichever the version of the request has."""

    name: str
    topic_id: UUID | None


def _named(topic: _Asked) -> _Name:
    """Return the field of a response that names a topic as the request does."""
    name = topic.get("name")
    return {"topic_id": _topic_id(topic)} if name is None else {"name": name}


def _topic_id(topic: _Asked) -> UUID | None:
    topic_id = topic.get("topic_id")
    return topic_id if isinstance(topic_id, UUID) else None


def _name_of(context: ApiContext, topic: _Asked) -> str | None:
    """Return a topic's name, or None if no topic has the id that the request gives."""
    name = topic.get("name")
    if name is not None:
        return name
    topic_id = _topic_id(topic)
    found = None if topic_id is None else context.metadata.image.topics.by_id(topic_id)
    return None if found is None else found.name


# --- OffsetCommit ---------------------------------------------------------------------------------


def handle_commit(
    context: ApiContext, request: Request[wire.OffsetCommitRequest]
) -> wire.OffsetCommitResponse | Reply[wire.OffsetCommitResponse]:
    """Commit offsets, and answer when they are committed, with an error for each partition.

    Raises KafkaError(GROUP_AUTHORIZATION_FAILED). The coordinator is asked about the partitions
    that exist and may be read; its error is theirs.
    """
    require_member(context, request)
    body = request.body
    wall_ms = context.wall_ms()
    denied = _denied(context, request, Operation.READ, body["topics"])
    offsets = []
    for topic in body["topics"]:
        name = _name_of(context, topic)
        for one in topic["partitions"]:
            partition = TopicPartition(name or "", one["partition_index"])
            if context.metadata.has(partition) and name not in denied:
                # Versions 2 to 4 alone have a retention of their own (KIP-211 took it away).
                retention_ms = body.get("retention_time_ms", -1)
                offsets.append((partition, _committed(one, wall_ms, retention_ms)))

    def answer(errors: Errors) -> wire.OffsetCommitResponse:
        named = [topic for topic in body["topics"] if topic["partitions"]]
        return {"topics": [_commit_answer(context, topic, errors, denied) for topic in named]}

    if not offsets:
        return answer({})
    generation = body["generation_id_or_member_epoch"]
    caller = Caller(body["member_id"], body.get("group_instance_id"), generation)
    knows_epochs = request.version >= _KNOWS_EPOCHS
    commit = Commit(body["group_id"], caller, tuple(offsets), knows_epochs=knows_epochs)
    try:
        committed = ask_any(context, commit, commit.group_id)
    except KafkaError as error:
        return answer(_failed(commit, error))

    def result() -> wire.OffsetCommitResponse:
        try:
            return answer(committed.result())
        except KafkaError as error:
            return answer(_failed(commit, error))

    return Reply(committed, result)


def _denied(
    context: ApiContext,
    request: Request[Any],
    operation: Operation,
    topics: Iterable[_Asked],
) -> frozenset[str]:
    """Return the names of those topics on which the operation is denied."""
    if context.authorizer is None:
        return frozenset()
    names = (name for one in topics if (name := _name_of(context, one)) is not None)
    return denied_names(context, request, operation, ResourceType.TOPIC, names)


def _failed(commit: Commit, error: KafkaError) -> Errors:
    """Return the coordinator's error for each partition that it was asked about."""
    return {partition: error.code for partition, _ in commit.offsets}


async def handle_commit_in_transaction(
    context: ApiContext, request: Request[wire.TxnOffsetCommitRequest]
) -> wire.TxnOffsetCommitResponse:
    """TxnOffsetCommit: the offsets count when the producer's transaction is committed.

    Raises KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED.
    """
    body = request.body
    name = body["transactional_id"]
    require(context, request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    require_member(context, request)
    denied = _denied(context, request, Operation.READ, body["topics"])
    wall_ms = context.wall_ms()
    offsets = [
        (partition, _committed(one, wall_ms, -1))
        for topic in body["topics"]
        if topic["name"] not in denied
        for one in topic["partitions"]
        if context.metadata.has(partition := TopicPartition(topic["name"], one["partition_index"]))
    ]
    caller = Caller(
        body.get("member_id", ""), body.get("group_instance_id"), body.get("generation_id", -1)
    )
    producer = body["producer_id"], body["producer_epoch"]
    commit = Commit(body["group_id"], caller, tuple(offsets), producer, knows_epochs=False)
    # As in Apache Kafka the coordinator is not asked then: an outdated producer is not fenced.
    errors = await _commit_in_transaction(context, request, commit) if offsets else {}
    return {"topics": [_named_commit(topic, errors, denied) for topic in body["topics"]]}


async def _commit_in_transaction(
    context: ApiContext, request: Request[wire.TxnOffsetCommitRequest], commit: Commit
) -> Errors:
    """Return the errors of the partitions, of all the same one if the coordinator refuses."""
    try:
        if not commit.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        await _check_transaction(context, request)
        errors: Errors = await ask(context, commit, commit.group_id)
    except KafkaError as error:
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if loading and request.version < _KNOWS_LOADING:
            return _failed(commit, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return _failed(commit, error)
    return errors


async def _check_transaction(
    context: ApiContext, request: Request[wire.TxnOffsetCommitRequest]
) -> None:
    """KafkaError if the group's partition does not belong to the producer's transaction; clients
    of transaction version 2 leave it to this broker to add it. What follows must follow at once.
    """
    body, adds = request.body, request.version >= _ADDS_PARTITION
    number = context.groups.partition_of(body["group_id"])
    partition = TopicPartition(CONSUMER_OFFSETS, number)
    sender = Sender(body["producer_id"], body["producer_epoch"])
    check = context.verifier.begin(partition, sender, adds=adds)
    if check is None:
        return
    errors = await context.verifier.ask(body["transactional_id"], [check], adds=adds)
    code = errors[partition]
    if code is ErrorCode.NONE:
        try:
            context.verifier.end(check)
        except KafkaError as error:
            code = error.code
    if code is not ErrorCode.NONE:
        raise KafkaError(_as_committers_know(code, request.version))


def _as_committers_know(code: ErrorCode, version: int) -> ErrorCode:
    # The verifier's words are those for Produce. Committers try again at other errors.
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def _committed(
    one: wire.OffsetCommitRequestPartition | wire.TxnOffsetCommitRequestPartition,
    wall_ms: int,
    retention_ms: int,
) -> CommittedOffset:
    return CommittedOffset(
        one["committed_offset"],
        one.get("committed_leader_epoch", -1),
        one["committed_metadata"] or "",
        wall_ms,
        NO_EXPIRY if retention_ms < 0 else min(wall_ms + retention_ms, _TIMESTAMP_MAX),
    )


def _commit_answer(
    context: ApiContext,
    topic: wire.OffsetCommitRequestTopic,
    errors: Errors,
    denied: frozenset[str],
) -> wire.OffsetCommitResponseTopic:
    name = _name_of(context, topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    elif name in denied:
        unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions: list[wire.OffsetCommitResponsePartition] = []
    for one in topic["partitions"]:
        index = one["partition_index"]
        code = errors.get(TopicPartition(name or "", index), unknown)
        partitions.append({"partition_index": index, "error_code": code})
    return {**_named(topic), "partitions": partitions}


def _named_commit(
    topic: _ByName,
    errors: Errors,
    denied: frozenset[str],
) -> wire.TxnOffsetCommitResponseTopic:
    """The same of the requests that name topics in all versions."""
    name, unknown = topic["name"], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name in denied:
        unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    numbers = [one["partition_index"] for one in topic["partitions"]]
    return {
        "name": name,
        "partitions": [
            {
                "partition_index": number,
                "error_code": errors.get(TopicPartition(name, number), unknown),
            }
            for number in numbers
        ],
    }


# --- OffsetFetch ----------------------------------------------------------------------------------


async def handle_fetch(
    context: ApiContext, request: Request[wire.OffsetFetchRequest]
) -> wire.OffsetFetchResponse | wire.OffsetFetchResponseGroup:
    """Answer with the offsets of one group, or several from version 8 on; -1 for none."""
    body = request.body
    if request.version < _FETCHES_IN_BATCHES:
        return await _fetch(context, request, body["group_id"], body["topics"], None)
    fetches = (
        _fetch(context, request, group["group_id"], group["topics"], _fetcher(group))
        for group in body["groups"]
    )
    return {"groups": await asyncio.gather(*fetches)}


async def _fetch(
    context: ApiContext,
    request: Request[wire.OffsetFetchRequest],
    group_id: str,
    asked: _Fetched | None,
    caller: Caller | None,
) -> wire.OffsetFetchResponseGroup:
    try:
        require(context, request, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        denied = _denied(context, request, Operation.DESCRIBE, asked or ())
        wanted = None if asked is None else tuple(_wanted(context, asked, denied))
        stable = request.body.get("require_stable", False)
        fetch = FetchOffsets(group_id, wanted, stable, caller)
        found: dict[TopicPartition, CommittedOffset | None]
        found = await ask_any(context, fetch, fetch.group_id)
    except KafkaError as error:
        # The other groups of a batch are answered as usual.
        return _fetch_refused(request, group_id, asked, error)
    if asked is None:
        names = (partition.topic for partition in found)
        hidden = denied_names(context, request, Operation.DESCRIBE, ResourceType.TOPIC, names)
        asked = _all_topics(context, request, (one for one in found if one.topic not in hidden))
    topics = [_fetched(context, topic, found, denied) for topic in asked]
    return {"group_id": group_id, "topics": topics, "error_code": ErrorCode.NONE}


def _fetcher(group: wire.OffsetFetchRequestGroup) -> Caller | None:
    """The member of a KIP-848 group that asks, from version 9 on."""
    member_id, epoch = group.get("member_id"), group.get("member_epoch", -1)
    return None if member_id is None and epoch < 0 else Caller(member_id or "", None, epoch)


def _wanted(context: ApiContext, topics: _Fetched, denied: frozenset[str]) -> list[TopicPartition]:
    return [
        TopicPartition(name, index)
        for topic in topics
        if (name := _name_of(context, topic)) is not None and name not in denied
        for index in topic["partition_indexes"]
    ]


def _all_topics(
    context: ApiContext,
    request: Request[wire.OffsetFetchRequest],
    found: Iterable[TopicPartition],
) -> list[wire.OffsetFetchRequestTopics]:
    """Every topic that has offsets, as if it had been asked for."""
    topics: list[wire.OffsetFetchRequestTopics] = []
    for name, partitions in groupby(sorted(found), key=lambda one: one.topic):
        named: _Name = {"name": name}
        if request.version >= _BY_TOPIC_ID:
            topic = context.metadata.image.topics.by_name(name)
            if topic is None:
                # Deleted: by name its offsets would still be answered, but it has no id any more.
                continue
            named = {"topic_id": topic.topic_id}
        topics.append({**named, "partition_indexes": [one.partition for one in partitions]})
    return topics


def _fetched(
    context: ApiContext,
    topic: _FetchedTopic,
    found: dict[TopicPartition, CommittedOffset | None],
    denied: frozenset[str],
) -> wire.OffsetFetchResponseTopics:
    name = _name_of(context, topic)
    error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
    if name in denied:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        _offset(index, found.get(TopicPartition(name or "", index)) or _NONE, error)
        for index in topic["partition_indexes"]
    ]
    return {**_named(topic), "partitions": partitions}


def _offset(
    index: int, committed: CommittedOffset, error: ErrorCode
) -> wire.OffsetFetchResponsePartitions:
    # A transaction has an offset pending here; the consumer is to ask again (KIP-447).
    if committed is UNSTABLE:
        error = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": error,
    }


def _fetch_refused(
    request: Request[wire.OffsetFetchRequest],
    group_id: str,
    topics: _Fetched | None,
    error: KafkaError,
) -> wire.OffsetFetchResponseGroup:
    """Return the error for the group; in version 1, which has no place for it, for each partition
    of `topics`.

    In versions 2 to 7 the errors after which a client asks again stand in both places. aiokafka
    looks at partitions alone, and would take a group that is not loaded yet for one without
    offsets. Apache Kafka names no partitions there.
    """
    at_the_top = request.version >= (_FETCHES_IN_BATCHES if error.code in _LATER else 2)
    named = () if at_the_top else topics or ()
    answers = [_fetched_refused(topic, error) for topic in named]
    return {"group_id": group_id, "topics": answers, "error_code": error.code}


def _fetched_refused(topic: _FetchedTopic, error: KafkaError) -> wire.OffsetFetchResponseTopics:
    partitions = [_offset(index, _NONE, error.code) for index in topic["partition_indexes"]]
    return {**_named(topic), "partitions": partitions}


def refuse_fetch(
    _context: ApiContext, request: Request[wire.OffsetFetchRequest], error: KafkaError
) -> wire.OffsetFetchResponse | wire.OffsetFetchResponseGroup:
    """Return the same error for each group."""
    body = request.body
    if request.version < _FETCHES_IN_BATCHES:
        return _fetch_refused(request, body["group_id"], body["topics"], error)
    groups = [_fetch_refused(request, one["group_id"], None, error) for one in body["groups"]]
    return {"groups": groups}


# --- OffsetDelete ---------------------------------------------------------------------------------


async def handle_delete(
    context: ApiContext, request: Request[wire.OffsetDeleteRequest]
) -> wire.OffsetDeleteResponse:
    """Delete offsets of topics to which no member of the group subscribes (KIP-496).

    Raises KafkaError(GROUP_AUTHORIZATION_FAILED).
    """
    body = request.body
    require(context, request, Operation.DELETE, ResourceType.GROUP, body["group_id"])
    denied = _denied(context, request, Operation.READ, body["topics"])
    partitions = tuple(
        partition
        for topic in body["topics"]
        if topic["name"] not in denied
        for one in topic["partitions"]
        if context.metadata.has(partition := TopicPartition(topic["name"], one["partition_index"]))
    )
    delete = DeleteOffsets(body["group_id"], partitions)
    errors: Errors = await ask(context, delete, delete.group_id)
    return {"topics": [_named_commit(topic, errors, denied) for topic in body["topics"]]}
