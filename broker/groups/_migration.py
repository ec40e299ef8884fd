"""Conversion of a group with members to the other protocol (KIP-848, "Migration").

An operator upgrades consumers one by one, and the group must not stop meanwhile. So the first
member of KIP-848 that joins converts the group, and members of the classic protocol stay in it
(`_classic_members`). When the last member of KIP-848 leaves, it is converted back. Either way is
one batch of records: a coordinator that takes over finds the group of one protocol or the other.

Pure: from one kind of group to the records of the other. Nobody is asked to let go of anything by
this alone: who had partitions has them in the new group, and goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups._records import group_record
from broker.groups.classic import (
    CONSUMER_PROTOCOL,
    Group,
    Member,
    State,
    assignment,
    assignment_of,
    subscription_of,
)
from broker.groups.consumer import consumer_group
from broker.groups.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from broker.types import TopicPartition
from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.coordinator.core import KeyValue
    from broker.groups._consumer_records import Slot
    from broker.groups.classic import Subscription
    from raftctl.metadata.image import TopicsImage


def slots_in(partitions: Iterable[TopicPartition], topics: TopicsImage) -> frozenset[Slot]:
    """Return partitions by the ids of their topics, for topics that exist."""
    return frozenset(
        (topic.topic_id, number)
        for name, number in partitions
        if (topic := topics.by_name(name)) is not None
    )


def partitions_of(slots: Iterable[Slot], topics: TopicsImage) -> frozenset[TopicPartition]:
    """Return partitions by the names of their topics, for topics that exist."""
    return frozenset(
        TopicPartition(topic.name, number)
        for topic_id, number in slots
        if (topic := topics.by_id(topic_id)) is not None
    )


# --- upgrade --------------------------------------------------------------------------------------


def upgraded(group: Group, topics: TopicsImage) -> list[KeyValue]:
    """Return the records that turn a classic group into one of KIP-848, with the same members and
    assignments. ValueError if that cannot be.

    What a member said it owned and was not assigned it may hold still, having not heard of the
    assignment: it is to let go of that first.
    """
    if group.protocol_type not in (None, CONSUMER_PROTOCOL):
        raise ValueError(f"its members are no consumers, but of type {group.protocol_type}")
    # A leader of the classic protocol may assign what it likes, also a partition twice. A group of
    # KIP-848 cannot have that, so such a group is not converted: its members go on as they are.
    said = {one.member_id: _subscription(group, one) for one in group.members.values()}
    assigned = {
        one.member_id: slots_in(assignment_of(one.assignment), topics)
        for one in group.members.values()
    }
    # Assignments come first, of all members: what one of them owns, and another was assigned, is
    # the other's. The owner revokes it, and the new one waits for that.
    taken: set[Slot] = set()
    for slots in assigned.values():
        if not taken.isdisjoint(slots):
            raise ValueError("its leader has assigned a partition to two members")
        taken |= slots
    members = []
    for one in group.members.values():
        owned = slots_in(said[one.member_id].owned, topics) - taken
        taken |= owned
        members.append(_member(group, one, said[one.member_id], assigned[one.member_id], owned))
    held = sum(len(one.holds) for one in members)
    invariant(held == len(taken), "a partition of an upgraded group has one owner")
    seen = all(one.epoch <= group.generation for one in members)
    invariant(seen, "a member goes on in an epoch that the group has seen")
    return _records(group, members)


def _subscription(group: Group, member: Member) -> Subscription:
    """The member's subscription in the group's protocol. During a rebalance there is none that all
    agree on, so it is that of the protocol that the member likes best.

    Raises ValueError if its bytes are no subscription of a consumer.
    """
    return subscription_of(member.metadata(group.protocol) or member.protocols[0][1])


def _member(
    group: Group,
    member: Member,
    said: Subscription,
    assigned: frozenset[Slot],
    revoking: frozenset[Slot],
) -> ConsumerMember:
    # Who has not joined since a downgrade goes on in the epoch that it knows, if it is known here.
    epochs = member.epochs or ()
    epoch = epochs[0] if len(epochs) == 1 else group.generation
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        said.rack_id,
        member.client_id,
        member.client_host,
        said.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=epoch,
        previous_epoch=epoch,
        state=MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE,
        assigned=assigned,
        revoking=revoking,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )


def _records(group: Group, members: list[ConsumerMember]) -> list[KeyValue]:
    """The records of an upgrade: the tombstone of the classic group, then all of the new one.

    The group's epoch is the generation, and targets are what members were assigned, so that the
    conversion itself moves no partition. The hash of topics is 0, that of none: the heartbeat which
    causes the conversion looks at them next.
    """
    group_id = group.group_id
    return [
        group_record(group_id, None),
        *(consumer_group.member_record(group_id, one) for one in members),
        consumer_group.group_record(ConsumerGroup(group_id), group.generation, 0),
        *(consumer_group.target_record(group_id, one.member_id, one.assigned) for one in members),
        consumer_group.assignment_record(group_id, group.generation),
        *(consumer_group.current_record(group_id, one) for one in members),
    ]


# --- downgrade ------------------------------------------------------------------------------------


def downgraded(group: ConsumerGroup, topics: TopicsImage, wall_ms: int) -> Group | None:
    """Return the classic group of the members that are left, if they have a protocol in common.

    Their assignments are what they have: they go on with that until they have joined.

    Its next generation is above all epochs there were; until it is in that, each member is known by
    the epoch that it has.
    """
    found = Group(group.group_id, State.STABLE, CONSUMER_PROTOCOL, group.epoch)
    found.state_wall_ms = wall_ms
    for one in group.members.values():
        if one.classic is None:
            return None
        member = Member(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            one.classic.session_timeout_ms,
            one.rebalance_timeout_ms,
            one.classic.protocols,
            assignment(partitions_of(one.holds, topics)),
            is_new=False,
            epochs=range(one.epoch, one.epoch + 1),
        )
        found.add(member)
    invariant(found.members.keys() == group.members.keys(), "a downgrade keeps every member")
    seen = all(one.epoch <= found.generation for one in group.members.values())
    invariant(seen, "the next generation is above all epochs of members")
    if not found.candidates():
        return None
    found.protocol = found.selected_protocol()
    return found


def downgrade_records(before: ConsumerGroup, after: Group, wall_ms: int) -> list[KeyValue]:
    """Return the records of the downgrade. Without a leader: a coordinator that loads them has all
    members join.
    """
    assignments = {one.member_id: one.assignment for one in after.members.values()}
    fields = after.record(wall_ms, assignments)
    fields["leader"] = None
    return [*consumer_group.group_tombstones(before), group_record(after.group_id, fields)]
