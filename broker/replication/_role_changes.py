"""The partitions that began to lead or to follow, in one line of the log however many they are.

A topic of thousands of partitions, or a broker that comes back, changes that many at once. Each
single one is logged at the level debug.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from broker.replication.partition import Partition

NAMED_MAX = 10
"""The number of partitions that the line names."""


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
