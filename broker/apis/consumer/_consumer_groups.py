"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: consumer groups of KIP-848 (row G4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.apis.consumer._group_admin import ALL_GROUP_OPERATIONS, OPERATIONS_NOT_ASKED
from broker.apis.consumer._groups import ask
from broker.apis.handler import Reply
from broker.groups.requests import ConsumerHeartbeat, DescribeConsumerGroup
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import GROUP_RESOURCE

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import consumer as wire

    _DescribedGroup = wire.ConsumerGroupDescribeResponseDescribedGroup

_BRINGS_MEMBER_ID = 1


def handle_heartbeat(
    context: ApiContext, request: Request[wire.ConsumerGroupHeartbeatRequest]
) -> Reply[wire.ConsumerGroupHeartbeatResponse]:
    """Take the member's subscription and its partitions; respond with its assignment."""
    body = request.body
    if not body["group_id"].strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the group id is empty")
    config, overrides = context.config, _overrides(context, body["group_id"])
    owned, names = body["topic_partitions"], body["subscribed_topic_names"]
    heartbeat = ConsumerHeartbeat(
        body["group_id"],
        body["member_id"],
        body["member_epoch"],
        body["instance_id"],
        body["rack_id"],
        request.client_id or "",
        request.client_host,
        body["rebalance_timeout_ms"],
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
    )
    answered = ask(context, heartbeat, heartbeat.group_id)
    return Reply(answered, answered.result)


def _overrides(context: ApiContext, group_id: str) -> dict[str, str]:
    return dict(context.metadata.image.config(GROUP_RESOURCE, group_id))


def refuse_heartbeat(
    _context: ApiContext, _request: Request[wire.ConsumerGroupHeartbeatRequest], error: KafkaError
) -> wire.ConsumerGroupHeartbeatResponse:
    """The error, with what is to be done about it."""
    return {
        "error_code": error.code,
        "error_message": error.message,
        "member_id": None,
        "member_epoch": 0,
        "assignment": None,
    }


async def handle_describe(
    context: ApiContext, request: Request[wire.ConsumerGroupDescribeRequest]
) -> wire.ConsumerGroupDescribeResponse:
    """Each group with its members; GROUP_ID_NOT_FOUND for those of the classic protocol."""
    groups = request.body["group_ids"]
    return {"groups": await asyncio.gather(*(_describe(context, request, one) for one in groups))}


async def _describe(
    context: ApiContext, request: Request[wire.ConsumerGroupDescribeRequest], group_id: str
) -> _DescribedGroup:
    describe = DescribeConsumerGroup(group_id, context.metadata.image.topics)
    try:
        found: _DescribedGroup = await ask(context, describe, group_id)
    except KafkaError as error:
        return _absent(group_id, error)
    asked = request.body["include_authorized_operations"]
    operations = ALL_GROUP_OPERATIONS if asked else OPERATIONS_NOT_ASKED
    return {**found, "authorized_operations": operations}


def _absent(group_id: str, error: KafkaError) -> _DescribedGroup:
    return {
        "error_code": error.code,
        "error_message": error.message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
        "authorized_operations": OPERATIONS_NOT_ASKED,
    }


def refuse_describe(
    _context: ApiContext, request: Request[wire.ConsumerGroupDescribeRequest], error: KafkaError
) -> wire.ConsumerGroupDescribeResponse:
    """The same error for each group."""
    return {"groups": [_absent(one, error) for one in request.body["group_ids"]]}
