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
    from collections.abc import Awaitable, Callable

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.tracing import Trace

    Connect = Callable[[Callable[[], ResponseHandler], str, int], Awaitable[ResponseHandler]]
    """From what makes a protocol, a host and a port to the protocol, once it is connected; OSError
    if that fails."""


class LoopConnector(BaseConnector):
    """Connects with `loop.create_connection(factory, host, port)`, or as it is given."""

    transport: asyncio.Transport | None = None
    """Of the newest connection."""

    def __init__(self, *, limit: int = 100, connect: Connect | None = None) -> None:
        """`connect` is there where connections are of TLS; their URLs say `http` all the same."""
        super().__init__(limit=limit)
        self._connect_by = connect

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        host, port = req.url.raw_host or "", req.url.port or 0
        invariant(bool(host and port) and not req.is_ssl(), "peers are plain HTTP host:port")
        try:
            if self._connect_by is not None:
                protocol = await self._connect_by(self._factory, host, port)
                self.transport = protocol.transport
                return protocol
            self.transport, protocol = await self._loop.create_connection(self._factory, host, port)
        except OSError as error:
            raise ClientConnectorError(req.connection_key, error) from error
        return protocol
