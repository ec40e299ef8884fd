"""The cluster at a glance, and its brokers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from raftctl.console._topic_health import Condition
from raftctl.console.http import Table
from raftctl.errors import ErrorCode, KafkaError
from raftctl.ids import uuid_text
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.features import METADATA_VERSION_FEATURE, level_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.config import NodeConfig
    from raftctl.console._problems import Problems
    from raftctl.console._quorum import Quorum
    from raftctl.console._topic_health import ClusterHealth
    from raftctl.console.brokers import BrokerLogs, BrokerViews
    from raftctl.console.http import Asked, Rights
    from raftctl.metadata.image import BrokerImage, MetadataImage
    from raftctl.runtime.api import Runtime
    from raftctl.security import Requester


class ClusterViews:
    """Answers about the whole cluster."""

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: str,
        quorum: Quorum,
        health: ClusterHealth,
        problems: Problems,
        brokers: BrokerViews,
        logs: BrokerLogs,
        runtime: Runtime,
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._health = health
        self._problems = problems
        self._brokers = brokers
        self._logs = logs
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
            **self._problems.glance(rights, image),
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

    # --- brokers ----------------------------------------------------------------------------------

    async def brokers(self, asked: Asked) -> dict[str, Any]:
        """Return the table of registered brokers."""
        image = await self._health.current()
        brokers, leaders, replicas = image.brokers, self._health.leaders, self._health.replicas
        table: Table[int] = Table(
            lambda broker_id: self._broker_row(brokers[broker_id], replicas),
            {
                "id": lambda broker_id: broker_id,
                "rack": lambda broker_id: brokers[broker_id].rack,
                "fenced": lambda broker_id: brokers[broker_id].fenced,
                "epoch": lambda broker_id: brokers[broker_id].broker_epoch,
                "leaders": lambda broker_id: leaders[broker_id],
                "replicas": lambda broker_id: replicas[broker_id],
            },
            name=str,
        )
        return await table.answer(sorted(brokers), asked.fields, image.offset)

    async def broker(self, asked: Asked) -> dict[str, Any]:
        """Return one broker, with what it says of itself, or None if it does not answer.

        KafkaError(BROKER_ID_NOT_REGISTERED).
        """
        asked.fields.end()
        image = await self._health.current()
        named = asked.named["broker"]
        broker = image.brokers.get(int(named)) if named.isascii() and named.isdigit() else None
        if broker is None:
            why = f"there is no broker {named:.100}"
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, why)
        requester = asked.requester
        configs, directories = await asyncio.gather(
            self._brokers.configs.known(requester, "broker", str(broker.broker_id)),
            self._directories(requester, broker),
        )
        row = self._broker_row(broker, self._health.replicas)
        return {**row, "log_directories": directories, "configs": configs}

    async def _directories(
        self, requester: Requester, broker: BrokerImage
    ) -> list[dict[str, Any]] | None:
        """Return the log directories of a broker; None if they are not known to the requester."""
        if broker.fenced:
            return None
        try:
            return await self._logs.directories(requester, broker.broker_id)
        except KafkaError:
            return None

    def _broker_row(self, broker: BrokerImage, replicas: Mapping[int, int]) -> dict[str, Any]:
        broker_id = broker.broker_id
        return {
            "id": broker_id,
            "rack": broker.rack,
            "fenced": broker.fenced,
            "fenced_since_ms": self._health.fenced_since.get(broker_id),
            "in_controlled_shutdown": broker.in_controlled_shutdown,
            "epoch": broker.broker_epoch,
            "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints],
            "leaders": self._health.leaders[broker_id],
            "replicas": replicas.get(broker_id, 0),
            "online_directories": [uuid_text(one) for one in broker.log_directories],
        }
