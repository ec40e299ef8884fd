"""Requests and responses of consumer groups of KIP-848: what is wrong with them, what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from broker.groups._consumer_records import topic_partitions
from broker.groups.consumer.consumer_group import LEFT_FOR_A_WHILE
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.groups._consumer_records import Slot
    from broker.groups.consumer.consumer_group import ConsumerMember
    from broker.groups.requests import ConsumerHeartbeat
    from broker.protocol.messages import consumer as wire
    from raftctl.metadata.image import TopicsImage


_NO_TOPIC = UUID(int=0)
"""No topic has this id."""
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
"""Of which protocol a member is."""


def check(request: ConsumerHeartbeat) -> None:
    """INVALID_REQUEST names the field."""
    wrong = _wrong_of_all(request)
    if wrong is None:
        wrong = _wrong_of_joining(request) if request.epoch == 0 else _wrong_of_member(request)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def _wrong_of_all(request: ConsumerHeartbeat) -> str | None:
    if not request.group_id:
        return "GroupId can't be empty."
    if request.instance_id == "":
        return "InstanceId can't be empty."
    if request.rack_id == "":
        return "RackId can't be empty."
    if request.epoch < LEFT_FOR_A_WHILE:
        return f"MemberEpoch {request.epoch} is invalid: it is -2 or more."
    return None


def _wrong_of_joining(request: ConsumerHeartbeat) -> str | None:
    if request.brings_member_id and not request.member_id:
        return "MemberId can't be empty."
    if request.rebalance_timeout_ms < 0:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None or request.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if request.topic_names is None and request.topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when joining."
    return None


def _wrong_of_member(request: ConsumerHeartbeat) -> str | None:
    if not request.member_id:
        return "MemberId can't be empty."
    if request.epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null when a static member leaves for a while."
    return None


def updated(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """The member with what the request says; what it leaves out is as it was. Of the consumer
    protocol it is from now on.
    """
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=member.topic_names if request.topic_names is None else request.topic_names,
        topic_regex=member.topic_regex
        if request.topic_regex is None
        else request.topic_regex or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms < 0
        else request.rebalance_timeout_ms,
        server_assignor=member.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
        classic=None,
    )


def owned_slots(request: ConsumerHeartbeat) -> frozenset[Slot] | None:
    """Return the partitions that the member says it has; None if it says nothing of them."""
    if request.owned is None:
        return None
    return frozenset(
        (one["topic_id"] or _NO_TOPIC, number)
        for one in request.owned
        for number in one["partitions"]
    )


def is_full(request: ConsumerHeartbeat) -> bool:
    """Whether the request has every field: the member has not got the last response."""
    names = request.topic_names is not None or request.topic_regex is not None
    return names and request.rebalance_timeout_ms >= 0 and request.owned is not None


def response(
    member_id: str, epoch: int, heartbeat_interval_ms: int, assigned: frozenset[Slot] | None
) -> wire.ConsumerGroupHeartbeatResponse:
    """Return the response to a heartbeat. `assigned` None: the last assignment still holds."""
    assignment: wire.ConsumerGroupHeartbeatResponseAssignment | None = None
    if assigned is not None:
        assignment = {"topic_partitions": [{**one} for one in topic_partitions(assigned)]}
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "member_id": member_id,
        "member_epoch": epoch,
        "heartbeat_interval_ms": heartbeat_interval_ms,
        "assignment": assignment,
    }


def member_message(
    member: ConsumerMember, target: frozenset[Slot], topics: TopicsImage
) -> wire.Member:
    """Return a member for ConsumerGroupDescribe."""
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topic_names,
        "subscribed_topic_regex": member.topic_regex or "",
        # Also what it has yet to let go of: nobody else has that.
        "assignment": _named(member.holds, topics),
        "target_assignment": _named(target, topics),
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


def _named(
    slots: frozenset[Slot], topics: TopicsImage
) -> wire.ConsumerGroupDescribeResponseAssignment:
    """With the names of the topics, but for topics that are gone."""
    return {
        "topic_partitions": [
            {**one, "topic_name": topic.name}
            for one in topic_partitions(slots)
            if (topic := topics.by_id(one["topic_id"])) is not None
        ]
    }
