"""The broker plug-in `memory`: the broker `kafka` with its partitions in memory (row P2).

The same code serves the same wire; only its files are not on a disk (`raftctl.runtime._memory`). So
it never says that it stopped cleanly: to the controller each incarnation is one that lost its log.
What the node itself keeps (the metadata log, its identity) stays on disk.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.plugin import KafkaBroker
from raftctl.errors import ErrorCode, KafkaError
from raftctl.plugins import Broker
from raftctl.runtime import MemoryFiles, MemoryRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.records import Endpoint
    from raftctl.plugins import BrokerClient, BrokerContext
    from raftctl.runtime.api import Runtime

REMEDY = "raise broker.memory.max.bytes, or let retention delete sooner"


class MemoryBroker(Broker):
    """Partitions that last as long as the process; see `raftctl.plugins.Broker`."""

    preload = staticmethod(KafkaBroker.preload)
    """See `KafkaBroker.preload`."""

    @staticmethod
    def broker_client(
        config: NodeConfig,
        runtime: Runtime,
        image: Callable[[], MetadataImage],
        broker: Broker | None,
    ) -> BrokerClient:
        """See `KafkaBroker.broker_client`."""
        inner = broker._broker if isinstance(broker, MemoryBroker) else None
        return KafkaBroker.broker_client(config, runtime, image, inner)

    def __init__(self, context: BrokerContext) -> None:
        files = MemoryFiles(context.config.broker_memory_max_bytes, REMEDY, context.runtime.wall_ms)
        runtime = MemoryRuntime(context.runtime, files)
        self._broker = KafkaBroker(replace(context, runtime=runtime, fail=self._fail))
        self._fail_node = context.fail

    async def start(self) -> Sequence[Endpoint]:
        """See `KafkaBroker.start`; there is never anything to recover."""
        return await self._broker.start()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._broker.publish(delta, image)

    async def stop(self) -> None:
        await self._broker.stop()

    def _fail(self, error: BaseException) -> None:
        """What is full is not the disk, of which a node would speak for an OSError."""
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            text = f"{error.filename}: {error.strerror}"
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)
        self._fail_node(error)
