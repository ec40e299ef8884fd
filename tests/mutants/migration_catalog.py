"""Bugs planted where a group changes its protocol while it has members."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.groups import _core as group_core
from broker.groups import _migration as migration
from broker.groups.consumer.consumer_group import ConsumerMember, MemberState
from tests.mutants.mutant import SILENT, Mutant, Patch

if TYPE_CHECKING:
    from broker.groups._consumer_records import Slot
    from broker.groups.classic import Group, Member, Subscription
    from broker.groups.consumer.consumer_group import ConsumerGroup
    from raftctl.metadata.image import TopicsImage

_downgraded = migration.downgraded
_member = migration._member


def _begin_generations_anew(
    group: ConsumerGroup, topics: TopicsImage, wall_ms: int
) -> Group | None:
    found = _downgraded(group, topics, wall_ms)
    if found is not None:
        found.generation = 0
    return found


def _take_all_for_released(
    group: Group,
    member: Member,
    said: Subscription,
    assigned: frozenset[Slot],
    revoking: frozenset[Slot],
) -> ConsumerMember:
    found = _member(group, member, said, assigned, revoking)
    return replace(found, state=MemberState.STABLE, revoking=frozenset())


MIGRATION = (
    Mutant(
        "downgrade_begins_generations_anew",
        "a group whose last member of KIP-848 has left counts its generations from the start",
        "core",
        "a_group_changes_its_protocol",
        ("one owner in an epoch",),
        (Patch(group_core, "downgraded", _begin_generations_anew), SILENT),
    ),
    Mutant(
        "upgrade_takes_all_for_released",
        "an upgraded group gives away what a classic member has not let go of yet",
        "core",
        "a_group_changes_its_protocol",
        ("one owner at a time",),
        (Patch(migration, "_member", _take_all_for_released), SILENT),
    ),
)
