"""DescribeGroups, ListGroups, DeleteGroups and ConsumerGroupDescribe (rows G2, G3, G4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.apis.consumer._groups import ask, ask_any
from broker.apis.discovery import OPERATIONS_NOT_ASKED
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from broker.apis.handler import ApiContext
    from broker.coordinator import Shard
    from broker.protocol.codec import Request
    from broker.protocol.messages import consumer as wire

    _DescribedGroup = wire.DescribeGroupsResponseDescribedGroup
    _DescribedConsumerGroup = wire.ConsumerGroupDescribeResponseDescribedGroup

ALL_GROUP_OPERATIONS = 0b1101_0100_1000
"""Read, delete, describe, describe and alter configs."""
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
        found: _DescribedGroup | None = await ask_any(context, DescribeGroup(group_id), group_id)
    except KafkaError as error:
        return _absent(group_id, error.code, "")
    if found is None:
        if request.version < _HAS_ABSENT_GROUPS:
            return _absent(group_id, ErrorCode.NONE, State.DEAD.value)
        return _absent(group_id, ErrorCode.GROUP_ID_NOT_FOUND, State.DEAD.value)
    asked = request.body.get("include_authorized_operations", False)
    operations = ALL_GROUP_OPERATIONS if asked else OPERATIONS_NOT_ASKED
    return {**found, "authorized_operations": operations}


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

    COORDINATOR_LOAD_IN_PROGRESS while a partition is still loaded: the client asks again.
    """
    body = request.body
    # Tools write states and types as they like: "Stable", "stable" (KIP-518, KIP-848).
    states = frozenset(state.lower() for state in body.get("states_filter", ()))
    types = frozenset(kind.lower() for kind in body.get("types_filter", ()))
    groups = EncodedArray(request.api_key, request.version, "groups")
    for shard in list(context.groups.shards()):
        try:
            async for group_ids in _some_at_a_time(context, shard):
                groups.add(await shard.ask(ListGroups(group_ids, states, types)))
        except KafkaError as error:
            # The partition moved meanwhile: its new coordinator lists its groups.
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
    return {"error_code": ErrorCode.NONE, "groups": groups}


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
    groups = request.body["groups_names"]
    return {"results": await asyncio.gather(*(_delete(context, one) for one in groups))}


async def _delete(context: ApiContext, group_id: str) -> wire.DeletableGroupResult:
    try:
        await ask_any(context, DeleteGroup(group_id), group_id)
    except KafkaError as error:
        return {"group_id": group_id, "error_code": error.code}
    return {"group_id": group_id, "error_code": ErrorCode.NONE}


async def handle_describe_consumer(
    context: ApiContext, request: Request[wire.ConsumerGroupDescribeRequest]
) -> wire.ConsumerGroupDescribeResponse:
    """Answer with each group and its members; GROUP_ID_NOT_FOUND for classic groups."""
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
        found: _DescribedConsumerGroup = await ask(context, describe, group_id)
    except KafkaError as error:
        return _absent_consumer(group_id, error)
    asked = request.body["include_authorized_operations"]
    operations = ALL_GROUP_OPERATIONS if asked else OPERATIONS_NOT_ASKED
    return {**found, "authorized_operations": operations}


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
