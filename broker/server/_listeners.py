"""Binds the listeners of a broker and says where they are reached."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.server._connection import Connection
from raftctl.errors import ConfigError
from raftctl.metadata.records import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from broker.server._connection import Serve
    from broker.server._connection_limits import ConnectionLimits
    from broker.server._outbox import MakeSender
    from raftctl.config import Listener, NodeConfig


class Listeners:
    """The listening sockets of one broker."""

    def __init__(
        self,
        config: NodeConfig,
        limits: ConnectionLimits,
        log: FilteringBoundLogger,
        make_sender: MakeSender,
    ) -> None:
        """`make_sender` is the runtime's."""
        self._config = config
        self._make_sender = make_sender
        self._limits = limits
        self._log = log
        self._servers: dict[str, asyncio.Server] = {}

    async def bind(self, serve_on: Callable[[str], Serve]) -> list[Endpoint]:
        """Bind all listeners and return the endpoints to advertise.

        `serve_on` returns the function that serves the frames of one listener, by its name. Raises
        ConfigError, which names the address that cannot be bound.
        """
        try:
            for listener in self._config.broker_listeners:
                self._servers[listener.name] = await self._bind_one(
                    listener, serve_on(listener.name)
                )
        except ConfigError:
            self.close()
            raise
        return [self._endpoint(listener) for listener in self._config.advertised]

    def close(self) -> None:
        """Accepts no more and closes every connection."""
        for server in self._servers.values():
            server.close()
        self._limits.close_all()

    async def _bind_one(self, listener: Listener, serve: Serve) -> asyncio.Server:
        log = self._log.bind(listener=listener.name)
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_server(
                lambda: Connection(self._limits, serve, log, self._make_sender, listener.name),
                listener.host,
                listener.port,
            )
        except OSError as error:
            raise ConfigError(
                f"listeners: {listener} cannot be bound ({error.strerror}): choose a free port"
            ) from error

    def _endpoint(self, advertised: Listener) -> Endpoint:
        name = advertised.name
        # Port 0 means the one that the system chose.
        port = advertised.port or self._servers[name].sockets[0].getsockname()[1]
        return Endpoint(name, advertised.host, port, self._config.security_protocol(name))
