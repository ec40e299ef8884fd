"""Creates the brokers' own topics when they are first needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.coordinator.internal_topics import new_topic
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests.cluster import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from broker.apis.handler._metadata_cache import MetadataCache
    from raftctl.config import NodeConfig
    from raftctl.plugins import ControllerClient

TIMEOUT_MS = 5_000
_FINE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class InternalTopics:
    """The internal topics of one broker, created on demand.

    However many clients ask for a topic, the controller is asked once at a time.
    """

    def __init__(
        self, config: NodeConfig, controller: ControllerClient, metadata: MetadataCache
    ) -> None:
        self._config = config
        self._controller = controller
        self._metadata = metadata
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def ensure(self, name: str) -> None:
        """Create the topic if need be, and return when this broker knows it.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE if it cannot be created now.
        """
        if self._metadata.image.topics.by_name(name) is not None:
            return
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.get_running_loop().create_task(self._create(name))
            task.add_done_callback(lambda done: self._created(name, done))
        # Shielded: other clients that wait for the same topic must not lose it with this one.
        await asyncio.shield(task)

    def close(self) -> None:
        """Cancel the requests to the controller."""
        for task in self._asking.values():
            task.cancel()

    async def _create(self, name: str) -> None:
        # In the broker's own name: the client that is first to need the topic may not create any.
        request = CreateTopicsRequest(
            (new_topic(name, self._config, self._metadata.image),), broker_id=self._config.node_id
        )
        try:
            response = await self._controller.call(request, TIMEOUT_MS)
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        if isinstance(response, CreateTopicsResponse):
            wrong = [one for one in response.topics if one.error not in _FINE]
            if response.error or wrong:
                text = f"{name} is not created: {wrong[0].message if wrong else response.error}"
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        known = await self._metadata.until(
            lambda image: image.topics.by_name(name) is not None, TIMEOUT_MS
        )
        if not known:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _created(self, name: str, task: asyncio.Task[None]) -> None:
        del self._asking[name]
        if not task.cancelled():
            # Clients that still wait get the error; the others ask again.
            task.exception()
