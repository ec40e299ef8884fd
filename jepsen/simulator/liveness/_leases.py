"""Who is sure of a lease that the log has taken away, looked at every so often.

`fenced_broker_is_not_sure`: once any node has published that a broker is fenced, or registered
anew, no process of an earlier epoch, running or paused, would say that it has its session. It may
fence itself, and is let go, in a controlled shutdown. Source: `docs/decisions/0016-leases.md`.

Locks are judged where programs hold them (`tests/simulation/lock_scenarios.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.simulator.properties import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.simulator.cluster import SimCluster
    from raftctl.metadata.image import BrokerImage, MetadataImage


class Leases:
    """Follows the brokers of one cluster while its scenario runs."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._newest: MetadataImage | None = None
        """The newest committed image that anybody has ever published."""
        self.refused = 0
        """How often a broker that the log had fenced was not sure of its session."""

    def look(self) -> None:
        """Raises `Violation` if a broker is sure that is fenced."""
        for image in self._images():
            if self._newest is None or image.offset > self._newest.offset:
                self._newest = image
        if self._newest is None:
            return
        for name in self._cluster.broker_names:
            self._look_at(name, self._newest)

    def _look_at(self, name: str, newest: MetadataImage) -> None:
        node: Any = self._cluster.nodes.get(name)
        process = self._cluster.world.node(name).process
        # Known by what it shows: the harness imports no broker.
        context = None if node is None else getattr(node.broker, "_context", None)
        if process is None or process.terminating or context is None:
            return
        broker = newest.brokers.get(node.config.node_id)
        if broker is None or not _has_lost(broker, broker_epoch := context.broker_epoch()):
            return
        # A paused process goes on with its next handle: what it would believe then counts.
        if process.context.copy().run(context.has_session):
            raise Violation(
                "fenced_broker_is_not_sure",
                f"{name} of broker epoch {broker_epoch} is sure of its session, and at "
                f"offset {newest.offset} it is fenced ({broker.fenced}) in {broker.broker_epoch}",
            )
        self.refused += 1

    def _images(self) -> Iterator[MetadataImage]:
        for node in self._cluster.nodes.values():
            if node.loader is not None:
                yield node.loader.image


def _has_lost(broker: BrokerImage, broker_epoch: int) -> bool:
    if broker_epoch < 0 or broker.broker_epoch < broker_epoch:
        return False
    is_gone = broker.broker_epoch > broker_epoch
    return is_gone or (broker.fenced and not broker.in_controlled_shutdown)
