"""Bugs planted into the coordinators of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator import Shard
from broker.groups._core import GroupCore
from broker.groups._records import OffsetKey, key_of
from broker.groups.consumer import _consumer_groups as consumer_groups
from broker.groups.consumer.consumer_group import reconciled
from broker.log.batches.record_batch import NO_PRODUCER
from tests.mutants.mutant import Patch, node_mutant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.coordinator.core import Effect
    from broker.groups._consumer_records import Slot
    from broker.groups.consumer.consumer_group import ConsumerMember


def _tell_at_once(shard: Shard, required: int, effects: Sequence[Effect]) -> None:
    for effect in effects:
        shard._release(effect)


def _forget_groups(
    core: GroupCore, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER
) -> None:
    if isinstance(key_of(key), OffsetKey):
        core._offsets.replay(key, value, producer_id)


def _give_what_others_hold(
    member: ConsumerMember,
    target: frozenset[Slot],
    target_epoch: int,
    owners: Mapping[Slot, str],
    owned: frozenset[Slot] | None,
) -> ConsumerMember:
    del owners
    return reconciled(member, target, target_epoch, {}, owned)


GROUPS = (
    node_mutant(
        "coordinator_does_not_wait_for_commits",
        "a coordinator tells of offsets and assignments that are only in its own log",
        ("committed_offset_stays", "partition_has_one_owner"),
        Patch(Shard, "_hold", _tell_at_once),
        scenario="coordinator_is_isolated",
    ),
    node_mutant(
        "coordinator_forgets_generations",
        "the next coordinator does not read what groups there were",
        ("partition_has_one_owner",),
        Patch(GroupCore, "replay", _forget_groups),
        scenario="coordinator_dies",
    ),
    node_mutant(
        "coordinator_gives_what_others_hold",
        "a coordinator gives partitions to a member before others have let go of them",
        ("partition_has_one_owner",),
        Patch(consumer_groups, "reconciled", _give_what_others_hold),
        scenario="consumers_go_on",
    ),
)
