"""DescribeGroups, ListGroups, DeleteGroups and ConsumerGroupDescribe (rows G2, G3, G4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.apis.consumer._groups import ask, ask_any
from broker.apis.discovery import OPERATIONS_NOT_ASKED
from broker.apis.handler.authorization import (
    authorized_operations,
    denied_names,
    is_allowed,
    require,
)
from broker.coordinator import STEP_ITEMS
from broker.groups.classic import State
from broker.groups.requests import (
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    FindGroups,
    ListGroups,
)
from broker.protocol import EncodedArray
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from broker.apis.handler import ApiContext
    from broker.coordinator import Shard
    from broker.protocol.codec import Request
    from broker.protocol.messages import consumer as wire

    _DescribedGroup = wire.DescribeGroupsResponseDescribedGroup
    _DescribedConsumerGroup = wire.ConsumerGroupDescribeResponseDescribedGroup

_HAS_ABSENT_GROUPS = 6
"""From this version on a group that does not exist is an error (KIP-1043)."""


async def handle_describe(
    context: ApiContext, request: Request[wire.DescribeGroupsRequest]
) -> wire.DescribeGroupsResponse:
    """Answer with each group and its members; before version 6 a missing one is Dead."""
    groups = request.body["groups"]
    return {"groups": await asyncio.gather(*(_describe(context, request, one) for one in groups))}


async def _describe(
    context: ApiContext, request: Request[wire.DescribeGroupsRequest], group_id: str
) -> _DescribedGroup:
    try:
        require(context, request, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        found: _DescribedGroup | None = await ask_any(context, DescribeGroup(group_id), group_id)
    except KafkaError as error:
        return _absent(group_id, error.code, "")
    if found is None:
        if request.version >= _HAS_ABSENT_GROUPS:
            return _absent(group_id, ErrorCode.GROUP_ID_NOT_FOUND, State.DEAD.value)
        found = _absent(group_id, ErrorCode.NONE, State.DEAD.value)
    asked = request.body.get("include_authorized_operations", False)
    return {**found, "authorized_operations": _operations(context, request, group_id, asked=asked)}


def _operations(context: ApiContext, request: Request[Any], group_id: str, *, asked: bool) -> int:
    if not asked:
        return OPERATIONS_NOT_ASKED
    return authorized_operations(context, request, ResourceType.GROUP, group_id)


def _absent(group_id: str, error: ErrorCode, state: str) -> _DescribedGroup:
    return {
        "error_code": error,
        "error_message": f"group {group_id}: {error.text}" if error else None,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def refuse_describe(
    _context: ApiContext, request: Request[wire.DescribeGroupsRequest], error: KafkaError
) -> wire.DescribeGroupsResponse:
    """Return the same error for each group."""
    return {"groups": [_absent(one, error.code, "") for one in request.body["groups"]]}


async def handle_list(
    context: ApiContext, request: Request[wire.ListGroupsRequest]
) -> wire.ListGroupsResponse:
    """Answer with the groups that this broker coordinates, of all or some states and types.

    Without the right to describe the cluster, these are the groups that the client may describe.
    COORDINATOR_LOAD_IN_PROGRESS while a partition is still loaded: the client asks again.
    """
    body = request.body
    # Tools write states and types as they like: "Stable", "stable" (KIP-518, KIP-848).
    states = frozenset(state.lower() for state in body.get("states_filter", ()))
    types = frozenset(kind.lower() for kind in body.get("types_filter", ()))
    groups = EncodedArray(request.api_key, request.version, "groups")
    describe, cluster = Operation.DESCRIBE, ResourceType.CLUSTER
    # Nobody has asked for the cluster, nor for a group by its name.
    sees_all = is_allowed(context, request, describe, cluster, CLUSTER_NAME, log_if_denied=False)
    for shard in list(context.groups.shards()):
        try:
            async for group_ids in _some_at_a_time(context, shard):
                found = await shard.ask(ListGroups(group_ids, states, types))
                groups.add(found if sees_all else _described(context, request, found))
        except KafkaError as error:
            # The partition moved meanwhile: its new coordinator lists its groups.
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
    return {"error_code": ErrorCode.NONE, "groups": groups}


def _described(
    context: ApiContext,
    request: Request[wire.ListGroupsRequest],
    groups: Sequence[wire.ListedGroup],
) -> list[wire.ListedGroup]:
    """Return those of the groups that the client may describe."""
    names = (one["group_id"] for one in groups)
    describe, kind = Operation.DESCRIBE, ResourceType.GROUP
    denied = denied_names(context, request, describe, kind, names, log_if_denied=False)
    return [one for one in groups if one["group_id"] not in denied]


async def _some_at_a_time(context: ApiContext, shard: Shard) -> AsyncIterator[Sequence[str]]:
    """The ids of a partition's groups, some in each turn of the event loop."""
    group_ids = await shard.ask(FindGroups())
    for start in range(0, len(group_ids), STEP_ITEMS):
        await context.groups.turns.next()
        yield group_ids[start : start + STEP_ITEMS]


