"""Changes of partitions that images bring: applied a few at a time, and logged in one line.

A topic may bring thousands of replicas at once, each with a directory and files to make. A broker
that leaves hands over the lead of as many. `PartitionChangeQueue` lets other tasks run between a
few of them: without heartbeats the broker would be fenced, which would change all of them again.

`RoleChanges` collects the partitions that began to lead or to follow meanwhile. They are one line
of the log at the level info, however many they are; each single one is logged at the level debug.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.errors import invariant
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from broker.replication.partition import Partition
    from broker.types import TopicPartition
    from raftctl.metadata.image import PartitionImage

NAMED_MAX = 10
"""The number of partitions that the line names."""


class PartitionChangeQueue:
    """Partitions to change, each with its newest image, in the order of their first change."""

    def __init__(
        self,
        take: Callable[[TopicPartition, UUID, PartitionImage], None],
        all_taken: Callable[[], None],
    ) -> None:
        """`take` applies one change; `all_taken` is called each time the queue becomes empty."""
        self._take = take
        self._all_taken = all_taken
        self._waiting: dict[TopicPartition, tuple[UUID, PartitionImage]] = {}
        self._more = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, partition: TopicPartition, topic_id: UUID, image: PartitionImage) -> None:
        """Add a change; an earlier one of the same partition is out of date."""
        known_id, known = self._waiting.get(partition, (None, image))
        newer = known_id != topic_id or known.partition_epoch <= image.partition_epoch
        invariant(newer, "a change is newer than the one that waits")
        self._waiting[partition] = (topic_id, image)

    def invariants(self, here: Mapping[TopicPartition, Partition], *, changes: bool) -> None:
        """Check that each waiting change is of a replica that is `here`, or that none is.

        `changes` says which: a queue holds changes of replicas, or replicas that are new. A change
        of a replica that is gone would create its log again, empty.
        """
        invariant(self._more.is_set() or not self._waiting, "a change that waits is applied")
        for partition, (topic_id, _) in self._waiting.items():
            replica = here.get(partition)
            is_here = replica is not None and replica.topic_id == topic_id
            invariant(is_here == changes, "a change waits only for a replica that is here")

    def forget(self, partition: TopicPartition, topic_id: UUID) -> None:
        """Drop the change of a partition that is deleted, or that has moved away."""
        waiting = self._waiting.get(partition)
        if waiting is not None and waiting[0] == topic_id:
            del self._waiting[partition]

    def take_some(self) -> None:
        """Apply the first changes; `run` goes on with the others."""
        slices = Slices()
        while self._waiting:
            partition = next(iter(self._waiting))
            self._take(partition, *self._waiting.pop(partition))
            if slices.is_over():
                break
        if self._waiting:
            self._more.set()
        else:
            self._more.clear()
            self._all_taken()

    async def run(self) -> None:
        """Apply the waiting changes, a few in each turn of the loop; until cancelled."""
        while True:
            await self._more.wait()
            self.take_some()
            await asyncio.sleep(0)


class RoleChanges:
    """The changes since the last line."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._leading = 0
        self._following = 0
        self._named: list[str] = []

    def leads(self, replica: Partition, log_end_offset: int) -> None:
        """Note a partition that this broker leads, in a new epoch."""
        self._leading += 1
        self._name(replica)
        epoch = replica.state.leader_epoch
        self._log.debug(
            "leading",
            partition=replica.partition,
            leader_epoch=epoch,
            log_end_offset=log_end_offset,
        )

    def follows(self, replica: Partition, leader: int) -> None:
        """Note a partition that another broker leads in a new epoch, or none."""
        self._following += 1
        self._name(replica)
        epoch = replica.state.leader_epoch
        self._log.debug("following", partition=replica.partition, leader_epoch=epoch, leader=leader)

    def _name(self, replica: Partition) -> None:
        if len(self._named) < NAMED_MAX:
            self._named.append(f"{replica.partition}@{replica.state.leader_epoch}")

    def log_changes(self) -> None:
        """Write the line, unless nothing changed: partitions with their leader epochs."""
        count = self._leading + self._following
        if count:
            more = {"more": count - len(self._named)} if count > len(self._named) else {}
            self._log.info(
                "roles_changed",
                leading=self._leading,
                following=self._following,
                partitions=self._named,
                **more,
            )
            self._leading = self._following = 0
            self._named = []
