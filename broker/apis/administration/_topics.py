"""CreateTopics and DeleteTopics (forwarded to the active controller), DescribeTopicPartitions.

An answer waits until this broker's own image shows the result, so that a client that asks the same
broker next sees it; it comes without that when the client's timeout is over, since the change is
committed anyway.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from broker.apis.administration._configs import topic_config_entries
from broker.apis.administration._mutations import accepted
from broker.apis.discovery import (
    OPERATIONS_NOT_ASKED,
    is_internal,
    partition_message,
    unknown_name,
)
from broker.apis.handler import authorization
from broker.apis.handler.forwarding import ask_controller
from broker.coordinator.internal_topics import filled
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.metadata.requests.cluster import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    TopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from uuid import UUID

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import administration as wire
    from raftctl.metadata.image import MetadataImage, PartitionImage
    from raftctl.metadata.requests import ForwardedRequest

_TOPIC = ResourceType.TOPIC
_CREATE_STRICT_SINCE, _DELETE_STRICT_SINCE = 6, 5
"""Versions that know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
_DELETION_DISABLED_SINCE = 3
"""The version of DeleteTopics that knows TOPIC_DELETION_DISABLED."""
_PARTITIONS_MAX = 2_000
"""The default of Apache Kafka's `max.request.partition.size.limit` (KIP-966)."""


async def handle_create(
    context: ApiContext, request: Request[wire.CreateTopicsRequest]
) -> wire.CreateTopicsResponse:
    """Create topics, each on its own (KIP-4, row C3)."""
    body = request.body
    wanted = [_new_topic(context, topic) for topic in body["topics"]]
    sizes = ((topic, _created_partitions(context, request, topic)) for topic in wanted)
    new, refused = accepted(context, request, sizes, strict_since=_CREATE_STRICT_SINCE)
    create = CreateTopicsRequest(tuple(new), body["validate_only"])

    def all_there(image: MetadataImage, results: tuple[TopicResult, ...]) -> bool:
        return all(r.error or image.topics.by_name(r.name) is not None for r in results)

    # A dry run changes no image, so waiting for one would always take the client's whole timeout.
    visible = (lambda *_: True) if body["validate_only"] else all_there
    results: tuple[TopicResult, ...] = ()
    if new or not refused:
        results = await _change(context, request, create, body["timeout_ms"], visible)
    overrides = {topic.name: dict(topic.configs) for topic in new}
    created = [_created(context, r, overrides.get(r.name, {})) for r in results]
    return {"topics": [*created, *(_not_created(topic.name, error) for topic, error in refused)]}


def refuse_create(
    _context: ApiContext, request: Request[wire.CreateTopicsRequest], error: KafkaError
) -> wire.CreateTopicsResponse:
    """Return the same error for each topic."""
    names = dict.fromkeys(topic["name"] for topic in request.body["topics"])
    return {"topics": [_not_created(name, error) for name in names]}


async def handle_delete(
    context: ApiContext, request: Request[wire.DeleteTopicsRequest]
) -> wire.DeleteTopicsResponse:
    """Delete topics by name or by id; INVALID_REQUEST for one named by both, or twice."""
    # A topic that is named wrongly does not keep the others: as on creation each is on its own.
    topics = request.body.get("topics", [])
    wrong = [(one["name"], one["topic_id"]) for one in topics if _is_ambiguous(one)]
    times = Counter(_delete_keys(request))
    wrong += [key for key, count in times.items() if count > 1]
    once = ((key, _deleted_partitions(context, request, *key)) for key in times if times[key] == 1)
    keys, throttled = accepted(context, request, once, strict_since=_DELETE_STRICT_SINCE)
    delete = DeleteTopicsRequest(tuple(keys))

    def all_gone(image: MetadataImage, results: tuple[TopicResult, ...]) -> bool:
        # By id: another client may have created a topic of the same name meanwhile.
        ids = [r.topic_id for r in results if not r.error and r.topic_id is not None]
        return all(image.topics.by_id(topic_id) is None for topic_id in ids)

    results: tuple[TopicResult, ...] = ()
    if keys:
        try:
            results = await _change(context, request, delete, request.body["timeout_ms"], all_gone)
        except KafkaError as disabled:
            raise _as_clients_know(disabled, request.version) from disabled
    text = "name the topic once, by its name or by its id"
    error = KafkaError(ErrorCode.INVALID_REQUEST, text)
    refused = [_not_deleted(*key, error) for key in wrong]
    refused += [_not_deleted(*key, refusal) for key, refusal in throttled]
    return {"responses": [*refused, *(_deleted(r) for r in results)]}


