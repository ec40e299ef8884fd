"""The cluster at a glance, and its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.console._topic_health import Condition
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.features import METADATA_VERSION_FEATURE, level_of

if TYPE_CHECKING:
    from raftctl.config import NodeConfig
    from raftctl.console._quorum import Quorum
    from raftctl.console._topic_health import ClusterHealth
    from raftctl.console.http import Asked, Rights
    from raftctl.metadata.image import MetadataImage
    from raftctl.runtime.api import Runtime


class ClusterViews:
    """Answers about the whole cluster."""

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: str,
        quorum: Quorum,
        health: ClusterHealth,
        runtime: Runtime,
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._health = health
        self._runtime = runtime

    async def overview(self, asked: Asked) -> dict[str, Any]:
        """Return the cluster at a glance."""
        asked.fields.end()
        image = await self._health.current()
        return self.glance(asked.rights, image)

    def glance(self, rights: Rights, image: MetadataImage) -> dict[str, Any]:
        """Return the document of `overview`.

        Everybody learns of brokers and the controller, as from Metadata. Numbers of topics that
        the requester may not see are null.
        """
        leader_id = self._quorum.leader_id
        return {
            "cluster_id": self._cluster_id,
            "node_id": self._config.node_id,
            "roles": sorted(self._config.process_roles),
            "principal": str(rights.requester.principal),
            "metadata_version": level_of(image, METADATA_VERSION_FEATURE),
            "controller": {
                "id": None if leader_id < 0 else leader_id,
                "epoch": self._quorum.epoch,
            },
            "metadata_offset": image.offset,
            "brokers": {
                "total": len(image.brokers),
                "fenced": sum(broker.fenced for broker in image.brokers.values()),
            },
            **self._numbers(rights, image),
            "served_ms": self._runtime.wall_ms(),
        }

    def _numbers(self, rights: Rights, image: MetadataImage) -> dict[str, int | None]:
        counts = self._health.counts
        found = {
            "topics": len(image.topics.topics),
            "partitions": self._health.partitions,
            "offline": counts[Condition.OFFLINE],
            "under_replicated": counts[Condition.UNDER_REPLICATED],
            "under_min_isr": counts[Condition.UNDER_MIN_ISR],
            "reassigning": counts[Condition.REASSIGNING],
        }
        if rights.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            return {**found}
        return dict.fromkeys(found)
