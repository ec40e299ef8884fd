"""Registers with the active controller the feature levels of this controller (KIP-919).

Every controller does, voter or standby, the active one included. Once its registration stands in
the log it is silent, until the log says otherwise. At a level of `metadata.version` that knows no
such records it registers with each new active controller. A controller that cannot work with the
levels in force must end: it would not understand what is written.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import CONTROLLERS_LEVEL, METADATA_VERSION_FEATURE, level_of
from raftctl.metadata.image import ControllerImage
from raftctl.metadata.requests.cluster import RegisterControllerRequest, RegisterControllerResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.records import FeatureRange
    from raftctl.plugins import ControllerClient
    from raftctl.quorum import RaftDriver
    from raftctl.runtime.api import Runtime

TIMEOUT_MS = 5_000
RETRY_MS = 200
RETRY_MS_MAX = 10_000
"""An older controller drops the connection of a peer that sends what it does not know."""


class ControllerRegistrar:
    """Keeps the registration of this controller right."""

    def __init__(
        self,
        *,
        controller_id: int,
        cluster_id: str,
        features: tuple[FeatureRange, ...],
        settings: tuple[str, ...],
        controller: ControllerClient,
        driver: RaftDriver,
        runtime: Runtime,
        fail: Callable[[BaseException], None],
    ) -> None:
        """To be added to the loader, which publishes images to it, and to the driver.

        `settings` (`ControllerConfig.settings`) are held against those of the active controller.
        """
        self._request = RegisterControllerRequest(
            controller_id, runtime.uuid(), cluster_id, features, settings
        )
        self._controller = controller
        self._driver = driver
        self._random = runtime.random
        self._log = runtime.log.bind(part="controller_registrar")
        self._fail = fail
        self._image: MetadataImage | None = None
        self._registered_with: tuple[int, int] | None = None
        """(leader epoch, level of the metadata) at which it was acknowledged last."""
        self._warned = ""
        self._task: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Give up what is under way."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The registration may be there now, or gone."""
        self._image = image
        if delta.changed_controllers or delta.changed_features:
            self._look()

    def on_committed(self, high_watermark: int) -> None:
        """Say nothing of registrations that the image does not."""

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """There may be another to tell."""
        self._look()

    def on_snapshot(self, image: MetadataImage) -> None:
        """The loader publishes it."""

    @property
    def is_done(self) -> bool:
        """Whether the active controller knows of this one, and will not forget it."""
        image, asked = self._image, self._request
        if image is None:
            return True  # one is published as soon as there is a level at all
        level = level_of(image, METADATA_VERSION_FEATURE)
        if level < CONTROLLERS_LEVEL:
            return self._registered_with == (self._driver.epoch, level)
        own = ControllerImage(asked.controller_id, asked.incarnation_id, asked.features)
        return image.controllers.get(asked.controller_id) == own

    def _look(self) -> None:
        if self._task is None and not self.is_done:
            self._task = asyncio.get_running_loop().create_task(self._register())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    async def _register(self) -> None:
        retry_ms = RETRY_MS
        while not self.is_done:
            image, epoch = self._image, self._driver.epoch
            level = 0 if image is None else level_of(image, METADATA_VERSION_FEATURE)
            error, message = await self._ask()
            if error is ErrorCode.NONE:
                self._registered_with = (epoch, level)
                self._warn(message)
            elif not error.retriable and error is not ErrorCode.INVALID_REQUEST:
                remedy = f"{message}: upgrade this node, or have the level lowered"
                raise KafkaError(error, remedy)
            # Also after a good answer: the image shows it a moment later.
            await asyncio.sleep(self._random.uniform(0.5, 1) * retry_ms / 1000)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)
        self._log.info("controller_registered")

    def _warn(self, message: str) -> None:
        """Not refused: to change such a config, controllers restart one after the other."""
        if message and message != self._warned:
            self._log.warning("controllers_configured_differently", message=message)
        self._warned = message

    async def _ask(self) -> tuple[ErrorCode, str]:
        try:
            response = await self._controller.call(self._request, TIMEOUT_MS)
        except KafkaError as error:
            return error.code, error.message
        if not isinstance(response, RegisterControllerResponse):
            return ErrorCode.INVALID_REQUEST, f"the answer is a {type(response).__name__}"
        return response.error, response.message
