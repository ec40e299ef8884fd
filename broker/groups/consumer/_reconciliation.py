"""How a member of a KIP-848 group comes from what it has to what it shall have.

A partition that shall move is first revoked by the member that has it and then, when that member
has said that it is gone, given to the next: so nobody waits for the others, and no partition is
owned by two. Pure. Source: KIP-848, "Member Assignment".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.groups.consumer.consumer_group import MemberState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.groups._consumer_records import Slot
    from broker.groups.consumer.consumer_group import ConsumerMember


def reconciled(
    member: ConsumerMember,
    target: frozenset[Slot],
    target_epoch: int,
    owners: Mapping[Slot, str],
    owned: frozenset[Slot] | None,
) -> ConsumerMember:
    """Return the member after it has reported `owned` (None: nothing said); the same object if
    nothing changes.

    `owners` has every partition that a member has or has yet to revoke.
    """
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS:
            if _may_own(owned, member.revoking):
                return member
            return _next(member, member.epoch + 1, target, target_epoch, owners, owned)
        case MemberState.STABLE if member.epoch == target_epoch:
            return member
        case _:
            return _next(member, member.epoch, target, target_epoch, owners, owned)


def _may_own(owned: frozenset[Slot] | None, slots: frozenset[Slot]) -> bool:
    """Whether the member may still have some of these partitions. It has if it does not say."""
    return owned is None or not owned.isdisjoint(slots)


def _next(
    member: ConsumerMember,
    epoch: int,
    target: frozenset[Slot],
    target_epoch: int,
    owners: Mapping[Slot, str],
    owned: frozenset[Slot] | None,
) -> ConsumerMember:
    """Return the member one step further.

    First it gives up what is not in its target. Until it reports that it has, it keeps its epoch,
    and may commit offsets of all that it held. Then it enters the target's epoch with those
    partitions that no other member holds; the rest come with later heartbeats. Partitions are never
    given before they are free, or two consumers would read one at the same time.
    """
    kept, revoking = member.assigned & target, member.assigned - target
    if revoking and _may_own(owned, revoking):
        # It stays in its epoch until it has let go of them.
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    wanted = target - kept
    free = frozenset(one for one in wanted if owners.get(one) in (None, member.member_id))
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, target_epoch, state, kept | free, frozenset())


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: frozenset[Slot],
    revoking: frozenset[Slot],
) -> ConsumerMember:
    """Return the member with these fields; the same object if it has them, so that no record is
    written for a heartbeat that changes nothing.
    """
    now = (epoch, state, assigned, revoking)
    if now == (member.epoch, member.state, member.assigned, member.revoking):
        return member
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
