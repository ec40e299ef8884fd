"""What time does to groups and offsets, each in steps (`StepQueue`): a partition may have millions.

Between two steps everything may have changed, so each step decides and writes by itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from broker.coordinator import STEP_ITEMS
from broker.groups._directory import is_over
from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from broker.groups._directory import GroupDirectory
    from broker.groups._offsets import GroupOffsets
    from broker.groups.classic import Group
    from broker.groups.consumer.consumer_group import ConsumerGroup
    from broker.types import TopicPartition

_MEMBER = 10
"""To look at what a member reads takes as long as so many offsets."""


class GroupUpkeep:
    """Of one partition of `__consumer_offsets`."""

    def __init__(self, directory: GroupDirectory, offsets: GroupOffsets) -> None:
        self._directory = directory
        self._offsets = offsets
        self._forgotten: dict[str, int] = {}
        """Topics whose offsets are yet to go, with when they were deleted."""

    def expire(self, wall_ms: int, retention_ms: int) -> Iterator[None]:
        """Old offsets go, and groups of which nothing is left."""
        left = STEP_ITEMS
        for group_id in self._directory.ids():
            for part in _parts(self._offsets.partitions(group_id)):
                group = self._directory.find(group_id)
                if group is None:
                    break
                wrote = self._expire(group, part, wall_ms, retention_ms)
                left -= STEP_ITEMS if wrote else 1 + len(part) + _MEMBER * len(group.members)
                if left <= 0:
                    yield
                    left = STEP_ITEMS

    def _expire(
        self,
        group: Group | ConsumerGroup,
        part: list[TopicPartition],
        wall_ms: int,
        retention_ms: int,
    ) -> bool:
        """Whether something was to be written."""
        kept = group.offsets_kept()
        expired = self._offsets.expired(group.group_id, part, kept, wall_ms, retention_ms)
        with_group = len(expired) == len(self._offsets.partitions(group.group_id))
        with_group = with_group and is_over(group)
        if not expired and not with_group:
            return False
        # Else the next time.
        with contextlib.suppress(KafkaError):
            self._directory.forget(group, expired, with_group=with_group)
        return True

    def delete(
        self, group_id: str, tell: Callable[[str, KafkaError | None], None]
    ) -> Iterator[None]:
        """A group that is nobody's goes: its offsets, and with the last of them the group itself.

        `tell` hears when it is done, or what kept it; what is gone by then stays so.
        """
        parts = list(_parts(self._offsets.partitions(group_id)))
        try:
            for part in parts[:-1]:
                self._offsets.delete(group_id, part)
                yield
            if (group := self._directory.find(group_id)) is not None:
                self._directory.forget(group, parts[-1], with_group=True)
        except KafkaError as error:
            tell(group_id, error)
        else:
            tell(group_id, None)

    def forget(self, topics: Collection[str], wall_ms: int) -> Iterator[None]:
        """Offsets that were committed before their topics were deleted go: one of that name may
        be there again before all have been looked at.
        """
        self._forgotten |= dict.fromkeys(topics, wall_ms)
        return self._forget_all(wall_ms)

    def _forget_all(self, wall_ms: int) -> Iterator[None]:
        while self._forgotten:
            topics, self._forgotten = self._forgotten, {}
            yield from self._forget(topics, wall_ms)

    def _forget(self, topics: dict[str, int], wall_ms: int) -> Iterator[None]:
        left = STEP_ITEMS
        for group_id in self._offsets.group_ids():
            for part in _parts(self._offsets.partitions(group_id)):
                gone = self._offsets.committed_before(group_id, part, topics)
                if gone:
                    self._directory.keep(group_id, wall_ms)
                    # Else expiry finds them.
                    with contextlib.suppress(KafkaError):
                        self._offsets.delete(group_id, gone)
                left -= STEP_ITEMS if gone else 1 + len(part)
                if left <= 0:
                    yield
                    left = STEP_ITEMS


def _parts(partitions: Collection[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """At least one, which may be empty."""
    known = list(partitions)
    for start in range(0, max(1, len(known)), STEP_ITEMS):
        yield known[start : start + STEP_ITEMS]
