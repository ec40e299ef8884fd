"""Membership in consumer groups of both protocols (rows G2, G4).

JoinGroup, SyncGroup, Heartbeat and LeaveGroup are the classic protocol, ConsumerGroupHeartbeat is
the one of KIP-848.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from broker.apis.handler import Reply
from broker.apis.handler.authorization import denied_names, is_allowed, require
from broker.groups import join_error
from broker.groups.requests import Caller, ConsumerHeartbeat, Heartbeat, Join, Leave, Sync
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.records import GROUP_RESOURCE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.apis.handler import ApiContext
    from broker.groups.requests import GroupRequest
    from broker.protocol.codec import Request
    from broker.protocol.messages import consumer as wire

_NEEDS_MEMBER_ID = 4
"""A member without an id gets one first and joins again with it, so retries add no members
(KIP-394)."""
_NAMES_PROTOCOL = 5
"""SyncGroup names the protocol from this version on (KIP-559)."""
_PROTOCOL_MAY_BE_NULL = 7
_MAY_SKIP_ASSIGNMENT = 9
"""A static leader that comes back to a stable group may be spared the assignment (KIP-814)."""
_LEAVES_IN_BATCHES = 3
_BRINGS_MEMBER_ID = 1
"""From this version on members of ConsumerGroupHeartbeat choose their ids, so that one sent again
adds no member (KIP-1082)."""

if TYPE_CHECKING:
    _OfGeneration = wire.SyncGroupRequest | wire.HeartbeatRequest


def ask(context: ApiContext, asked: GroupRequest, group_id: str) -> asyncio.Future[Any]:
    """Ask the group's coordinator, and return the future of its answer.

    Raises KafkaError: NOT_COORDINATOR if that is another broker, INVALID_GROUP_ID if the id is
    empty, since such a group has no members.
    """
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return ask_any(context, asked, group_id)


def ask_any(context: ApiContext, asked: GroupRequest, group_id: str) -> asyncio.Future[Any]:
    """Ask as `ask` does, also for the group without a name, for which old clients keep offsets."""
    return context.groups.ask(group_id, asked)


def require_member(context: ApiContext, request: Request[Any]) -> None:
    """Raise KafkaError(GROUP_AUTHORIZATION_FAILED) unless the client may be one of the group."""
    name = request.body["group_id"]
    require(context, request, Operation.READ, ResourceType.GROUP, name)


def _caller(body: _OfGeneration) -> Caller:
    return Caller(body["member_id"], body.get("group_instance_id"), body["generation_id"])


def handle_join(
    context: ApiContext, request: Request[wire.JoinGroupRequest]
) -> Reply[wire.JoinGroupResponse]:
    """Add a member, and answer when all members have joined."""
    require_member(context, request)
    body = request.body
    session_timeout_ms = body["session_timeout_ms"]
    # Version 0 has one time for both: a member may take a session to join again (KIP-62).
    join = Join(
        body["group_id"],
        Caller(body["member_id"], body.get("group_instance_id"), -1),
        request.client_id or "",
        request.context.client_host,
        session_timeout_ms,
        body.get("rebalance_timeout_ms", session_timeout_ms),
        body["protocol_type"],
        tuple((one["name"], bytes(one["metadata"])) for one in body["protocols"]),
        needs_member_id=request.version >= _NEEDS_MEMBER_ID,
        may_skip_assignment=request.version >= _MAY_SKIP_ASSIGNMENT,
        topics=context.metadata.image.topics,
        may_describe=_may_describe(context, request),
    )
    joined = ask(context, join, join.group_id)
    return Reply(joined, lambda: _named(request, joined.result()))


def _named(
    request: Request[wire.JoinGroupRequest], message: wire.JoinGroupResponse
) -> wire.JoinGroupResponse:
    """Before version 7 there is no null for the protocol of a group that has none."""
    if message["protocol_name"] is None and request.version < _PROTOCOL_MAY_BE_NULL:
        return {**message, "protocol_name": ""}
    return message


def refuse_join(
    _context: ApiContext, request: Request[wire.JoinGroupRequest], error: KafkaError
) -> wire.JoinGroupResponse:
    """Return the error."""
    return _named(request, join_error(request.body["member_id"], error.code))


def handle_sync(
    context: ApiContext, request: Request[wire.SyncGroupRequest]
) -> Reply[wire.SyncGroupResponse]:
    """Answer with the member's assignment, when the leader has sent it.

    Raises KafkaError: INCONSISTENT_GROUP_PROTOCOL, from version 5 on also for a member that does
    not name its protocol (KIP-559).
    """
    body = request.body
    named = body.get("protocol_type") is not None and body.get("protocol_name") is not None
    if request.version >= _NAMES_PROTOCOL and not named:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    require_member(context, request)
    sync = Sync(
        body["group_id"],
        _caller(body),
        body.get("protocol_type"),
        body.get("protocol_name"),
        tuple((one["member_id"], bytes(one["assignment"])) for one in body["assignments"]),
        context.metadata.image.topics,
    )
    synced = ask(context, sync, sync.group_id)
    return Reply(synced, synced.result)


def handle_heartbeat(
    context: ApiContext, request: Request[wire.HeartbeatRequest]
) -> Reply[wire.HeartbeatResponse]:
    """Respond whether the member is to join again."""
    require_member(context, request)
    topics = context.metadata.image.topics
    caller = _caller(request.body)
    may_describe = _may_describe(context, request)
    heartbeat = Heartbeat(request.body["group_id"], caller, topics, may_describe)
    beaten = ask(context, heartbeat, heartbeat.group_id)
    return Reply(beaten, beaten.result)


def refuse_heartbeat(
    _context: ApiContext, _request: Request[wire.HeartbeatRequest], error: KafkaError
) -> wire.HeartbeatResponse:
    """Return the error; none while the group is loaded, when nobody knows its members.

    So does Apache Kafka, and aiokafka fails if a heartbeat brings that error.
    """
    loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return {"error_code": ErrorCode.NONE if loading else error.code}


def handle_leave(
    context: ApiContext, request: Request[wire.LeaveGroupRequest]
) -> Reply[wire.LeaveGroupResponse]:
    """Remove one member, or from version 3 on several (KIP-345)."""
    require_member(context, request)
    body = request.body
    batched = request.version >= _LEAVES_IN_BATCHES
    if batched:
        leaving = [(one["member_id"], one["group_instance_id"]) for one in body["members"]]
    else:
        leaving = [(body["member_id"], None)]
    callers = tuple(Caller(member_id, instance_id, -1) for member_id, instance_id in leaving)
    leave = Leave(body["group_id"], callers, context.metadata.image.topics)
    left = ask(context, leave, body["group_id"])
    if batched:
        return Reply(left, left.result)
    # Before the batches an error is that of the request; since then each member has its own.
    return Reply(left, lambda: {"error_code": left.result()["members"][0]["error_code"]})


def handle_consumer_heartbeat(
    context: ApiContext, request: Request[wire.ConsumerGroupHeartbeatRequest]
) -> Reply[wire.ConsumerGroupHeartbeatResponse]:
    """Take the member's subscription and its partitions; respond with its assignment.

    Raises KafkaError: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED if the member may not
    describe a topic that it names. Of those that its regular expression matches these are left out.
    """
    require_member(context, request)
    body = request.body
    subscribed = body["subscribed_topic_names"] or ()
    if denied_names(context, request, Operation.DESCRIBE, ResourceType.TOPIC, subscribed):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not body["group_id"].strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the group id is empty")
    # The group decides both times, not the member: an operator can change them while members run.
    config, overrides = context.config, _overrides(context, body["group_id"])
    owned, names = body["topic_partitions"], body["subscribed_topic_names"]
    heartbeat = ConsumerHeartbeat(
        body["group_id"],
        body["member_id"],
        body["member_epoch"],
        body["instance_id"],
        body["rack_id"],
        request.client_id or "",
        request.context.client_host,
        body["rebalance_timeout_ms"],
        # None says "as before": members send changes alone, of regex and partitions as well.
        None if names is None else tuple(sorted(set(names))),
        body.get("subscribed_topic_regex"),
        body["server_assignor"],
        None if owned is None else tuple(owned),
        brings_member_id=request.version >= _BRINGS_MEMBER_ID,
        session_timeout_ms=int(
            overrides.get("consumer.session.timeout.ms", config.group_consumer_session_timeout_ms)
        ),
        heartbeat_interval_ms=int(
            overrides.get(
                "consumer.heartbeat.interval.ms", config.group_consumer_heartbeat_interval_ms
            )
        ),
        topics=context.metadata.image.topics,
        may_describe=_may_describe(context, request),
    )
    answered = ask(context, heartbeat, heartbeat.group_id)
    return Reply(answered, answered.result)


def _may_describe(context: ApiContext, request: Request[Any]) -> Callable[[str], bool] | None:
    """Return whether the member may describe a topic; None if everybody may."""
    if context.authorizer is None:
        return None
    topic = ResourceType.TOPIC
    return partial(is_allowed, context, request, Operation.DESCRIBE, topic, log_if_denied=False)


def _overrides(context: ApiContext, group_id: str) -> dict[str, str]:
    return dict(context.metadata.image.config(GROUP_RESOURCE, group_id))
