"""Fetch: records for consumers and followers (rows R1, R10).

Topics are named by name up to version 12 and by id from 13 on; ids are resolved here. Sessions
(KIP-227, from version 7 on) say which partitions a Fetch is about and which the answer names.
Consumers need READ on a topic. Followers need CLUSTER_ACTION, since a fetch of theirs commits
records as well as it reads them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.apis.discovery import current_leader, node_endpoints
from broker.apis.handler import Reply, throttling
from broker.apis.handler.authorization import denied_names, is_allowed
from broker.apis.handler.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    Reader,
    Round,
    SessionRequest,
    Wanted,
)
from broker.types import CONSUMER, FetchParams, FetchPartition, FetchResult, TopicPartition
from broker.types import FetchKey as Key
from raftctl.config.keys import RACK_AWARE_SELECTOR
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from uuid import UUID

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import data as wire
    from raftctl.runtime.api import Buffer, Piece

_ISOLATION_LEVELS = (0, 1)
_READ_COMMITTED = 1
_NO_REPLICA = {"replica_id": -1, "replica_epoch": -1}
_FIRST_VERSION_BY_ID = 13
_NOT_READ = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""These answers name no aborted transactions, not even to who reads what is not committed."""
_UNKNOWN_ID = FetchResult(ErrorCode.UNKNOWN_TOPIC_ID)
_NEGATIVE_BYTES = FetchResult(ErrorCode.INVALID_REQUEST)
_DENIED = FetchResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_NONE: frozenset[str] = frozenset()
_ANSWER_BYTES = 16
_PARTITION_BYTES = 60
"""Of an answer for a quota, besides records. Nearly; the exact size is known when it is encoded."""


def handle(
    context: ApiContext, request: Request[wire.FetchRequest]
) -> wire.FetchResponse | Reply[wire.FetchResponse]:
    """Answer when there is enough to send, or after the client's wait.

    Raises KafkaError: INVALID_REQUEST for an isolation level that does not exist. Its client would
    take records of aborted transactions for committed ones.
    """
    # Refused before the session begins its next round, which would otherwise be lost.
    level = request.body["isolation_level"]
    if level not in _ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"isolation level {level} does not exist")
    request.context.is_of_replica = _replica_id(request.body) != CONSUMER
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    turn = context.sessions.begin(_session_request(context, request), now_ms)
    if turn.error:
        return {"error_code": turn.error, "responses": ()}
    denied = _NONE
    if context.authorizer is not None:
        if not _may_follow(context, request):
            # No replica sees the fetch: it would keep the follower in sync.
            turn = turn.of_all()
            return _answer(context, turn, [_DENIED] * len(turn.partitions))
        denied = _denied(context, request, (key for key, _ in turn.partitions))
    asked = [_resolve(context, key, wanted, denied) for key, wanted in turn.partitions]
    known = [one for one in asked if isinstance(one, FetchPartition)]
    count = len(known)
    params = _params(context, request, turn.first)
    results = context.replicas.fetch(params, known, turn.dirty)

    def shape(results: list[FetchResult]) -> wire.FetchResponse:
        if _is_throttled(context, request, results):
            error, session_id = context.sessions.withhold(turn, [one.key for one in known[count:]])
            return {"error_code": error, "session_id": session_id, "responses": ()}
        context.replicas.note_answered(params.replica_id, known, results)
        found = iter(results)
        whole = [one if isinstance(one, FetchResult) else next(found) for one in asked]
        added = [one.key for one in known[count:]]
        more = list(found)
        if added and context.authorizer is not None:
            more = _authorized(context, request, added, more)
        if (size := request.context.records_bytes_max) is not None:
            whole = [one._replace(records=_cut(one.records, size)) for one in whole]
        return _answer(context, turn, [*whole, *more], added)

    return (
        shape(results)
        if isinstance(results, list)
        else Reply(results, lambda: shape(results.result()))
    )


def _is_throttled(
    context: ApiContext, request: Request[wire.FetchRequest], results: Sequence[FetchResult]
) -> bool:
    """Count what a consumer reads; return whether it must wait for it (KIP-13)."""
    if not context.quotas.is_active or _replica_id(request.body) != CONSUMER:
        return False
    sizes = (result.size for result in results)
    size = _ANSWER_BYTES + sum(_PARTITION_BYTES + size for size in sizes if size)
    return throttling.fetched(context, request, size)


