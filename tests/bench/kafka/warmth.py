"""How warm a cluster is: what it has done before its first turn that counts.

A Java virtual machine compiles the code that has run often, so the figures of a cold one are those
of its interpreter. It is warm when it has been given so many megabytes, and the load that is about
to be measured for so many seconds. What each cluster was given stands beside the figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.kafka.clusters import Cluster

VIRTUAL = "kafka"
"""The cluster that a virtual machine runs."""
WITHOUT_COMPILER_S = 5.0
"""Enough of a load for a cluster that no virtual machine runs."""


class Moved(NamedTuple):
    """What one run of a load came to; of a load without records only the time counts."""

    megabytes: float
    seconds: float


@dataclass(slots=True)
class Given:
    """What one cluster has been given before it was measured."""

    megabytes: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    """By load."""


@dataclass(frozen=True, slots=True)
class Warmth:
    """What clusters are given before they are measured."""

    megabytes: float = 0.0
    """Of records, written or read, before anything is measured."""
    seconds: float = 0.0
    """Of each load that is measured; 0: none."""
    given: dict[str, Given] = field(default_factory=dict)
    """By the cluster's name."""

    def note(self, cluster: str, load: str, moved: Moved) -> None:
        """Counts a run of a load."""
        given = self.given.setdefault(cluster, Given())
        given.megabytes += moved.megabytes
        given.seconds[load] = given.seconds.get(load, 0.0) + moved.seconds

    def lacks(self, cluster: str, load: str) -> bool:
        """Whether the cluster needs more of the load before it is measured."""
        wanted = self.seconds if cluster == VIRTUAL else min(self.seconds, WITHOUT_COMPILER_S)
        return self._of(cluster).seconds.get(load, 0.0) < wanted

    def lacks_bulk(self, cluster: str) -> bool:
        """Whether the cluster needs more megabytes before any load is measured."""
        return cluster == VIRTUAL and self._of(cluster).megabytes < self.megabytes

    def _of(self, cluster: str) -> Given:
        return self.given.get(cluster, Given())

    def reach(
        self, clusters: Sequence[Cluster], load: str, run: Callable[[Cluster], Moved]
    ) -> None:
        """Runs the load until each cluster is warm."""
        for cluster in clusters:
            while self.lacks(cluster.name, load):
                self.note(cluster.name, load, run(cluster))

    def document(self) -> dict[str, Any]:
        """What was asked for, and what each cluster was given."""
        return {
            "megabytes_wanted": self.megabytes,
            "seconds_wanted": self.seconds,
            "given": {
                name: {
                    "megabytes": round(one.megabytes, 1),
                    "seconds": {load: round(of, 1) for load, of in one.seconds.items()},
                }
                for name, one in self.given.items()
            },
        }
