"""Of which member of a KIP-848 group a request is, and who is refused. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.groups.consumer.consumer_group import MemberState
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.groups._consumer_records import Slot
    from broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember


def taken_over(held: ConsumerMember, member_id: str) -> ConsumerMember:
    """Return the place of a static member under its new member id, with nothing assigned."""
    return replace(
        held,
        member_id=member_id,
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        revoking=frozenset(),
    )


def member_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member of a request: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
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
    """FENCED_MEMBER_EPOCH unless it is the member's, or the one before whose end the member may
    not have heard of: then it has nothing yet that came with the newer one.
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