def refuse(
    context: ApiContext, request: Request[wire.FetchRequest], error: KafkaError
) -> wire.FetchResponse:
    """Return the same error for the whole and for each partition that the request names.

    Versions below 7 have no error of the whole. Partitions of the session are not named.
    """
    named = dict(_wanted(request.body))
    failed = FetchResult(error.code)
    answer = _answer(context, Round(list(named.items())), [failed] * len(named))
    return {**answer, "error_code": error.code}


def _may_follow(context: ApiContext, request: Request[wire.FetchRequest]) -> bool:
    """Return True for a consumer, and for a follower that may act for the cluster."""
    if _replica_id(request.body) == CONSUMER:
        return True
    action, cluster = Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    return is_allowed(context, request, action, cluster, CLUSTER_NAME)


def _denied(
    context: ApiContext, request: Request[wire.FetchRequest], keys: Iterable[Key]
) -> frozenset[str]:
    """Return the names of the topics that a consumer may not read; none for a follower."""
    if _replica_id(request.body) != CONSUMER:
        return _NONE
    names = (name for key in keys if (name := _name_of(context, key)) is not None)
    return denied_names(context, request, Operation.READ, ResourceType.TOPIC, names)


def _authorized(
    context: ApiContext,
    request: Request[wire.FetchRequest],
    keys: Sequence[Key],
    results: Sequence[FetchResult],
) -> list[FetchResult]:
    """Return the results, but for those of topics that the reader may not read."""
    denied = _denied(context, request, keys)
    return [
        _DENIED if _name_of(context, key) in denied else result
        for key, result in zip(keys, results, strict=True)
    ]


def _name_of(context: ApiContext, key: Key) -> str | None:
    """Return the topic's name, or None if no topic has the id."""
    if key.topic is None or isinstance(key.topic, str):
        return key.topic
    found = context.metadata.image.topics.by_id(key.topic)
    return None if found is None else found.name


def _session_request(context: ApiContext, request: Request[wire.FetchRequest]) -> SessionRequest:
    body = request.body
    return SessionRequest(
        session_id=body.get("session_id", NO_SESSION),
        epoch=body.get("session_epoch", FINAL_EPOCH),
        by_topic_id=request.version >= _FIRST_VERSION_BY_ID,
        is_follower=_replica_id(body) != CONSUMER,
        reader=Reader(
            _replica_id(body),
            _replica_epoch(body),
            body["isolation_level"],
            body.get("rack_id", ""),
        ),
        owner=request.context.connection.principal,
        # A right that is taken away shows at the next fetch, as it would without a session.
        rules=None if context.authorizer is None else context.metadata.image.acls,
        wanted=dict(_wanted(body)),
        forgotten=[
            Key(_topic(topic), partition)
            for topic in body.get("forgotten_topics_data", ())
            for partition in topic["partitions"]
        ],
    )


def _wanted(body: wire.FetchRequest) -> Iterator[tuple[Key, Wanted]]:
    for topic in body["topics"]:
        name = _topic(topic)
        for partition in topic["partitions"]:
            yield (
                Key(name, partition["partition"]),
                Wanted(
                    current_leader_epoch=partition.get("current_leader_epoch", -1),
                    fetch_offset=partition["fetch_offset"],
                    last_fetched_epoch=partition.get("last_fetched_epoch", -1),
                    log_start_offset=partition.get("log_start_offset", -1),
                    max_bytes=partition["partition_max_bytes"],
                ),
            )


def _topic(topic: wire.FetchTopic | wire.ForgottenTopic) -> str | UUID | None:
    name: str | UUID | None = topic["topic"] if "topic" in topic else topic["topic_id"]
    return name


def _replica_id(body: wire.FetchRequest) -> int:
    replica_id: int = body.get("replica_id", body.get("replica_state", _NO_REPLICA)["replica_id"])
    # Tools that look into logs call themselves -2: they read what is committed, as all consumers.
    return CONSUMER if replica_id < 0 else replica_id


def _replica_epoch(body: wire.FetchRequest) -> int:
    epoch: int = body.get("replica_state", _NO_REPLICA)["replica_epoch"]
    return epoch


