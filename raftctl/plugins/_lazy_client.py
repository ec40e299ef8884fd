"""The client of a node that may never need one: its plug-in is loaded when it is first used.

A node that is only a controller would otherwise load a whole broker to show a page.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.plugins._contract import load_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.plugins._contract import Broker, BrokerClient, MakeClient, ReadBatch
    from raftctl.runtime.api import Runtime
    from raftctl.security import Requester


class LazyBrokerClient:
    """Asks brokers by the client of the node's plug-in; see `BrokerClient`."""

    def __init__(
        self,
        config: NodeConfig,
        runtime: Runtime,
        image: Callable[[], MetadataImage],
        broker: Callable[[], Broker | None],
    ) -> None:
        """`broker` returns the broker of this node once it is made; None if it has none."""
        self._config = config
        self._runtime = runtime
        self._image = image
        self._broker = broker
        self._making: asyncio.Task[BrokerClient] | None = None

    async def ask(
        self,
        broker_id: int,
        api: str,
        body: Mapping[str, Any],
        requester: Requester,
        timeout_ms: int,
    ) -> Mapping[str, Any]:
        """See `BrokerClient.ask`; BROKER_NOT_AVAILABLE too if the plug-in cannot ask brokers."""
        client = await self._client()
        return await client.ask(broker_id, api, body, requester, timeout_ms)

    async def read(
        self, records: bytes, from_offset: int, records_max: int, payload_bytes_max: int
    ) -> Sequence[ReadBatch]:
        """See `BrokerClient.read`."""
        client = await self._client()
        return await client.read(records, from_offset, records_max, payload_bytes_max)

    async def close(self) -> None:
        """Close what has been made."""
        making, self._making = self._making, None
        if making is None:
            return
        making.cancel()
        [made] = await asyncio.gather(making, return_exceptions=True)
        if not isinstance(made, BaseException):
            await made.close()

    async def _client(self) -> BrokerClient:
        """Several may wait for it; one of them that leaves does not end it."""
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make())
        try:
            return await asyncio.shield(self._making)
        except ConfigError as error:
            self._making = None
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error

    async def _make(self) -> BrokerClient:
        name = self._config.broker_plugin
        worker = self._runtime.worker("load-plug-in")
        try:
            plugin = await worker.submit(partial(load_broker, name))
        finally:
            worker.close()
        make: MakeClient | None = getattr(plugin, "broker_client", None)
        if make is None:
            why = f"broker.plugin: brokers of the plug-in {name!r} cannot be asked: choose another"
            raise ConfigError(why)
        return make(self._config, self._runtime, self._image, self._broker())