async def handle_delete(
    context: ApiContext, request: Request[wire.DeleteGroupsRequest]
) -> wire.DeleteGroupsResponse:
    """Delete groups without members, and their offsets (KIP-229)."""
    # One that is named twice is deleted once: the second time there is no such group.
    groups = dict.fromkeys(request.body["groups_names"])
    deleting = (_delete(context, request, one) for one in groups)
    return {"results": await asyncio.gather(*deleting)}


async def _delete(
    context: ApiContext, request: Request[wire.DeleteGroupsRequest], group_id: str
) -> wire.DeletableGroupResult:
    try:
        require(context, request, Operation.DELETE, ResourceType.GROUP, group_id)
        await ask_any(context, DeleteGroup(group_id), group_id)
    except KafkaError as error:
        return {"group_id": group_id, "error_code": error.code}
    return {"group_id": group_id, "error_code": ErrorCode.NONE}


async def handle_describe_consumer(
    context: ApiContext, request: Request[wire.ConsumerGroupDescribeRequest]
) -> wire.ConsumerGroupDescribeResponse:
    """Answer with each group and its members; GROUP_ID_NOT_FOUND for classic groups.

    TOPIC_AUTHORIZATION_FAILED for one whose members have, or are to have, partitions of a topic
    that the client may not describe.
    """
    groups = request.body["group_ids"]
    return {
        "groups": await asyncio.gather(
            *(_describe_consumer(context, request, one) for one in groups)
        )
    }


async def _describe_consumer(
    context: ApiContext, request: Request[wire.ConsumerGroupDescribeRequest], group_id: str
) -> _DescribedConsumerGroup:
    describe = DescribeConsumerGroup(group_id, context.metadata.image.topics)
    try:
        require(context, request, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        found: _DescribedConsumerGroup = await ask(context, describe, group_id)
        _check_topics(context, request, found)
    except KafkaError as error:
        return _absent_consumer(group_id, error)
    asked = request.body["include_authorized_operations"]
    return {**found, "authorized_operations": _operations(context, request, group_id, asked=asked)}


def _check_topics(
    context: ApiContext,
    request: Request[wire.ConsumerGroupDescribeRequest],
    group: _DescribedConsumerGroup,
) -> None:
    """Raise KafkaError(TOPIC_AUTHORIZATION_FAILED) if the client may not describe all topics."""
    if context.authorizer is None:
        return
    names = (
        one["topic_name"]
        for member in group["members"]
        for assignment in (member["assignment"], member["target_assignment"])
        for one in assignment["topic_partitions"]
    )
    if denied_names(context, request, Operation.DESCRIBE, ResourceType.TOPIC, names):
        text = f"group {group['group_id']} reads topics that the client may not describe"
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)


def _absent_consumer(group_id: str, error: KafkaError) -> _DescribedConsumerGroup:
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
