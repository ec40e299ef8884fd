"""Runs a broker plug-in beside the node's replica: starts, publishes to, drains and stops it.

A broker is given no metadata before its own registration is in it. What it followed
until then speaks of its former incarnation: a broker that came back without the records it had not
flushed would take up leading where that one stopped, and its followers would cut theirs to match.
Source: KIP-631 and Apache Kafka's BrokerServer, which publishes after the initial catch-up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.failures import HandingTo
from raftctl.metadata.image import MetadataDelta

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.loader import MetadataLoader
    from raftctl.metadata.image import MetadataImage
    from raftctl.node._broker_lifecycle import BrokerLifecycle
    from raftctl.plugins import Broker
    from raftctl.runtime.api import Runtime

CONTROLLED_SHUTDOWN_TIMEOUT_S = 10.0


class BrokerRunner:
    """One broker from `start` to `stop`."""

    def __init__(
        self,
        broker: Broker,
        lifecycle: BrokerLifecycle,
        loader: MetadataLoader,
        runtime: Runtime,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._broker = broker
        self._lifecycle = lifecycle
        self._loader = loader
        self._log = runtime.log.bind(part="broker_runner")
        self._fail = fail
        self._task: asyncio.Task[None] | None = None
        self._publishes = False
        self._is_stopping = False
        self._hurried = asyncio.Event()

    def start(self) -> None:
        """Starts the broker in the background: it registers when it has caught up."""
        self._task = asyncio.create_task(self._run())

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Hands images on to the broker, from the first that holds its registration to its stop.

        A broker that closes its logs must take up nothing new: what it opens then stays open.
        """
        if self._is_stopping:
            return
        if self._publishes:
            self._broker.publish(delta, image)
        else:
            self._publish_first(image)

    def _publish_first(self, image: MetadataImage) -> None:
        if not self._publishes and 0 <= self._lifecycle.broker_epoch <= image.offset:
            self._publishes = True
            self._broker.publish(MetadataDelta.between_empty_and(image), image)

    async def stop(self, *, drain: bool) -> None:
        """Stops the broker; to `drain`, lets the controller move its leaders away before.

        Not to be cancelled, since what is open would stay so: `hurry` ends the wait.
        """
        if self._task is None:
            return
        if drain and self._lifecycle.may_be_drained:
            self._lifecycle.shut_down()
            hurried = asyncio.create_task(self._hurried.wait())
            await asyncio.wait(
                [self._task, hurried],
                timeout=CONTROLLED_SHUTDOWN_TIMEOUT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            hurried.cancel()
            if not self._task.done():
                why = "asked again to end" if self._hurried.is_set() else "timed out"
                self._log.warning("controlled_shutdown_ended_early", why=why)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._is_stopping = True
        await self._broker.stop()

    def hurry(self) -> None:
        """Has `stop` wait no longer for the controller."""
        self._hurried.set()

    async def _run(self) -> None:
        with HandingTo(self._fail, but=(asyncio.CancelledError,)):
            endpoints = await self._broker.start()
            await self._loader.wait_caught_up()
            self._loader.add_publisher(self)
            self._loader.add_publisher(self._lifecycle)
            await self._lifecycle.register(endpoints)
            # The registration may be in the newest image already, and nothing new come for long.
            self._publish_first(self._loader.image)
            await self._lifecycle.run()