def _as_clients_know(error: KafkaError, version: int) -> KafkaError:
    """Return the error by a code that the version has."""
    if error.code is ErrorCode.TOPIC_DELETION_DISABLED and version < _DELETION_DISABLED_SINCE:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
    return error


def refuse_delete(
    _context: ApiContext, request: Request[wire.DeleteTopicsRequest], error: KafkaError
) -> wire.DeleteTopicsResponse:
    """Return the same error for each topic."""
    return {"responses": [_not_deleted(*key, error) for key in _delete_keys(request)]}


async def _change(
    context: ApiContext,
    request: Request[Any],
    change: ForwardedRequest,
    timeout_ms: int,
    visible: Callable[[MetadataImage, tuple[TopicResult, ...]], bool],
) -> tuple[TopicResult, ...]:
    """Sends the change to the active controller and waits for its results to be visible here."""
    # The client's timeout is for both: first the commit, then this broker's image.
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    response = await ask_controller(context, request, change, timeout_ms)
    if not isinstance(response, CreateTopicsResponse | DeleteTopicsResponse):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "unexpected response type from the controller"
        )
    if response.error:
        raise KafkaError(response.error)
    results = response.topics
    left_ms = int((deadline - loop.time()) * 1000)
    await context.metadata.until(lambda image: visible(image, results), left_ms)
    return results


def _new_topic(context: ApiContext, topic: wire.CreatableTopic) -> NewTopic:
    new = NewTopic(
        name=topic["name"],
        partitions=topic["num_partitions"],
        replication_factor=topic["replication_factor"],
        assignments=tuple(
            (a["partition_index"], tuple(a["broker_ids"])) for a in topic["assignments"]
        ),
        configs=tuple((c["name"], c["value"]) for c in topic["configs"]),
    )
    if is_internal(new.name):
        # Of tools that copy a cluster's topics: coordinators lose what an ordinary topic forgets.
        return filled(new, context.config, context.metadata.image)
    return new


def _created_partitions(
    context: ApiContext, request: Request[wire.CreateTopicsRequest], topic: NewTopic
) -> int | None:
    """Return for how many partitions the quota of changes is asked; None: there is no change."""
    if context.metadata.image.topics.by_name(topic.name) is not None:
        return None
    if not _may(context, request, Operation.CREATE, topic.name):
        return None
    if topic.assignments:
        return len(topic.assignments)
    return topic.partitions if topic.partitions > 0 else context.config.num_partitions


def _deleted_partitions(
    context: ApiContext,
    request: Request[wire.DeleteTopicsRequest],
    name: str | None,
    topic_id: UUID | None,
) -> int | None:
    topics = context.metadata.image.topics
    topic = topics.by_id(topic_id) if topic_id is not None else topics.by_name(name or "")
    if topic is None or not _may(context, request, Operation.DELETE, topic.name):
        return None
    return len(topic.partitions)


def _may(context: ApiContext, request: Request[Any], operation: Operation, topic: str) -> bool:
    """Return whether the operation is allowed on the cluster, or on the topic."""
    return authorization.may_change(
        context, request, operation, ResourceType.CLUSTER, CLUSTER_NAME
    ) or authorization.may_change(context, request, operation, _TOPIC, topic)


def _created(
    context: ApiContext, result: TopicResult, overrides: dict[str, str | None]
) -> wire.CreatableTopicResult:
    if result.error:
        return _not_created(result.name, KafkaError(result.error, result.message))
    values = {key: value for key, value in overrides.items() if value is not None}
    may_see = not result.configs_error
    return {
        "name": result.name,
        "topic_id": result.topic_id,
        "num_partitions": result.partitions,
        "replication_factor": result.replication_factor,
        "configs": topic_config_entries(context, values, None) if may_see else (),
        "topic_config_error_code": result.configs_error,
    }


def _deleted(result: TopicResult) -> wire.DeletableTopicResult:
    message = (result.message or result.error.text) if result.error else None
    return {
        # By id it has none. A name that no topic can have is sent back as it came.
        "name": result.name if result.topic_id is None else result.name or None,
        "topic_id": result.topic_id,
        "error_code": result.error,
        "error_message": message,
    }


def _not_created(name: str, error: KafkaError) -> wire.CreatableTopicResult:
    return {
        "name": name,
        "configs": (),
        "error_code": error.code,
        "error_message": error.message,
    }


def _not_deleted(
    name: str | None, topic_id: UUID | None, error: KafkaError
) -> wire.DeletableTopicResult:
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": error.code,
        "error_message": error.message,
    }


