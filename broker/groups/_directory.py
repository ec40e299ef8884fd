"""All groups of one partition of `__consumer_offsets`, of both protocols, found by their ids.

A group of which there are offsets and nothing else is one of the classic protocol without members:
every id with an offset is a group. Such groups are made when a request names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups._records import group_record
from broker.groups.classic import CONSUMER_PROTOCOL, Group, State
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker.coordinator.core import KeyValue
    from broker.groups._offsets import GroupOffsets
    from broker.groups.consumer import ConsumerGroups
    from broker.groups.consumer.consumer_group import ConsumerGroup
    from broker.groups.requests import ListGroups
    from broker.protocol.messages import consumer as wire
    from broker.types import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"


class GroupDirectory:
    """The groups of one partition, of both kinds: found, listed, deleted.

    A group id that has offsets only is a group, too: its consumers assign partitions to themselves.
    It has no object until a request names it, since there may be very many.
    """

    def __init__(self, consumers: ConsumerGroups, offsets: GroupOffsets) -> None:
        self.classic: dict[str, Group] = {}
        """The groups with members, or with a record."""
        self._consumers = consumers
        self._offsets = offsets

    def find(self, group_id: str) -> Group | ConsumerGroup | None:
        """Return the group of this id."""
        group = self.classic.get(group_id) or self._consumers.groups.get(group_id)
        if group is None and self._offsets.partitions(group_id):
            return Group(group_id)
        return group

    def known(self, group_id: str) -> Group | ConsumerGroup:
        """Return the group of this id; GROUP_ID_NOT_FOUND if there is none."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return group

    def ids(self) -> Iterator[str]:
        """Return the ids of the present groups; some may have gone when they are used."""
        consumers = list(self._consumers.groups)
        with_offsets = self._offsets.group_ids()
        yield from list(self.classic)
        for group_id in with_offsets:
            if group_id not in self.classic and group_id not in self._consumers.groups:
                yield group_id
        yield from consumers

    def listed(self, request: ListGroups) -> list[wire.ListedGroup]:
        """Return the groups that pass the filters, as ListGroups lists them."""
        groups = map(self.find, request.group_ids)
        found = (_message(group) for group in groups if group is not None)
        return [
            one
            for one in found
            if (not request.states or one["group_state"].lower() in request.states)
            and (not request.types or one["group_type"] in request.types)
        ]

    def keep(self, group_id: str, wall_ms: int) -> None:
        """Keep a group of which only offsets are left until they go and expiry finds it. Until then
        it is listed as empty.
        """
        if group_id not in self.classic and group_id not in self._consumers.groups:
            self.classic[group_id] = Group(group_id, state_wall_ms=wall_ms)

    def forget(
        self, group: Group | ConsumerGroup, gone: Iterable[TopicPartition], *, with_group: bool
    ) -> None:
        """Write tombstones for offsets, and for the group last."""
        group_id = group.group_id
        invariant(not (with_group and group.members), "a group with members stays")
        last: list[KeyValue] = []
        if with_group and isinstance(group, Group):
            last = [group_record(group_id, None)]
        elif with_group:
            last = self._consumers.tombstones(group_id)
        self._offsets.delete(group_id, gone, last)
        if with_group:
            self.classic.pop(group_id, None)


def is_over(group: Group | ConsumerGroup) -> bool:
    """Return whether nothing is left of the group once its offsets have gone.

    A member id that was handed out counts: its client is about to join.
    """
    return group.state.value == State.EMPTY.value and not (
        isinstance(group, Group) and group.pending
    )


def _message(group: Group | ConsumerGroup) -> wire.ListedGroup:
    kind, protocol_type = CONSUMER, CONSUMER_PROTOCOL
    if isinstance(group, Group):
        kind, protocol_type = CLASSIC, group.protocol_type or ""
    return {
        "group_id": group.group_id,
        "protocol_type": protocol_type,
        "group_state": group.state.value,
        "group_type": kind,
    }