def _params(context: ApiContext, request: Request[wire.FetchRequest], first: int) -> FetchParams:
    body = request.body
    max_bytes = min(body["max_bytes"], context.config.fetch_max_bytes)
    min_bytes = body["min_bytes"]
    if context.quotas.is_active and _replica_id(body) == CONSUMER:
        principal = request.context.connection.principal
        allowed = context.quotas.fetch_bytes_max(principal, request.client_id)
        max_bytes = max_bytes if allowed is None else min(max_bytes, allowed)
        min_bytes = min(min_bytes, max_bytes)
    return FetchParams(
        replica_id=_replica_id(body),
        replica_epoch=_replica_epoch(body),
        max_wait_ms=min(body["max_wait_ms"], context.wait_ms_max),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        read_committed=body["isolation_level"] == _READ_COMMITTED,
        client_rack=body.get("rack_id", ""),
        leader_only=_leader_only(context, body),
        first=first,
        may_be_deposed=not context.has_session(),
    )


def _leader_only(context: ApiContext, body: wire.FetchRequest) -> bool:
    """Followers read from leaders; so do consumers, but for those that a leader may send away."""
    # A rack in the request says that the consumer can follow a preferred replica (KIP-392).
    selects = context.config.replica_selector_class == RACK_AWARE_SELECTOR
    return _replica_id(body) != CONSUMER or "rack_id" not in body or not selects


def _resolve(
    context: ApiContext, key: Key, wanted: Wanted, denied: frozenset[str]
) -> FetchPartition | FetchResult:
    """What to read; or the answer, where nobody knows the topic id, the reader may not read the
    topic, or less than nothing is asked for.
    """
    name, topic_id = key.topic, None
    if not isinstance(name, str):
        found = None if name is None else context.metadata.image.topics.by_id(name)
        if found is None:
            return _UNKNOWN_ID
        name, topic_id = found.name, found.topic_id
    if name in denied:
        return _DENIED
    # Less than nothing is an error of the partition alone; 0 may bring a batch (KIP-74).
    if wanted.max_bytes < 0:
        return _NEGATIVE_BYTES
    return FetchPartition(TopicPartition(name, key.partition), topic_id, *wanted)


def _answer(
    context: ApiContext, turn: Round, results: list[FetchResult], added: Sequence[Key] = ()
) -> wire.FetchResponse:
    error, named = turn.answer(results, added)
    leaders = {r.current_leader.leader_id for _, r in named if r.current_leader is not None}
    return {
        "error_code": error,
        "session_id": turn.session_id,
        "responses": _by_topic(named),
        "node_endpoints": node_endpoints(context, leaders),
    }


def _by_topic(named: Iterable[tuple[Key, FetchResult]]) -> list[wire.FetchableTopicResponse]:
    topics: dict[str | UUID | None, list[wire.FetchResponsePartitionData]] = {}
    for key, result in named:
        topics.setdefault(key.topic, []).append(_partition(key.partition, result))
    # A version has one of the two names; the other is not sent.
    return [
        {"topic": topic, "partitions": partitions}
        if isinstance(topic, str)
        else {"topic_id": topic, "partitions": partitions}
        for topic, partitions in topics.items()
    ]


def _cut(records: Sequence[Piece], size: int) -> list[Piece]:
    """Return the first bytes of records, `size` at most."""
    kept: list[Piece] = []
    for piece in records:
        if size <= 0:
            break
        whole = len(piece) <= size
        kept.append(piece if whole else _beginning(piece, size))
        size -= len(piece)
    return kept


def _beginning(piece: Piece, size: int) -> Buffer:
    if isinstance(piece, bytes | bytearray | memoryview):
        return memoryview(piece)[:size]
    return piece.read(0, size)


def _partition(index: int, result: FetchResult) -> wire.FetchResponsePartitionData:
    answer: wire.FetchResponsePartitionData = {
        "partition_index": index,
        "error_code": result.error,
        "high_watermark": result.high_watermark,
        "last_stable_offset": result.last_stable_offset,
        "log_start_offset": result.log_start_offset,
        "preferred_read_replica": result.preferred_read_replica,
        "records": result.records,
        "current_leader": current_leader(result.current_leader),
    }
    if result.error in _NOT_READ:
        answer["aborted_transactions"] = ()
    elif result.aborted_transactions is not None:
        answer["aborted_transactions"] = [
            {"producer_id": producer_id, "first_offset": first_offset}
            for producer_id, first_offset in result.aborted_transactions
        ]
    if (diverging := result.diverging) is not None:
        epoch, end_offset = diverging.leader_epoch, diverging.end_offset
        answer["diverging_epoch"] = {"epoch": epoch, "end_offset": end_offset}
    return answer
