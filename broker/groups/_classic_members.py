"""Members of the classic protocol in a group that has members of KIP-848 too.

To them it looks like their own protocol: their epoch is the generation, "rebalance in progress"
means that there is a step to make, and with JoinGroup and SyncGroup they make it. Nobody leads, and
nobody waits for others: the coordinator assigns, as to all members of the group.

A step of KIP-848 is a heartbeat; here it takes three requests. Heartbeat answers "rebalance in
progress", JoinGroup says what the member still owns, SyncGroup gets what it has from then on. What
a member owns is known from JoinGroup alone, so it revokes before it joins, as with a cooperative
assignor. An eager one owns nothing when it joins, which frees all that it had for a moment.

Pure. Source: KIP-848 ("Migration"); errors are Apache Kafka's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.groups._messages import join_error, left_message
from broker.groups._migration import partitions_of, slots_in
from broker.groups.classic import CONSUMER_PROTOCOL, assignment, subscription_of
from broker.groups.consumer import TURN, ConsumerGroups, Step, member_of, taken_over, unknown_member
from broker.groups.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from broker.coordinator.core import Now
    from broker.groups.classic import Subscription
    from broker.groups.requests import Caller, Heartbeat, Join, Leave, Sync
    from broker.protocol.messages import consumer as wire
    from raftctl.timers import Timers


class ClassicMembers:
    """The classic members of the KIP-848 groups of one partition of `__consumer_offsets`."""

    def __init__(
        self, groups: ConsumerGroups, timers: Timers[Hashable], new_uuid: Callable[[], str]
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._new_uuid = new_uuid

    def join(self, request: Join, now: Now) -> wire.JoinGroupResponse:
        """JoinGroup: the member has revoked what its subscription does not name as owned.

        The response comes at once, with the member's epoch as the generation and no leader: no
        member assigns anything. The turn's timer bounds the time until its SyncGroup.

        Raises INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, and
        GROUP_MAX_SIZE_REACHED.
        """
        group, caller = self._groups.groups[request.group_id], request.caller
        subscription = _subscription(group, request)
        member_id = caller.member_id
        if not member_id:
            member_id = f"{caller.instance_id or request.client_id}-{self._new_uuid()}"
            if caller.instance_id is None and request.needs_member_id:
                self._groups.check_room(group)
                return join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED)
        before = self._before(group, caller, member_id)
        known = ConsumerMember(member_id) if before is None else before
        if known.member_id != member_id:
            known = taken_over(known, member_id)
        step = Step(
            before,
            _updated(known, request, subscription),
            slots_in(subscription.owned, request.topics),
        )
        member = self._groups.advance(group, step, request, now)
        self._timers.set(_turn(group, member), now.ms + request.rebalance_timeout_ms)
        return _joined(member)

    def _before(
        self, group: ConsumerGroup, caller: Caller, member_id: str
    ) -> ConsumerMember | None:
        """The member, or the one whose place it takes; None of a new one."""
        if caller.instance_id is None:
            known = group.members.get(member_id)
        elif caller.member_id:
            return member_of(group, member_id, caller.instance_id)
        else:
            known = group.members.get(group.statics.get(caller.instance_id, ""))
        if known is None:
            self._groups.check_room(group)
        return known

    def sync(self, request: Sync, now: Now) -> wire.SyncGroupResponse:
        """SyncGroup: what the member has now.

        Raises INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION; and
        REBALANCE_IN_PROGRESS if the group's epoch has grown since the member joined.
        """
        group, member, classic = self._member(request.group_id, request.caller)
        asked = (request.protocol_type, request.protocol_name)
        known = (CONSUMER_PROTOCOL, classic.protocol)
        if any(one is not None and one != ours for one, ours in zip(asked, known, strict=True)):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # A member that has yet to revoke partitions first gets the ones it keeps.
        is_over = member.state is not MemberState.UNREVOKED_PARTITIONS
        if is_over and group.epoch > member.epoch:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.cancel(_turn(group, member))
        self._groups.touch(group, member, classic.session_timeout_ms, now)
        return {
            "error_code": ErrorCode.NONE,
            "protocol_type": CONSUMER_PROTOCOL,
            "protocol_name": classic.protocol,
            "assignment": assignment(partitions_of(member.assigned, request.topics)),
        }

    def heartbeat(self, request: Heartbeat, now: Now) -> wire.HeartbeatResponse:
        """Heartbeat: whether there is a step to make, for which the member is to join again.

        From the first such answer on it has its rebalance timeout to do so. A member that ignored
        it would keep partitions that others wait for.
        """
        group, member, classic = self._member(request.group_id, request.caller)
        self._groups.touch(group, member, classic.session_timeout_ms, now)
        # Else only a member of KIP-848 would find that topics have changed.
        self._groups.look_at(group, request, now)
        if not _has_a_step_to_make(group, member):
            return {"error_code": ErrorCode.NONE}
        turn = _turn(group, member)
        if turn not in self._timers:
            self._timers.set(turn, now.ms + max(member.rebalance_timeout_ms, 0))
        return {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}

    def leave(self, request: Leave) -> wire.LeaveGroupResponse:
        """LeaveGroup: lets members go, each on its own."""
        group_id = request.group_id
        members = [left_message(one, self._leave(group_id, one)) for one in request.callers]
        return {"error_code": ErrorCode.NONE, "members": members}

    def _leave(self, group_id: str, caller: Caller) -> ErrorCode:
        group = self._groups.groups[group_id]
        member_id = caller.member_id or group.statics.get(caller.instance_id or "", "")
        try:
            # Also one of KIP-848: administrators have no other way to make it leave.
            self._groups.remove(group, member_of(group, member_id, caller.instance_id))
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def _member(
        self, group_id: str, caller: Caller
    ) -> tuple[ConsumerGroup, ConsumerMember, ClassicMember]:
        group = self._groups.groups[group_id]
        member = member_of(group, caller.member_id, caller.instance_id)
        if member.classic is None:
            raise unknown_member(caller.member_id, group_id)
        if caller.generation != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return group, member, member.classic


def _subscription(group: ConsumerGroup, request: Join) -> Subscription:
    """The subscription of a member that joins.

    Raises INCONSISTENT_GROUP_PROTOCOL unless all classic members know one of its protocols: after a
    downgrade they need one in common.
    """
    names = {name for name, _ in request.protocols}
    for one in group.members.values():
        if one.classic is not None and one.member_id != request.caller.member_id:
            names &= {name for name, _ in one.classic.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL or not names:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return subscription_of(request.protocols[0][1])
    except ValueError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _updated(member: ConsumerMember, request: Join, subscription: Subscription) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.caller.instance_id or member.instance_id,
        rack_id=subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=subscription.topics,
        topic_regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicMember(request.session_timeout_ms, request.protocols),
    )


def _has_a_step_to_make(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a JoinGroup would move the member on.

    A member that waits for partitions of others joins once all of them are free. With each single
    one it would rebalance as often, and stop its consumer each time.
    """
    if member.epoch < group.epoch:
        return True
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS:
            return True
        case MemberState.UNRELEASED_PARTITIONS:
            missing = group.targets.get(member.member_id, frozenset()) - member.assigned
            return all(one not in group.owners for one in missing)
        case _:
            return False


def _joined(member: ConsumerMember) -> wire.JoinGroupResponse:
    classic = member.classic
    return {
        "error_code": ErrorCode.NONE,
        "generation_id": member.epoch,
        "protocol_type": CONSUMER_PROTOCOL,
        "protocol_name": None if classic is None else classic.protocol,
        "leader": "",
        "member_id": member.member_id,
        "members": [],
    }


def _turn(group: ConsumerGroup, member: ConsumerMember) -> tuple[str, str, str]:
    return (TURN, group.group_id, member.member_id)
