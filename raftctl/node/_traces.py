"""The traces of one node: on if the configuration names a collector."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.tracing import OtlpExporter, Tracer

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from raftctl.config import NodeConfig
    from raftctl.runtime.api import Runtime

STOP_S = 5.0
"""Within which the last spans of a node must have left."""


class NodeTraces:
    """The tracer of a node, and what its spans leave by."""

    def __init__(self, tracer: Tracer, exporter: OtlpExporter, runtime: Runtime) -> None:
        self.tracer = tracer
        self._exporter = exporter
        self._runtime = runtime

    async def stop(self) -> None:
        """Export what waits; it is lost if that takes too long."""
        worker = self._runtime.worker("traces")
        await asyncio.wait([worker.submit(self._exporter.close)], timeout=STOP_S)
        worker.close()


def start_tracing(
    config: NodeConfig, runtime: Runtime, log: FilteringBoundLogger
) -> NodeTraces | None:
    """Return the traces of a node; None if they are off.

    ConfigError if the libraries that export them are not installed.
    """
    endpoint = config.tracing_otlp_endpoint
    if endpoint is None:
        return None
    node: dict[str, str | int] = {
        "service.name": "raftctl",
        "service.instance.id": str(config.node_id),
        "raftctl.roles": ",".join(config.process_roles),
    }
    loop = asyncio.get_running_loop()
    exporter = OtlpExporter(endpoint, node, log, loop.time)
    tracer = Tracer(
        config.tracing_sampling_ratio, runtime.random, loop.time, runtime.wall_ms, exporter.export
    )
    return NodeTraces(tracer, exporter, runtime)
