"""Metadata: where brokers and partitions are, and topics created because a client names them.

Only brokers that are not fenced, or were not a moment ago, are listed. Answers about topics that
exist are encoded once for each version and set of topics (see MetadataCache).

What the principal may not describe is left out of the list of all topics. A topic that is named has
the same error whether it exists or not. Encoded answers are kept by the topics in them, so a
principal is never given what another may see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.discovery._brokers import (
    OPERATIONS_NOT_ASKED,
    cluster_operations,
    controller_id,
)
from broker.apis.handler import ApiContext, Encoded, authorization
from broker.apis.handler.forwarding import ask_controller
from broker.coordinator.internal_topics import new_topic as new_internal_topic
from broker.protocol.codec import encode_response_body
from broker.protocol.versions import ApiKey
from broker.types import INTERNAL_TOPICS
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.metadata.requests.cluster import CreateTopicsRequest, CreateTopicsResponse, NewTopic
from raftctl.metadata.topic_names import RESERVED, name_problem
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine
    from uuid import UUID

    from broker.protocol.codec import Request
    from broker.protocol.messages import discovery as wire
    from raftctl.metadata.image import PartitionImage, TopicImage, TopicsImage

    _Answer = wire.MetadataResponse | Encoded

_AUTO_CREATE_TIMEOUT_MS = 5_000
_NAMES_CACHED_MAX = 64
_ASKED_AT_ONCE = 1_000
"""Topics about which an authorizer is asked in one turn of the event loop: some milliseconds."""
_IDS_FROM = 12
_LISTENERS_FROM = 6
"""From this version on a client learns that the leader lacks its listener."""
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

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
    if keys is None:
        return _answer_for_all(context, request)
    keys = list(dict.fromkeys(keys))
    errors = {key: _DENIED for key in keys if not _may_describe(context, request, key)}
    named = [key[0] for key in keys if key[0] is not None and key[1] is None]
    missing = [one for one in named if _may_come(context, one) and (one, None) not in errors]
    may_create = request.body.get("allow_auto_topic_creation", True)
    if missing and may_create and context.config.auto_create_topics_enable:
        denied = _denied_creations(context, request, missing)
        errors |= {(name, None): _DENIED for name in denied}
        missing = [name for name in missing if name not in denied]
        if missing:
            return _create_and_answer(context, request, keys, missing, errors)
    return _answer(context, request, keys, errors)


def refuse(
    context: ApiContext, request: Request[wire.MetadataRequest], error: KafkaError
) -> wire.MetadataResponse:
    """Return the error for each topic named, and from version 13 on for all, without brokers."""
    keys = _keys(context, request) or []
    return {
        "brokers": (),
        "cluster_id": None,
        "controller_id": -1,
        "topics": [{**_failed(key, error.code), "name": key[0] or ""} for key in keys],
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


def _may_describe(context: ApiContext, request: Request[Any], key: Key) -> bool:
    """Whether the answer may say more than that the topic is denied.

    An unknown id is said to be unknown, as in Apache Kafka: nobody guesses one.
    """
    if context.authorizer is None:
        return True
    name, topic_id = key
    if topic_id is not None:
        topic = context.metadata.image.topics.by_id(topic_id)
        name = None if topic is None else topic.name
    return name is None or authorization.is_allowed(
        context, request, Operation.DESCRIBE, ResourceType.TOPIC, name
    )


def _denied_creations(
    context: ApiContext, request: Request[Any], missing: list[str]
) -> Collection[str]:
    """The topics that the principal may not create, neither by their names nor any at all."""
    create = Operation.CREATE
    if authorization.is_allowed(
        context, request, create, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
    ):
        return ()
    topic = ResourceType.TOPIC
    allowed = authorization.allowed_names(context, request, create, topic, missing)
    return set(missing) - allowed


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
    context: ApiContext,
    request: Request[wire.MetadataRequest],
    keys: list[Key],
    missing: list[str],
    errors: dict[Key, ErrorCode],
) -> _Answer:
    """Creates what is missing; answers when this broker knows it."""
    create = CreateTopicsRequest(
        tuple(_new_topic(context, name) for name in dict.fromkeys(missing))
    )
    try:
        response = await ask_controller(context, request, create, _AUTO_CREATE_TIMEOUT_MS)
    except KafkaError as error:
        context.log.warning("topics_not_created", topics=missing, error=str(error))
        failed = dict.fromkeys([(name, None) for name in missing], _soon(error.code))
        return _answer(context, request, keys, errors | failed)
    if isinstance(response, CreateTopicsResponse):
        errors |= {(one.name, None): _soon(one.error) for one in response.topics}
    await context.metadata.until(
        lambda image: all(errors.get((n, None)) or image.topics.by_name(n) for n in missing),
        _AUTO_CREATE_TIMEOUT_MS,
    )
    return _answer(context, request, keys, errors)


def _soon(error: ErrorCode) -> ErrorCode:
    """Asking again helps when the controller did not answer or the topic has come to exist."""
    if error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if error == ErrorCode.TOPIC_ALREADY_EXISTS else error


def _answer_for_all(
    context: ApiContext, request: Request[wire.MetadataRequest]
) -> _Answer | Coroutine[Any, Any, _Answer]:
    """All topics that the principal may describe."""
    if context.authorizer is None:
        return _answer(context, request, None, {})
    topics = context.metadata.image.topics
    every = [topic.name for topic in topics.in_order()]
    if len(every) > _ASKED_AT_ONCE:
        return _answer_for_many(context, request, topics, every)
    visible = _visible(context, request, every)
    return _answer_for_visible(context, request, topics, visible, is_all=visible == every)


async def _answer_for_many(
    context: ApiContext,
    request: Request[wire.MetadataRequest],
    topics: TopicsImage,
    every: list[str],
) -> _Answer:
    """Ask about the topics in several turns of the event loop."""
    turns = Slices()
    visible: list[str] = []
    for first in range(0, len(every), _ASKED_AT_ONCE):
        visible += _visible(context, request, every[first : first + _ASKED_AT_ONCE])
        await turns.rest()
    is_all = len(visible) == len(every)
    return _answer_for_visible(context, request, topics, visible, is_all=is_all)


def _visible(
    context: ApiContext, request: Request[wire.MetadataRequest], names: list[str]
) -> list[str]:
    topic = ResourceType.TOPIC
    allowed = authorization.allowed_names(
        context, request, Operation.DESCRIBE, topic, names, log_if_denied=False
    )
    return [name for name in names if name in allowed]


def _answer_for_visible(
    context: ApiContext,
    request: Request[wire.MetadataRequest],
    asked: TopicsImage,
    visible: list[str],
    *,
    is_all: bool,
) -> _Answer:
    """Answer for those of the topics `asked` about; principals that see all share an answer."""
    topics = context.metadata.image.topics
    if is_all and topics is asked:
        return _answer(context, request, None, {})
    # Topics that have come meanwhile were not asked about; those that have gone are no errors.
    keys: list[Key] = [(name, None) for name in visible if topics.by_name(name) is not None]
    return _answer(context, request, keys, {}, is_kept=True)


def _answer(
    context: ApiContext,
    request: Request[wire.MetadataRequest],
    keys: list[Key] | None,
    errors: dict[Key, ErrorCode],
    *,
    is_kept: bool = False,
) -> _Answer:
    """Answer for these topics, None for all; `is_kept`: also if there are many of them."""
    body = request.body
    options = (
        body.get("include_topic_authorized_operations", False),
        body.get("include_cluster_authorized_operations", False),
    )
    # Each principal has operations of its own. A topic that is denied looks like none at all.
    is_shared = not any(errors.values()) and (context.authorizer is None or not any(options))
    cache_key = (request.version, context.listener, options, None if keys is None else tuple(keys))
    cached = context.metadata.body(cache_key) if is_shared else None
    if cached is not None:
        return Encoded(cached)
    topics = _topics(context, request, keys, errors)
    message = _message(context, request, topics)
    if len(keys or ()) > _NAMES_CACHED_MAX and not is_kept:
        return message
    encoded = encode_response_body(ApiKey.METADATA, request.version, message)
    if is_shared and not any(topic["error_code"] for topic in topics):
        context.metadata.keep_body(cache_key, encoded)
    return Encoded(encoded)


def _topics(
    context: ApiContext,
    request: Request[wire.MetadataRequest],
    keys: list[Key] | None,
    errors: dict[Key, ErrorCode],
) -> list[wire.MetadataResponseTopic]:
    live = context.metadata.live_brokers(context.listener)
    names_listeners = request.version >= _LISTENERS_FROM
    hidden = context.metadata.hidden_brokers(context.listener) if names_listeners else frozenset()
    if keys is None:
        every = context.metadata.image.topics.in_order()
        return [_known(context, request, topic, live, hidden) for topic in every]
    answers = []
    for key in keys:
        topic = None if errors.get(key) is _DENIED else _topic(context, key)
        if topic is not None:
            answers.append(_known(context, request, topic, live, hidden))
        else:
            answers.append(_unknown(context, request, key, errors.get(key, ErrorCode.NONE)))
    return answers


def _message(
    context: ApiContext,
    request: Request[wire.MetadataRequest],
    topics: list[wire.MetadataResponseTopic],
) -> wire.MetadataResponse:
    asked = request.body.get("include_cluster_authorized_operations", False)
    listed = context.metadata.listed_brokers(context.listener)
    return {
        "brokers": [
            {"node_id": number, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for number, (broker, endpoint) in listed.items()
        ],
        "cluster_id": context.cluster_id,
        "controller_id": controller_id(context),
        "topics": topics,
        "cluster_authorized_operations": cluster_operations(context, request, asked=asked),
    }


def _operations(context: ApiContext, request: Request[wire.MetadataRequest], name: str) -> int:
    if not request.body.get("include_topic_authorized_operations", False):
        return OPERATIONS_NOT_ASKED
    return authorization.authorized_operations(context, request, ResourceType.TOPIC, name)


def _known(
    context: ApiContext,
    request: Request[wire.MetadataRequest],
    topic: TopicImage,
    live: Collection[int],
    hidden: Collection[int],
) -> wire.MetadataResponseTopic:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": is_internal(topic.name),
        "partitions": [partition_message(i, image, live, hidden) for i, image in topic.items()],
        "topic_authorized_operations": _operations(context, request, topic.name),
    }


def _unknown(
    context: ApiContext, request: Request[wire.MetadataRequest], key: Key, error: ErrorCode
) -> wire.MetadataResponseTopic:
    found = _failed(key, error)
    if error is not _DENIED and key[0] is not None:
        found["topic_authorized_operations"] = _operations(context, request, key[0])
    return found


def _failed(key: Key, error: ErrorCode) -> wire.MetadataResponseTopic:
    """Return the error of a topic, or if there is none that it is unknown."""
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
    index: int, partition: PartitionImage, live: Collection[int], hidden: Collection[int]
) -> wire.MetadataResponsePartition:
    """Return a partition as Metadata and DescribeTopicPartitions show it.

    The brokers that are `live` have the client's listener. LISTENER_NOT_FOUND if the leader is one
    of the `hidden`, which serve and have none of its name.
    """
    reachable = partition.leader in live
    lacking = (
        ErrorCode.LISTENER_NOT_FOUND
        if partition.leader in hidden
        else ErrorCode.LEADER_NOT_AVAILABLE
    )
    return {
        "error_code": ErrorCode.NONE if reachable else lacking,
        "partition_index": index,
        "leader_id": partition.leader if reachable else -1,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [r for r in partition.replicas if r not in live],
    }