def _delete_keys(
    request: Request[wire.DeleteTopicsRequest],
) -> list[tuple[str | None, UUID | None]]:
    """(name, None) or (None, topic id) of each topic."""
    if "topic_names" in request.body:
        return [(name, None) for name in request.body["topic_names"]]
    return [
        (topic["name"], None) if topic["topic_id"] is None else (None, topic["topic_id"])
        for topic in request.body["topics"]
        if not _is_ambiguous(topic)
    ]


def _is_ambiguous(topic: wire.DeleteTopicState) -> bool:
    return (topic["name"] is None) == (topic["topic_id"] is None)


def handle_describe_partitions(
    context: ApiContext, request: Request[wire.DescribeTopicPartitionsRequest]
) -> wire.DescribeTopicPartitionsResponse:
    """Answer with the partitions of topics in order of their names, a page at a time (KIP-966).

    Raises KafkaError: INVALID_REQUEST for a cursor that is in none of the topics asked for.
    """
    body = request.body
    named = sorted({topic["name"] for topic in body["topics"]})
    topics = context.metadata.image.topics
    names = named or [topic.name for topic in topics.in_order()]
    cursor = body["cursor"]
    if cursor:
        _check_cursor(cursor, [topic["name"] for topic in body["topics"]])
    first = (cursor["topic_name"], cursor["partition_index"]) if cursor else ("", 0)
    # With a limit of 0 a client that asks page by page would never come to the end.
    left = max(1, min(body["response_partition_limit"], _PARTITIONS_MAX))
    answers: list[wire.DescribeTopicPartitionsResponseTopic] = []
    denied: list[wire.DescribeTopicPartitionsResponseTopic] = []
    next_cursor: wire.DescribeTopicPartitionsResponseCursor | None = None
    for name in names:
        # Compared, not looked up: the cursor's topic may have been deleted between two pages.
        if name < first[0]:
            continue
        if not authorization.is_allowed(context, request, Operation.DESCRIBE, _TOPIC, name):
            # Whether there is such a topic shows neither here nor in the list of all.
            if named:
                denied.append(_missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        start = first[1] if name == first[0] else 0
        if left <= 0:
            next_cursor = {"topic_name": name, "partition_index": start}
            break
        answer, end = _described(context, name, start, left)
        answer["topic_authorized_operations"] = authorization.authorized_operations(
            context, request, _TOPIC, name
        )
        left -= len(answer["partitions"])
        answers.append(answer)
        if end is not None:
            next_cursor = {"topic_name": name, "partition_index": end}
            break
    return {"topics": [*answers, *denied], "next_cursor": next_cursor}


def _check_cursor(cursor: wire.DescribeTopicPartitionsRequestCursor, names: list[str]) -> None:
    """A page that begins nowhere would look like the last one."""
    text = None
    if cursor["partition_index"] < 0:
        text = (
            f"the cursor's partition_index is {cursor['partition_index']}: it must not be negative"
        )
    elif names and cursor["topic_name"] not in names:
        text = f"the cursor's topic {cursor['topic_name']!r} is not one of those asked for"
    if text is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _described(
    context: ApiContext, name: str, start: int, limit: int
) -> tuple[wire.DescribeTopicPartitionsResponseTopic, int | None]:
    """A topic from partition `start` on, and where the next page begins if it goes on."""
    topic = context.metadata.image.topics.by_name(name)
    if topic is None:
        return _missing(name, unknown_name(name)), None
    live = context.metadata.live_brokers(context.listener)
    hidden = context.metadata.hidden_brokers(context.listener)
    end = min(start + limit, len(topic.partitions))
    answer: wire.DescribeTopicPartitionsResponseTopic = {
        "error_code": ErrorCode.NONE,
        "name": name,
        "topic_id": topic.topic_id,
        "is_internal": is_internal(name),
        "partitions": [
            _partition(i, topic.partitions[i], live, hidden) for i in range(max(start, 0), end)
        ],
    }
    return answer, None if end == len(topic.partitions) else end


def _partition(
    index: int, partition: PartitionImage, live: Collection[int], hidden: Collection[int]
) -> wire.DescribeTopicPartitionsResponsePartition:
    return {
        **partition_message(index, partition, live, hidden),
        "eligible_leader_replicas": partition.elr,
        # Replicas that were eligible before an unclean shutdown (KIP-966): no record keeps them.
        "last_known_elr": (),
    }


def _missing(name: str, error: ErrorCode) -> wire.DescribeTopicPartitionsResponseTopic:
    return {
        "error_code": error,
        "name": name,
        "topic_id": None,
        "partitions": (),
        "topic_authorized_operations": OPERATIONS_NOT_ASKED,
    }
