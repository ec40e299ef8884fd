"""Metadata: where brokers and partitions are, and topics created because a client names them.

Only brokers that are not fenced, or were not a moment ago, are listed. Answers about topics that
exist are encoded once for each version and set of topics (see MetadataCache).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.discovery._brokers import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    controller_id,
)
from broker.apis.handler import ApiContext, Encoded
from broker.coordinator.internal_topics import new_topic as new_internal_topic
from broker.protocol.codec import encode_response_body
from broker.protocol.versions import ApiKey
from broker.types import INTERNAL_TOPICS
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests.cluster import CreateTopicsRequest, CreateTopicsResponse, NewTopic
from raftctl.metadata.topic_names import RESERVED, name_problem

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine
    from uuid import UUID

    from broker.protocol.codec import Request
    from broker.protocol.messages import discovery as wire
    from raftctl.metadata.image import PartitionImage, TopicImage

    _Answer = wire.MetadataResponse | Encoded

_AUTO_CREATE_TIMEOUT_MS = 5_000
_NAMES_CACHED_MAX = 64
_IDS_FROM = 12

Key = tuple[str | None, "UUID | None"]
"""A topic as a client names it: by name or, from version 10 on, by id."""


def handle(
    context: ApiContext, request: Request[wire.MetadataRequest]
) -> _Answer | Coroutine[Any, Any, _Answer]:
    """Answer at once, unless topics must be created first.

    Raises KafkaError: INVALID_REQUEST for a topic without name and id; and for one without a name,
    or with an id, where the version has no ids yet (KIP-516: the fields are there from version 10
    on, their meaning from 12 on).
    """
    keys = _keys(context, request)
    if request.version < _IDS_FROM and any(
        name is None or id_ is not None for name, id_ in keys or ()
    ):
        text = f"version {request.version} asks for topics by their names only"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if (None, None) in (keys or ()):
        text = "a topic is asked for by its name or by its id"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    keys = None if keys is None else list(dict.fromkeys(keys))
    missing = [name for name, _ in keys or () if name is not None and _may_come(context, name)]
    may_create = request.body.get("allow_auto_topic_creation", True)
    if missing and may_create and context.config.auto_create_topics_enable:
        return _create_and_answer(context, request, keys or [], missing)
    return _answer(context, request, keys, {})


def refuse(
    context: ApiContext, request: Request[wire.MetadataRequest], error: KafkaError
) -> wire.MetadataResponse:
    """Return the error for each topic named, and from version 13 on for all, without brokers."""
    keys = _keys(context, request) or []
    return {
        "brokers": (),
        "cluster_id": None,
        "controller_id": -1,
        "topics": [{**_unknown(key, error.code), "name": key[0] or ""} for key in keys],
        "error_code": error.code,
    }


def _keys(context: ApiContext, request: Request[wire.MetadataRequest]) -> list[Key] | None:
    """The topics asked for; None: all of them."""
    topics = request.body["topics"]
    # Before version 1 there was no null, and an empty list meant all.
    if topics is None or (not topics and request.version == 0):
        return None
    return [(topic["name"], topic.get("topic_id")) for topic in topics]


def _topic(context: ApiContext, key: Key) -> TopicImage | None:
    name, topic_id = key
    topics = context.metadata.image.topics
    if topic_id is not None:
        return topics.by_id(topic_id)
    return None if name is None else topics.by_name(name)


def _may_come(context: ApiContext, name: str) -> bool:
    """Whether the topic is not there, and may be created because a client names it."""
    if name in RESERVED or name_problem(name) is not None:
        return False
    return context.metadata.image.topics.by_name(name) is None


def _new_topic(context: ApiContext, name: str) -> NewTopic:
    """With this broker's defaults; the brokers' own topics as `FindCoordinator` creates them.

    As in Apache Kafka the defaults are not the controller's, which hold where a request leaves
    them open.
    """
    config = context.config
    if is_internal(name):
        return new_internal_topic(name, config, context.metadata.image)
    return NewTopic(name, config.num_partitions, config.default_replication_factor)


async def _create_and_answer(
    context: ApiContext, request: Request[wire.MetadataRequest], keys: list[Key], missing: list[str]
) -> _Answer:
    """Creates what is missing; answers when this broker knows it."""
    create = CreateTopicsRequest(
        tuple(_new_topic(context, name) for name in dict.fromkeys(missing))
    )
    errors: dict[str, ErrorCode] = {}
    try:
        response = await context.controller.call(create, _AUTO_CREATE_TIMEOUT_MS)
    except KafkaError as error:
        context.log.warning("topics_not_created", topics=missing, error=str(error))
        return _answer(context, request, keys, dict.fromkeys(missing, _soon(error.code)))
    if isinstance(response, CreateTopicsResponse):
        errors = {result.name: _soon(result.error) for result in response.topics}
    await context.metadata.until(
        lambda image: all(errors.get(n) or image.topics.by_name(n) for n in missing),
        _AUTO_CREATE_TIMEOUT_MS,
    )
    return _answer(context, request, keys, errors)


def _soon(error: ErrorCode) -> ErrorCode:
    """Asking again helps when the controller did not answer or the topic has come to exist."""
    if error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if error == ErrorCode.TOPIC_ALREADY_EXISTS else error


def _answer(
    context: ApiContext,
    request: Request[wire.MetadataRequest],
    keys: list[Key] | None,
    errors: dict[str, ErrorCode],
) -> _Answer:
    body = request.body
    options = (
        body.get("include_topic_authorized_operations", False),
        body.get("include_cluster_authorized_operations", False),
    )
    cache_key = (request.version, context.listener, options, None if keys is None else tuple(keys))
    cached = context.metadata.body(cache_key)
    if cached is not None:
        return Encoded(cached)
    topics = _topics(context, keys, errors, all_operations=options[0])
    message = _message(context, request, topics)
    if len(keys or ()) > _NAMES_CACHED_MAX:
        return message
    encoded = encode_response_body(ApiKey.METADATA, request.version, message)
    if not any(topic["error_code"] for topic in topics):
        context.metadata.keep_body(cache_key, encoded)
    return Encoded(encoded)


def _topics(
    context: ApiContext,
    keys: list[Key] | None,
    errors: dict[str, ErrorCode],
    *,
    all_operations: bool,
) -> list[wire.MetadataResponseTopic]:
    live = context.metadata.live_brokers(context.listener)
    if keys is None:
        every = context.metadata.image.topics.in_order()
        return [_known(topic, live, all_operations=all_operations) for topic in every]
    answers = []
    for key in keys:
        topic = _topic(context, key)
        if topic is not None:
            answers.append(_known(topic, live, all_operations=all_operations))
        else:
            answers.append(_unknown(key, errors.get(key[0] or "", ErrorCode.NONE)))
    return answers


def _message(
    context: ApiContext,
    request: Request[wire.MetadataRequest],
    topics: list[wire.MetadataResponseTopic],
) -> wire.MetadataResponse:
    all_operations = request.body.get("include_cluster_authorized_operations", False)
    listed = context.metadata.listed_brokers(context.listener)
    return {
        "brokers": [
            {"node_id": number, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for number, (broker, endpoint) in listed.items()
        ],
        "cluster_id": context.cluster_id,
        "controller_id": controller_id(context),
        "topics": topics,
        "cluster_authorized_operations": (
            ALL_CLUSTER_OPERATIONS if all_operations else OPERATIONS_NOT_ASKED
        ),
    }


def _known(
    topic: TopicImage, live: Collection[int], *, all_operations: bool
) -> wire.MetadataResponseTopic:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": is_internal(topic.name),
        "partitions": [partition_message(i, image, live) for i, image in topic.items()],
        "topic_authorized_operations": (
            ALL_TOPIC_OPERATIONS if all_operations else OPERATIONS_NOT_ASKED
        ),
    }


def _unknown(key: Key, error: ErrorCode) -> wire.MetadataResponseTopic:
    name, topic_id = key
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if name is None else unknown_name(name)
    return {
        "error_code": error or unknown,
        "name": name,
        "topic_id": topic_id,
        "partitions": (),
    }


def unknown_name(name: str) -> ErrorCode:
    """Return the error for a topic that does not exist; it says whether one of the name can."""
    if name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def is_internal(name: str) -> bool:
    """Return True if clients leave the topic out unless they ask for internal ones."""
    return name in INTERNAL_TOPICS


def partition_message(
    index: int, partition: PartitionImage, live: Collection[int]
) -> wire.MetadataResponsePartition:
    """Return a partition as Metadata and DescribeTopicPartitions show it."""
    reachable = partition.leader in live
    return {
        "error_code": ErrorCode.NONE if reachable else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": index,
        "leader_id": partition.leader if reachable else -1,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [r for r in partition.replicas if r not in live],
    }
