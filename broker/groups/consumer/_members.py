"""Requests of members of KIP-848 groups: their fields, their member, their errors. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from broker.groups.consumer.consumer_group import LEFT_FOR_A_WHILE, MemberState
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.groups._consumer_records import Slot
    from broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
    from broker.groups.requests import ConsumerHeartbeat

_NO_TOPIC = UUID(int=0)
"""No topic has this id."""


def taken_over(held: ConsumerMember, member_id: str) -> ConsumerMember:
    """The place of a static member for the member id under which it is back (KIP-345).

    It keeps the assigned partitions, so that nobody else gets them. What its former self was
    revoking is free: the process that read it has ended. It begins at epoch 0, as each member that
    joins does.
    """
    return replace(
        held,
        member_id=member_id,
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        revoking=frozenset(),
    )


def member_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member that a request is of.

    Raises UNKNOWN_MEMBER_ID, and FENCED_INSTANCE_ID if another member id holds the instance id: two
    processes run with the same one, and the older of them must stop.
    """
    if instance_id is not None:
        known = group.statics.get(instance_id)
        if known is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id:.100} is unknown."
            )
        if known != member_id:
            text = f"Static member {member_id:.100} was fenced by member {known}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, text)
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(member_id, group.group_id)
    return member


def check_epoch(member: ConsumerMember, epoch: int, owned: frozenset[Slot] | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is the member's, or the one before it.

    The epoch before is that of a member whose last response was lost. It must own nothing that is
    not assigned to it: a member that does has missed more than one response, and others may read
    its partitions by now.
    """
    lost = epoch == member.previous_epoch and owned is not None and owned <= member.assigned
    if epoch != member.epoch and not (epoch < member.epoch and lost):
        text = f"The member epoch is {member.epoch}, not {epoch}: leave all partitions and rejoin."
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, text)


def unknown_member(member_id: str, group_id: str) -> KafkaError:
    """Return the error for an unknown member."""
    text = f"Member {member_id:.100} is not a member of group {group_id}."
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)


def no_group(group_id: str) -> KafkaError:
    """Return the error for an unknown group."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


# --- the fields of a heartbeat --------------------------------------------------------------------


def check(request: ConsumerHeartbeat) -> None:
    """Raise INVALID_REQUEST, which names the field, of a request that contradicts itself."""
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
    """The member with the fields of the request; those that it leaves out are as they were.

    A client sends each field when it joins, and then only what has changed. The member is of the
    consumer protocol from now on, whichever it was of before: its client was upgraded.
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
    """Return True if the request has every field: the member has not got the last response."""
    names = request.topic_names is not None or request.topic_regex is not None
    return names and request.rebalance_timeout_ms >= 0 and request.owned is not None
