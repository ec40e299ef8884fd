"""An aiohttp connector that opens connections through the event loop and nothing else.

The event loop is the network's seam: in the deterministic world it has no sockets and no resolver
threads. aiohttp's own TCP connector would reach past it for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
from aiohttp import ClientConnectorError
from aiohttp.connector import BaseConnector

from raftctl.errors import invariant

if TYPE_CHECKING:
    import asyncio

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.tracing import Trace


class LoopConnector(BaseConnector):
    """Connects with `loop.create_connection(factory, host, port)`."""

    transport: asyncio.Transport | None = None
    """Of the newest connection."""

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        host, port = req.url.raw_host or "", req.url.port or 0
        invariant(bool(host and port) and not req.is_ssl(), "peers are plain HTTP host:port")
        try:
            self.transport, protocol = await self._loop.create_connection(self._factory, host, port)
        except OSError as error:
            raise ClientConnectorError(req.connection_key, error) from error
        return protocol
