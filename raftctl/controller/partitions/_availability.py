"""Availability of replicas: on an active broker, in a log directory that is online.

A broker registers its log directories and reports those that fail. A replica is in a directory once
its broker has reported that. Until then it counts as available if its broker is active: to count it
as offline would leave new partitions without a leader (KIP-858).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.metadata.records import UNASSIGNED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from raftctl.metadata.image import MetadataImage, PartitionImage


class Availability(NamedTuple):
    """Active brokers and online log directories at one moment."""

    active: frozenset[int]
    """Brokers that are registered, not fenced and not shutting down."""
    directories: Mapping[int, Collection[UUID]]
    """Online log directories of each registered broker."""

    def after(self, becoming_active: Mapping[int, bool]) -> Availability:
        """Return the availability once these brokers become active (True) or inactive (False)."""
        joining = [broker_id for broker_id in becoming_active if becoming_active[broker_id]]
        active = self.active.difference(becoming_active).union(joining)
        return self._replace(active=active)

    def without(self, broker_id: int, offline: Collection[UUID]) -> Availability:
        """Return the availability without these directories of a broker."""
        left = [directory for directory in self.directories[broker_id] if directory not in offline]
        return self._replace(directories={**self.directories, broker_id: left})

    def has(self, broker_id: int, directory: UUID) -> bool:
        """Return whether the broker has that directory online; UNASSIGNED counts as online."""
        return directory == UNASSIGNED or directory in self.directories.get(broker_id, ())

    def replicas_of(self, partition: PartitionImage) -> frozenset[int]:
        """Return the active brokers without those on which this partition's replica is offline."""
        if not partition.directories:
            return self.active
        places = zip(partition.replicas, partition.directories, strict=True)
        return self.active.difference(
            replica for replica, directory in places if not self.has(replica, directory)
        )


def availability(image: MetadataImage) -> Availability:
    """Return the availability in the image."""
    brokers = image.brokers
    directories = {broker_id: brokers[broker_id].log_directories for broker_id in brokers}
    return Availability(active_brokers(image), directories)


def active_brokers(image: MetadataImage) -> frozenset[int]:
    """Return the brokers that are registered, not fenced and not shutting down."""
    return frozenset(broker.broker_id for broker in image.brokers.values() if broker.active)
