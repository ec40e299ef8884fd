"""Connections to the brokers' listeners: some for each broker, none longer than it is used."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.replication.fetcher import Connector
from raftctl.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.protocol.codec import Message
    from broker.replication.fetcher import BrokerConnection
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Endpoint
    from raftctl.runtime.api import Runtime

AT_ONCE_MAX = 4
"""Requests to one broker: what comes then waits for its turn."""
WAITING_MAX = 200
"""Requests that wait for their turn at one broker."""


class _Place:
    """The connections to one broker."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(AT_ONCE_MAX)
        self.waiting = 0
        self.idle: list[BrokerConnection] = []


class BrokerConnections:
    """Calls brokers over their own listener, as this node; `close` it."""

    def __init__(
        self, config: NodeConfig, runtime: Runtime, image: Callable[[], MetadataImage]
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._image = image
        self._connector: Connector | None = None
        self._places: dict[int, _Place] = {}

    async def call(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        message: Message,
        timeout_ms: int,
        client_id: str,
    ) -> dict[str, Any]:
        """Send a request under a client id and return the answer.

        Raises KafkaError: BROKER_NOT_AVAILABLE if it has certainly not been sent, with the key to
        set where that is the reason; NETWORK_EXCEPTION if no answer came; REQUEST_TIMED_OUT.
        """
        endpoint = self._endpoint(broker_id)
        place = self._places.setdefault(broker_id, _Place())
        if place.waiting >= WAITING_MAX:
            text = f"{WAITING_MAX} requests wait for broker {broker_id}: try again later"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
        place.waiting += 1
        try:
            await place.turns.acquire()
        finally:
            place.waiting -= 1
        try:
            connection = await self._connected(place, broker_id, endpoint, timeout_ms)
            try:
                connection.client_id = client_id
                answer = await connection.call(api_key, version, message, timeout_ms)
            except BaseException:
                # An answer that comes later would be taken for another request's.
                connection.close()
                raise
            place.idle.append(connection)
            return answer
        finally:
            place.turns.release()

    def close(self) -> None:
        """Close what is open."""
        for place in self._places.values():
            for connection in place.idle:
                connection.close()
        self._places.clear()
        if self._connector is not None:
            self._connector.close()

    async def _connected(
        self, place: _Place, broker_id: int, endpoint: Endpoint, timeout_ms: int
    ) -> BrokerConnection:
        while place.idle:
            connection = place.idle.pop()
            if connection.is_open:
                return connection
        try:
            if self._connector is None:
                self._connector = Connector(self._config, self._runtime)
            return await self._connector.connect(endpoint, "console", timeout_ms)
        except (KafkaError, ConfigError) as error:
            why = error.message if isinstance(error, KafkaError) else str(error)
            text = f"broker {broker_id} cannot be asked by {endpoint.listener}: {why}"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text) from error

    def _endpoint(self, broker_id: int) -> Endpoint:
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            text = f"broker {broker_id} is not registered"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
        config = self._config
        listener = config.inter_broker_listener
        endpoint = broker.endpoint(listener)
        if endpoint is None:
            names = ", ".join(sorted(one.listener for one in broker.endpoints))
            text = (
                f"broker {broker_id} has no listener {listener}: set inter.broker.listener.name of "
                f"this node to that of the brokers, one of {names}"
            )
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
        protocol = config.security_protocol(listener)
        if endpoint.security_protocol != protocol:
            text = (
                f"listener {listener} of broker {broker_id} speaks {endpoint.security_protocol}, "
                f"not {protocol}: set it in listener.security.protocol.map of this node, and what "
                f"the brokers have below listener.name.{listener.lower()}."
            )
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
        return endpoint
